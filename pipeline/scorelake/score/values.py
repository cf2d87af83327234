"""The finite value of every metric for every problem: what models are compared by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.metrics import Estimate, Metric
from scorelake.metrics.counts import Distinct, distinct
from scorelake.metrics.draws import Floats
from scorelake.problems import Cells, Problems
from scorelake.score import answers, beliefs, rewards
from scorelake.score.choose import Outcomes
from scorelake.settings import UNIFORM, Settings
from scorelake.tables import EARLIER
from scorelake.threads import side_by_side


class Scored:
    """The problems of a snapshot, scored one by one where that is needed: what was worked out is not done again."""

    def __init__(
        self, counted: Problems, settings: Settings, outcomes: Outcomes, again: Sequence[Metric] = ()
    ) -> None:
        """The finite values of some metrics are wanted again after they were summarized."""
        self.counted, self.settings, self.outcomes = counted, settings, outcomes
        self._again, self._known = set(again), dict[Metric, Floats]()

    def of_rewards(self, chosen: Sequence[Metric]) -> list[Estimate]:
        """What the rewards of every problem come to."""
        table = self.counted.others(rewards.columns(self.outcomes.earlier))
        return self._kept(chosen, rewards.estimates(table, chosen, self.settings))

    def of_answers(self, chosen: Sequence[Metric]) -> list[Estimate]:
        """What the answers of every problem come to."""
        ballots = answers.ballots(self.counted.others(["n", "c", *answers.COLUMNS]))
        return self._kept(chosen, side_by_side(lambda metric: metrics.of_answers(metric, ballots), chosen))

    def _kept(self, chosen: Sequence[Metric], made: list[Estimate]) -> list[Estimate]:
        self._known |= {m: each.value[0] for m, each in zip(chosen, made, strict=True) if m in self._again}
        return made

    def values(self, chosen: Sequence[Metric]) -> list[Floats]:
        """For each metric the finite value of every problem."""
        new = [metric for metric in chosen if metric not in self._known]
        rows = self.counted.others(needed(new, self.outcomes))
        known = self._known | dict(
            zip(new, per_problem(new, rows, self.settings, self.outcomes, self.counted.pairs), strict=True)
        )
        return [known[metric] for metric in chosen]

    def cells(self, chosen: Sequence[Metric]) -> Cells:
        """The same for what problems have in common, where that decides."""
        n, c, place = self.counted.pairs
        if kinds(chosen, self.outcomes)["counts"] != list(chosen):
            return Cells(None, n[place], self.values(chosen))
        alike = Distinct(n, c, np.arange(n.size))
        return Cells(place, n, per_problem(chosen, pl.DataFrame(), self.settings, self.outcomes, alike))


def kinds(chosen: Sequence[Metric], outcomes: Outcomes) -> dict[str, list[Metric]]:
    """Metrics by what they are made of: rewards, answers, counts with those of earlier attempts, or counts."""
    of: dict[str, list[Metric]] = {"rewards": [], "answers": [], "earlier": [], "counts": []}
    for metric in chosen:
        if outcomes.rewards and metric.family.finite is not None:
            kind = "rewards"
        elif metric.family.vote is not None:
            kind = "answers"
        elif metric.family.name == "bayes@N" and outcomes.earlier:
            kind = "earlier"
        else:
            kind = "counts"
        of[kind].append(metric)
    return of


def needed(chosen: Sequence[Metric], outcomes: Outcomes) -> list[str]:
    """The columns of problem_counts that these metrics need besides the distinct (n, c)."""
    of = kinds(chosen, outcomes)
    counts = ("n", "c") if of["answers"] or of["earlier"] else ()
    lists = [
        *(rewards.columns(outcomes.earlier) if of["rewards"] else ()),
        *(answers.COLUMNS if of["answers"] else ()),
        *((EARLIER["n"], EARLIER["c"]) if of["earlier"] else ()),
    ]
    return list(dict.fromkeys([*counts, *lists]))


def per_problem(
    chosen: Sequence[Metric],
    problems: pl.DataFrame,
    settings: Settings,
    outcomes: Outcomes,
    pairs: Distinct | None = None,
) -> list[Floats]:
    """For each metric the finite values of rows of problem_counts, NaN where undefined.

    If the pairs of all rows are known, they need not be looked for.
    """
    of = kinds(chosen, outcomes)
    out: dict[Metric, Floats] = {}
    worth = beliefs.worth(settings, outcomes)
    if of["counts"]:
        pairs = pairs or distinct(problems["n"].to_numpy(), problems["c"].to_numpy())
        prior = beliefs.beta(settings, outcomes) or UNIFORM  # one for all models: bayes@N needs it
        estimates = metrics.evaluate(of["counts"], pairs.n, pairs.c, prior, worth)
        out |= {m: e.value[0][pairs.place] for m, e in zip(of["counts"], estimates, strict=True)}
    if of["earlier"]:
        own = beliefs.per_row(beliefs.beta(settings, outcomes) or UNIFORM, problems)
        n, c = (problems[name].to_numpy() for name in ("n", "c"))
        found = metrics.evaluate(of["earlier"], n, c, own, worth)
        out |= {m: each.value[0] for m, each in zip(of["earlier"], found, strict=True)}
    if of["rewards"]:
        found = rewards.estimates(problems, of["rewards"], settings)
        out |= {m: each.value[0] for m, each in zip(of["rewards"], found, strict=True)}
    if of["answers"]:
        ballots = answers.ballots(problems)
        out |= {m: metrics.of_answers(m, ballots).value[0] for m in of["answers"]}
    return [out[metric] for metric in chosen]
