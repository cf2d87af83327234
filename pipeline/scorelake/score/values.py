"""The finite value of every metric for every problem: what models are compared by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from scorelake import metrics
from scorelake.metrics import Metric
from scorelake.metrics.counts import Distinct, distinct
from scorelake.metrics.draws import Floats, Ints
from scorelake.score import answers, beliefs, rewards
from scorelake.score.choose import Outcomes
from scorelake.settings import UNIFORM, Settings


def per_problem(
    chosen: Sequence[Metric],
    problems: pl.DataFrame,
    settings: Settings,
    outcomes: Outcomes,
    pairs: Distinct | None = None,
) -> list[Callable[[slice], Floats]]:
    """For each metric the finite values of some rows of problem_counts, NaN where undefined.

    Of some at a time: the values of all metrics for all rows would take more memory than all else. If the pairs of
    all rows are known, they need not be looked for.
    """
    from_rewards = [m for m in chosen if outcomes.rewards and m.family.finite is not None]
    from_answers = [m for m in chosen if m.family.vote is not None]
    informed = [m for m in chosen if m.family.name == "bayes@N" and not outcomes.rewards and outcomes.earlier]
    from_counts = [m for m in chosen if m not in (*from_rewards, *from_answers, *informed)]
    out: dict[Metric, Callable[[slice], Floats]] = {}
    if from_counts:
        pairs = pairs or distinct(problems["n"].to_numpy(), problems["c"].to_numpy())
        prior = beliefs.beta(settings, outcomes) or UNIFORM  # one for all models: bayes@N needs it
        estimates = metrics.evaluate(from_counts, pairs.n, pairs.c, prior, beliefs.worth(settings, outcomes))
        out |= {m: _gather(e.value[0], pairs.place) for m, e in zip(from_counts, estimates, strict=True)}
    if informed:
        own = beliefs.per_row(beliefs.beta(settings, outcomes) or UNIFORM, problems)
        n, c = (problems[name].to_numpy() for name in ("n", "c"))
        found = metrics.evaluate(informed, n, c, own, beliefs.worth(settings, outcomes))
        out |= {m: each.value[0].__getitem__ for m, each in zip(informed, found, strict=True)}
    if from_rewards:
        found = rewards.estimates(problems, from_rewards, settings)
        out |= {m: each.value[0].__getitem__ for m, each in zip(from_rewards, found, strict=True)}
    if from_answers:
        ballots = answers.ballots(problems)
        out |= {m: metrics.of_answers(m, ballots).value[0].__getitem__ for m in from_answers}
    return [out[metric] for metric in chosen]


def _gather(values: Floats, place: Ints) -> Callable[[slice], Floats]:
    return lambda rows: values[place[rows]]
