"""Counts: the type that flows. What some rows of a lake come to, problem by problem, in integers that add up.

`problems` has one row per problem: its keys as codes, how many of its rows passed, failed and were ungraded, and what
proves that no attempt occurs twice. `details` has one row per problem and whatever else is told apart: a reward, an
answer, an attempt. It is there only where there is such a thing.

Counts are added, never placed: add() takes any counts in any order, and rows that come out are rows that went in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from scorelake.schemas import KEYS
from scorelake.storage.arrays import arrow, numbers

Words: TypeAlias = NDArray[np.uint64]
Ints: TypeAlias = NDArray[np.int64]

ODD, SEED_LOW, SEED_HIGH = 0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Of the hash of our own, which orders partials: it must not change, or every lake is counted again."""
HASH, GROUP_CODE, NAME_CODE, PROBLEM = "hash", "group", "name", "problem"
OUTCOMES = ("passed", "failed", "ungraded")
TOLD, DOUBT = "told", "doubt"
"""Rows whose attempt is in the details; and whether an attempt is known to occur twice."""
KINDS = ("seen", "graded", "right")
"""Attempts numbered below 256 as bits: those seen, those with a verdict, those that passed."""
WORD, MOST_WORDS = 64, 4
INTEGER = 1 << 56
"""The high word of an attempt that is a whole number."""
SHORT = 15
"""Bytes of a text that are kept as they are in 128 bits; of a longer one 120 bits of hash."""


def bits(words: int) -> list[str]:
    """Names of the columns that hold attempts as bits."""
    return [f"{kind}{word}" for kind in KINDS for word in range(words)]


# --- texts as numbers, the same on every machine and in every version -----------------------------------------


def mix(v: Words) -> Words:
    v = (v ^ (v >> np.uint64(32))) * np.uint64(ODD)
    return v ^ (v >> np.uint64(32))


def _padded(texts: pl.Series) -> tuple[Words, Words]:
    """The texts as rows of words, the last one filled up with zeros, and their lengths in bytes."""
    raw = texts.cast(pl.Binary)
    size = raw.bin.size().to_numpy().astype(np.int64)
    width = -(-int(size.max(initial=0)) // 8) * 8
    out = np.zeros((len(texts), width), np.uint8)
    flat = np.frombuffer(b"".join(raw), np.uint8)
    inside = np.arange(width) < size[:, None]
    out[inside] = flat
    return out.view(np.uint64).reshape(len(texts), width // 8), size.astype(np.uint64)


def hashed(texts: pl.Series, seed: int = SEED_LOW) -> Words:
    """A hash of every text, 0 for null; texts of about a length together, so that no long one makes room for all."""
    out = np.empty(texts.len(), np.uint64)
    size = texts.str.len_bytes().fill_null(0).to_numpy()
    order, low = np.argsort(size), 0
    while low < order.size:
        high = _batch(size[order], low)
        words, sizes = _padded(texts.gather(order[low:high]).fill_null(""))
        h = np.uint64(seed) ^ sizes
        for i in range(words.shape[1]):
            h = np.where(sizes > np.uint64(8 * i), mix(h ^ words[:, i]), h)
        out[order[low:high]] = mix(h)
        low = high
    out[texts.is_null().to_numpy()] = 0
    return out


def _batch(sizes: NDArray[Any], low: int, most: int = 1 << 24) -> int:
    """How far rising sizes can be taken together: as many as fit, if all were as long as the last."""
    high = min(sizes.size, low + most)
    while high - low > 1 and (high - low) * (int(sizes[high - 1]) + 8) > most:
        high = low + max(1, (high - low) // 2)
    return high


def group_hashes(columns: Sequence[Words]) -> tuple[Words, Words]:
    """Two hashes of every group from those of its texts, 0 for null: of benchmark and subject alone, and of all."""
    own = np.full(columns[0].size, SEED_LOW, np.uint64)
    for i, column in enumerate(columns):
        own = mix(own ^ column)
        if i == 1:
            place = own
    return place, own


def problem_hashes(place: Words, name: Words) -> Words:
    """A hash of every problem: of where it is asked, and its name."""
    return mix(place + name * np.uint64(SEED_LOW))


def key_hashes(place: Words, own: Words, name: Words) -> Words:
    """A hash of what one model did on a problem, under one protocol.

    The upper half is that of the problem: whatever is cut by it has all models of a problem together.
    """
    return problem_hashes(place, name) ^ own >> np.uint64(32)


def identities(texts: pl.Series) -> tuple[Words, Words]:
    """128 bits that tell texts apart: (high, low), (0, 0) for null.

    A whole number is itself, however it was written; a text of up to 15 bytes is kept; a longer one is a hash.
    """
    number = pl.when(texts.str.contains(r"^(0|-?[1-9][0-9]{0,17})$")).then(texts.cast(pl.Int64, strict=False))
    whole = pl.select(number).to_series()
    words, _ = _padded(texts.fill_null("").str.head(SHORT + 1))
    words = np.pad(words, ((0, 0), (0, 2 - words.shape[1]))) if words.shape[1] < 2 else words
    size = texts.fill_null("").str.len_bytes().to_numpy().astype(np.uint64)
    long = size > np.uint64(SHORT)
    high = (size + np.uint64(2)) << np.uint64(56) | words[:, 1]
    low = words[:, 0].copy()
    if long.any():
        some = texts.filter(pl.Series(long))
        low[long] = hashed(some)
        high[long] = np.uint64(255 << 56) | hashed(some, SEED_HIGH) >> np.uint64(8)
    exact = whole.is_not_null().to_numpy()
    high[exact] = np.uint64(INTEGER)
    low[exact] = whole.drop_nulls().to_numpy().view(np.uint64)
    missing = texts.is_null().to_numpy()
    high[missing] = low[missing] = 0
    return high, low


def attempt_name(high: int, low: int) -> str:
    """An attempt as it was written, as far as 128 bits tell."""
    tag = high >> 56
    if tag == 1:
        return str(low - (1 << 64) if low >> 63 else low)
    if tag == 255:
        return f"(a name of more than {SHORT} bytes, number {low:016x})"
    raw = low.to_bytes(8, "little") + (high & (1 << 56) - 1).to_bytes(7, "little")
    return raw[: tag - 2].decode("utf-8", "replace")


# --- the type ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Counts per problem, in the order of their hashes, then of anything: addition puts equal problems together."""

    texts: dict[str, pa.Array[Any]]
    """For each of KEYS its texts; the columns of `problems` hold places in them."""
    problems: pl.DataFrame
    """HASH, KEYS, OUTCOMES, TOLD and DOUBT, bits, and the ends of carried columns as min: and max:."""
    details: pl.DataFrame | None = None
    """PROBLEM (a row of `problems`), score, answer, attempt or bits, at, and OUTCOMES."""

    @property
    def rows(self) -> int:
        return int(sum(self.problems[name].sum() for name in OUTCOMES))

    @property
    def words(self) -> int:
        return sum(name.startswith(KINDS[0]) for name in self.problems.columns)


def together(parts: Sequence[Counts]) -> Counts:
    """All rows of all parts one after the other, under common codes. Nothing is added up yet."""
    if len(parts) == 1:
        return parts[0]
    books = list({id(part.texts): part.texts for part in parts}.values())
    texts, codes = _unified(books) if len(books) > 1 else (books[0], None)
    problems, details, below = [], [], 0
    for part in parts:
        columns = part.problems
        if codes is not None:
            mine = codes[next(i for i, book in enumerate(books) if book is part.texts)]
            columns = columns.with_columns(pl.Series(key, mine[key][columns[key].to_numpy()]) for key in KEYS)
        problems.append(columns)
        if part.details is not None:
            details.append(part.details.with_columns(pl.col(PROBLEM) + below))
        below += part.problems.height
    return Counts(
        texts,
        pl.concat(problems, how="diagonal_relaxed", rechunk=True),
        pl.concat(details, how="diagonal_relaxed", rechunk=True) if details else None,
    )


def _unified(
    books: Sequence[dict[str, pa.Array[Any]]],
) -> tuple[dict[str, pa.Array[Any]], list[dict[str, NDArray[np.uint32]]]]:
    """Common texts of several, and for each of them the common code of every text."""
    texts, codes = {}, [dict[str, NDArray[np.uint32]]() for _ in books]
    for key in KEYS:
        chunks = [
            pa.DictionaryArray.from_arrays(arrow(np.arange(len(book[key]), dtype=np.int32)), book[key])
            for book in books
        ]
        unified: Any = pa.chunked_array(chunks).unify_dictionaries()
        texts[key] = unified.chunk(0).dictionary
        for mine, chunk in zip(codes, unified.chunks, strict=True):
            mine[key] = numbers(chunk.indices).astype(np.uint32)
    return texts, codes


def add(parts: Sequence[Counts]) -> Counts:
    """The sum of counts, whatever they are of and in whatever order: one row per problem, no row lost."""
    return added(together(parts))[0]


def added(whole: Counts) -> tuple[Counts, NDArray[np.uint32]]:
    """Counts in which problems may come several times -> once each; and for every row the problem it went to."""
    hashes = whole.problems[HASH].to_numpy()
    if (hashes[1:] > hashes[:-1]).all():  # in order, and each once: nothing is to be added
        return whole, np.arange(hashes.size, dtype=np.uint32)
    place, starts = order(whole.problems)
    owner = np.empty(place.size, np.uint32)
    owner[place] = np.repeat(np.arange(starts.size, dtype=np.uint32), np.diff(starts, append=place.size))
    problems = _summed(whole.problems[pl.Series(place)], starts) if place.size else whole.problems
    details = whole.details
    if details is not None:
        details = details.with_columns(pl.Series(PROBLEM, owner[details[PROBLEM].to_numpy()]))
    out = Counts(whole.texts, problems, details)
    if out.rows != whole.rows:
        raise AssertionError(f"addition lost rows: {whole.rows} went in, {out.rows} came out")
    return out, owner


def order(problems: pl.DataFrame) -> tuple[Ints, Ints]:
    """Rows in the order of their hashes with equal problems side by side, and where each problem begins."""
    hashes = problems[HASH].to_numpy()
    place = np.argsort(hashes, kind="stable")  # partials are sorted: a stable sort only has to merge them
    fresh = _fresh(problems, place, hashes[place])
    if fresh is None:  # two problems share a hash: only their keys can tell them apart
        keys = [problems[key].to_numpy() for key in reversed(KEYS)]
        place = np.lexsort([*keys, hashes])
        fresh = _changes([hashes[place], *(key[place] for key in keys)])
    return place, np.flatnonzero(fresh)


def _fresh(problems: pl.DataFrame, place: Ints, hashes: Words) -> NDArray[np.bool_] | None:
    """Where a new hash begins; None if the rows of one hash are of several problems."""
    fresh = _changes([hashes])
    again = np.flatnonzero(~fresh)
    for key in KEYS:
        column = problems[key].to_numpy()
        if (column[place[again]] != column[place[again - 1]]).any():
            return None
    return fresh


def _changes(columns: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    out = np.zeros(columns[0].size, bool)
    out[:1] = True
    for column in columns:
        out[1:] |= column[1:] != column[:-1]
    return out


def _summed(problems: pl.DataFrame, starts: Ints) -> pl.DataFrame:
    """Rows in order -> one row per problem."""
    words = sum(name.startswith(KINDS[0]) for name in problems.columns)
    if starts.size == problems.height:
        return problems
    out: dict[str, Any] = {}
    for name in problems.columns:
        column = problems[name]
        if name in (HASH, *KEYS):
            out[name] = column.gather(starts)
        elif name == DOUBT:
            twice = _overlap(problems, starts, words)
            out[name] = np.logical_or.reduceat(column.to_numpy(), starts) | twice
        elif name.startswith(KINDS):
            out[name] = np.bitwise_or.reduceat(column.fill_null(0).to_numpy(), starts)
        elif name.startswith(("min:", "max:")):
            out[name] = _ends(column, starts)
        else:
            out[name] = np.add.reduceat(column.fill_null(0).to_numpy(), starts)
    return pl.DataFrame(out)


def _overlap(problems: pl.DataFrame, starts: Ints, words: int) -> NDArray[np.bool_]:
    """Problems of which two rows have seen the same attempt."""
    apart = np.zeros(starts.size, np.int64)
    joint = np.zeros(starts.size, np.int64)
    for word in range(words):
        seen = problems[f"{KINDS[0]}{word}"].fill_null(0).to_numpy()
        apart += np.add.reduceat(np.bitwise_count(seen).astype(np.int64), starts)
        joint += np.bitwise_count(np.bitwise_or.reduceat(seen, starts))
    return np.asarray(apart != joint)


def _ends(column: pl.Series, starts: Ints) -> pl.Series:
    """The smallest or largest non-null value of each problem."""
    owner = np.repeat(np.arange(starts.size), np.diff(starts, append=column.len()))
    frame = pl.DataFrame({"owner": owner, "value": column})
    end = pl.col("value").min() if column.name.startswith("min:") else pl.col("value").max()
    return frame.group_by("owner", maintain_order=True).agg(end)["value"]


def repeated(owner: NDArray[Any], high: Words, low: Words) -> Ints:
    """Rows that have a problem and an attempt in common with another row; (0, 0) is no attempt.

    Sorting 64 bits of both shows whether there can be any; only where two are equal are they looked at.
    """
    known = np.flatnonzero(high)
    both = owner[known].astype(np.uint64) << np.uint64(32) | mix(low[known] ^ mix(high[known])) >> np.uint64(32)
    ordered = np.sort(both)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not twice.size:
        return known[:0]
    at = np.minimum(np.searchsorted(twice, both), twice.size - 1)
    some = known[twice[at] == both]
    place = some[np.lexsort([low[some], high[some], owner[some]])]
    same = ~_changes([owner[place], high[place], low[place]])
    same[:-1] |= same[1:]
    return np.asarray(place[same])
