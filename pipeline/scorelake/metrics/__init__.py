"""Metrics of repeated attempts, with their uncertainty, from counts per problem.

`n` is the number of graded attempts of a problem, `c` the number of correct ones, `k` the number of attempts drawn.
`R` is a matrix of attempts, one row per problem: 1 passed, 0 failed, None or NaN missing; rows may differ in length.

>>> sl.metrics.pass_at_k(n=[5, 5], c=[3, 4], k=2)
0.95
>>> sl.metrics.finite("pass@2", n=[5, 5], c=[3, 4]).round(2).tolist()
[0.9, 1.0]
>>> sl.metrics.summarize("pass@2", n=[5, 5], c=[3, 4]).value
0.95
"""

from __future__ import annotations

from scorelake.metrics.costs import (
    attempts_until_solved,
    budget_curve,
    cost_at_k,
    cost_of_pass,
    dominated,
    front_by_value,
    solved_per_cost,
)
from scorelake.metrics.estimate import finite, finite_levels, posterior, posterior_levels
from scorelake.metrics.families import families, parse, spectrum
from scorelake.metrics.forecast import forecast, judge_corrected, judge_quality
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
    summarize,
    summarize_all,
    summarize_levels,
    threshold_spectrum_at_k,
)
from scorelake.metrics.interval import interval, rerun
from scorelake.metrics.ragged import rasch, ungraded_bounds
from scorelake.metrics.sampling import depends_on_outcomes, order_statistics, stops_after
from scorelake.metrics.series import best_step, change_point, crossovers, learned, simultaneous_band, smooth
from scorelake.metrics.significance import (
    attempts_needed,
    best_attempts,
    e_value,
    joint_verdict,
    look_multiplier,
    pilot_variance,
    problems_needed,
    verdicts,
)
from scorelake.metrics.tailpass import tailpass, tailpass_empirical
from scorelake.metrics.vote import vote

__all__ = ["auc_at_k", "avg", "bayes", "g_pass_at_k_tau", "geo_spectrum_at_k", "geom_at_k", "geom_ds_at_k"]
__all__ += ["maj_at_k", "max_at_k", "mg_pass_at_k", "pass_at_k", "pass_hat_k", "tailpass", "tailpass_empirical"]
__all__ += ["threshold_spectrum_at_k", "vote"]
# Any metric by its name, and intervals of values.
__all__ += ["families", "finite", "finite_levels", "interval", "parse", "posterior", "posterior_levels", "rerun"]
__all__ += ["depends_on_outcomes", "order_statistics", "stops_after"]
__all__ += ["spectrum", "summarize", "summarize_all", "summarize_levels"]
# Costs, decisions and plans, series of steps, uneven boards, forecasts and judges.
__all__ += ["attempts_until_solved", "budget_curve", "cost_at_k", "cost_of_pass", "dominated", "front_by_value"]
__all__ += ["attempts_needed", "best_attempts", "e_value", "joint_verdict", "look_multiplier", "solved_per_cost"]
__all__ += ["best_step", "change_point", "crossovers", "pilot_variance", "problems_needed", "verdicts"]
__all__ += ["learned", "rasch", "simultaneous_band", "smooth", "ungraded_bounds"]
__all__ += ["forecast", "judge_corrected", "judge_quality"]


def __dir__() -> list[str]:
    """Leave out submodules and imports."""
    return sorted(__all__)
