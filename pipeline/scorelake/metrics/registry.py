"""What a metric is, and how its name is read.

A family is registered once (families.py) as one of four kinds: a credit vector, a blend of two credit
families, a function of reward levels, or of answers. A Metric is a family with its k and parameter.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import cache
from typing import Any

import numpy as np

from scorelake.errors import MetricError
from scorelake.metrics.distributions import Floats

Credit = Callable[..., Floats]
_OWN = re.compile(r"\s*(geo-)?spectrum-([a-z][a-z0-9-]*)@(.*?)\s*")
"""Names of the user's own spectra."""
ANY_K = 2**62
"""No lake has so many attempts."""
MOST_K = 2**20
"""The largest k of metrics that need a sum over draws: their cost grows as k^1.5, minutes at this k."""


@dataclass(frozen=True)
class Family:
    """One family of metrics: its name with k for the number of draws, its formula and where it comes from."""

    name: str
    formula: str
    reference: str
    aliases: tuple[str, ...] = ()
    parameter: str | None = None
    default: float | None = None
    takes_k: bool = True
    credit: Credit | None = None
    """credit(k) or credit(k, parameter) -> the vector a[0..k] in [0, 1], monotone in j."""
    blend: tuple[str, str] | None = None
    """The names of the two credit families of a blend."""
    powers: Callable[[float | None], tuple[float, float]] | None = None
    pooled: bool = False
    """A blend of the two group means (else: of each problem's two values)."""
    finite: Callable[..., Floats] | None = None
    posterior: Callable[..., tuple[Floats, Floats]] | None = None
    """Functions of reward levels (levels.py): the finite value, and the posterior mean and variance."""
    vote: Callable[..., Floats] | None = None
    """vote(ballots, k) -> the value of each problem, from its answers (vote.py)."""

    @property
    def key(self) -> str:
        return _key(self.name.removesuffix("_tau").removesuffix("k").removesuffix("N").removesuffix("@"))


@dataclass(frozen=True)
class Metric:
    """A family at one k (None for avg@N and bayes@N) and parameter (tau, lambda), with given powers or weights."""

    family: Family
    k: int | None
    param: float | None = None
    weights: tuple[float, ...] | None = None
    label: str = ""
    """What the config calls the weights."""
    exponents: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        name = self.family.name.removesuffix("_tau")
        if self.label:
            name = name.replace("@", f"-{self.label}@")
        if self.k is not None:
            name = name.removesuffix("k") + str(self.k)
        if self.exponents is not None:
            return f"{name}_{self.exponents[0]}_{self.exponents[1]}"
        return name if self.param is None or self.param == self.family.default else f"{name}_{self.param}"

    @property
    def draws(self) -> int:
        """Attempts a problem needs for a finite value."""
        return self.k or 1

    @property
    def is_mean(self) -> bool:
        """Of 0/1 outcomes it is the mean over attempts, or close to it: pass@1, avg@N, bayes@N."""
        return self.family.key in ("avg", "bayes") or (self.family.key, self.k) == ("pass", 1)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the credit families it is made of: its own, or two for a blend; none of rewards or answers."""
        return tuple(family.name for family in self._parts)

    @property
    def _parts(self) -> list[Family]:
        if self.family.credit is not None:
            return [self.family]
        parts = [_FAMILIES[_key(name)] for name in self.family.blend or ()]
        return [parts[0], _FAMILIES["spectrum"]] if parts and self.weights is not None else parts

    @property
    def closed(self) -> bool:
        """Made of pass@k and pass^k alone, which need no sum over draws."""
        return bool(self.parts) and set(self.parts) <= {"pass@k", "pass^k"}

    @property
    def credits(self) -> tuple[Floats, ...]:
        """The credit vectors it is made of: one, or two for a blend; none for metrics of rewards or answers."""
        return tuple(self._credit(family) for family in self._parts)

    @property
    def powers(self) -> tuple[float, float] | None:
        """A blend's exponents."""
        return self.exponents or (self.family.powers(self.param) if self.family.powers else None)

    def _credit(self, family: Family) -> Floats:
        assert family.credit is not None
        if family.parameter == "weights":
            return family.credit(self.k, self.weights)
        return family.credit(self.k, self.param) if family.parameter else family.credit(self.k)


_FAMILIES: dict[str, Family] = {}


def register(**fields: Any) -> Callable[[Credit], Credit]:
    """Decorator: the function below is the credit vector of a new family."""

    def keep(credit: Credit) -> Credit:
        add(Family(credit=credit, **fields))
        return credit

    return keep


def add(family: Family) -> None:
    """Put a family into the registry under its name and its aliases."""
    for key in (family.key, *(_key(alias) for alias in family.aliases)):
        assert key not in _FAMILIES, key
        _FAMILIES[key] = family


def families() -> list[Family]:
    """Every registered family once, in the order of registration."""
    return list(dict.fromkeys(_FAMILIES.values()))


@cache
def parse(name: str) -> Metric:
    """The metric of a name such as `pass@8`, `pass^8`, `g-pass@8_0.5` or `bayes@N`; any case, aliases too."""
    found = re.fullmatch(r"\s*([a-z][a-z _-]*?)(?:([@^])([^_]*?)(?:_\{?(.*?)\}?)?)?\s*", name.lower())
    if not found:
        raise _unknown(name)
    word, sign, draws, given = found.groups()
    if (_key(word), sign) == ("accuracy", None):
        return parse("pass@1")
    family = _FAMILIES.get(_key(word + "^" if sign == "^" else word))
    if family is None:
        raise _unknown(name)
    if family.parameter == "tau" and given is None:
        family = _FAMILIES["pass^"]  # G-Pass with no threshold is the unanimous one
    if family.parameter == "weights":
        raise MetricError(
            f"{name}: its weights come from the config file",
            hint="[metrics] spectrum = [...], or [spectra] NAME = [...] and spectrum-NAME@k",
        )
    powers = _powers(name, given) if family.parameter == "powers" and given is not None else None
    param = None if family.parameter == "powers" else _parameter(name, family, given)
    if not family.takes_k:
        if draws not in (None, "n"):
            raise MetricError(f"{name}: it always uses all attempts", hint=f"write {family.name}")
        return Metric(family, None, param)
    if not re.fullmatch(r"[0-9]{1,4000}", draws or "") or int(draws) < 1:
        raise MetricError(f"{name}: k must be a whole number >= 1, got {draws!r}")
    metric = Metric(family, int(draws), param, exponents=None if powers == family_powers(family) else powers)
    simple = metric.closed or family.finite is not None
    most = ANY_K if simple else MOST_K
    if metric.draws > most:
        raise MetricError(
            f"{name}: k must be at most {most:,}",
            hint=None if simple else "pass@k, pass^k, geom@k, geom-ds@k and max@k can be had for larger k",
        )
    return metric


def family_powers(family: Family) -> tuple[float, float] | None:
    """The exponents of a blend that nobody gave any for."""
    return family.powers(family.default) if family.powers else None


def spectrum(weights: Sequence[float], label: str = "") -> Metric:
    """The threshold spectrum with the user's own weights w_1..w_k (>= 0, sum <= 1)."""
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or w.size < 1 or not (w >= 0).all() or w.sum() > 1 + 1e-12:
        what = f"spectrum {label}".strip()
        raise MetricError(f"{what}: weights must be a list of numbers >= 0 with sum <= 1, got {weights!r}")
    return Metric(_FAMILIES["spectrum"], w.size, weights=tuple(w.tolist()), label=label)


def parse_own(name: str, spectra: Mapping[str, Sequence[float]]) -> Metric:
    """The same for names of the user's own spectra too: `spectrum-NAME@k` and `geo-spectrum-NAME@k_L`."""
    found = _OWN.fullmatch(name.lower())
    if not found or found[2] not in spectra:
        return parse(name)
    own = spectrum(spectra[found[2]], found[2])
    blended = parse(f"geo-spectrum@{found[3]}") if found[1] else None
    draws = blended.k if blended else parse(f"pass@{found[3]}").k
    if draws != own.k:
        raise MetricError(f"{name}: [spectra] {found[2]} has {own.k} weights, one for each of k = {own.k} draws")
    return own if blended is None else replace(blended, weights=own.weights, label=own.label)


def canonical(name: str) -> str:
    """A metric's name as the tables have it; the user's own spectra are taken at their word."""
    found = _OWN.fullmatch(name.lower())
    if found and found[2] != "star":
        plain = parse(f"geo-spectrum@{found[3]}" if found[1] else f"pass@{found[3]}").name
        return plain.replace("@" if found[1] else "pass@", f"-{found[2]}@" if found[1] else f"spectrum-{found[2]}@")
    word, _, draws = name.strip().lower().removeprefix("threshold-").partition("@")
    return f"spectrum@{draws}" if word == "spectrum" else parse(name).name


def threshold(tau: float, k: int) -> int:
    """ceil(tau * k) in decimal arithmetic: 0.28 * 25 is 7, also when tau carries a float's last digits."""
    return int((_decimal(tau) * k).to_integral_value(rounding=ROUND_CEILING))


def _decimal(value: float) -> Decimal:
    return round(Decimal(repr(float(value))), 12)


def _powers(name: str, given: str) -> tuple[float, float]:
    """The two exponents of a blend, such as 0.3_0.7."""
    try:
        first, second = (float(round(Decimal(text), 12)) for text in given.split("_"))
    except (InvalidOperation, ValueError):
        first = second = float("nan")
    if not (abs(first) <= 100 and abs(second) <= 100):
        raise MetricError(f"{name}: it takes two powers, such as {name.partition('_')[0]}_0.3_0.7, got {given!r}")
    if first == second == 0:
        raise MetricError(f"{name}: at least one power must not be 0")
    return first, second


def _parameter(name: str, family: Family, given: str | None) -> float | None:
    if given is None:
        return family.default
    if family.parameter is None:
        raise MetricError(f"{name}: {family.name} takes no parameter, got {given!r}")
    try:
        value = float(round(Decimal(given), 12))
    except InvalidOperation:
        value = float("nan")
    if not 0 <= value <= 1:
        raise MetricError(f"{name}: {family.parameter} must be a number in [0, 1], got {given!r}")
    return value


def _key(word: str) -> str:
    return re.sub(r"[\s_@-]", "", word.lower())


def _unknown(name: str) -> MetricError:
    names = {family.key: family.name for family in families()}
    word = _key(re.split(r"[@0-9]", name, maxsplit=1)[0])
    close = [names[key] for key in difflib.get_close_matches(word, names, n=3, cutoff=0.4)]
    return MetricError(
        f"unknown metric {name!r}",
        hint=f"the closest names are {', '.join(close)}" if close else f"known: {', '.join(names.values())}",
    )
