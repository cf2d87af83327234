"""The commands of the README and of docs/ run and print what is shown there; the config shown is the real default."""

import re
import shutil
import tomllib
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

import pages
from pages import FIRST, PAGES, blocks, sessions
from scorelake import metrics
from scorelake.settings import Settings


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages.scored(tmp_path_factory.mktemp("pages") / "scored")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if sessions(page)])
def test_the_commands_of_a_page(page: str, scored: Path, tmp_path: Path) -> None:
    """In order, in one folder. Where output changed on purpose, `make docs` writes the new one."""
    shutil.copytree(scored, tmp_path / "session")
    for command, shown in sessions(page):
        printed = pages.run(command, tmp_path / "session")
        if shown and shown[-1] == "...":
            assert printed[: len(shown) - 1] == shown[:-1], command
        else:
            assert not shown or printed == shown, command


@pytest.mark.slow
def test_the_python_of_the_readme(scored: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As written, one block after another, where the commands have left `out`."""
    names: dict[str, Any] = {}
    with chdir(scored):
        for block in blocks("README.md", "python"):
            exec(block, names)
    assert 'inferred columns={"model": "model_name", ' in caplog.text
    assert names["board"].leaderboard("pass@8")["rank"].to_list() == [1, 2, 3, 4]


def test_there_are_commands() -> None:
    assert sessions("README.md")[0][0] == FIRST
    assert sum(len(sessions(page)) for page in PAGES) >= 6


@pytest.mark.parametrize("page", [page for page in PAGES if sessions(page)])
def test_a_page_that_is_right_is_not_changed(page: str) -> None:
    """`make docs` puts what is printed below each command, and touches nothing else."""
    shown = dict(sessions(page))
    assert pages.refreshed(page, lambda command: shown[command]) == PAGES[page]
    other = pages.refreshed(page, lambda command: ["another line", *shown[command]])
    changed = [command for command, lines in sessions(page) if lines]
    assert other.count("another line\n") == len(changed)


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
