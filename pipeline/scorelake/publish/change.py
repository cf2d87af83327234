"""Changes since the previous published run: files, models, scores, ranks and settings.

Scores differ between runs by chance alone, since attempts are sampled. The interval of a change therefore treats the
problems as fixed and the attempts as random. V is the variance of a mean of 0/1 outcomes for new attempts at the same
problems, from the histogram of (n, c). The variance of a change is V0 + V1 if the attempts are independent, and
V0 - V1 if the attempts of the previous run are part of this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import erfc, sqrt
from statistics import NormalDist
from typing import Any

import polars as pl

from scorelake.counting.partials import Partial, described
from scorelake.metrics.significance import benjamini_hochberg
from scorelake.publish.runs import PublishedState, flatten_settings
from scorelake.publish.snapshot import Manifest, Output
from scorelake.schemas import CHANGE, MODEL_SUMMARY, PROBLEM_HISTOGRAM, rank_of_value
from scorelake.settings import Settings
from scorelake.storage.disk import first_line
from scorelake.storage.files import File
from scorelake.text import plural

_MODEL = ("benchmark", "model", "protocol")
_SCORE = (*_MODEL, "metric")
_FAMILY = ("benchmark", "protocol", "metric")
_IRRELEVANT = ("settings.run.", "settings.storage.", "settings.gates.")
"""Settings that no score depends on."""


@dataclass(frozen=True)
class RunScores:
    """The summary of a run, and the histogram it was computed from."""

    summary: pl.DataFrame
    histogram: pl.DataFrame


@dataclass(frozen=True)
class FileChanges:
    """Numbers of new, changed and removed files; `grown` if everything counted before is still counted."""

    new: int
    changed: int
    gone: int
    grown: bool


def compare_files(before: Iterable[Partial | None], now: Sequence[Partial]) -> FileChanges:
    """Compare the files of two runs. A partial that was removed is None: its files are unknown."""
    files = {file.path: file for partial in now for file in partial.files}
    names = {partial.name for partial in now}
    previous: dict[str, File] = {}
    grown = True
    for partial in before:
        if partial is None:
            grown = False
            continue
        previous |= {file.path: file for file in partial.files}
        grown &= partial.name in names or all(files.get(file.path) == file for file in partial.files)
    changed = sum(path in files and files[path] != file for path, file in previous.items())
    gone = sum(path not in files for path in previous)
    return FileChanges(sum(path not in previous for path in files), changed, gone, grown)


def changed_settings(before: Manifest, now: dict[str, Any]) -> list[str]:
    """Return the keys of differing settings that scores depend on, including the lake and the version."""
    one, two = (
        {f"settings.{key}": value for key, value in flatten_settings(json.loads(run["settings"]))}
        | {name: str(run[name]) for name in ("lake", "version")}
        for run in (before["run"], now)
    )
    differing = [name for name in sorted({*one, *two}) if one.get(name) != two.get(name)]
    return [name.removeprefix("settings.") for name in differing if not name.startswith(_IRRELEVANT)]


def compare_scores(
    before: RunScores, now: RunScores, *, grown: bool, binary: bool, confidence: float, settings_changed: bool
) -> pl.DataFrame:
    """Return the table `change`. `binary`: all outcomes are 0/1; `grown`: this run counted all that the other did."""
    means = ("pass@1", "avg@N", "bayes@N") if binary else ("pass@1",)
    then, here = (_with_variance(run, means) for run in (before, now))
    both = here.join(then, on=_SCORE, how="full", coalesce=True, nulls_equal=True, suffix="_before")
    v0, v1, again, again_before = (pl.col(name) for name in ("V_before", "V", "again", "again_before"))
    nested = pl.lit(grown) & (pl.col("problems") == pl.col("problems_before")) & again & again_before
    variance = pl.when(nested).then((v0 - v1).clip(lower_bound=0)).otherwise(v0 + v1)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    change, se = pl.col("change"), pl.col("se")
    is_new, is_gone = pl.col("problems_before").is_null(), pl.col("problems").is_null()
    changed = pl.when(change.is_null()).then(pl.lit("unknown")).when(change == 0).then(pl.lit("same"))
    both = both.with_columns(
        change=pl.col("value") - pl.col("value_before"),
        se=(variance + pl.col("minimum") + pl.col("minimum_before")).sqrt(),
        settings_changed=pl.lit(settings_changed),
    ).with_columns(
        what=pl.when(is_new)
        .then(pl.lit("new"))
        .when(is_gone)
        .then(pl.lit("gone"))
        .otherwise(changed.otherwise(pl.lit("moved"))),
        lo=change - z * se,
        hi=change + z * se,
    )
    p = [
        None if difference is None or error is None else erfc(abs(difference) / error / sqrt(2))
        for difference, error in both.select("change", "se").rows()
    ]
    both = _with_q(both.with_columns(pl.Series("p", p, pl.Float64))).with_columns(
        outside=(pl.col("q") <= 1 - confidence).fill_null(value=False)
    )
    return CHANGE.check(both.select(*CHANGE.columns).sort(_SCORE))


def _with_variance(run: RunScores, means: Sequence[str]) -> pl.DataFrame:
    """Select the scores of a run; add ranks, V, and the smallest variance that so many attempts justify."""
    again = pl.col("metric").is_in(list(means)) & pl.col("rerun").is_not_null()
    joined = run.summary.join(_rerun_variance(run.histogram), on=_MODEL, how="left", nulls_equal=True)
    return joined.with_columns(again=again, rank=rank_of_value().over(_FAMILY).cast(pl.Int64)).select(
        *_SCORE,
        *("value", "problems", "attempts", "rank", "again"),
        # se treats the problems as a sample, so it is an upper bound
        pl.when("again").then("rerun").otherwise(pl.col("se") ** 2).alias("V"),
        (2 / (pl.col("attempts") + 1.0) ** 2).alias("minimum"),
    )


def _rerun_variance(histogram: pl.DataFrame) -> pl.DataFrame:
    """Return V of every benchmark, model and protocol; problems with one attempt are bounded by v (1 - v)."""
    n, c, m = (pl.col(name).cast(pl.Float64) for name in ("n", "c", "problems"))
    single = pl.col("n") == 1
    once, passed = m.filter(single).sum(), (m * c).filter(single).sum()
    repeated = (m * c * (n - c) / (n**2 * (n - 1))).filter(pl.col("n") > 1).sum()
    bound = pl.when(once > 0).then(passed * (once - passed) / once).otherwise(0.0)
    graded = histogram.filter((pl.col("n") > 0) & pl.col("c").is_not_null())
    return graded.group_by(_MODEL).agg(rerun=(repeated + bound) / m.sum() ** 2)


def _with_q(rows: pl.DataFrame) -> pl.DataFrame:
    """Add q: p adjusted within each benchmark, protocol and metric."""
    tested = rows.drop_nulls("p")
    q = pl.col("p").map_batches(lambda p: pl.Series(benjamini_hochberg(p)), pl.Float64).over(_FAMILY)
    return rows.join(tested.select(*_SCORE, q=q), on=_SCORE, how="left", nulls_equal=True)


@dataclass(frozen=True)
class Change:
    """Everything that changed, for the log and report.json."""

    files: FileChanges
    metric: str
    since: str = ""
    """The previous run; empty for a first run."""
    settings: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    moved: int = 0
    """Scores of the metric that differ."""
    outside: tuple[str, ...] = ()
    """Significant changes, as text."""
    order: tuple[str, ...] = ()
    unknown: str = ""
    """Why scores cannot be compared."""

    @property
    def same_metrics(self) -> bool:
        """Whether the previous run was configured with the same metrics."""
        return not any(key.startswith("metrics.") for key in self.settings)

    def lines(self) -> list[str]:
        """Return lines for the log."""
        if not self.since:
            return []
        files = self.files
        out = [f"since {self.since}: {plural(files.new, 'file')} new, {files.changed:,} changed, {files.gone:,} gone"]
        lists = {"models new": self.new, "models gone": self.gone, "settings changed": self.settings}
        for name, values in lists.items():
            out += [f"{name}: {_shorten(values)}"] if values else []
        if self.moved:
            out.append(f"{self.metric}: {len(self.outside):,} of {plural(self.moved, 'score')} changed significantly")
        return [*out, *([f"order in {self.metric}: {_shorten(self.order)}"] if self.order else [])]

    def warnings(self) -> list[str]:
        """Return what could not be compared, and significant changes."""
        out = [self.unknown] if self.unknown else []
        out += [f"significant change: {line}" for line in self.outside[:10]]
        more = len(self.outside) - 10
        return [*out, f"... and {more:,} more: see the table change"] if more > 0 else out


def compare_with_published(
    out: Output,
    state: PublishedState,
    run: dict[str, Any],
    partials: Sequence[Partial],
    tables: Mapping[str, pl.DataFrame],
    settings: Settings,
) -> tuple[Change, pl.DataFrame]:
    """Compare a run with the published one, as text and as the table `change`; both are empty for a first run."""
    previous, metric = state.manifest, settings.gates.metric
    if previous is None:
        return Change(files=compare_files([], partials), metric=metric), pl.DataFrame(schema=CHANGE.schema)
    run_id = previous["run"]["run_id"]
    try:
        before = RunScores(*(table.read(out.snapshots / run_id) for table in (MODEL_SUMMARY, PROBLEM_HISTOGRAM)))
        now = RunScores(tables[MODEL_SUMMARY.name], tables[PROBLEM_HISTOGRAM.name])
        by_name = {partial.name: partial for partial in partials}
        counted = [by_name.get(name) or described(out.partials / name) for name in previous["partials"]]
        files, keys = compare_files(counted, partials), changed_settings(previous, run)
        table = compare_scores(
            before,
            now,
            grown=files.grown and not keys,
            binary=not any("score" in has for partial in partials for _, has, *_ in partial.outcomes),
            confidence=settings.uncertainty.confidence,
            settings_changed=bool(keys),
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        unknown = f"snapshots/{run_id} cannot be read ({first_line(error)}): changes since then are unknown"
        change = Change(since=run_id, files=compare_files([], partials), metric=metric, unknown=unknown)
        return change, pl.DataFrame(schema=CHANGE.schema)
    return _describe(run_id, table, files, keys, metric), table


def _describe(since: str, table: pl.DataFrame, files: FileChanges, keys: Sequence[str], metric: str) -> Change:
    """Describe the changes of one metric; of the first one if the table does not have it."""
    names = table["metric"].unique().sort().to_list()
    chosen = metric if metric in names else next(iter(names), metric)
    rows = table.filter(pl.col("metric") == chosen)
    new, gone = (
        tuple(sorted(set(table.filter(is_such)["model"]) - set(table.filter(~is_such)["model"])))
        for is_such in (pl.col("what") == "new", pl.col("what") == "gone")
    )
    moved = rows.filter(pl.col("what") == "moved")
    outside = tuple(
        f"{_title(row)}: {chosen} {row['value_before']:.4f} to {row['value']:.4f}, "
        f"{row['change']:+.4f} ({row['lo']:+.4f} to {row['hi']:+.4f})"
        for row in moved.filter("outside").sort("q", *_MODEL).rows(named=True)
    )
    return Change(files, chosen, since, tuple(keys), new, gone, moved.height, outside, _changed_ranks(rows))


def _changed_ranks(rows: pl.DataFrame) -> tuple[str, ...]:
    """Return the models of both runs whose rank relative to each other changed."""
    both = rows.filter(pl.col("rank").is_not_null() & pl.col("rank_before").is_not_null())
    before, after = (pl.col(name).rank("min").over("benchmark", "protocol") for name in ("rank_before", "rank"))
    shifted = both.with_columns(before=before, after=after).filter(pl.col("before") != pl.col("after"))
    return tuple(
        f"{_title(row)} from {row['before']:.0f} to {row['after']:.0f}"
        for row in shifted.sort("benchmark", "protocol", "after", "model").rows(named=True)
    )


def _title(row: dict[str, Any]) -> str:
    return " / ".join(part for part in (row["benchmark"], row["model"], row["protocol"]) if part)


def _shorten(names: Sequence[str], limit: int = 8) -> str:
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")
