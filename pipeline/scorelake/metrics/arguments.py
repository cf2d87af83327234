"""Arguments of the public functions: counts n and c, or a matrix R of attempts with rewards w of its outcomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from scorelake.errors import MetricError
from scorelake.metrics.attempts import Attempts, categories, tallied
from scorelake.metrics.counts import pairs
from scorelake.metrics.distributions import Floats, Ints

Counts: TypeAlias = ArrayLike | None
Matrix: TypeAlias = Attempts | None
Function = TypeVar("Function", bound=Callable[..., Any])

_HINT = "give n and c, or a matrix of attempts as R=..."
_PARAMETERS = {
    "n": ("int or array_like of int, optional", "Attempts of each problem."),
    "c": ("int or array_like of int, optional", "Passed attempts of each problem."),
    "k": ("int", "Attempts drawn."),
    "tau": ("float, default 1.0", "Required share of passed attempts, in [0, 1]."),
    "weights": ("sequence of float", "w_1, ..., w_k, each >= 0, with sum at most 1."),
    "pass_power": ("float, default 0.5", "Exponent of pass@k."),
    "unanimous_power": ("float, default 0.5", "Exponent of pass^k; the two must not both be 0."),
    "lam": ("float, default 0.5", "Exponent of pass@k, in [0, 1]."),
    "R": (
        "matrix of attempts, optional",
        "Instead of n and c: one row per problem, of any length. Entries are 1 (passed), 0 (failed)\n"
        "    or None (missing); with w, outcomes 0, 1, 2, ...",
    ),
    "w": ("array_like of float, default (0, 1)", "Reward of each outcome 0, 1, 2, ..."),
    "R0": ("matrix of attempts, optional", "Earlier outcomes of the same problems, added to the prior."),
    "eta": ("float, default 1.0", "Weight of each earlier outcome in R0, in [0, 1]."),
    "prior": ("array_like, default 1.0", "Pseudo-counts > 0: one number, one per outcome, or one row per problem."),
    "thresholds": ("array_like, optional", "Rising shares of the full score; by default 1/k, 2/k, ..., 1."),
}


def document(returns: str, reference: str) -> Callable[[Function], Function]:
    """Return a decorator that completes a docstring with the numpydoc sections that the public functions share."""

    def decorate(function: Function) -> Function:
        summary, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        parameters = [(name, *_PARAMETERS[name]) for name in inspect.signature(function).parameters]
        sections = {
            "Parameters": "\n".join(f"{name} : {kind}\n    {text}" for name, kind, text in parameters),
            "Returns": returns,
            "Raises": "MetricError\n    If an argument is invalid or a problem has too few attempts.",
            "References": reference,
            "Examples": examples,
        }
        text = [f"{title}\n{'-' * len(title)}\n{body}" for title, body in sections.items()]
        function.__doc__ = "\n\n".join([summary, *text])
        return function

    return decorate


def problem_counts(n: Counts, c: Counts, matrix: Matrix) -> tuple[Ints, Ints]:
    """Return n and c of every problem, from counts or from a matrix."""
    if matrix is not None:
        if n is not None or c is not None:
            raise MetricError("n and c are given, and R as well", hint=_HINT)
        return tallied(matrix)
    if n is None and c is None:
        raise MetricError("there are no attempts", hint=_HINT)
    return pairs(n, c)  # type: ignore[arg-type]  # pairs() reports that one of them is None


def outcome_counts(n: Counts, c: Counts, matrix: Matrix, w: ArrayLike | None) -> tuple[Floats, Ints]:
    """Return the reward of every outcome (default: failed 0, passed 1) and its count, problems x outcomes."""
    rewards = np.array([0.0, 1.0] if w is None else w, dtype=np.float64)
    if rewards.ndim != 1 or rewards.size < 2 or not np.isfinite(rewards).all():
        raise MetricError(f"w must be two or more finite numbers, one per outcome 0, 1, ..., got {w!r}")
    if matrix is not None and n is None and c is None:
        return rewards, categories(matrix, rewards.size)
    if rewards.size != 2:
        raise MetricError(f"n and c have two outcomes, w has {rewards.size}", hint="give the outcomes as R=...")
    attempts, passed = problem_counts(n, c, matrix)
    return rewards, np.stack([np.ravel(attempts - passed), np.ravel(passed)], axis=1)


def prior_outcome_counts(matrix: Matrix, outcomes: int, problems: int) -> Ints:
    """Return the counts of earlier outcomes, problems x outcomes; one row of zeros without a matrix."""
    if matrix is None:
        return np.zeros((1, outcomes), dtype=np.int64)
    counts = categories(matrix, outcomes, "R0")
    if len(counts) != problems:
        raise MetricError(f"R0 has {len(counts):,} problems, R has {problems:,}")
    return counts


def check_k(name: str, k: int | None) -> int:
    """Return k as a whole number >= 1."""
    if k is None:
        raise MetricError(f"{name}: k is missing", hint=f"k is the number of attempts drawn; {_HINT}")
    if isinstance(k, bool) or k != int(k) or k < 1:
        raise MetricError(f"{name}: k must be a whole number >= 1, got {k!r}")
    return int(k)


def check_enough(name: str, attempts: Ints, k: int) -> None:
    """Refuse problems with fewer than k attempts."""
    short = int((attempts < k).sum())
    if short or not attempts.size:
        few = f"{short:,} of {attempts.size:,} problems have fewer than {k:,} attempts"
        raise MetricError(
            f"{name}: {few if short else 'there are no problems'}",
            hint="summarize() averages over the other problems and counts them",
        )
