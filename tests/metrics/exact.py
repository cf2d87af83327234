"""Independent definitions in exact fractions, straight from the formulas; slow on purpose."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from math import comb

from scorelake import metrics
from scorelake.metrics.families import Metric

TAUS = ("0.0", "0.25", "0.3", "0.5", "0.7", "1.0")
SPECTRUM = (0.125, 0.0, 0.5, 0.25)


def credit(family: str, k: int, tau: str = "0") -> list[Fraction]:
    """The credit for j = 0..k successes."""
    half = -(-k // 2)
    tau_k = Fraction(tau) * k
    need = max(1, -(-tau_k.numerator // tau_k.denominator))
    rule = {
        "pass": lambda j: Fraction(j >= 1),
        "pass^": lambda j: Fraction(j == k),
        "g-pass": lambda j: Fraction(j >= need),
        "mg-pass": lambda j: Fraction(2, k) * max(j - half, 0),
        "maj": lambda j: Fraction(2 * j > k),
        "auc": lambda j: _auc(k, j),
        "spectrum": lambda j: sum((Fraction(w) for w in SPECTRUM[:j]), Fraction(0)),
    }[family]
    return [rule(j) for j in range(k + 1)]


def _auc(k: int, j: int) -> Fraction:
    reached = [1 - Fraction(comb(k - j, i), comb(k, i)) for i in range(1, k + 1)]
    if k == 1:
        return reached[0]
    trapezoids = [(a + b) / 2 for a, b in pairwise(reached)]
    return sum(trapezoids, Fraction(0)) / (k - 1)


def by_subsets(a: list[Fraction], n: int, c: int, k: int) -> Fraction:
    """The mean credit over every subset of k attempts."""
    attempts = [1] * c + [0] * (n - c)
    drawn = [a[sum(chosen)] for chosen in combinations(attempts, k)]
    return sum(drawn, Fraction(0)) / len(drawn)


def polynomial_moment(a: list[Fraction], alpha: int, beta: int) -> Fraction:
    """E of sum_j a[j] C(k,j) p^j (1-p)^(k-j) for p ~ Beta(alpha, beta)."""
    k = len(a) - 1
    return sum(
        (x * comb(k, j) * rising(alpha, j) * rising(beta, k - j) for j, x in enumerate(a)), Fraction(0)
    ) / rising(alpha + beta, k)


def squared(a: list[Fraction], b: list[Fraction]) -> list[Fraction]:
    """Credits of the product of two polynomials, over 2k draws."""
    k = len(a) - 1
    out = [Fraction(0)] * (2 * k + 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] += x * y * comb(k, i) * comb(k, j)
    return [x / comb(2 * k, d) for d, x in enumerate(out)]


def rising(x: int, times: int) -> int:
    product = 1
    for i in range(times):
        product *= x + i
    return product


def named(k: int) -> list[tuple[Metric, list[Fraction]]]:
    """Every credit metric at k with its exact credits."""
    pairs = [(metrics.parse(f"{f}@{k}"), credit(f, k)) for f in ("pass", "mg-pass", "maj", "auc")]
    pairs.append((metrics.parse(f"pass^{k}"), credit("pass^", k)))
    pairs += [(metrics.parse(f"g-pass@{k}_{tau}"), credit("g-pass", k, tau)) for tau in TAUS]
    if k == 2:
        pairs.append((metrics.parse("agree@2"), [Fraction(1), Fraction(0), Fraction(1)]))
    if k == len(SPECTRUM):
        pairs.append((metrics.spectrum(SPECTRUM), credit("spectrum", k)))
    return pairs


def every_vote(answers: Sequence[str | None], passed: Sequence[bool], k: int) -> Fraction:
    """vote@k of one problem by looking at every possible draw."""
    given = Counter(answers)
    weight = {
        answer: Fraction(sum(p for a, p in zip(answers, passed, strict=True) if a == answer), given[answer])
        for answer in given
    }
    draws = list(combinations(answers, k))
    total = Fraction(0)
    for draw in draws:
        votes = Counter(answer for answer in draw if answer is not None)
        leaders = [answer for answer in votes if votes[answer] == max(votes.values())] or [None]
        total += sum((weight[answer] for answer in leaders), Fraction(0)) / len(leaders)
    return total / len(draws)


def every_draw(answers: str, right: str, k: int) -> Fraction:
    """The same where every letter is an answer, and the letters in `right` are right."""
    return every_vote(answers, [answer in right for answer in answers], k)
