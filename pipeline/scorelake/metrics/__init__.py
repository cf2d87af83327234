"""Metric kernels: counts per problem in, scores with their uncertainty out. numpy and scipy only.

`n` is the number of graded attempts of a problem, `c` how many were correct, `k` the number of draws. `R` is a matrix
of attempts, a row per problem: 1 passed, 0 failed, None missing; rows may differ in length.

>>> sl.metrics.pass_at_k(n=[5, 5], c=[3, 4], k=2)
0.95
>>> sl.metrics.finite("pass@2", n=[5, 5], c=[3, 4]).round(2).tolist()
[0.9, 1.0]
>>> sl.metrics.summarize("pass@2", n=[5, 5], c=[3, 4]).value
0.95
"""

from __future__ import annotations

from scorelake.errors import MetricError
from scorelake.metrics import families as _families  # noqa: F401  (fills the registry)
from scorelake.metrics.attempts import Attempts
from scorelake.metrics.estimate import Estimate, evaluate, of_answers, of_ends, of_levels
from scorelake.metrics.functions import (
    auc_at_k,
    avg,
    bayes,
    g_pass_at_k_tau,
    geo_spectrum_at_k,
    geom_at_k,
    geom_ds_at_k,
    maj_at_k,
    max_at_k,
    mg_pass_at_k,
    pass_at_k,
    pass_hat_k,
    threshold_spectrum_at_k,
)
from scorelake.metrics.groups import (
    finite,
    finite_levels,
    posterior,
    posterior_levels,
    summarize,
    summarize_all,
    summarize_levels,
)
from scorelake.metrics.interval import interval, rerun
from scorelake.metrics.profile import Profile, tailpass, tailpass_empirical
from scorelake.metrics.registry import Family, Metric, canonical, families, parse, parse_own, spectrum, threshold
from scorelake.metrics.summary import Summaries, Summary, aggregate
from scorelake.metrics.vote import Ballots, vote

__all__ = [
    "Attempts",
    "Ballots",
    "Estimate",
    "Family",
    "Metric",
    "MetricError",
    "Profile",
    "Summaries",
    "Summary",
    "aggregate",
    "auc_at_k",
    "avg",
    "bayes",
    "canonical",
    "evaluate",
    "families",
    "finite",
    "finite_levels",
    "g_pass_at_k_tau",
    "geo_spectrum_at_k",
    "geom_at_k",
    "geom_ds_at_k",
    "interval",
    "maj_at_k",
    "max_at_k",
    "mg_pass_at_k",
    "of_answers",
    "of_ends",
    "of_levels",
    "parse",
    "parse_own",
    "pass_at_k",
    "pass_hat_k",
    "posterior",
    "posterior_levels",
    "rerun",
    "spectrum",
    "summarize",
    "summarize_all",
    "summarize_levels",
    "tailpass",
    "tailpass_empirical",
    "threshold",
    "threshold_spectrum_at_k",
    "vote",
]
