"""The cut of the work: balanced, complete, and the same for everybody who asks."""

from hypothesis import given
from hypothesis import strategies as st

from scorelake.lake import shards
from scorelake.settings import Run, Settings
from scorelake.storage.files import File, Shard


def made(sizes: list[int]) -> list[Shard]:
    return [Shard("/lake", (File(f"{i}.parquet", size, 0),)) for i, size in enumerate(sizes)]


def test_shards_cover_every_file_once() -> None:
    files = tuple(File(f"{i}", size, 0) for i, size in enumerate([1, 5, 2**20, 3, 2**19, 2**19, 2**22]))
    cut = shards.shards(".", files, 1.0)
    assert [file for shard in cut for file in shard.files] == list(files)
    assert all(shard.size <= 2**20 or len(shard.files) == 1 for shard in cut)
    assert shards.shards(".", (), 1.0) == []


def test_only_a_few_small_files_stand_alone() -> None:
    """However many files there are and however large they are, those that stand alone are no burden."""

    def cut(sizes: list[int]) -> list[int]:
        files = tuple(File(f"{i:04d}", size, 0) for i, size in enumerate(sizes))
        return [len(shard.files) for shard in shards.shards(".", files, 4096)]

    small, few = shards.SMALL - 1, shards.FEW_FILES
    assert cut([small] * few) == [1] * few
    assert cut([small] * (few + 1)) == [few + 1]
    assert cut([shards.SMALL] * few) == [few]
    assert cut([4_036_874] * 20) == [20], "a million attempts each"
    assert cut([1 << 30, small, 1 << 30]) == [1, 1, 1], "a change of a small one costs no large one"
    assert small * few <= 2 << 20


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 12))
def test_groups_are_everything_once_and_balanced(sizes: list[int], number: int) -> None:
    given = made(sizes)
    groups = shards.groups(given, number)
    assert len(groups) == number
    assert sorted((s for group in groups for s in group), key=lambda s: s.files) == sorted(
        given, key=lambda s: s.files
    )
    assert shards.groups(list(reversed(given)), number) == groups, "whatever the order they are listed in"
    loads = [sum(shard.size for shard in group) for group in groups]
    assert max(loads) - min(loads) <= max(sizes, default=0)


def test_more_tasks_at_once_make_smaller_pieces() -> None:
    files, run = [File(str(i), 10 << 20, 0) for i in range(100)], Run(memory_gb=8)
    assert shards.shard_mb(files, run, 1) == run.shard_size == 4096
    assert shards.shard_mb(files, run, 4) == 255
    assert shards.shard_mb(files, run, 10) == 55, "two each, where there are many"
    assert shards.shard_mb(files, run, 1000) == shards.SMALLEST_MB
    assert shards.shard_mb([File("a", 1 << 40, 0)], Run(shard_mb=3), 9) == 3, "explicit sizes win"


def test_memory_of_a_task() -> None:
    assert shards.fitted(Settings(), None) == Settings()
    assert shards.fitted(Settings(), 3.5).run.memory == 3.5
    own = Settings(run=Run(memory_gb=2))
    assert shards.fitted(own, 3.5) == own
