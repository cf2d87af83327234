"""Metric families, and metrics parsed from their names.

A Family is registered once (families.py). A Metric is a family at one k, with its parameter.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import cache
from typing import Any, TypeVar

import numpy as np

from scorelake.errors import MetricError
from scorelake.metrics.distributions import Floats

Function = TypeVar("Function", bound=Callable[..., Any])
_NAMED_SPECTRUM = re.compile(r"\s*(geo-)?spectrum-([a-z][a-z0-9-]*)@(.*?)\s*")
MAX_K = 2**62
"""Largest k of metrics in closed form: more attempts than any lake has."""
MAX_SUMMED_K = 2**20
"""Largest k of metrics that sum over the draws: their cost grows as k^1.5 and takes minutes here."""


@dataclass(frozen=True)
class Family:
    """A family of metrics. Exactly one of `credit`, `blend`, `rewards` and `vote` defines its values."""

    name: str
    """With k for the number of draws, such as pass@k."""
    formula: str
    reference: str
    aliases: tuple[str, ...] = ()
    parameter: str | None = None
    """What follows the k in a name: tau, lambda, powers; or weights, which come from the config file."""
    default: float | None = None
    takes_k: bool = True
    credit: Callable[..., Floats] | None = None
    """credit(k) or credit(k, parameter) -> the credit a[0..k] for j successes, in [0, 1] and monotone in j."""
    blend: tuple[str, str] | None = None
    """The two credit families whose values are multiplied, each to a power."""
    pooled: bool = False
    """Whether a blend is of the two group means instead of each problem's two values."""
    rewards: Callable[[Floats, Any, Floats, int], tuple[Floats, Floats, Floats]] | None = None
    """rewards(levels, counts, prior, k) -> value, posterior mean and variance per problem."""
    vote: Callable[..., Floats] | None = None
    """vote(answers, k) -> the value per problem."""

    @property
    def key(self) -> str:
        return _key(re.sub(r"@?[kN](_tau)?$", "", self.name))

    def default_powers(self, param: float | None) -> tuple[float, float]:
        """Exponents of a blend without powers in its name."""
        return (0.5, 0.5) if param is None else (param, 1 - param)


@dataclass(frozen=True)
class Metric:
    """A family at one k (None for avg@N and bayes@N), with its parameter (tau, lambda), weights or powers."""

    family: Family
    k: int | None
    param: float | None = None
    weights: tuple[float, ...] | None = None
    label: str = ""
    """Name of the weights in the config file."""
    exponents: tuple[float, float] | None = None
    """Powers given in the name, where they are not the default."""

    @property
    def name(self) -> str:
        """The canonical name, as in the tables."""
        name = self.family.name.removesuffix("_tau")
        if self.label:
            name = name.replace("@", f"-{self.label}@")
        if self.k is not None:
            name = name.removesuffix("k") + str(self.k)
        if self.exponents is not None:
            return f"{name}_{self.exponents[0]}_{self.exponents[1]}"
        return name if self.param in (None, self.family.default) else f"{name}_{self.param}"

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
        first, second = (_FAMILIES[_key(name)] for name in self.family.blend)
        other = Metric(second, self.k) if self.weights is None else spectrum(self.weights)
        return Metric(first, self.k), other

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
        """The exponents of a blend."""
        if self.family.blend is None:
            return None
        return self.exponents or self.family.default_powers(self.param)


_FAMILIES: dict[str, Family] = {}


def register(
    name: str, formula: str, reference: str, kind: str = "credit", **fields: Any
) -> Callable[[Function], Function]:
    """Return a decorator that registers a function as the `kind` (credit, rewards or vote) of a new family."""

    def decorate(function: Function) -> Function:
        add(Family(name, formula, reference, **fields | {kind: function}))
        return function

    return decorate


def add(family: Family) -> None:
    """Register a family under its name and its aliases."""
    for key in (family.key, *(_key(alias) for alias in family.aliases)):
        assert key not in _FAMILIES, key
        _FAMILIES[key] = family


def families() -> list[Family]:
    """Return every registered family once, in the order of registration."""
    return list(dict.fromkeys(_FAMILIES.values()))


@cache
def parse(name: str) -> Metric:
    """Parse a metric's name.

    Parameters
    ----------
    name : str
        Such as `pass@8`, `pass^8`, `g-pass@8_0.5` or `bayes@N`, in any case; aliases are understood.

    Returns
    -------
    Metric

    Raises
    ------
    MetricError
        If the name is unknown, or its k or parameter is invalid.

    Examples
    --------
    >>> sl.metrics.parse("G-Pass@8_0.50").name
    'g-pass@8_0.5'
    """
    match = re.fullmatch(r"\s*([a-z][a-z _-]*?)(?:([@^])([^_]*?)(?:_\{?(.*?)\}?)?)?\s*", name.lower())
    if not match:
        raise _unknown(name)
    word, sign, draws, parameter = match.groups()
    if (_key(word), sign) == ("accuracy", None):
        return parse("pass@1")
    family = _FAMILIES.get(_key(word + "^" if sign == "^" else word))
    if family is None:
        raise _unknown(name)
    if family.parameter == "tau" and parameter is None:
        family = _FAMILIES["pass^"]  # G-Pass without a threshold is pass^k
    if family.parameter == "weights":
        raise MetricError(
            f"{name}: its weights come from the config file",
            hint="[metrics] spectrum = [...], or [spectra] NAME = [...] and spectrum-NAME@k",
        )
    powers, param = None, family.default
    if parameter is not None and family.parameter == "powers":
        powers = _parse_powers(name, parameter)
    elif parameter is not None:
        param = _parse_parameter(name, family, parameter)
    if not family.takes_k:
        if draws not in (None, "n"):
            raise MetricError(f"{name}: it always uses all attempts", hint=f"write {family.name}")
        return Metric(family, None, param)
    if not re.fullmatch(r"[0-9]{1,4000}", draws or "") or int(draws) < 1:
        raise MetricError(f"{name}: k must be a whole number >= 1, got {draws!r}")
    metric = Metric(family, int(draws), param, exponents=None if powers == family.default_powers(param) else powers)
    is_closed = metric.has_closed_form or family.rewards is not None
    if metric.draws > (limit := MAX_K if is_closed else MAX_SUMMED_K):
        hint = None if is_closed else "pass@k, pass^k, geom@k, geom-ds@k and max@k allow a larger k"
        raise MetricError(f"{name}: k must be at most {limit:,}", hint=hint)
    return metric


def spectrum(weights: Sequence[float], label: str = "") -> Metric:
    """Return the threshold spectrum of the weights w_1..w_k, which are >= 0 with sum <= 1."""
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or w.size < 1 or not (w >= 0).all() or w.sum() > 1 + 1e-12:
        title = f"spectrum {label}".strip()
        raise MetricError(f"{title}: weights must be a list of numbers >= 0 with sum <= 1, got {weights!r}")
    return Metric(_FAMILIES["spectrum"], w.size, weights=tuple(w.tolist()), label=label)


def parse_own(name: str, spectra: Mapping[str, Sequence[float]]) -> Metric:
    """Parse a name that may refer to configured spectra: `spectrum-NAME@k` and `geo-spectrum-NAME@k_L`."""
    match = _NAMED_SPECTRUM.fullmatch(name.lower())
    if not match or match[2] not in spectra:
        return parse(name)
    metric, own = _without_weights(match), spectrum(spectra[match[2]])
    if metric.k != own.k:
        raise MetricError(f"{name}: [spectra] {match[2]} has {own.k} weights, one for each of k = {own.k} draws")
    return replace(metric, weights=own.weights)


def canonical(name: str) -> str:
    """Return a metric's name as in the tables; the weights of named spectra are not needed."""
    match = _NAMED_SPECTRUM.fullmatch(name.lower())
    if match and match[2] != "star":
        return _without_weights(match).name
    word, _, draws = name.strip().lower().removeprefix("threshold-").partition("@")
    return f"spectrum@{draws}" if word == "spectrum" else parse(name).name


def _without_weights(match: re.Match[str]) -> Metric:
    """Return the metric of a named spectrum, its weights still missing."""
    if match[1]:
        return replace(parse(f"geo-spectrum@{match[3]}"), label=match[2])
    return Metric(_FAMILIES["spectrum"], parse(f"pass@{match[3]}").k, label=match[2])


def threshold(tau: float, k: int) -> int:
    """Return ceil(tau * k) in decimal arithmetic: 0.28 * 25 is 7, also if tau has rounding errors of a float."""
    return int((_rounded(repr(float(tau))) * k).to_integral_value(rounding=ROUND_CEILING))


def _rounded(text: str) -> Decimal:
    return round(Decimal(text), 12)


def _parse_powers(name: str, text: str) -> tuple[float, float]:
    """Parse the two exponents of a blend, such as 0.3_0.7."""
    try:
        first, second = (float(_rounded(power)) for power in text.split("_"))
    except (InvalidOperation, ValueError):
        first = second = float("nan")
    if not (abs(first) <= 100 and abs(second) <= 100):
        raise MetricError(f"{name}: it takes two powers, such as {name.partition('_')[0]}_0.3_0.7, got {text!r}")
    if first == second == 0:
        raise MetricError(f"{name}: at least one power must not be 0")
    return first, second


def _parse_parameter(name: str, family: Family, text: str) -> float:
    if family.parameter is None:
        raise MetricError(f"{name}: {family.name} takes no parameter, got {text!r}")
    try:
        value = float(_rounded(text))
    except InvalidOperation:
        value = float("nan")
    if not 0 <= value <= 1:
        raise MetricError(f"{name}: {family.parameter} must be a number in [0, 1], got {text!r}")
    return value


def _key(word: str) -> str:
    return re.sub(r"[\s_@-]", "", word.lower())


def _unknown(name: str) -> MetricError:
    names = {family.key: family.name for family in families()}
    word = _key(re.split(r"[@0-9]", name, maxsplit=1)[0])
    close = [names[key] for key in difflib.get_close_matches(word, names, n=3, cutoff=0.4)]
    hint = f"the closest names are {', '.join(close)}" if close else f"known: {', '.join(names.values())}"
    return MetricError(f"unknown metric {name!r}", hint=hint)
