"""Boards with more models than pairs fit into a table; sums of several buckets."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from counted import Row, rows, scored
from scorelake.comparing.boards import ModelBoard, list_boards
from scorelake.comparing.compare import _partners, compare_boards, select_pairs
from scorelake.comparing.sums import LakeSums
from scorelake.metrics import parse
from scorelake.read.claim import PairRequest, compare_models
from scorelake.read.session import reading
from scorelake.schemas import COUNTS, KEYS
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.survey import BucketTask, survey_bucket
from scorelake.scoring.values import count_values
from scorelake.settings import Settings

MODELS = 30
ASKED = ("problems", "lift", "lo", "hi", "wins_a", "wins_b", "ties", "p_one_sided", "p_two_sided")


def _models(missing: float = 0.0) -> list[Row]:
    rng = np.random.default_rng(5)
    rates = np.linspace(0.2, 0.8, MODELS)
    return [
        {"model": f"m{i:02d}", "subject": f"s{p % 2}", "problem_id": f"p{p}", "n": 4, "c": int(rng.binomial(4, rate))}
        for i, rate in enumerate(rates)
        for p in range(80)
        if rng.random() >= missing
    ]


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.02])
def test_every_model_is_compared_with_the_leaders_and_its_neighbours(tmp_path: Path, missing: float) -> None:
    counts = _models(missing)
    whole = scored(tmp_path / "all", counts)
    some = scored(tmp_path / "some", counts, compare={"max_pairs": 6 * MODELS, "metrics": ["pass@1"]})
    sql = "FROM comparison WHERE metric = 'pass@1' ORDER BY model_a, model_b"
    every = {(row["model_a"], row["model_b"]): row for row in rows(whole, sql)}
    told = {(row["model_a"], row["model_b"]): row for row in rows(some, sql)}
    assert len(every) == MODELS * (MODELS - 1) // 2
    assert 0 < len(told) <= 6 * MODELS
    for pair, row in told.items():
        assert {name: row[name] for name in ASKED} == {name: every[pair][name] for name in ASKED}
    place = {
        row["model"]: i
        for i, row in enumerate(rows(some, "FROM leaderboard WHERE metric = 'pass@1' ORDER BY value DESC, model"))
    }
    best = sorted(place, key=lambda model: place[model])
    for model in best[3:]:  # the three leaders, and the next three
        others = {a if b == model else b for a, b in told if model in (a, b)}
        assert others.issuperset({*best[:3], *best[place[model] + 1 : place[model] + 4]} - {model})
    ranks = "SELECT model, rank, rank_lo, rank_hi, p_best FROM leaderboard WHERE metric = 'pass@1' ORDER BY model"
    if not missing:  # all are scored on the same problems: ranges hold every two against each other all the same
        assert rows(some, ranks) == rows(whole, ranks)
    else:
        assert all(row["rank_lo"] is None for row in rows(some, ranks))


@pytest.mark.slow
def test_subjects_share_the_room_of_their_table(tmp_path: Path) -> None:
    out = scored(tmp_path, _models(), compare={"max_pairs": 6 * MODELS, "metrics": ["pass@1"]})
    told = rows(out, "SELECT subject, count(*) AS pairs FROM subject_comparison GROUP BY ALL ORDER BY ALL")
    assert [row["subject"] for row in told] == ["s0", "s1"]
    assert sum(row["pairs"] for row in told) <= 6 * MODELS


@pytest.mark.slow
def test_any_other_pair_is_compared_when_asked_for(tmp_path: Path) -> None:
    out = scored(tmp_path, _models(), compare={"max_pairs": 6 * MODELS, "metrics": ["pass@1"]})
    pair = "model_a = 'm05' AND model_b = 'm20'"
    assert rows(out, f"FROM comparison WHERE {pair}") == []
    with reading(str(out)) as folder:
        (told,) = compare_models(folder, str(out), PairRequest("m05", "m20", "pass@1"))
    (row,) = rows(scored(tmp_path / "all", _models()), f"FROM comparison WHERE metric = 'pass@1' AND {pair}")
    assert {name: told.row[name] for name in ASKED} == {name: row[name] for name in ASKED}


@pytest.mark.parametrize(("models", "partners"), [(300, None), (301, 299), (600, 299), (5000, 40)])
def test_above_300_models_each_has_leaders_and_neighbours(models: int, partners: int | None) -> None:
    assert _partners([models], 1, 200_000) == partners
    a, b = select_pairs(np.linspace(1, 0, models), partners)
    assert (a < b).all()
    assert a.size <= 200_000
    if partners is None:
        assert a.size == models * (models - 1) // 2
        return
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    leaders = partners // 2
    for model in (0, models // 2, models - 1):
        others = {*range(leaders), *range(model + 1, min(models, model + 1 + partners - leaders))} - {model}
        assert {(min(model, other), max(model, other)) for other in others} <= pairs


class Buckets:
    """Sums of problems in memory, cut into buckets."""

    def __init__(self, boards: list[ModelBoard], frames: list[pl.DataFrame], tmp_path: Path) -> None:
        tasks, outcomes = [], Outcomes(binary=True, rewards=False, top_n=4)
        settings = Settings.model_validate({"compare": {"metrics": ["pass@1"]}})
        for i, frame in enumerate(frames):
            path = tmp_path / f"part-{len(frames)}-{i}.parquet"
            frame.write_parquet(path)
            tasks.append(BucketTask(str(path), frame.height, settings, outcomes))
        by_counts = count_values(pl.concat(frames), [PASS], settings, outcomes)
        self.sums = [LakeSums.of(map, [(task,) for task in tasks], boards, by_counts, in_process=False)]
        self.sums += [LakeSums.of(map, [tuple(tasks)], boards, by_counts, in_process=True)]


PASS = parse("pass@1")


def _frame(missing: float) -> pl.DataFrame:
    rows = [{"benchmark": "b", "protocol": "", "ungraded": 0, **row} for row in _models(missing)]
    return pl.DataFrame(rows).select(*KEYS, *COUNTS).sort(KEYS)


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.02])
def test_buckets_and_memory_do_not_change_results(tmp_path: Path, missing: float) -> None:
    frame = _frame(missing)
    path = tmp_path / "counts.parquet"
    frame.write_parquet(path)
    boards = list_boards(survey_bucket(path, Settings()), Settings())
    settings = Settings.model_validate({"compare": {"resamples": 200}})
    bucket = frame["problem_id"].str.slice(1).cast(int) % 3
    cuts = [[frame], [frame.filter(bucket == i) for i in range(3)]]
    results = [
        compare_boards(boards, [PASS], lambda board, _: set(board.models), settings, sums, max_bytes=max_bytes)
        for frames in cuts
        for sums in Buckets(boards, frames, tmp_path).sums
        for max_bytes in (1 << 28, 1 << 16)
    ]
    for want, got in zip(results[:1] * len(results), results, strict=True):
        for one, two in zip(want, got, strict=True):
            assert one.board == two.board
            (mine,), (theirs,) = one.metrics, two.metrics
            for name in vars(mine.lifts):
                assert getattr(theirs.lifts, name) == pytest.approx(getattr(mine.lifts, name), abs=1e-12), name
            assert mine.ranks is not None
            assert vars(mine.ranks).keys() == vars(theirs.ranks).keys()
            for name in vars(mine.ranks):
                assert getattr(theirs.ranks, name) == pytest.approx(getattr(mine.ranks, name), abs=1e-12), name


def test_far_too_many_models_are_not_compared_in_advance(tmp_path: Path) -> None:
    frame = _frame(0.0)
    frame.write_parquet(tmp_path / "counts.parquet")
    boards = list_boards(survey_bucket(tmp_path / "counts.parquet", Settings()), Settings())
    for sums in Buckets(boards, [frame], tmp_path).sums:
        results = compare_boards(
            boards, [PASS], lambda board, _: set(board.models), Settings(), sums, max_models=MODELS - 1
        )
        assert [result.metrics for result in results] == [[], [], []]


@pytest.mark.slow
def test_pairs_without_a_common_protocol_are_listed_unless_too_many(tmp_path: Path) -> None:
    counts = [
        {"model": f"{kind}{i}", "problem_id": f"p{p}", "n": 1, "c": 1, "temperature": kind}
        for kind in ("hot", "cold")
        for i in range(3)
        for p in range(30)
    ]
    protocol = {"columns": ["temperature"]}
    told = rows(
        scored(tmp_path / "few", counts, protocol=protocol, metrics={"names": ["pass@1"]}),
        "FROM comparison WHERE lift IS NULL",
    )
    assert len(told) == 9
    assert all("protocol differs" in row["claim"] and row["model_a"] < row["model_b"] for row in told)
    out = scored(tmp_path / "many", counts, protocol=protocol, compare={"max_pairs": 8, "metrics": ["pass@1"]})
    assert rows(out, "FROM comparison WHERE lift IS NULL") == []
