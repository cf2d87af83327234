"""The specification of counting: a plain Polars group_by over the canonical attempts. It counts small shards.

It shares the reading and the canonical columns with the tally, and nothing else: no codes, cells or compiled code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from scorelake.counting.columns import (
    Canonical,
    Source,
    answer_text,
    carried_value,
    key_text,
    protocol_label,
    protocol_text,
)
from scorelake.counting.kinds import BAD, COUNTED, UNGRADED
from scorelake.counting.shape import Opened, Shape, Tallied, batches
from scorelake.counting.values import Spelling, distinct, outcomes, series, strings
from scorelake.counts import (
    DOUBT,
    HASH,
    INTEGER,
    KINDS,
    OUTCOMES,
    PROBLEM,
    TOLD,
    WORD,
    Counts,
    Words,
    group_hashes,
    hashed,
    identities,
    key_hashes,
    repeated,
)
from scorelake.schemas import KEYS, NAMED
from scorelake.storage import parquet

_DETAILS = ("score", "answer_high", "answer_low", "attempt_high", "attempt_low", "at")
_INVALID = "not a valid outcome, or in conflict with the folder's name"


def plain(files: Sequence[Opened], shape: Shape, told: Tallied) -> Iterator[Counts]:
    """Counts of all rows of the files; nothing if there are none."""
    frames = [
        frame
        for opened in files
        for groups in parquet.units(opened.told)
        for at, batch in batches(opened, groups)
        for frame in _attempts(batch, opened.canonical, shape, told, at | opened.number << 40)
    ]
    if not frames:
        return
    every = pl.concat(frames, how="diagonal_relaxed")
    words = [name for name in _DETAILS if name in every.columns and name != "score"]
    every = every.with_columns(pl.col(words).fill_null(0))  # a file without attempts among others that have them
    protocol = [name for name in every.columns if name.startswith("protocol ")]
    carried = [name for name in every.columns if name.startswith("carry:")]
    details = [name for name in _DETAILS if name in every.columns]
    keys = [*NAMED, *protocol]
    counted = every.group_by(*keys, *details).agg(
        *((pl.col("kind") == kind).sum().cast(pl.Int64).alias(name) for name, kind in COUNTED.items()),
        *(pl.col(name).min().alias(name.replace("carry:", "min:")) for name in carried),
        *(pl.col(name).max().alias(name.replace("carry:", "max:")) for name in carried),
    )
    yield _counts(counted, keys, details, shape)


def _attempts(
    batch: pa.RecordBatch, canonical: Canonical, shape: Shape, told: Tallied, at: int
) -> Iterator[pl.DataFrame]:
    """The canonical attempts of a batch, those that are bad left out and counted."""
    frame, many = outcomes(batch, canonical), batch.num_rows
    columns = {key: _spelled(batch, source, key_text, many) for key, source in canonical.keys.items()}
    bad = pl.select(pl.any_horizontal(_refused(frame, columns, canonical).values())).to_series()
    for name, source in canonical.protocol.items():
        columns[f"protocol {name}"] = _spelled(batch, source, protocol_text, many)
    for name, source in canonical.carried.items():
        columns[f"carry:{name}"] = _value(batch, source, many)
    if canonical.answer:
        texts = _spelled(batch, Source(canonical.answer), answer_text, many)
        graded = frame["kind"] < UNGRADED
        columns |= _identity("answer", pl.select(pl.when(graded).then(texts)).to_series())
    if canonical.attempt:
        columns |= _identity("attempt", _spelled(batch, Source(canonical.attempt), key_text, many))
        if shape.ordered:
            columns["at"] = pl.Series(np.arange(at, at + many, dtype=np.uint64))
    told.read += many
    told.bad += int(bad.sum())
    frame = frame.with_columns(series.alias(name) for name, series in columns.items())
    if "score" in frame.columns:
        frame = frame.with_columns(score=pl.when(pl.col("kind") != UNGRADED).then("score"))
    yield frame.filter(~bad)


def refused(batch: pa.RecordBatch, canonical: Canonical) -> dict[str, int]:
    """How many rows of a batch are bad, by the reason; a row without a name has no other."""
    columns = {key: _spelled(batch, source, key_text, batch.num_rows) for key, source in canonical.keys.items()}
    flags = pl.DataFrame(_refused(outcomes(batch, canonical), columns, canonical))
    nameless = pl.any_horizontal(pl.col(name) for name in flags.columns[:-1])
    told = flags.select(pl.all().exclude(_INVALID).sum(), (pl.col(_INVALID) & ~nameless).sum())
    return dict(zip(told.columns, told.row(0), strict=True))


def _refused(frame: pl.DataFrame, columns: dict[str, pl.Series], canonical: Canonical) -> dict[str, pl.Series]:
    """The rows that are bad, by the reason."""
    out = {f"no {key}": texts.is_null() for key, texts in columns.items()}
    invalid = frame["kind"] == BAD
    for key, source in canonical.keys.items():
        if source.agree:
            invalid = invalid | columns[key].ne_missing(pl.Series([source.value], dtype=pl.String))
    return {**out, _INVALID: invalid}


def _spelled(batch: pa.RecordBatch, source: Source, text: Spelling, rows: int) -> pl.Series:
    """A column as texts, looked at once per distinct value."""
    if source.column is None:
        return pl.Series([source.value], dtype=pl.String).new_from_index(0, rows)
    place, values = distinct(batch.column(source.column))
    spelled = strings(values, text)
    spelled.validate(full=True)  # a name that is no UTF-8 must not pass for another
    texts = series(spelled).cast(pl.String)
    return texts if place is None else texts.gather(place)


def _value(batch: pa.RecordBatch, source: Source, rows: int) -> pl.Series:
    if source.column is None:
        return pl.Series([source.value], dtype=pl.String).new_from_index(0, rows)
    place, values = distinct(batch.column(source.column))
    found = carried_value(series(values))
    return found if place is None else found.gather(place)


def _identity(name: str, texts: pl.Series) -> dict[str, pl.Series]:
    high, low = identities(texts)
    return {f"{name}_high": pl.Series(high), f"{name}_low": pl.Series(low)}


def _counts(counted: pl.DataFrame, keys: list[str], details: list[str], shape: Shape) -> Counts:
    """From one row per key and detail to counts, in the order of the hashes."""
    each = [_hashes(counted[key]) for key in keys]
    groups = [words for key, words in zip(keys, each, strict=True) if key != KEYS[-1]]
    hashes = key_hashes(*group_hashes(groups), each[keys.index(KEYS[-1])])
    counted = counted.with_columns(pl.Series(HASH, hashes), _protocol(counted, keys)).sort(HASH, *KEYS)
    owner = counted.select(pl.struct(KEYS).rle_id()).to_series()
    ends = [name for name in counted.columns if name.startswith(("min:", "max:"))]
    problems = (
        counted.with_columns(owner.alias(PROBLEM))
        .group_by(PROBLEM, maintain_order=True)
        .agg(
            pl.col(HASH, *KEYS).first(),
            pl.col(OUTCOMES).sum(),
            *(pl.col(name).min() if name.startswith("min:") else pl.col(name).max() for name in ends),
        )
        .drop(PROBLEM)
    )
    table = counted.select(owner.alias(PROBLEM), *details, *OUTCOMES) if details else None
    problems = problems.with_columns(_proof(table, problems.height))
    if table is not None and details == ["attempt_high", "attempt_low"]:
        problems, table = _packed(problems, table, shape)
    texts, codes = {}, []
    for key in KEYS:
        ranks = problems[key].unique().sort()
        texts[key] = ranks.to_arrow(compat_level=pl.CompatLevel.oldest())
        codes.append(problems[key].cast(pl.Enum(ranks)).to_physical().cast(pl.UInt32).alias(key))
    return Counts(texts, problems.with_columns(codes), table)


def _hashes(texts: pl.Series) -> Words:
    """Every text is hashed once, however often it comes."""
    known = texts.unique()
    told = pl.DataFrame({"text": known, "hash": hashed(known)})
    joined = pl.DataFrame({"text": texts}).join(told, on="text", how="left", nulls_equal=True, maintain_order="left")
    return joined["hash"].to_numpy()


def _protocol(counted: pl.DataFrame, keys: list[str]) -> pl.Series:
    names = [key for key in keys if key.startswith("protocol ")]
    if not names:
        return pl.Series("protocol", [""]).new_from_index(0, counted.height)
    labels = [
        protocol_label({name.removeprefix("protocol "): text for name, text in row.items()})
        for row in counted.select(names).iter_rows(named=True)
    ]
    return pl.Series("protocol", labels, dtype=pl.String)


def _proof(table: pl.DataFrame | None, problems: int) -> list[pl.Series]:
    """How many rows have their attempt spelled out, and whether one occurs twice."""
    told, doubt = np.zeros(problems, np.int64), np.zeros(problems, bool)
    if table is not None and "attempt_high" in table.columns:
        owner, high, low = (table[name].to_numpy() for name in (PROBLEM, "attempt_high", "attempt_low"))
        rows = sum(table[name].to_numpy() for name in OUTCOMES)
        np.add.at(told, owner, np.where(high > 0, rows, 0))
        doubt[owner[(high > 0) & (rows > 1)]] = True
        doubt[owner[repeated(owner, high, low)]] = True
    return [pl.Series(TOLD, told), pl.Series(DOUBT, doubt)]


def _packed(problems: pl.DataFrame, table: pl.DataFrame, shape: Shape) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Attempts as bits, where all of them are small numbers and none occurs twice: a partial is smaller so."""
    low = table["attempt_low"].to_numpy()
    small = (table["attempt_high"] == INTEGER).all() and (low < WORD * shape.words).all()
    if not small or problems[DOUBT].any():
        return problems, table
    starts = np.flatnonzero(np.diff(table[PROBLEM].to_numpy(), prepend=-1))
    bit = np.left_shift(np.uint64(1), low & np.uint64(WORD - 1))
    passed, failed = (table[name].to_numpy() > 0 for name in ("passed", "failed"))
    columns = []
    for kind, flag in zip(KINDS, (np.ones(low.size, bool), passed | failed, passed), strict=True):
        for word in range(shape.words):
            mine = np.where(flag & (low >> np.uint64(6) == word), bit, np.uint64(0))
            columns.append(pl.Series(f"{kind}{word}", np.bitwise_or.reduceat(mine, starts)))
    return problems.with_columns(*columns, pl.lit(0, pl.Int64).alias(TOLD)), None
