"""The finite value of every metric for every problem: what models are compared by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from scorelake import metrics
from scorelake.metrics import Estimate, Metric
from scorelake.metrics.counts import Distinct, distinct
from scorelake.metrics.distributions import Floats, Ints
from scorelake.problems import Cells, Part
from scorelake.schemas import EARLIER
from scorelake.scoring import answers, beliefs, rewards
from scorelake.scoring.choose import Outcomes
from scorelake.settings import UNIFORM, Settings
from scorelake.threads import parallel_map


class Scored:
    """The problems of one part, scored one by one where that is needed: what was worked out is not done again."""

    def __init__(self, part: Part, settings: Settings, outcomes: Outcomes) -> None:
        self.part, self.settings, self.outcomes = part, settings, outcomes
        self._known: dict[Metric, Floats] = {}

    def estimates(self, chosen: Sequence[Metric]) -> Iterator[tuple[list[Metric], list[Estimate], Ints | None]]:
        """Metrics that do not follow from n and c alone, by what they are made of; and what every problem comes to,
        or, where there are places, what each place does."""
        of = kinds(chosen, self.outcomes)
        if of["rewards"]:
            table = self.part.others(rewards.columns(self.outcomes.earlier))
            yield (
                of["rewards"],
                self._kept(of["rewards"], rewards.estimates(table, of["rewards"], self.settings)),
                None,
            )
        if of["answers"]:
            ballots = answers.ballots(self.part.others(["n", "c", *answers.COLUMNS]))
            made = parallel_map(lambda metric: metrics.of_answers(metric, ballots), of["answers"])
            yield of["answers"], self._kept(of["answers"], made), None
        informed = [*of["counts"], *of["earlier"]]
        if informed and self.outcomes.earlier:
            yield informed, *self._informed(informed)

    def _informed(self, chosen: list[Metric]) -> tuple[list[Estimate], Ints]:
        """Where every problem has a prior of its own: each distinct (n, c) with its earlier counts once."""
        counts = self.part.others(["n", "c", EARLIER["n"], EARLIER["c"]])
        known = counts.unique().sort(counts.columns)
        found = counts.join(known.with_row_index("at"), on=counts.columns, how="left", maintain_order="left")["at"]
        prior = beliefs.per_row(beliefs.beta(self.settings, self.outcomes) or UNIFORM, known)
        worth = beliefs.worth(self.settings, self.outcomes)
        made = metrics.evaluate(chosen, known["n"].to_numpy(), known["c"].to_numpy(), prior, worth)
        return made, found.cast(pl.Int64).to_numpy()

    def _kept(self, chosen: Sequence[Metric], made: list[Estimate]) -> list[Estimate]:
        self._known |= {metric: each.value[0] for metric, each in zip(chosen, made, strict=True)}
        return made

    def values(self, chosen: Sequence[Metric]) -> list[Floats]:
        """For each metric the finite value of every problem."""
        new = [metric for metric in chosen if metric not in self._known]
        rows = self.part.others(needed(new, self.outcomes))
        known = self._known | dict(
            zip(new, per_problem(new, rows, self.settings, self.outcomes, self.part.pairs), strict=True)
        )
        return [known[metric] for metric in chosen]

    def cells(self, chosen: Sequence[Metric], pairs: tuple[Ints, Ints]) -> Cells:
        """The same for what problems have in common, where that decides; in: the distinct (n, c) of all parts."""
        mine = self.part.pairs
        if not follow_from_counts(chosen, self.outcomes):
            return Cells(None, mine.n[mine.place], self.values(chosen))
        n, c = pairs
        top = int(c.max(initial=0)) + 1
        place = np.searchsorted(n * top + c, mine.n * top + mine.c)[mine.place]
        alike = Distinct(n, c, np.arange(n.size))
        return Cells(place, n, per_problem(chosen, pl.DataFrame(), self.settings, self.outcomes, alike))


def follow_from_counts(chosen: Sequence[Metric], outcomes: Outcomes) -> bool:
    """All of them are the same for problems with the same n and c."""
    return kinds(chosen, outcomes)["counts"] == list(chosen)


def bounds(chosen: Sequence[Metric], settings: Settings, outcomes: Outcomes) -> list[float | None]:
    """How large a score by each metric may be; None where it is as large as the scores of the lake are."""
    verdict = max(1.0, *(abs(x) for x in beliefs.worth(settings, outcomes)))
    graded = max(abs(x) for x in settings.rubric.worth.values()) if settings.rubric.worth else None
    of = kinds(chosen, outcomes)
    return [graded if metric in of["rewards"] else verdict for metric in chosen]


def kinds(chosen: Sequence[Metric], outcomes: Outcomes) -> dict[str, list[Metric]]:
    """Metrics by what they are made of: rewards, answers, counts with those of earlier attempts, or counts."""
    of: dict[str, list[Metric]] = {"rewards": [], "answers": [], "earlier": [], "counts": []}
    for metric in chosen:
        if outcomes.rewards and metric.family.rewards is not None:
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
