"""Short versions of `make torture`."""

from pathlib import Path

import pytest

import torture


@pytest.mark.slow
def test_kills(tmp_path: Path) -> None:
    arena = torture.Arena(tmp_path / "arena")
    steps = ("scorelake.publish.leaderboard.build", "os.replace")
    assert torture.kill_at_steps(arena, steps, (1,)) == 4
    torture.kill_at_random(arena, 1)


@pytest.mark.slow
def test_readers(tmp_path: Path) -> None:
    reads, faults = torture.read_while_publishing(tmp_path, 5, readers=2)
    assert faults == []
    assert reads > 0
