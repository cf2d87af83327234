"""Kills and readers: short versions of `make torture`."""

import os
from pathlib import Path

import pytest

import torture

KILLS, PUBLICATIONS = int(os.environ.get("KILLS", "1")), int(os.environ.get("PUBLICATIONS", "3"))
STEPS = ("scorelake.publish.leaderboard.build", "os.replace") if KILLS == 1 else torture.STEPS


@pytest.mark.slow
def test_kills(tmp_path: Path) -> None:
    arena = torture.Arena(tmp_path / "arena")
    assert torture.kill_at_steps(arena, STEPS, (1,) if KILLS == 1 else (1, 2)) >= 2 * len(STEPS)
    torture.kill_at_random(arena, KILLS)


@pytest.mark.slow
def test_readers(tmp_path: Path) -> None:
    reads, faults = torture.read_while_publishing(tmp_path, PUBLICATIONS, readers=2)
    assert faults == []
    assert reads > 0
