"""Keys as numbers must name the same problems as the texts on the disk."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from scorelake import problems
from scorelake.hashing import hash_text, problem_hashes
from scorelake.problems import Part, lines
from scorelake.schemas import GROUP, KEYS


def frame(rows: int = 2000, seed: int = 3) -> pl.DataFrame:
    """Names that need care, groups of different sizes, protocols with and without text, in the order of keys."""
    rng = np.random.default_rng(seed)
    names = pl.Series(["10", "9", "é", "z" * 40, "a/b=c", "", *(f"p{i}" for i in range(300))])
    texts = {key: pl.Series([f"{key}{i}" for i in rng.integers(0, 3, rows)]) for key in GROUP}
    out = pl.DataFrame(texts).with_columns(problem_id=names.gather(rng.integers(0, names.len(), rows)))
    out = out.with_columns(protocol=pl.col("protocol").replace("protocol0", "")).unique(maintain_order=True)
    n = rng.integers(0, 9, out.height)
    more = {"n": n, "c": rng.integers(0, n + 1), "ungraded": rng.integers(0, 2, out.height)}
    passage = pl.Series([None if i > 3 else f"passage {i}" for i in rng.integers(0, 6, out.height)])
    return out.with_columns(**more, passage=passage).sort(KEYS)


def test_numbers_stand_for_the_same_texts(tmp_path: Path) -> None:
    told = frame()
    told.write_parquet(tmp_path / "part.parquet")
    part = Part.read(tmp_path / "part.parquet")
    assert pl.concat([part.groups[part.group], part.counts], how="horizontal").equals(
        told.drop("problem_id", "passage")
    )
    assert part.names.gather(part.name).to_list() == told["problem_id"].to_list()
    assert part.groups.equals(told.select(GROUP).unique().sort(GROUP))
    assert sorted(problems.name_texts(part.path)) == sorted(set(told["problem_id"]))
    n, c, place = part.pairs
    assert list(zip(n[place], c[place], strict=True)) == told.select("n", "c").rows()
    assert part.others(["passage"]).to_series().equals(told["passage"])


@pytest.mark.parametrize("cluster", [None, "passage"])
def test_problems_line_up_by_subject_and_name(cluster: str | None, tmp_path: Path) -> None:
    """One column per problem that any model attempted, whatever the model; clusters are those of the first model."""
    told = frame()
    told.write_parquet(tmp_path / "part.parquet")
    part = Part.read(tmp_path / "part.parquet")
    mine = (pl.col("benchmark") == "benchmark1") & (pl.col("protocol") == "")
    groups = np.flatnonzero(part.groups.select(mine).to_series())
    found = lines(part, groups, cluster)
    assert found is not None
    tried = told.filter(mine & (pl.col("n") > 0))
    assert tried.equals(told[found.rows])
    order = tried.sort("subject", "problem_id", "model").unique(["subject", "problem_id"], keep="first")
    known = {(row["subject"], row["problem_id"]): row for row in order.iter_rows(named=True)}
    assert found.key.size == len(known)
    for row, problem in zip(tried.iter_rows(named=True), found.problem, strict=True):
        low, high = found.spans[row["subject"]]
        assert low <= problem < high
        passage = known[row["subject"], row["problem_id"]]["passage"] if cluster else None
        own = problem_hashes(hash_text(pl.Series([row["subject"]])), hash_text(pl.Series([row["problem_id"]])))
        want = own if passage is None else hash_text(pl.Series([passage]))
        assert found.key[problem] == want[0]
    pairs = {(row["subject"], row["problem_id"], p) for row, p in zip(tried.to_dicts(), found.problem, strict=True)}
    assert len(pairs) == len(known), "one number per problem"


@pytest.mark.parametrize("room", [40, 4_000_000])
def test_codes_are_numbered_in_their_order(room: int) -> None:
    """Few codes go through a table of flags, many through a sort."""
    code = np.random.default_rng(4).integers(0, room, 400)
    known, place = problems.numbered(code, room)
    assert known.tolist() == sorted(set(code.tolist()))
    assert (known[place] == code).all()
