"""The order of numbered attempts, which are bits: were they made until one passed? Keep the first ones only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from scorelake.counting.kernel import changes
from scorelake.errors import DataError
from scorelake.hashing import Hashes
from scorelake.metrics.distributions import Ints
from scorelake.metrics.sampling import LEVEL, deviates, order_terms, retry_p_value
from scorelake.metrics.significance import benjamini_hochberg

OrderSums: TypeAlias = dict[tuple[str, ...], tuple[float, ...]]
"""By benchmark, model and protocol: the sums of metrics.sampling.order_terms."""
_GROUP = ("benchmark", "model", "protocol")


def order_sums(problems: pl.DataFrame, bits: Sequence[str], rule: str) -> OrderSums:
    """Compare the last attempt of each problem, and the first m, with all of them.

    m is the smallest n of the group in the bucket: it may depend on every n, but not on the order of verdicts.
    """
    passed, failed = (_words(problems, bits, outcome) for outcome in ("passed", "failed"))
    graded = [p | f for p, f in zip(passed, failed, strict=True)]
    right = [p & ~f if rule == "all-pass" else p for p, f in zip(passed, failed, strict=True)]
    n, c = (np.bitwise_count(np.array(words)).sum(axis=0, dtype=np.int64) for words in (graded, right))
    has_attempts = np.asarray(n > 0)
    if "listed" in problems.columns:
        has_attempts &= ~problems["listed"].to_numpy()  # the bits are not all of its attempts
    if not has_attempts.any() or np.ptp(n[has_attempts]) == 0:
        return {}
    n, c = n[has_attempts], c[has_attempts]
    graded, right = ([word[has_attempts] for word in words] for words in (graded, right))
    rows = problems.select(_GROUP).filter(has_attempts)
    codes = [column.to_physical().to_numpy() for column in rows]
    starts = np.flatnonzero(np.any([changes(code) for code in codes], axis=0))
    groups = rows[starts].rows()
    least = dict[tuple[Any, ...], int]()
    for group, smallest in zip(groups, np.minimum.reduceat(n, starts).tolist(), strict=True):
        least[group] = min(smallest, least.get(group, smallest))
    m = np.repeat([least[group] for group in groups], np.diff(starts, append=n.size))
    among_first = [word & mask for word, mask in zip(right, _lowest_bits(graded, m), strict=True)]
    first_passes = np.bitwise_count(np.array(among_first)).sum(axis=0, dtype=np.int64)
    terms = order_terms(n, c, m, first_passes, _is_last_right(graded, right))
    sums = zip(*(np.add.reduceat(term, starts).tolist() for term in terms), strict=True)
    return add_sums([{group: each} for group, each in zip(groups, sums, strict=True)])


def add_sums(parts: Iterable[OrderSums]) -> OrderSums:
    """Add the sums of disjoint problems."""
    out: OrderSums = {}
    for part in parts:
        for group, sums in part.items():
            out[group] = tuple(a + b for a, b in zip(sums, out.get(group, (0.0,) * len(sums)), strict=True))
    return out


def retried_groups(parts: Iterable[OrderSums]) -> frozenset[tuple[str, ...]]:
    """Return the groups whose attempts seem to have been made until they passed, adjusted over groups.

    At 5% for each group, 3 of 50 models with n fixed in advance were called adaptive, and a board lost its leader.
    """
    sums = add_sums(parts)
    q = benjamini_hochberg(np.array([retry_p_value(*deviates(*each)) for each in sums.values()]))
    return frozenset(group for group, each in zip(sums, q, strict=True) if each <= LEVEL)


def keep_first(
    problems: pl.DataFrame, bits: Sequence[str], smallest_n: Sequence[tuple[str, str, str, int]]
) -> pl.DataFrame:
    """Keep the m graded attempts of each problem with the lowest numbers; m is the smallest n of its group."""
    if not bits or {"passed", "outcome"} & set(problems.columns):
        raise DataError(
            '[policy] sampling = "first" needs attempts that are numbered 0 to 255, and only verdicts of them',
            hint="stopped@r corrects a stop at r passes without numbers",
        )
    groups = pl.DataFrame(smallest_n, schema=[*_GROUP, "m"], orient="row")
    keys = problems.select(pl.col(_GROUP).cast(pl.String))
    m = keys.join(groups, on=_GROUP, how="left", nulls_equal=True, maintain_order="left")["m"].fill_null(0).to_numpy()
    passed, failed = (_words(problems, bits, outcome) for outcome in ("passed", "failed"))
    masks = _lowest_bits([p | f for p, f in zip(passed, failed, strict=True)], m)
    kept = {
        f"{outcome}_bits_{i}": pl.Series(word & mask)
        for outcome, words in (("passed", passed), ("failed", failed))
        for i, (word, mask) in enumerate(zip(words, masks, strict=True))
    }
    return problems.with_columns(**kept)


def _words(problems: pl.DataFrame, bits: Sequence[str], outcome: str) -> list[Hashes]:
    return [problems[name].to_numpy() for name in bits if name.startswith(f"{outcome}_bits_")]


def _lowest_bits(words: Sequence[Hashes], m: Ints) -> list[Hashes]:
    """Return masks of the m lowest set bits, found by halves from the number of bits below a position."""
    one, left, out = np.uint64(1), m.astype(np.int64), []
    for word in words:
        size = np.bitwise_count(word).astype(np.int64)
        position = np.zeros(m.size, np.uint64)
        for width in map(np.uint64, (32, 16, 8, 4, 2, 1)):
            below = np.bitwise_count(word & (one << position + width) - one)
            position += width * (below <= left)
        out.append(np.where(size <= left, ~np.uint64(0), (one << position) - one))
        left -= np.minimum(size, left)
    return out


def _is_last_right(graded: Sequence[Hashes], right: Sequence[Hashes]) -> Ints:
    """Return 1 where the highest attempt passed: its bit makes the word of passes larger than that of failures."""
    out = np.zeros(graded[0].size, np.int64)
    for word, passed in zip(graded, right, strict=True):
        out = np.where(word > 0, passed > word - passed, out)
    return out
