"""Changes since the previous published run: files, models, scores, ranks and settings.

Scores differ between runs by chance alone, since attempts are sampled. Changes are therefore paired by problem; what
problems of one run alone add to the movement of a score is reported apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from scorelake.counting.partials import Partial, benchmark_kinds, described
from scorelake.errors import DataError, ScorelakeError
from scorelake.metrics.significance import benjamini_hochberg
from scorelake.publish.paired_problems import PAIRED, RunCounts, pair_kinds
from scorelake.publish.runs import PublishedState, flatten_settings
from scorelake.publish.snapshot import Manifest, Output, stored_settings
from scorelake.schemas import CHANGE, MODEL, MODEL_SUMMARY, PROBLEM_HISTOGRAM, rank_of_value
from scorelake.settings import Settings
from scorelake.storage.disk import first_line
from scorelake.text import plural, score_name

_SCORE = (*MODEL, "metric")
_FAMILY = ("benchmark", "protocol", "metric")
_IRRELEVANT = ("settings.run.", "settings.storage.", "settings.gates.", "settings.window.since")
"""Settings that no score depends on."""
_YEAR = 365
_LOOKS = 3  # published runs after which warnings use the decision over all looks


def look_share(look: Any) -> Any:
    """Return the share of the level that look 1, 2, ... spends: 1 / (364 + t) - 1 / (365 + t), times a year.

    The shares add up to 1, so that all looks together keep the level, however the looks depend on each other.
    """
    return _YEAR / ((look + _YEAR - 1) * (look + _YEAR))


@dataclass(frozen=True)
class FileChanges:
    """Numbers of new, changed and removed files."""

    new: int
    changed: int
    gone: int


def compare_files(before: Iterable[Partial | None], now: Sequence[Partial]) -> FileChanges:
    """Compare the files of two runs. A partial that was removed is None: its files are unknown."""
    files = {file.path: file for partial in now for file in partial.files}
    previous = {file.path: file for partial in before if partial is not None for file in partial.files}
    changed = sum(path in files and files[path] != file for path, file in previous.items())
    new, gone = (len(one.keys() - other.keys()) for one, other in ((files, previous), (previous, files)))
    return FileChanges(new, changed, gone)


def changed_settings(before: Manifest, now: dict[str, Any]) -> list[str]:
    """Return the keys of differing settings that scores depend on, including the lake and the version."""
    # a key that the version of the previous run did not have was at its default
    defaults = dict(flatten_settings(Settings().model_dump(mode="json"), "settings."))
    one, two = (
        defaults
        | dict(flatten_settings(json.loads(run["settings"]), "settings."))
        | {name: str(run[name]) for name in ("lake", "version")}
        for run in (before["run"], now)
    )
    differing = [name for name in sorted({*one, *two}) if one.get(name) != two.get(name)]
    return [name.removeprefix("settings.") for name in differing if not name.startswith(_IRRELEVANT)]


def change_table(
    before: pl.DataFrame,
    now: pl.DataFrame,
    paired: pl.DataFrame,
    history: pl.DataFrame,
    confidence: float,
    settings_changed: bool = False,
    unknown: str | None = None,
) -> pl.DataFrame:
    """Return the table `change` from two summaries, the paired tests, and the scores of all earlier runs.

    `unknown` is the reason why no score can be paired.
    """
    ranked = (run.with_columns(rank=rank_of_value().over(_FAMILY).cast(pl.Int64)) for run in (now, before))
    here, then = (run.select(*_SCORE, "value", "rank", "problems", "attempts") for run in ranked)
    looks = history.drop_nulls("value").group_by(_SCORE).agg(look=pl.len().cast(pl.Int64))
    rows = here.join(then, on=_SCORE, how="full", coalesce=True, nulls_equal=True, suffix="_before")
    for other in (paired, looks):
        rows = rows.join(other, on=_SCORE, how="left", nulls_equal=True)
    level = 1 - confidence
    is_new, is_gone = pl.col("problems_before").is_null(), pl.col("problems").is_null()
    is_same = (pl.col("change") == 0) & (pl.col("value") == pl.col("value_before"))
    kinds = {"new": is_new, "unknown": pl.col("reason").is_not_null(), "gone": is_gone, "same": is_same}
    what = pl.coalesce(*(pl.when(condition).then(pl.lit(text)) for text, condition in kinds.items()), pl.lit("moved"))
    is_known = ~pl.col("what").is_in(["unknown", "new", "gone"])
    rows = rows.with_columns(reason=pl.when(~is_new).then(_reason(rows, unknown))).with_columns(what=what)
    rows = rows.with_columns(pl.when(is_known).then(name).alias(name) for name in ("change", "lo", "hi", "p"))
    q = pl.col("p").map_batches(lambda p: pl.Series(benjamini_hochberg(p)), pl.Float64).over(_FAMILY)
    rows = rows.join(rows.drop_nulls("p").select(*_SCORE, q=q), on=_SCORE, how="left", nulls_equal=True)
    rows = rows.with_columns(
        from_added=(pl.col("value") - pl.col("mean_now")).round(12),
        from_dropped=(pl.col("mean_before") - pl.col("value_before")).round(12),
        outside=(pl.col("q") <= level).fill_null(value=False),
        alarm=(pl.col("p") <= level * look_share(pl.col("look"))).fill_null(value=False),
        settings_changed=pl.lit(settings_changed),
    )
    return CHANGE.check(rows.select(*CHANGE.columns).sort(_SCORE))


def _reason(rows: pl.DataFrame, unknown: str | None) -> pl.Expr:
    """Return why the change of a score of the previous run is unknown; null if it is not."""
    pairs = pl.col("problems_both")
    reasons = {
        "no value in this run": pl.col("value").is_null(),
        "no value in the previous run": pl.col("value_before").is_null(),
        unknown or "": pl.lit(unknown is not None),
        "a blend of group means has no value per problem to pair": pairs.is_null(),
        "n differs on every problem in common, and the metric depends on n": (pairs == 0) & (pl.col("unequal") > 0),
        "no problem in common": pairs == 0,
        "only one problem in common": pairs == 1,
    }
    reason = pl.coalesce(*(pl.when(condition).then(pl.lit(text)) for text, condition in reasons.items()))
    regrouped = pl.when(_is_regrouped(rows)).then(pl.lit("the protocol columns changed"))
    return pl.when(pl.col("problems").is_null()).then(regrouped).otherwise(reason)


def _is_regrouped(rows: pl.DataFrame) -> pl.Expr:
    """Flag scores under protocol columns that are not used any more, of models with a value under the new ones."""
    present = rows.filter(pl.col("value").is_not_null())
    keys = {protocol: tuple(json.loads(protocol or "{}")) for protocol in rows["protocol"].unique()}
    used = {keys[protocol] for protocol in present["protocol"].unique()}
    models = present.select(pl.struct("benchmark", "model")).unique().to_series()
    unused = [protocol for protocol, names in keys.items() if names not in used]
    return pl.col("protocol").is_in(unused) & pl.struct("benchmark", "model").is_in(models.implode())


@dataclass(frozen=True)
class Change:
    """Everything that changed, for the log and report.json."""

    files: FileChanges
    metric: str
    since: str = ""  # the previous run; empty for a first run
    settings: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    moved: int = 0  # scores of the metric that differ
    outside: tuple[str, ...] = ()  # significant changes, as text
    order: tuple[str, ...] = ()
    unknown: str = ""  # why scores cannot be compared

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
        out = [f"changes since {self.since} are unknown: {self.unknown}"] if self.unknown else []
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
    previous, metric, runs = state.manifest, settings.gates.metric, state.history.runs
    run_id = state.current.run_id or str(runs["run_id"].last() or "")
    if not run_id:
        return Change(files=compare_files([], partials), metric=metric), pl.DataFrame(schema=CHANGE.schema)
    summary, history = tables[MODEL_SUMMARY.name], state.history.scores
    snapshot, keys, unknown, counted = out.snapshots / run_id, list[str](), None, list[Partial | None]()
    before, paired = history.filter(pl.col("run_id") == run_id), pl.DataFrame(schema=PAIRED)
    try:
        if previous is None:
            raise DataError("is gone")
        by_name = {partial.name: partial for partial in partials}
        counted = [by_name.get(name) or described(out.partials / name) for name in previous["partials"]]
        keys = changed_settings(previous, run)
        if out.mirror:
            out.mirror.complete(run_id)
        before = MODEL_SUMMARY.read(snapshot)
        staged = out.snapshots / f".{run['run_id']}"
        histogram, kinds_now = PROBLEM_HISTOGRAM.read(snapshot), benchmark_kinds(partials, settings.answers)
        then = RunCounts.of(
            snapshot, previous["run"], stored_settings(previous), histogram, previous.get("kinds", kinds_now)
        )
        now = RunCounts.of(staged, run, settings, tables[PROBLEM_HISTOGRAM.name], kinds_now)
        paired = pair_kinds(then, now, settings.uncertainty.confidence)
    except (OSError, pl.exceptions.PolarsError, ScorelakeError) as error:
        cause = error.what if isinstance(error, ScorelakeError) else first_line(error)
        unknown = f"the snapshot of run {run_id} {cause}"
    confidence = settings.uncertainty.confidence
    table = change_table(before, summary, paired, history, confidence, bool(keys), unknown)
    decision = "alarm" if runs.height > _LOOKS else "outside"
    change = _describe(run_id, table, compare_files(counted, partials), keys, metric, decision)
    return replace(change, unknown=unknown or ""), table


def _describe(
    since: str, table: pl.DataFrame, files: FileChanges, keys: Sequence[str], metric: str, decision: str
) -> Change:
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
        f"{score_name(row)}: {chosen} {row['value_before']:.4f} to {row['value']:.4f}, {row['change']:+.4f} "
        f"({row['lo']:+.4f} to {row['hi']:+.4f}) on {plural(row['problems_both'], 'common problem')}"
        for row in moved.filter(decision).sort("p", *MODEL).rows(named=True)
    )
    both = rows.drop_nulls(["rank", "rank_before"])  # ranks among the models of both runs
    before, after = (pl.col(name).rank("min").over("benchmark", "protocol") for name in ("rank_before", "rank"))
    shifted = both.with_columns(before=before, after=after).filter(pl.col("before") != pl.col("after"))
    order = tuple(
        f"{score_name(row)} from {row['before']:.0f} to {row['after']:.0f}"
        for row in shifted.sort("benchmark", "protocol", "after", "model").rows(named=True)
    )
    return Change(files, chosen, since, tuple(keys), new, gone, moved.height, outside, order)


def _shorten(names: Sequence[str], limit: int = 8) -> str:
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")
