"""One bucket: a range of problems from every partial, added up and written in the order of their keys.

Counts of a problem that is not in doubt are sums. One in doubt, because an attempt of it was seen twice, is resolved
attempt by attempt from what the partials tell of it; nothing of the lake is read again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scorelake.counts import DOUBT, OUTCOMES, PROBLEM, TOLD, Counts, added, attempt_name, together
from scorelake.merge import lists
from scorelake.merge.duplicates import Resolved, in_doubt, resolve, spelled_out
from scorelake.partials import Partial, Piece, as_dictionary, read, table
from scorelake.schemas import COUNTS, KEYS, LISTS
from scorelake.sorting import by_ranks
from scorelake.storage.arrays import arrow
from scorelake.storage.disk import remove, storage_errors, temp_path
from scorelake.threads import parallel_map

_HASHES, _MAX_BUCKETS = 1 << 64, 1 << 14
_AT_ONCE, _WORTH = 8, 1 << 18
"""Buckets that are worth having so that they can be merged side by side, and the rows that one is worth."""
_FILE: dict[str, Any] = {
    "use_dictionary": list(KEYS),
    "column_encoding": dict.fromkeys(COUNTS, "DELTA_BINARY_PACKED"),
    "write_statistics": False,
    "dictionary_pagesize_limit": 1 << 28,
    "store_schema": False,
}
"""How texts stay dictionaries on the disk, and are plain texts to every reader. Statistics would be a third of the
work, and skip nothing: every row group has problems of all models."""


@dataclass(frozen=True)
class Bucket:
    """Add up one range of problem hashes from every partial and write the sorted counts."""

    folder: str
    partials: tuple[Partial, ...]
    low: int
    high: int
    path: str
    rule: str
    """Which of several verdicts for one attempt counts."""
    answers: bool = False
    """Whether answers are wanted."""

    @property
    def weight(self) -> int:
        """Partial rows that it reads, about."""
        return int(sum(partial.weight for partial in self.partials) * (self.high - self.low + 1) / _HASHES) + 1


@dataclass(frozen=True)
class Merged:
    """What one bucket came to, by what was written."""

    rows: int
    """Rows that its problems had in the partials."""
    problems: int
    graded: int
    ungraded: int
    duplicates: int
    conflicts: int
    examples: tuple[tuple[str, ...], ...]
    """Keys and attempt of the first few conflicts."""
    differing: dict[str, int]
    """For each carried column, how many problems had more than one value."""


def buckets(
    folder: Path, partials: Sequence[Partial], rows: int, out: Path, rule: str, answered: bool = False
) -> list[Bucket]:
    """Plan the merge: as many hash ranges as keep one of them to about `rows` partial rows."""
    # a merge needs only the order of the files, and that only where the order decides
    ordered = rule in ("first", "last")
    filled = tuple(
        replace(p, files=p.files if ordered else (), rejects=(), quarantine=()) for p in partials if p.problems
    )
    weight = sum(partial.weight for partial in filled)
    many = max(1, -(-weight // rows), min(_AT_ONCE, weight // _WORTH))
    many = min(_MAX_BUCKETS, 1 << (many - 1).bit_length())  # as pieces are cut, so that few lie on an edge
    edges = [_HASHES * i // many for i in range(many + 1)]
    answered = answered and any(partial.answers == "counted" for partial in filled)
    return [
        Bucket(str(folder), filled, low, high - 1, str(out / f"part-{i:05d}.parquet"), rule, answered)
        for i, (low, high) in enumerate(pairwise(edges))
    ]


def merge(bucket: Bucket) -> Merged:
    """Add up one bucket, one verdict per attempt, and write its problems in the order of their keys."""
    listed = bucket.answers or any(partial.rewards for partial in bucket.partials) or _overlapping(bucket)
    whole = _read(bucket, details=listed)
    if whole is None:  # nothing there, and no file
        return Merged(0, 0, 0, 0, 0, 0, (), {})
    total, owner = added(whole)
    doubtful = total.problems[DOUBT].to_numpy().copy()
    apart = np.bincount(owner, minlength=total.problems.height) > 1
    suspicious = doubtful | apart & (total.problems[TOLD].to_numpy() > 0)
    resolved = None
    if suspicious.any():
        if not listed:
            whole = _read(bucket, details=True) or whole
        every = spelled_out(whole, owner, suspicious)
        doubtful |= in_doubt(every, doubtful.size)
        resolved = resolve(every.filter(pl.Series(doubtful[every[PROBLEM].to_numpy()])), bucket.rule, bucket.answers)
    return _finished(bucket, whole.rows, total, doubtful, resolved)


def _overlapping(bucket: Bucket) -> bool:
    """Two pieces with details have problems in common, as it seems: attempts will have to be compared."""
    mine = sorted(
        (piece.low, piece.high)
        for partial in bucket.partials
        for piece in partial.pieces
        if piece.details and piece.low <= bucket.high and piece.high >= bucket.low
    )
    return any(low <= high for (_, high), (low, _) in pairwise(mine))


def _read(bucket: Bucket, details: bool) -> Counts | None:
    """The bucket's rows of every partial, one after the other."""
    files = sorted({file.path for partial in bucket.partials for file in partial.files})
    place = {path: i for i, path in enumerate(files)}
    todo = [(partial, piece) for partial in bucket.partials for piece in partial.pieces]
    homes = {partial.name: Path(bucket.folder) / partial.name for partial in bucket.partials}

    def one(work: tuple[Partial, Piece]) -> Counts | None:
        partial, piece = work
        counts = read(homes[partial.name], piece, bucket.low, bucket.high, details)
        if counts is None or counts.details is None or "at" not in counts.details.columns:
            return counts
        rank = np.array([place[file.path] for file in partial.files], np.uint64)
        at = counts.details["at"].fill_null(0).to_numpy()
        at = rank[at >> np.uint64(40)] << np.uint64(40) | at & np.uint64((1 << 40) - 1)
        return replace(counts, details=counts.details.with_columns(pl.Series("at", at)))

    parts = [part for part in parallel_map(one, todo) if part is not None]
    return together(parts) if parts else None


def _finished(
    bucket: Bucket, rows: int, total: Counts, doubtful: NDArray[np.bool_], resolved: Resolved | None
) -> Merged:
    """Sums of what is certain, verdicts of what was in doubt, and the lists: written, and told as written."""
    problems, many = total.problems, total.problems.height
    passed, failed, ungraded = (problems[name].to_numpy() for name in OUTCOMES)
    counts = {
        "n": passed + failed,
        "c": passed.copy(),
        "ungraded": ungraded.copy(),
        "duplicates": np.zeros(many, np.int64),
    }
    if resolved is not None:
        at = resolved.counts[PROBLEM].to_numpy()
        for name, column in counts.items():
            column[at] = resolved.counts[name].to_numpy()
    frame = problems.select(KEYS).with_columns(pl.Series(name, column) for name, column in counts.items())
    if not any(partial.binary for partial in bucket.partials):
        frame = frame.with_columns(c=pl.lit(None, pl.Int64))
    certain = None
    if total.details is not None:
        certain = total.details
        if doubtful.any():
            certain = certain.filter(pl.Series(~doubtful[certain[PROBLEM].to_numpy()]))
    if any(partial.rewards for partial in bucket.partials):
        frame = frame.with_columns(lists.rewards(certain, None if resolved is None else resolved.rewards, many))
    if bucket.answers:
        frame = frame.with_columns(lists.answers(certain, None if resolved is None else resolved.answers, many))
    carried = [name for name in problems.columns if name.startswith("min:")]
    frame = frame.with_columns(problems[name].alias(name[4:]) for name in carried)
    _write(frame, total.texts, bucket.path)
    conflicts = resolved.conflicts if resolved is not None else None
    return Merged(
        rows=rows,
        problems=many,
        graded=int(frame["n"].sum()),
        ungraded=int(frame["ungraded"].sum()),
        duplicates=int(frame["duplicates"].sum()),
        conflicts=0 if conflicts is None else conflicts.height,
        examples=() if conflicts is None else tuple(_examples(conflicts, total)),
        differing={name[4:]: int((problems[name] != problems[f"max:{name[4:]}"]).sum()) for name in carried},
    )


def _compression(content: pa.Table) -> Any:
    """zstd, but for the lists, which hardly get smaller by it and take twice as long."""
    return {
        f"{name}.list.element" if name in LISTS else name: "lz4" if name in LISTS else "zstd"
        for name in content.column_names
    }


def _examples(conflicts: pl.DataFrame, total: Counts, most: int = 5) -> Iterator[tuple[str, ...]]:
    """The first few conflicts by name, in the order of their keys."""
    owner = conflicts[PROBLEM]
    named = conflicts.with_columns(
        pl.Series(total.texts[key].take(arrow(total.problems[key].gather(owner).to_numpy()))).alias(key)
        for key in KEYS
    )
    for row in named.sort(*KEYS, "attempt_high", "attempt_low").head(most).iter_rows(named=True):
        yield (*(str(row[key]) for key in KEYS), attempt_name(row["attempt_high"], row["attempt_low"]))


def _write(frame: pl.DataFrame, texts: dict[str, Any], path: str) -> None:
    """Problems in the order of their keys, texts as dictionaries; aside first, then renamed."""
    sorted_texts = {}
    for key, column in texts.items():
        text = pl.Series(column).cast(pl.String)
        if not text.is_sorted():
            order = text.arg_sort()
            rank = np.empty(text.len(), np.uint32)
            rank[order.to_numpy()] = np.arange(text.len(), dtype=np.uint32)
            frame = frame.with_columns(pl.Series(key, rank[frame[key].to_numpy()]))
            text = text.gather(order)
        sorted_texts[key] = text.to_arrow(compat_level=pl.CompatLevel.oldest())
    more = [name for name in frame.columns if name not in (*KEYS, *COUNTS, *LISTS, "duplicates")]
    final = by_ranks(frame.select(*KEYS, *COUNTS, *more, *(name for name in LISTS if name in frame.columns)), KEYS)
    columns: dict[str, Any] = {
        name: as_dictionary(final[name].to_numpy(), sorted_texts[name])
        if name in sorted_texts
        else final[name].to_arrow()
        for name in final.columns
    }
    content = table(columns, [name for name in final.columns if final[name].null_count()])
    home = Path(path).parent.parent  # not among the finished ones, which are taken as they are found
    aside = temp_path(home.with_name(home.name.removeprefix(".") + Path(path).name))
    try:
        with storage_errors(path):  # DuckDB loads these twice as fast as Polars'
            pq.write_table(content, aside, compression=_compression(content), **_FILE)
            os.replace(aside, path)
    finally:
        remove(aside)
