"""Series of a run over its training steps: the curve, and what it shows in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from scorelake.errors import UsageError
from scorelake.read.board import Reader
from scorelake.read.format import Scale
from scorelake.text import escape_controls, plural, protocol_label

_POINTS = """
SELECT benchmark, protocol, metric, model, step, value, lo, hi, band_lo, band_hi, problems, attempts FROM series
WHERE $model IS NULL OR model = $model ORDER BY benchmark, protocol, metric, model, step
"""
_LEARNED = """
SELECT benchmark, protocol, model, direction, list(problem_id ORDER BY q, subject, problem_id)
FROM learned JOIN (
    SELECT benchmark, protocol, model, min(step) AS step_from, max(step) AS step_to FROM series GROUP BY ALL
) USING (benchmark, protocol, model, step_from, step_to) GROUP BY ALL
"""


@dataclass(frozen=True)
class RunSeries:
    """One run on one benchmark under one protocol, at one metric."""

    benchmark: str
    protocol: str
    metric: str
    model: str
    points: list[tuple[Any, ...]]
    """step, value, lo, hi, band_lo, band_hi, problems and attempts."""
    best: dict[str, Any] | None
    """The row of best_step; None if the steps share too few problems."""
    learned: list[str]
    """Problems whose success rate rose beyond chance from the first to the last step."""
    forgotten: list[str]

    @property
    def scale(self) -> Scale:
        return Scale.of(point[1:4] for point in self.points)

    @property
    def title(self) -> str:
        parts = self.benchmark, protocol_label(self.protocol), self.model, self.metric
        return " \u00b7 ".join(escape_controls(part) for part in parts if part)

    def text(self) -> str:
        """Return the best step, the largest change and the problems that were learned, as sentences."""
        changed = f"{plural(len(self.learned), 'problem')} learned and {len(self.forgotten):,} forgotten"
        if self.best is None:
            return f"The steps share too few problems to name the best. From the first to the last: {changed}."
        best, unit = self.best, self.scale.unit
        corrected, value, last = (self.scale.text(best[key]) for key in ("value_corrected", "value", "last_value"))
        text = f"Best at step {best['step']}: {corrected}{unit}, corrected for having been picked (observed {value})"
        if best["contenders"] > 1:
            reach = f"from {best['first_contender']} to {best['last_contender']}"
            text += f"; {best['contenders']} steps {reach} may be the best"
        text += f". Last step {best['last_step']}: {last}{unit}."
        if best["change_p"] is not None:
            text += f" Largest change of level at step {best['change_step']} (p = {best['change_p']:.2g})."
        return f"{text} From the first to the last step: {changed}."


def read_series(read: Reader, model: str | None = None) -> list[RunSeries]:
    """Return the series of all runs or of one, by benchmark, protocol and metric; none without series."""
    best = {
        (row["benchmark"], row["protocol"], row["metric"], row["model"]): row for row in read.dicts("FROM best_step")
    }
    learned = {tuple(key): problems for *key, problems in read.rows(_LEARNED)}
    out = []
    for key, rows in groupby(read.table(_POINTS, {"model": model})[1], key=lambda row: row[:4]):
        points = [row[4:] for row in rows if row[5] is not None]
        rose, fell = (learned.get((key[0], key[1], key[3], each), []) for each in ("learned", "forgotten"))
        benchmark, protocol, name, run = key
        out.append(RunSeries(benchmark, protocol, name, run, points, best.get(key), rose, fell))
    return [each for each in out if each.points]


def best_point(read: Reader, candidate: str, metric: str, benchmarks: Sequence[str]) -> str:
    """Return the name of the best step of the run that a candidate is a point of; raise if there is none."""
    import polars as pl  # noqa: PLC0415  (loads slowly)

    from scorelake.scoring.series import points  # noqa: PLC0415
    from scorelake.settings import Settings  # noqa: PLC0415

    models = pl.DataFrame({"model": read.names("model")}, schema={"model": pl.String})
    names = {(run, step): name for name, run, step in points(models, Settings.model_validate(read.settings())).rows()}
    run = next((run for (run, _), name in names.items() if name == candidate), "")
    rows = read.rows("SELECT benchmark, step FROM best_step WHERE model = ? AND metric = ?", run, metric)
    steps = sorted({int(step) for benchmark, step in rows if not benchmarks or benchmark in benchmarks})
    if len(steps) != 1:
        hint = "name a step; the base best is the best step of the candidate's run, where benchmarks agree on it"
        what = f"the best step of the run of {candidate} by {metric} is {' or '.join(map(str, steps)) or 'not known'}"
        raise UsageError(what, hint=hint)
    return str(names[run, steps[0]])
