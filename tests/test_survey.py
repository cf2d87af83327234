"""What parts come to must add up to what all problems come to, however they are cut."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from scorelake.hashing import hash_text, problem_hashes, subject_hashes
from scorelake.schemas import GROUP
from scorelake.settings import Settings
from scorelake.survey import ALL, Survey, added, survey
from test_problems import frame


def parts(home: Path, told: pl.DataFrame, many: int, settings: Settings) -> list[Survey]:
    """Surveys of so many parts, cut by the hash of the problem as a merge does."""
    places = subject_hashes(hash_text(told["benchmark"]), hash_text(told["subject"]))
    number = problem_hashes(places, hash_text(told["problem_id"])) % np.uint64(many)
    out = []
    for i in range(many):
        some = told.filter(pl.Series(number == i))
        if some.height:
            some.write_parquet(home / f"part-{many}-{i}.parquet")
            out.append(survey(home / f"part-{many}-{i}.parquet", settings))
    return out


def same(one: Survey, other: Survey) -> None:
    for name in ("problems", "distinct", "graded", "ungraded", "binary", "rewards", "columns"):
        assert getattr(one, name) == getattr(other, name), name
    for column, mine in one.histograms.items():
        theirs = other.histograms[column]
        assert mine.groups.equals(theirs.groups)
        assert mine.cells.equals(theirs.cells.select(mine.cells.columns))
        assert one.asked[column].sort(pl.all()).equals(other.asked[column].sort(pl.all()))
    assert one.units.keys() == other.units.keys()
    for board, known in one.units.items():
        assert np.array_equal(known, other.units[board])


@pytest.mark.parametrize("rewards", [False, True])
@pytest.mark.parametrize("by", [[], ["passage"]])
@pytest.mark.parametrize("cluster", [None, "passage"])
def test_parts_add_up(cluster: str | None, by: list[str], rewards: bool, tmp_path: Path) -> None:
    told, settings = frame(), Settings.model_validate({"columns": {"cluster": cluster}, "by": by})
    if rewards:
        scores = [[float(i % 7), 7.5] if i % 3 else [] for i in range(told.height)]
        told = told.with_columns(rewards=pl.Series(scores, dtype=pl.List(pl.Float64)))
    (whole,) = parts(tmp_path, told, 1, settings)
    for many in (2, 7):
        some = parts(tmp_path, told, many, settings)
        assert len(some) == many
        same(added(some), whole)
        same(added(reversed(some)), whole)


def test_against_polars(tmp_path: Path) -> None:
    told = frame()
    whole = added(parts(tmp_path, told, 3, Settings(by=("passage",))))
    fine = whole.histograms[ALL]
    want = told.group_by(*GROUP, "n", "c").agg(problems=pl.len().cast(pl.Int64)).sort(*GROUP, "n", "c")
    assert fine.named(binary=True).equals(want)
    assert fine.groups.select(*GROUP, "ungraded").equals(
        told.group_by(GROUP).agg(pl.col("ungraded").sum()).sort(GROUP)
    )
    by_model = fine.coarser(("benchmark", "model", "protocol")).named(binary=True)
    keys = ("benchmark", "model", "protocol", "n", "c")
    assert by_model.equals(told.group_by(keys).agg(problems=pl.len().cast(pl.Int64)).sort(keys))
    place = ["benchmark", "subject", "protocol", "passage"]
    asked = told.group_by(place).agg(
        problems=pl.col("problem_id").n_unique().cast(pl.Int64),
        attempted=pl.col("problem_id").filter(pl.col("n") > 0).n_unique().cast(pl.Int64),
    )
    got = whole.asked["passage"].rename({"slice_value": "passage"})
    assert got.sort(pl.all()).equals(asked.select(got.columns).sort(pl.all()))
    assert whole.distinct == told.select("benchmark", "subject", "problem_id").n_unique()
    assert (whole.graded, whole.ungraded) == (told["n"].sum(), told["ungraded"].sum())
