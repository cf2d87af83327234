"""README and docs/: commands print what is shown, examples are valid, tables are complete."""

import ast
import re
import shutil
import subprocess
import tomllib
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import typer

import pages
from conftest import REPO, ask, run
from pages import FIRST, PAGES, blocks, sessions
from scorelake import metrics
from scorelake.cli import app
from scorelake.settings import Settings

WITH_COMMANDS = [page for page in PAGES if sessions(page)]


def all_blocks(kind: str) -> list[str]:
    return [block for page in PAGES if page != "README.md" for block in blocks(page, kind)]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages.scored(tmp_path_factory.mktemp("pages") / "scored")


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS)
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


def test_a_page_that_is_right_is_not_changed() -> None:
    """`make docs` puts what is printed below each command, and touches nothing else."""
    assert FIRST in [command for command, _ in sessions("README.md")]
    for page in WITH_COMMANDS:
        shown = dict(sessions(page))
        assert pages.refreshed(page, lambda command, shown=shown: shown[command]) == PAGES[page]  # type: ignore[misc]
        other = pages.refreshed(page, lambda command, shown=shown: ["another line", *shown[command]])  # type: ignore[misc]
        assert other.count("another line\n") == sum(bool(lines) for lines in shown.values())


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


def test_exit_codes_are_listed() -> None:
    listed = re.findall(r"^\| (\d+) \|", PAGES["docs/running.md"], flags=re.MULTILINE)
    assert {"0", "1", "2", "3", "4", "5", "6", "130"} <= set(listed)


def test_yaml_python_and_shell() -> None:
    import yaml

    documents = [yaml.safe_load(block) for block in all_blocks("yaml")]
    assert [document["kind"] for document in documents if "kind" in document] == ["RayJob", "Job"]
    assert [ast.parse(block).body for block in all_blocks("python")]
    for block in all_blocks("bash"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)
    assert all_blocks("bash")


def test_the_count_query_of_the_architecture_page_is_what_the_job_counts(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the specification of counting: it runs, and the published counts are its result."""
    (code,) = [block for block in all_blocks("python") if "scan_parquet" in block]
    monkeypatch.chdir(REPO)
    names: dict[str, Any] = {}
    exec(code, names)
    run(REPO / "fixtures" / "lake", out, metrics=["pass@1"])
    columns = "benchmark, subject, model, problem_id, n, c, ungraded"
    published = ask(out, f"SELECT {columns} FROM problem_counts ORDER BY ALL")
    assert sorted(names["counts"].rows()) == published


def test_commands() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    used = re.findall(
        r"scorelake (score|count|gc) ([^'\"\n&]*)",
        "\n".join(text for page, text in PAGES.items() if page != "README.md"),
    )
    assert len(used) >= 6
    for name, words in used:
        options = {option for parameter in known[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= options, (name, words)


def test_the_readme_names_every_page() -> None:
    assert [page for page in PAGES if page != "README.md" and page not in PAGES["README.md"]] == []
