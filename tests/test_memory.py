"""One setting decides how much is worked on at once, and no number depends on it."""

from __future__ import annotations

import pytest

from scorelake.errors import UsageError
from scorelake.settings import Settings, load


def test_shards_follow_the_memory() -> None:
    small, large = (Settings.model_validate({"run": {"memory_gb": gb}}).run for gb in (1, 64))
    assert small.shard_size < large.shard_size
    assert load(**{"run.memory_gb": 2.0}).run.memory == 2.0
    assert Settings().run.memory > 0


def test_explicit_sizes_win() -> None:
    assert Settings.model_validate({"run": {"memory_gb": 1, "shard_mb": 3}}).run.shard_size == 3


def test_memory_must_be_positive() -> None:
    with pytest.raises(UsageError):
        load(**{"run.memory_gb": 0.0})
