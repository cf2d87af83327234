"""The commands of the README and of docs/ run and print what is shown there; the config shown is the real default."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conftest import FIXTURES, REPO
from scorelake import metrics
from scorelake.settings import Settings

PAGES = {
    str(path.relative_to(REPO)): path.read_text()
    for path in (REPO / "README.md", *sorted((REPO / "docs").glob("*.md")))
}
FIRST = "scorelake score fixtures/lake --out out --by difficulty"
"""The README's first command. The sessions of all pages start where it ended."""


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGES[page], flags=re.DOTALL)


def sessions(page: str) -> list[tuple[str, list[str]]]:
    """Every `$ command` of a page's console blocks, and the lines shown below it. `> ` continues a command."""
    out = []
    for block in blocks(page, "console"):
        for lines in re.findall(r"^\$ .*\n(?:(?!\$ ).*\n)*", block, flags=re.MULTILINE):
            first, *rest = lines.splitlines()
            more = next((at for at, line in enumerate(rest) if not line.startswith("> ")), len(rest))
            out.append(("\n".join(line[2:] for line in [first, *rest[:more]]), _bare(rest[more:])))
    return out


def _bare(lines: list[str]) -> list[str]:
    """Without spaces at the ends of lines and without empty lines at the end."""
    return "\n".join(line.rstrip() for line in lines).rstrip("\n").splitlines()


def run(command: str, folder: Path) -> list[str]:
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return _bare(done.stdout.splitlines())


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundled lake, scored."""
    folder = tmp_path_factory.mktemp("scored")
    shutil.copytree(FIXTURES, folder / "fixtures")
    run(FIRST, folder)
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if sessions(page)])
def test_the_commands_of_a_page(page: str, scored: Path, tmp_path: Path) -> None:
    """In order, in one folder. What is shown is all that stdout has; a last line `...` stands for any more, and
    a command with nothing below it may print anything. Errors are shown with `2>&1; echo exit $?` in the command.
    """
    shutil.copytree(scored, tmp_path / "session")
    for command, shown in sessions(page):
        printed = run(command, tmp_path / "session")
        if shown and shown[-1] == "...":
            assert printed[: len(shown) - 1] == shown[:-1], command
        else:
            assert not shown or printed == shown, command


def test_there_are_commands() -> None:
    assert sessions("README.md")[0][0] == FIRST
    assert sum(len(sessions(page)) for page in PAGES) >= 6


def test_the_config_is_the_default() -> None:
    (text,) = blocks("docs/lakes.md", "toml")
    assert Settings.model_validate(tomllib.loads(text)) == Settings()
    for section in Settings.model_fields.values():
        if hasattr(section.annotation, "model_fields"):
            for key in section.annotation.model_fields:  # type: ignore[union-attr]
                assert re.search(rf"^(# )?{key} = ", text, flags=re.MULTILINE), key


def test_the_metric_table() -> None:
    named = re.findall(r"^\| (`.*?) \|", PAGES["docs/metrics.md"], flags=re.MULTILINE)
    shown = [name for cell in named for name in re.findall(r"`([^`]+)`", cell) if re.search(r"[@^]", name)]
    families = {metrics.parse(name).family.name for name in shown if not name.startswith("spectrum")}
    assert families | {"spectrum@k"} == {family.name for family in metrics.families()}


@pytest.mark.parametrize("code", ["0", "1", "2", "3", "4", "5", "6", "130"])
def test_exit_codes_are_listed(code: str) -> None:
    assert re.search(rf"^\| {code} \|", PAGES["docs/running.md"], flags=re.MULTILINE)
