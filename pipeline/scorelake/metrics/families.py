"""Metrics and their names. A Metric is a family, one entry of FAMILIES, at one k and with its parameter.

To add a metric, add an entry with its credit function; names, aliases, the command line, tables, intervals and the
posterior follow. A credit function of k (and of the parameter, if there is one) returns the credit a[j] for
j = 0..k successes among k draws, in [0, 1]. At least two successes:

    Family("twice@k", "1 if j >= 2", "an example", credit=lambda k: _at_least(2, k))

A metric that takes no k has something else after the sign of its name, see Family.name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc

from scorelake.errors import MetricError
from scorelake.metrics.beta_powers import avg, bayes, best
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.vote import Ballots


@dataclass(frozen=True)
class Family:
    """A family of metrics. Exactly one of `credit`, `blend`, `rate`, `rewards` and `vote` defines its values."""

    name: str
    """With what follows the sign: k for the number of draws (pass@k), a fixed number of them (agree@2), the
    parameter (cover@tau), or N for all attempts (avg@N)."""
    formula: str
    reference: str
    aliases: tuple[str, ...] = ()
    parameter: str | None = None
    """What follows the k in a name: tau, lambda, powers; or weights, which come from the config file."""
    default: float | None = None
    examples: tuple[float, ...] = ()  # parameters at which all metrics are computed
    by_name_only: bool = False  # not one of all metrics: it assumes what most lakes do not follow
    instead: str | None = None  # biased by n: what to compare models with different n by
    credit: Callable[..., Floats] | None = None
    """credit(k) or credit(k, parameter) -> the credit a[0..k] for j successes, in [0, 1]."""
    blend: tuple[str, str] | None = None
    """Keys of the two credit families whose values are multiplied, each to a power."""
    pooled: bool = False  # whether a blend is of the two group means instead of each problem's two values
    rate: Callable[..., tuple[Floats, Floats, Floats]] | None = None
    """rate(n, c, alpha, beta, k or parameter) -> value, posterior mean and variance per problem."""
    rewards: Callable[[Floats, Any, Floats, int], tuple[Floats, Floats, Floats]] | None = None
    """rewards(levels, counts, prior, k) -> value, posterior mean and variance per problem.

    Levels are the rising rewards (0 and 1 for pass/fail); counts and the prior's Dirichlet pseudo-counts have one row
    per problem and one column per level.
    """
    vote: Callable[..., Floats] | None = None  # vote(answers, k) -> the value per problem

    @property
    def stem(self) -> str:
        """The name up to the sign: pass@ or pass^."""
        return re.split(r"(?<=[@^])", self.name)[0]

    @property
    def follows(self) -> str:
        """What follows the sign: k, N, tau or a number of draws."""
        return self.name.removeprefix(self.stem).removesuffix("_tau")

    @property
    def key(self) -> str:
        return normalize(self.stem)

    def names(self, ks: Sequence[int]) -> list[str]:
        """Return the names of its metrics at each k, with each of the parameters in `examples`."""
        if self.by_name_only:
            return []
        if self.follows == "k":
            return [f"{self.stem}{k}{tau}" for tau in [f"_{each}" for each in self.examples] or [""] for k in ks]
        if self.follows == "tau":
            return [f"{self.stem}{tau}" for tau in self.examples]
        return [self.name] if self.follows == "N" or int(self.follows) <= max(ks) else []


def normalize(word: str) -> str:
    """Return a family's name without case and separators, for lookup."""
    return re.sub(r"[\s_@-]", "", word.lower())


def threshold(tau: float, k: int) -> int:
    """Return ceil(tau * k) in decimal arithmetic: 0.28 * 25 is 7, also if tau has rounding errors of a float."""
    return int((round(Decimal(repr(float(tau))), 12) * k).to_integral_value(rounding=ROUND_CEILING))


def _at_least(successes: int, k: int) -> Floats:
    return (np.arange(k + 1) >= successes).astype(float)


def g_pass(k: int, tau: float) -> Floats:
    return _at_least(max(1, threshold(tau, k)), k)


def mg_pass(k: int) -> Floats:
    return np.asarray(2 * np.maximum(np.arange(k + 1.0) - (k + 1) // 2, 0) / k)


def auc(k: int) -> Floats:
    """Closed form: the probabilities C(k-j, i) / C(k, i) of i draws without success sum to (k+1) / (j+1)."""
    j = np.arange(k + 1.0)
    if k == 1:
        return j
    ends = (j / k + (j >= 1)) / 2
    return ((k + 1) * j / (j + 1) - ends) / (k - 1)


def spectrum_credit(k: int, weights: tuple[float, ...]) -> Floats:
    return np.asarray(np.minimum(np.concatenate([[0.0], np.cumsum(weights)]), 1.0))


def cover(n: Ints, c: Ints, alpha: Floats, beta: Floats, tau: float) -> tuple[Floats, Floats, Floats]:
    """Whether c / n is at least tau; NaN without attempts. The posterior is the chance that the success rate is."""
    value = np.where(n > 0, c >= (tau - 1e-12) * n, np.nan)  # tau has 12 digits: 2 of 49 are .040816326531
    mean, rest = (np.asarray(chance(alpha, beta, tau), dtype=np.float64) for chance in (betaincc, betainc))
    return value, mean, mean * rest


def stopped(n: Ints, c: Ints, alpha: Floats, beta: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Success rate of problems that are attempted until k passes, or as often as the others (Haldane 1945).

    NaN for more passes than k, which break the rule. The posterior is that of any rule, since it depends on c and n.
    """
    value = np.where(c == k, (k - 1) / np.maximum(n - 1, 1), c / np.maximum(n, 1))
    value = np.where((c == k) & (n == 1), 1.0, np.where((c > k) | (n < k), np.nan, value))
    mean, size = alpha / (alpha + beta), alpha + beta
    return value, mean, mean * (beta / size) / (size + 1)


_CODEX = "Chen et al. 2021, Evaluating Large Language Models Trained on Code"
_TAU = "Yao et al. 2024, tau-bench"
_MAJORITY = "strict majority of the draws"
_STABLE = "Liu et al. 2024, Are Your LLMs Capable of Stable Reasoning?"
_BAYES = "Hariri et al. 2025, Don't Pass@k"
_VOTE = "Wang et al. 2022, Self-Consistency Improves Chain of Thought Reasoning"
_AUC = "trapezoidal mean of Chen et al. 2021 over the draws"
_OWN = "the user's own weights over thresholds"
_BEST = "best of k; pass@k when rewards are 0 and 1"
_BLEND = "geometric blend of the data set's means"
_HALDANE = "Haldane 1945, On a Method of Estimating Frequencies"
_LAW = "the mean over tau = 1/n, 2/n, ..., 1 is pass@1"
_PAIR = "chance that two attempts end alike"
_ENDS: dict[str, Any] = {"parameter": "powers", "blend": ("pass", "pass^")}
_STAR: dict[str, Any] = {"parameter": "lambda", "default": 0.5, "blend": ("pass", "mgpass"), "pooled": True}

FAMILIES = (
    Family("pass@k", "1 if j >= 1", _CODEX, credit=lambda k: _at_least(1, k)),
    Family("pass^k", "1 if j = k", _TAU, ("pass-hat", "unanimous"), credit=lambda k: _at_least(k, k)),
    Family("g-pass@k_tau", "1 if j >= max(1, ceil(tau k))", _STABLE, parameter="tau", credit=g_pass,
           examples=(0.25, 0.5, 0.75)),
    Family("mg-pass@k", "(2/k) max(j - ceil(k/2), 0)", _STABLE, credit=mg_pass),
    Family("maj@k", "1 if j >= floor(k/2) + 1", _MAJORITY, credit=lambda k: _at_least(k // 2 + 1, k)),
    Family("auc@k", "area under pass@1..pass@k of the k draws, trapezoids", _AUC, credit=auc),
    Family("spectrum@k", "w_1 + ... + w_j", _OWN, ("threshold-spectrum",), "weights", credit=spectrum_credit),
    Family("geom@k", "mean of pass@k^a pass^k^b, a = b = 1/2", "geometric blend per problem", **_ENDS,
           instead="geom-ds@k, pass@k or pass^k"),
    Family("geom-ds@k", "(mean pass@k)^a (mean pass^k)^b, a = b = 1/2", _BLEND, pooled=True, **_ENDS),
    Family("geo-spectrum@k", "(mean pass@k)^L (mean mg-pass@k)^(1-L)", _BLEND, ("geo-spectrum-star",), **_STAR),
    Family("agree@2", "1 if j = 0 or j = 2", _PAIR, credit=lambda k: np.array([1.0, 0.0, 1.0])),
    Family("cover@tau", "share of problems with c / n >= tau", _LAW, parameter="tau", rate=cover,
           examples=(0.25, 0.5, 0.75, 1.0), instead="pass@1 or agree@2"),
    Family("stopped@k", "(k-1)/(n-1) at k passes, else c / n", _HALDANE, rate=stopped, by_name_only=True),
    Family("avg@N", "mean reward of all attempts", _BAYES, ("mean",), rewards=avg),
    Family("bayes@N", "posterior mean reward", _BAYES, instead="avg@N", rewards=bayes),
    Family("max@k", "expected best reward of k draws", _BEST, ("best",), rewards=best),
    Family("vote@k", "the most common answer of k draws is right", _VOTE, ("cons",), vote=Ballots.vote),
)  # fmt: skip

MAX_K = 2**62  # largest k of metrics in closed form: more attempts than any lake has
MAX_SUMMED_K = 2**20  # largest k of metrics that sum over the draws: their cost grows as k^1.5 and takes minutes here
_MEANT = dict.fromkeys(("acc", "exact", "em"), "pass@1") | {
    "passhat": "pass^",
    "consensus": "vote",
    "average": "avg@N",
}
"""What other words for metrics mean: a key, or a name."""
_NAME = re.compile(r"\s*([a-z][a-z _-]*?)(?:([@^])([^_]*?)(?:_\{?(.*?)\}?)?)?\s*")  # word, sign, k and parameter
_NAMED_SPECTRUM = re.compile(r"\s*(geo-)?spectrum-([a-z][a-z0-9-]*)@(.*?)\s*")
_BY_KEY = {normalize(key): family for family in FAMILIES for key in (family.key, *family.aliases)}


@dataclass(frozen=True)
class Metric:
    """A family at one k (None where it takes no draws), with its parameter (tau, lambda), weights or powers."""

    family: Family
    k: int | None
    param: float | None = None
    weights: tuple[float, ...] | None = None
    label: str = ""  # name of the weights in the config file
    exponents: tuple[float, float] | None = None  # powers given in the name, where they are not the default

    @property
    def name(self) -> str:
        """The canonical name, as in the tables."""
        family = self.family
        if family.follows == "tau":
            return f"{family.stem}{self.param}"
        stem = family.stem.replace("@", f"-{self.label}@") if self.label else family.stem
        name = stem + (family.follows if self.k is None else str(self.k))
        if self.exponents is not None:
            return f"{name}_{self.exponents[0]}_{self.exponents[1]}"
        return name if self.param in (None, family.default) else f"{name}_{self.param}"

    @property
    def draws(self) -> int:
        """Attempts that a problem needs for a value."""
        return self.k or 1

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean over attempts, or close to it, for 0/1 outcomes: pass@1, avg@N, bayes@N."""
        return self.family.key in ("avg", "bayes") or (self.family.key, self.k) == ("pass", 1)

    @property
    def parts(self) -> tuple[Metric, ...]:
        """The credit metrics it consists of: itself, two for a blend, none for metrics of rewards or answers."""
        if self.family.blend is None:
            return (self,) if self.family.credit is not None else ()
        first, second = (Metric(_BY_KEY[key], self.k) for key in self.family.blend)
        return first, second if self.weights is None else spectrum(self.weights)

    @property
    def has_closed_form(self) -> bool:
        """Whether it consists of pass@k and pass^k, which need no sum over the draws."""
        return bool(self.parts) and all(part.family.key in ("pass", "pass^") for part in self.parts)

    @property
    def credit(self) -> Floats:
        """The credit vector a[0..k] of a credit metric."""
        assert self.family.credit is not None
        argument = self.weights if self.family.parameter == "weights" else self.param
        return self.family.credit(self.k) if argument is None else self.family.credit(self.k, argument)

    @property
    def powers(self) -> tuple[float, float] | None:
        """The exponents of a blend: by default the parameter and its complement, or 1/2 each."""
        if self.family.blend is None or self.exponents is not None:
            return self.exponents
        first = 0.5 if self.param is None else self.param
        return first, 1 - first


def as_metric(name: str | Metric) -> Metric:
    """Return a metric, parsing a name."""
    return name if isinstance(name, Metric) else parse(name)


def families() -> list[Family]:
    """Return every family of metrics, in the order of the tables.

    >>> [family.name for family in sl.metrics.families()][:4]
    ['pass@k', 'pass^k', 'g-pass@k_tau', 'mg-pass@k']
    """
    return list(FAMILIES)


def parse(name: str, spectra: Mapping[str, Sequence[float]] | None = None) -> Metric:
    """Parse a metric's name, such as `pass@8` or `g-pass@8_0.5`, in any case; aliases are understood.

    spectra: weights for the names `spectrum-NAME@k` and `geo-spectrum-NAME@k_L`.

    >>> sl.metrics.parse("G-Pass@8_0.50").name
    'g-pass@8_0.5'
    """
    named = _NAMED_SPECTRUM.fullmatch(name.lower())
    if named and named[2] in (spectra or {}):
        own = spectrum((spectra or {})[named[2]], named[2])
        metric = parse(f"{'geo-spectrum' if named[1] else 'pass'}@{named[3]}")
        if metric.k != own.k:
            raise MetricError(f"{name}: [spectra] {own.label} has {own.k} weights, one for each of k = {own.k} draws")
        return replace(metric, weights=own.weights, label=own.label) if named[1] else own
    match = _NAME.fullmatch(name.lower())
    word, sign, k, parameter = match.groups() if match else ("", None, None, None)
    if (normalize(word), sign) == ("accuracy", None):
        return parse("pass@1")
    family = _BY_KEY.get(normalize(word + "^" if sign == "^" else word))
    if family is None:
        names = {each.key: each.name for each in FAMILIES}
        guess = normalize(re.sub(r"_at_?", "@", name.lower()).split("@")[0].rstrip("0123456789"))
        numbers = re.findall(r"\d+", name) or ["k"]
        keys = [_MEANT[guess]] if guess in _MEANT else difflib.get_close_matches(guess, names, n=3, cutoff=0.4)
        close = ", ".join(
            names.get(key, key).replace("@k", f"@{numbers[0]}").replace("^k", f"^{numbers[0]}") for key in keys
        )
        hint = f"did you mean {close}?" if close else f"known: {', '.join(names.values())}"
        raise MetricError(f"unknown metric {name!r}", hint=hint)
    return _build(name, family, k, parameter)


def spectrum(weights: Sequence[float], label: str = "") -> Metric:
    """Return the threshold spectrum of the weights w_1..w_k, which are >= 0 with sum <= 1, as a metric.

    >>> round(sl.metrics.summarize(sl.metrics.spectrum([0.5, 0.5]), n=[5, 5], c=[3, 4]).value, 3)
    0.7
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or w.size < 1 or not (w >= 0).all() or w.sum() > 1 + 1e-12:
        title = f"spectrum {label}".strip()
        raise MetricError(f"{title}: weights must be a list of numbers >= 0 with sum <= 1, got {weights!r}")
    return Metric(_BY_KEY["spectrum"], w.size, weights=tuple(w.tolist()), label=label)


def _build(name: str, family: Family, k: str | None, parameter: str | None) -> Metric:
    """Return the metric of a family from the k and the parameter in its name."""
    if family.parameter == "weights":
        raise MetricError(
            f"{name}: its weights come from the config file",
            hint="[metrics] spectrum = [...], or [spectra] NAME = [...] and spectrum-NAME@k",
        )
    if family.credit is g_pass and parameter is None:
        family = _BY_KEY["pass^"]  # G-Pass without a threshold is pass^k
    if family.follows == "tau":
        k, parameter = None, "_".join(each for each in (k, parameter) if each)
    metric = Metric(family, None, family.default)
    if parameter is not None and family.parameter == "powers":
        powers = _parse_powers(name, parameter)
        metric = replace(metric, exponents=None if powers == metric.powers else powers)
    elif parameter is not None:
        if family.parameter is None:
            raise MetricError(f"{name}: {family.name} takes no parameter, got {parameter!r}")
        value = _parse_number(parameter)
        if not 0 <= value <= 1 or (value == 0 and family.follows == "tau"):
            interval = "(0, 1]" if family.follows == "tau" else "[0, 1]"
            raise MetricError(f"{name}: {family.parameter} must be a number in {interval}, got {parameter!r}")
        metric = replace(metric, param=value)
    if family.follows != "k":
        if k not in (None, family.follows.lower()):
            drawn = f"draws {family.follows} attempts" if family.follows.isdigit() else "uses all attempts"
            raise MetricError(f"{name}: it always {drawn}", hint=f"write {family.name}")
        return replace(metric, k=int(family.follows)) if family.follows.isdigit() else metric
    if not re.fullmatch(r"[0-9]{1,4000}", k or "") or int(k or 0) < 1:
        raise MetricError(f"{name}: k must be a whole number >= 1, got {k!r}")
    metric = replace(metric, k=int(k or 0))
    is_closed = metric.has_closed_form or family.rewards is not None or family.rate is not None
    if metric.draws > (limit := MAX_K if is_closed else MAX_SUMMED_K):
        hint = None if is_closed else "pass@k, pass^k, geom@k, geom-ds@k and max@k allow a larger k"
        raise MetricError(f"{name}: k must be at most {limit:,}", hint=hint)
    return metric


def needs_equal_n(metric: str, n_ratio: ArrayLike) -> NDArray[np.bool_]:
    """Flag pairs of models that cannot be compared: the metric is biased by n, and n differs."""
    # Up to a ratio of 1.05 it may differ, for the sake of ungraded attempts.
    is_biased = metric.startswith(tuple(family.stem for family in FAMILIES if family.instead))
    return np.asarray(n_ratio) > (1.05 if is_biased else np.inf)


def _parse_powers(name: str, text: str) -> tuple[float, float]:
    """Parse the two exponents of a blend, such as 0.3_0.7."""
    first, second = (_parse_number(power) for power in text.split("_")) if text.count("_") == 1 else (np.nan, np.nan)
    if not (abs(first) <= 100 and abs(second) <= 100):
        raise MetricError(f"{name}: it takes two powers, such as {name.partition('_')[0]}_0.3_0.7, got {text!r}")
    if first == second == 0:
        raise MetricError(f"{name}: at least one power must not be 0")
    return first, second


def _parse_number(text: str) -> float:
    """Parse a decimal rounded to 12 digits, so that 0.30000000000000004 is 0.3; NaN if it is not a number."""
    try:
        return float(round(Decimal(text), 12))
    except (InvalidOperation, ValueError):
        return float("nan")
