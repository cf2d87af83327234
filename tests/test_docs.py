"""The job files in docs/ are valid, and their commands have the options they use."""

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from conftest import REPO, ask, run
from scorelake.cli import app

TEXTS = {path.name: path.read_text() for path in sorted((REPO / "docs").glob("*.md"))}


def blocks(kind: str) -> list[str]:
    return [found for text in TEXTS.values() for found in re.findall(rf"```{kind}\n(.*?)```", text, flags=re.DOTALL)]


def test_yaml() -> None:
    import yaml

    kinds = [yaml.safe_load(block)["kind"] for block in blocks("yaml")]
    assert kinds == ["RayJob", "Job"]


def test_python_and_shell() -> None:
    assert [ast.parse(block).body for block in blocks("python")]
    for block in blocks("bash"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)
    assert blocks("bash")


def test_the_count_query_of_the_architecture_page_is_what_the_job_counts(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the specification of counting: it runs, and the published counts are its result."""
    (code,) = [block for block in blocks("python") if "scan_parquet" in block]
    monkeypatch.chdir(REPO)
    names: dict[str, Any] = {}
    exec(code, names)
    run(REPO / "fixtures" / "lake", out, metrics=["pass@1"])
    columns = "benchmark, subject, model, problem_id, n, c, ungraded"
    published = ask(out, f"SELECT {columns} FROM problem_counts ORDER BY ALL")
    assert sorted(names["counts"].rows()) == published


def test_commands() -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    used = re.findall(r"scorelake (score|count|gc) ([^'\"\n&]*)", "\n".join(TEXTS.values()))
    assert len(used) >= 6
    for name, words in used:
        options = {option for parameter in known[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= options, (name, words)


@pytest.mark.parametrize("name", TEXTS)
def test_the_readme_names_every_page(name: str) -> None:
    assert f"docs/{name}" in (REPO / "README.md").read_text()
