"""Whether attempts were made until they passed: sums over problems whose numbered attempts are bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from scorelake.counting.kernel import changes
from scorelake.hashing import Hashes
from scorelake.metrics.distributions import Ints
from scorelake.metrics.sampling import deviates, order_terms, suggests_retries

OrderSums: TypeAlias = dict[tuple[str, ...], tuple[float, ...]]
"""By benchmark, model and protocol: the sums of metrics.sampling.order_terms."""
_GROUP = ("benchmark", "model", "protocol")


def order_sums(problems: pl.DataFrame, bits: Sequence[str], rule: str) -> OrderSums:
    """Compare the last attempt of each problem, and the first m, with all of them.

    m is the smallest n of the group in the bucket: it may depend on every n, but not on the order of verdicts.
    """
    passed, failed = (
        [problems[name].to_numpy() for name in bits if name.startswith(f"{outcome}_bits_")]
        for outcome in ("passed", "failed")
    )
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
    terms = order_terms(n, c, m, _passes_among_first(graded, right, m), _is_last_right(graded, right))
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
    """Return the groups whose attempts seem to have been made until they passed."""
    return frozenset(group for group, sums in add_sums(parts).items() if suggests_retries(*deviates(*sums)))


def _passes_among_first(graded: Sequence[Hashes], right: Sequence[Hashes], m: Ints) -> Ints:
    """Count the passes among the m lowest attempts, found by halves from the number of bits below a position."""
    one, left, out = np.uint64(1), m.copy(), np.zeros(m.size, np.int64)
    for word, passed in zip(graded, right, strict=True):
        size = np.bitwise_count(word).astype(np.int64)
        position = np.zeros(m.size, np.uint64)
        for width in map(np.uint64, (32, 16, 8, 4, 2, 1)):
            below = np.bitwise_count(word & (one << position + width) - one)
            position += width * (below <= left)
        mask = np.where(size <= left, ~np.uint64(0), (one << position) - one)
        out += np.bitwise_count(passed & mask)
        left -= np.minimum(size, left)
    return out


def _is_last_right(graded: Sequence[Hashes], right: Sequence[Hashes]) -> Ints:
    """Return 1 where the highest attempt passed: its bit makes the word of passes larger than that of failures."""
    out = np.zeros(graded[0].size, np.int64)
    for word, passed in zip(graded, right, strict=True):
        out = np.where(word > 0, passed > word - passed, out)
    return out
