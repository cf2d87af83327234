"""Keys as numbers must name the same problems as the texts on the disk."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from scorelake import problems
from scorelake.compare import boards
from scorelake.tables import GROUP, KEYS


def _frame() -> pl.DataFrame:
    """Names that need care, groups of different sizes, protocols with and without text."""
    rng = np.random.default_rng(3)
    names = pl.Series(["10", "9", "é", "z" * 40, "a/b=c", "", *(f"p{i}" for i in range(300))])
    rows = 2000
    texts = {key: pl.Series([f"{key}{i}" for i in rng.integers(0, 3, rows)]) for key in GROUP}
    frame = pl.DataFrame(texts).with_columns(problem_id=names.gather(rng.integers(0, names.len(), rows)))
    frame = frame.with_columns(protocol=pl.col("protocol").replace("protocol0", "")).unique(maintain_order=True)
    n = rng.integers(0, 9, frame.height)
    return frame.with_columns(n=n, c=rng.integers(0, n + 1), ungraded=rng.integers(0, 2, frame.height))


@pytest.mark.parametrize("files", [1, 3])
def test_numbers_stand_for_the_same_texts(files: int, tmp_path: Path) -> None:
    frame = _frame()
    paths = [tmp_path / f"part-{i}.parquet" for i in range(files)]
    parts = [frame.gather_every(files, i).sort(KEYS) for i in range(files)]
    for part, path in zip(parts, paths, strict=True):
        part.write_parquet(path)
    read = problems.read(tmp_path)
    whole = pl.concat(parts)
    counts = pl.concat([part.select("n", "c", "ungraded") for part in read.parts([])])
    assert pl.concat([read.groups[read.group], counts], how="horizontal").equals(whole.drop("problem_id"))
    assert read.names.gather(read.name).to_list() == whole["problem_id"].to_list()
    assert read.groups.equals(whole.select(GROUP).unique().sort(GROUP))
    assert read.names.to_list() == sorted(set(whole["problem_id"]))
    want = whole.group_by(*GROUP, "n", "c").agg(problems=pl.len().cast(pl.Int64)).sort(*GROUP, "n", "c")
    assert read.histogram().sort(*GROUP, "n", "c").equals(want)
    assert read.sums.sort(GROUP).equals(whole.group_by(GROUP).agg(pl.col("n", "ungraded").sum()).sort(GROUP))


@pytest.mark.parametrize("names", [50, 50_000])
def test_problems_line_up_by_subject_and_name(names: int) -> None:
    """Few names go through a table of flags, many through a sort."""
    rng = np.random.default_rng(4)
    subject, name = rng.integers(0, 5, 400), rng.integers(0, names, 400).astype(np.uint32)
    ends, number, which = boards._line_up(np.arange(6, dtype=np.int32), subject.astype(np.uint32), name, 6)
    known = sorted(set(zip(subject.tolist(), name.tolist(), strict=True)))
    assert [known[i] for i in number] == list(zip(subject.tolist(), name.tolist(), strict=True))
    assert ends.tolist() == [sum(s <= last for s, _ in known) for last in range(6)]
    assert list(zip(*(column.tolist() for column in which), strict=True)) == known
