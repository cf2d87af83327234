"""Priors and weights of outcomes, from the settings or fitted to the lake."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from scorelake.errors import UsageError
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.empirical import fit_beta_mixture
from scorelake.schemas import EARLIER
from scorelake.scoring.choose import Outcomes
from scorelake.scoring.survey import distinct_rows
from scorelake.settings import UNIFORM, Settings

PASS_FAIL = (0.0, 1.0)  # rubric levels that weigh failed and passed attempts, where there is no score


def check_priors(settings: Settings, outcomes: Outcomes) -> None:
    """Raise if a prior or weight would have no effect on this lake."""
    rubric, is_uniform = settings.rubric, settings.uncertainty.pseudo_counts == UNIFORM
    if outcomes.rewards and not is_uniform and not (outcomes.binary and (rubric.prior or not rubric.levels)):
        raise UsageError(
            "[uncertainty] prior is of pass/fail, and this lake has scores",
            hint="[rubric] prior = [...] gives prior outcomes per level; leave out [uncertainty] prior",
        )
    if not outcomes.rewards and rubric.levels and tuple(sorted(rubric.levels)) != PASS_FAIL:
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


def outcome_weights(settings: Settings, outcomes: Outcomes) -> tuple[float, float]:
    """Return the weights of a failed and a passed attempt: a rubric of 0 and 1 sets them in a lake without scores."""
    weights = {} if outcomes.rewards else settings.rubric.worth
    return (weights[0.0], weights[1.0]) if weights else PASS_FAIL


def beta_prior(settings: Settings, outcomes: Outcomes) -> tuple[float, float] | None:
    """Return alpha and beta of the prior of a success rate; None if it is fitted to the lake."""
    prior = settings.uncertainty.pseudo_counts
    extra = {} if outcomes.rewards else settings.rubric.outcomes
    return prior if prior is None or not extra else (prior[0] + extra[1.0], prior[1] + extra[0.0])


def problem_priors(settings: Settings, outcomes: Outcomes, rows: pl.DataFrame) -> tuple[Floats, Floats]:
    """Return alpha and beta of each row, with the counts of the prior lake as prior outcomes."""
    alpha, beta = beta_prior(settings, outcomes) or UNIFORM
    n, c = (rows[EARLIER[name]].to_numpy() for name in ("n", "c"))
    return alpha + c.astype(np.float64), beta + (n - c).astype(np.float64)


class EmpiricalPrior:
    """A mixture of priors per model and benchmark, fitted to its problems and shared by its subjects and slices.

    Estimates are made for every distinct (model, n, c) under each component of the mixture.
    """

    def __init__(self, histograms: Sequence[pl.DataFrame], keys: Sequence[str]) -> None:
        """Fit the priors by the keys of the first histogram; the other histograms are finer."""
        groups = histograms[0].partition_by(keys, maintain_order=True)
        fits = [fit_beta_mixture(*(group[name].to_numpy() for name in ("n", "c", "problems"))) for group in groups]
        order = histograms[0].select(keys).unique(maintain_order=True).with_row_index("fit")
        rows = pl.concat([histogram.select(*keys, "n", "c") for histogram in histograms])
        coded = rows.join(order, on=keys, how="left", maintain_order="left").select("fit", "n", "c")
        distinct, self.column = distinct_rows(coded)
        """Column of each row of the histograms, one after the other."""
        self.n, self.c = (distinct[name].to_numpy() for name in ("n", "c"))
        self.fit: Ints = distinct["fit"].cast(pl.Int64).to_numpy()
        alpha, beta, weight = (np.stack([getattr(f, x) for f in fits], axis=1) for x in ("alpha", "beta", "weight"))
        self.priors = [(a[self.fit], b[self.fit]) for a, b in zip(alpha, beta, strict=True)]
        self.weight: Floats = weight
        """components x fits"""
