"""The fast count must be the plain one: same keys, same numbers, whatever the data and however it is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorelake import duplicates, footer
from scorelake import tally as module
from scorelake.tally import by_strings, constants, tally

ODD = [
    "",
    " ",
    "a",
    "A",
    "ä",
    "a\u0308",
    "日本語",
    "🙂",
    "a/b",
    "x=y",
    "007",
    "7",
    "null",
    "\x00",
    "\n",
    "'; DROP TABLE",
    "x" * 100,
]
TEXT = st.one_of(st.none(), st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))


def plain(frames: Sequence[pl.LazyFrame]) -> pl.DataFrame:
    attempts = pl.concat(frames, how="vertical_relaxed")
    return by_strings(attempts, module.Shape.of(attempts.collect_schema()))


def same(left: pl.DataFrame, right: pl.DataFrame) -> None:
    """Equal as sets of rows, with the same columns and types."""
    order = [name for name in left.columns if name not in ("rows", "n", "bad", "c")]
    assert left.schema == right.select(left.columns).schema
    assert left.sort(order).equals(right.select(left.columns).sort(order), null_equal=True)


def outcomes(rng: np.random.Generator, rows: int, *, rewards: bool, verdicts: bool = True) -> dict[str, Any]:
    """The columns count._attempts makes: bad rows are not graded, passed rows are."""
    bad = rng.random(rows) < 0.1
    graded = ~bad & (rng.random(rows) < 0.8)
    columns: dict[str, Any] = {"_bad": bad, "_graded": graded}
    if verdicts:
        columns["_passed"] = graded & (rng.random(rows) < 0.5)
    if rewards:
        score = rng.choice([0.0, 0.25, 1.0, -3.5], rows)
        columns["_score"] = [float(s) if g else None for s, g in zip(score, graded, strict=True)]
    return columns


def attempts(
    seed: int, rows: int, groups: int, *, clustered: bool = False, rewards: bool = False, carry: bool = False
) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    key = rng.integers(0, groups, rows)
    key = np.sort(key) if clustered else key
    columns: dict[str, Any] = {
        "benchmark": ["one"] * rows,
        "subject": [f"subject {k % 3}" for k in key],
        "model": [f"model-{k % 5}" for k in key],
        "problem_id": [None if k % 97 == 96 else f"problem-{k // 5:07d}" for k in key],
    }
    if carry:
        columns["carry:title"] = [None if r % 3 == 0 else f"title {k % 11} {r % 2}" for r, k in enumerate(key)]
        columns["carry:year"] = [None if k % 7 == 0 else int(k) % 13 for k in key]
    strings = dict.fromkeys(("benchmark", "subject", "model", "problem_id", "carry:title"), pl.String)
    columns |= outcomes(rng, rows, rewards=rewards)
    overrides = {k: v for k, v in strings.items() if k in columns}
    return pl.DataFrame(columns, schema_overrides={**overrides, **({"_score": pl.Float64} if rewards else {})})


@st.composite
def odd_attempts(draw: st.DrawFn) -> pl.DataFrame:
    """Few rows, any text, any mixture of columns."""
    rows = draw(st.integers(0, 40))
    keys = ("benchmark", "subject", "model", "problem_id")
    pool = draw(st.lists(TEXT, min_size=1, max_size=6))
    columns: dict[str, Any] = {k: draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows)) for k in keys}
    if draw(st.booleans()):
        columns["protocol temperature"] = draw(
            st.lists(st.sampled_from([None, 0.0, 0.7, 1.0]), min_size=rows, max_size=rows)
        )
    if draw(st.booleans()):
        columns["carry:title"] = draw(st.lists(TEXT, min_size=rows, max_size=rows))
    rewards = draw(st.booleans())
    verdicts = draw(st.booleans()) or not rewards
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns |= outcomes(rng, rows, rewards=rewards, verdicts=verdicts)
    kinds: dict[str, Any] = dict.fromkeys((*keys, "carry:title"), pl.String)
    kinds |= {"protocol temperature": pl.Float64, "_score": pl.Float64}
    kinds |= dict.fromkeys(("_bad", "_graded", "_passed"), pl.Boolean)
    return pl.DataFrame(columns, schema={name: kinds[name] for name in columns})


@pytest.mark.parametrize("clustered", [True, False])
@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("repeats", [True, False])
def test_sums_of_attempts(words: int, clustered: bool, repeats: bool) -> None:
    """The sums that prove attempts different, wherever the rows lie, and that they do not prove what is not so."""
    frame = attempts(words, 6000, 300, clustered=clustered, carry=True)
    keys = ["benchmark", "subject", "model", "problem_id"]
    number = pl.int_range(pl.len()).over(keys) if not repeats else pl.int_range(pl.len()) % 7
    frame = frame.with_columns((number % (64 * words)).cast(pl.UInt8).alias("_number"))
    lazy = [part.lazy() for part in frame.iter_slices(1700)]
    whole = pl.concat(lazy)
    want = by_strings(whole, module.Shape.of(whole.collect_schema(), words))
    got = tally(lazy, None, words, batch=400, block=900)
    order = [*keys, "rows"]
    assert got.select(want.columns).sort(order).equals(want.sort(order), null_equal=True)
    counted = got.with_columns(ungraded=pl.col("rows") - pl.col("n") - pl.col("bad"))
    distinct = whole.filter(~pl.col("_bad")).group_by(keys).agg(pl.col("_number").n_unique() == pl.len()).collect()
    proven = counted.select(*keys, duplicates.proven(words).alias("proven"))
    both = proven.join(distinct, on=keys, nulls_equal=True)
    assert both.height > 200
    assert (both["proven"] == both["_number"]).all()
    assert both["proven"].all() != repeats


@settings(max_examples=150, deadline=None)
@given(odd_attempts(), st.integers(1, 20), st.integers(1, 50))
def test_equals_plain_grouping_on_odd_texts(frame: pl.DataFrame, batch: int, block: int) -> None:
    half = frame.height // 2
    frames = [frame[:half].lazy(), frame[half:].lazy()]
    same(tally(frames, batch=batch, block=block), plain(frames))


@pytest.mark.parametrize("rewards", [False, True])
@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("groups", [1, 30, 3_000, 60_000])
def test_equals_plain_grouping_at_size(groups: int, clustered: bool, carry: bool, rewards: bool) -> None:
    frame = attempts(groups, 60_000, groups, clustered=clustered, carry=carry, rewards=rewards)
    frames = [frame[:20_001].lazy(), frame[20_001:].lazy()]
    same(tally(frames, [20_001, 39_999], block=25_000), plain(frames))


@pytest.mark.parametrize("clustered", [False, True])
def test_the_cut_changes_nothing(clustered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = attempts(7, 50_000, 4_000, clustered=clustered, carry=True)
    whole = tally([frame.lazy()])
    monkeypatch.setattr(module, "PIECE", 100)
    for batch, block in ((100, 50_000), (7_001, 999), (50_000, 4_096)):
        parts = [part.lazy() for part in frame.iter_slices(9_999)]
        assert tally(parts, batch=batch, block=block).equals(whole, null_equal=True)


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("bits", [0, 4, 8])
def test_a_collision_is_noticed_and_counted_by_strings(bits: int, clustered: bool) -> None:
    """A first hash of a few bits makes many keys look the same; the second one tells."""

    def weak(columns: Sequence[str], seed: int) -> pl.Expr:
        good = module._hash(columns, seed)
        return good % (1 << bits) if seed == module.FIRST else good

    frame = attempts(3, 20_000, 2_000, clustered=clustered)
    attempts_ = pl.concat([frame.lazy()])
    shape = module.Shape.of(frame.schema)
    assert module._by_hash([attempts_], attempts_, shape, module.BATCH, 5_000, weak) is None
    same(tally([frame.lazy()], hasher=weak, block=5_000), plain([frame.lazy()]))


def test_one_collision_among_many_keys_is_noticed() -> None:
    """Two keys out of thousands made equal for the first hash."""

    def joined(columns: Sequence[str], seed: int) -> pl.Expr:
        good = module._hash(columns, seed)
        one = (pl.col("problem_id") == "problem-0000007") & (pl.col("model") == "model-2")
        two = (pl.col("problem_id") == "problem-0000011") & (pl.col("model") == "model-4")
        return pl.when(one | two).then(pl.lit(12345, pl.UInt64)).otherwise(good) if seed == module.FIRST else good

    frame = attempts(3, 50_000, 5_000).with_columns(pl.col("problem_id").fill_null("none"))
    shape = module.Shape.of(frame.schema)
    assert module._by_hash([frame.lazy()], frame.lazy(), shape, module.BATCH, module.BLOCK, joined) is None
    same(tally([frame.lazy()], hasher=joined), plain([frame.lazy()]))


def test_a_hash_taken_for_a_known_one_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of known hashes may err; then the missing keys are found by a second look."""
    monkeypatch.setattr(module, "_mark", lambda hashes: (hashes % np.uint64(8)).astype(np.uint32))
    looks = []
    look = module._Keys.found
    monkeypatch.setattr(
        module._Keys, "found", lambda self, hashes, rows: looks.append(self.known) or look(self, hashes, rows)
    )
    for clustered in (False, True):
        frame = attempts(5, 30_000, 9_000, clustered=clustered, carry=True, rewards=True)
        same(tally([frame.lazy()], batch=500), plain([frame.lazy()]))
        assert looks.pop() < frame.select(pl.struct(pl.exclude("_bad", "_graded", "_passed")).n_unique()).item()


def test_keys_that_come_late_are_found() -> None:
    """A long quiet stretch of known keys, then a few new ones among them."""
    few = attempts(1, 50_000, 10)
    late = attempts(2, 200, 20).with_columns(model=pl.lit("late"))
    frames = [few.lazy(), pl.concat([few[:3_000], late, few[:3_000]]).lazy()]
    same(tally(frames, batch=1_000), plain(frames))


def test_nested_carried_values_take_the_plain_way() -> None:
    frame = attempts(1, 100, 5).with_columns(pl.struct(a=pl.lit(1)).alias("protocol settings"))
    same(tally([frame.lazy()]), plain([frame.lazy()]))


def test_no_frames_and_no_rows() -> None:
    assert tally([]).is_empty()
    frame = attempts(1, 10, 5)[:0]
    assert tally([frame.lazy()]).schema == plain([frame.lazy()]).schema


def test_literal_keys_need_no_column() -> None:
    frame = attempts(1, 1_000, 50)
    frames = [frame.lazy().with_columns(model=pl.lit(name)) for name in ("a", "b", "a")]
    same(tally(frames), plain(frames))


def test_constants_are_believed_only_when_certain(tmp_path: Any) -> None:
    frame = pl.DataFrame(
        {
            "one": ["x"] * 6,
            "empty": [""] * 6,
            "two": ["x", "x", "x", "x", "x", "y"],
            "hole": ["x", "x", None, "x", "x", "x"],
            "long": ["z" * 80] * 6,
            "number": [1] * 6,
        }
    )
    for row_group, statistics in ((6, True), (2, True), (6, False)):
        path = tmp_path / "file.parquet"
        frame.write_parquet(path, row_group_size=row_group, statistics=statistics)
        literals = [pl.lit(v).alias(k) for k, v in constants(footer.read(str(path)), frame.schema).items()]
        assert sorted(e.meta.output_name() for e in literals) == (["empty", "one"] if statistics else [])
        assert pl.scan_parquet(path).with_columns(literals).collect().equals(frame)
    frame[:0].write_parquet(path)
    assert constants(footer.read(str(path)), frame.schema) == {}


def test_a_file_damaged_inside_is_an_error_not_a_smaller_count(tmp_path: Any) -> None:
    path = tmp_path / "file.parquet"
    attempts(1, 60_000, 20_000).write_parquet(path, row_group_size=10_000)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 500] = bytes(255 - byte for byte in data[middle : middle + 500])
    path.write_bytes(data)
    with pytest.raises(pl.exceptions.PolarsError):
        tally([pl.scan_parquet(path)])
