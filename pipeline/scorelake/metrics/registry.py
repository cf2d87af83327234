"""Metrics and their names. A Metric is a family at one k, with its parameter."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

import numpy as np

from scorelake.errors import MetricError
from scorelake.metrics.distributions import Floats
from scorelake.metrics.families import FAMILIES, Family, normalize

MAX_K = 2**62
"""Largest k of metrics in closed form: more attempts than any lake has."""
MAX_SUMMED_K = 2**20
"""Largest k of metrics that sum over the draws: their cost grows as k^1.5 and takes minutes here."""
_NAME = re.compile(r"\s*([a-z][a-z _-]*?)(?:([@^])([^_]*?)(?:_\{?(.*?)\}?)?)?\s*")
"""Word, sign, k and parameter."""
_NAMED_SPECTRUM = re.compile(r"\s*(geo-)?spectrum-([a-z][a-z0-9-]*)@(.*?)\s*")
_BY_KEY = {normalize(key): family for family in FAMILIES for key in (family.key, *family.aliases)}


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


def families() -> list[Family]:
    """Return every family, in the order of the tables."""
    return list(FAMILIES)


def parse(name: str, spectra: Mapping[str, Sequence[float]] | None = None) -> Metric:
    """Parse a metric's name.

    Parameters
    ----------
    name : str
        Such as `pass@8`, `pass^8`, `g-pass@8_0.5` or `bayes@N`, in any case; aliases are understood.
    spectra : mapping of str to sequence of float, optional
        Weights for the names `spectrum-NAME@k` and `geo-spectrum-NAME@k_L`.

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
        raise _unknown(name)
    return _build(name, family, k, parameter)


def spectrum(weights: Sequence[float], label: str = "") -> Metric:
    """Return the threshold spectrum of the weights w_1..w_k, which are >= 0 with sum <= 1."""
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
    if family.parameter == "tau" and parameter is None:
        family = _BY_KEY["pass^"]  # G-Pass without a threshold is pass^k
    metric = Metric(family, None, family.default)
    if parameter is not None and family.parameter == "powers":
        powers = _parse_powers(name, parameter)
        metric = replace(metric, exponents=None if powers == metric.powers else powers)
    elif parameter is not None:
        metric = replace(metric, param=_parse_parameter(name, family, parameter))
    if not family.takes_k:
        if k not in (None, "n"):
            raise MetricError(f"{name}: it always uses all attempts", hint=f"write {family.name}")
        return metric
    if not re.fullmatch(r"[0-9]{1,4000}", k or "") or int(k or 0) < 1:
        raise MetricError(f"{name}: k must be a whole number >= 1, got {k!r}")
    metric = replace(metric, k=int(k or 0))
    is_closed = metric.has_closed_form or family.rewards is not None
    if metric.draws > (limit := MAX_K if is_closed else MAX_SUMMED_K):
        hint = None if is_closed else "pass@k, pass^k, geom@k, geom-ds@k and max@k allow a larger k"
        raise MetricError(f"{name}: k must be at most {limit:,}", hint=hint)
    return metric


def _parse_powers(name: str, text: str) -> tuple[float, float]:
    """Parse the two exponents of a blend, such as 0.3_0.7."""
    first, second = (_parse_number(power) for power in text.split("_")) if text.count("_") == 1 else (np.nan, np.nan)
    if not (abs(first) <= 100 and abs(second) <= 100):
        raise MetricError(f"{name}: it takes two powers, such as {name.partition('_')[0]}_0.3_0.7, got {text!r}")
    if first == second == 0:
        raise MetricError(f"{name}: at least one power must not be 0")
    return first, second


def _parse_parameter(name: str, family: Family, text: str) -> float:
    if family.parameter is None:
        raise MetricError(f"{name}: {family.name} takes no parameter, got {text!r}")
    value = _parse_number(text)
    if not 0 <= value <= 1:
        raise MetricError(f"{name}: {family.parameter} must be a number in [0, 1], got {text!r}")
    return value


def _parse_number(text: str) -> float:
    """Parse a decimal rounded to 12 digits, so that 0.30000000000000004 is 0.3; NaN if it is not a number."""
    try:
        return float(round(Decimal(text), 12))
    except (InvalidOperation, ValueError):
        return float("nan")


def _unknown(name: str) -> MetricError:
    names = {family.key: family.name for family in FAMILIES}
    word = normalize(re.split(r"[@0-9]", name, maxsplit=1)[0])
    close = [names[key] for key in difflib.get_close_matches(word, names, n=3, cutoff=0.4)]
    hint = f"the closest names are {', '.join(close)}" if close else f"known: {', '.join(names.values())}"
    return MetricError(f"unknown metric {name!r}", hint=hint)
