"""The README's commands run, print what it shows, and its config is the real default."""

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

README = (REPO / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", README, flags=re.DOTALL)


def test_the_session(tmp_path: Path) -> None:
    """Every `$ command` in order, in one folder; what is printed must begin with what the README shows."""
    shutil.copytree(FIXTURES, tmp_path / "fixtures")
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = 0
    for block in blocks("console"):
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE):
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (command, done.stderr)
            printed = [line.rstrip() for line in done.stdout.splitlines()]
            assert printed[: len(shown.splitlines())] == shown.splitlines(), command
            ran += 1
    assert ran >= 4


def test_the_config_is_the_default() -> None:
    (text,) = blocks("toml")
    assert Settings.model_validate(tomllib.loads(text)) == Settings()
    for section in Settings.model_fields.values():
        if hasattr(section.annotation, "model_fields"):
            for key in section.annotation.model_fields:  # type: ignore[union-attr]
                assert re.search(rf"^(# )?{key} = ", text, flags=re.MULTILINE), key


def test_the_metric_table() -> None:
    named = re.findall(r"^\| (`.*?) \|", README, flags=re.MULTILINE)
    shown = [name for cell in named for name in re.findall(r"`([^`]+)`", cell) if re.search(r"[@^]", name)]
    families = {metrics.parse(name).family.name for name in shown if not name.startswith("spectrum")}
    assert families | {"spectrum@k"} == {family.name for family in metrics.families()}


@pytest.mark.parametrize("code", ["0", "1", "2", "3", "5", "6", "130"])
def test_exit_codes_are_listed(code: str) -> None:
    assert re.search(rf"^\| {code} \|", README, flags=re.MULTILINE)
