"""What is believed of a problem before its attempts, and what a verdict is worth: the settings that say so."""

from __future__ import annotations

import numpy as np
import polars as pl

from scorelake.errors import UsageError
from scorelake.metrics.distributions import Floats
from scorelake.schemas import EARLIER
from scorelake.scoring.choose import Outcomes
from scorelake.settings import UNIFORM, Settings

VERDICTS = (0.0, 1.0)
"""Levels that weigh failed and passed attempts, where there is no score."""


def check(settings: Settings, outcomes: Outcomes) -> None:
    """A belief or a weight that would be left aside is an error, not a surprise."""
    rubric, plain = settings.rubric, settings.uncertainty.pseudo_counts == UNIFORM
    if outcomes.rewards and not plain and not (outcomes.binary and (rubric.prior or not rubric.levels)):
        raise UsageError(
            "[uncertainty] prior is of pass/fail, and this lake has scores",
            hint="[rubric] prior = [...] gives prior outcomes per level; leave out [uncertainty] prior",
        )
    if not outcomes.rewards and rubric.levels and tuple(sorted(rubric.levels)) != VERDICTS:
        raise UsageError(
            f"[rubric] levels are of a column {settings.columns.score}, and this lake has none",
            hint="levels = [0, 1] with weights say what failed and passed attempts are worth",
        )
    if outcomes.earlier and settings.uncertainty.pseudo_counts is None:
        raise UsageError('[uncertainty] prior_lake and prior = "empirical" exclude each other')
    if outcomes.earlier and not outcomes.binary and not rubric.levels:
        raise UsageError(
            "[uncertainty] prior_lake: scores have a posterior only where a rubric says which there are",
            hint="[rubric] levels = [...], or leave out prior_lake",
        )
    if not outcomes.rewards and rubric.prior and settings.uncertainty.pseudo_counts is None:
        raise UsageError('[rubric] prior and [uncertainty] prior = "empirical" exclude each other')


def worth(settings: Settings, outcomes: Outcomes) -> tuple[float, float]:
    """What a failed and a passed attempt are worth: a rubric of 0 and 1 says so in a lake without scores."""
    weighed = {} if outcomes.rewards else settings.rubric.worth
    return (weighed[0.0], weighed[1.0]) if weighed else VERDICTS


def per_row(flat: tuple[float, float], rows: pl.DataFrame) -> tuple[Floats, Floats]:
    """The same with the earlier attempts of each problem as prior outcomes."""
    n, c = (rows[EARLIER[name]].to_numpy() for name in ("n", "c"))
    return flat[0] + c.astype(np.float64), flat[1] + (n - c).astype(np.float64)


def beta(settings: Settings, outcomes: Outcomes) -> tuple[float, float] | None:
    """alpha and beta of a verdict's prior; None when they are to be learnt from the lake."""
    known, told = settings.uncertainty.pseudo_counts, {} if outcomes.rewards else settings.rubric.outcomes
    if known is None or not told:
        return known
    return known[0] + told[1.0], known[1] + told[0.0]
