"""What changed since the run that was shown before: files, models, scores, their order, settings.

A score moves from night to night by noise alone, since attempts are drawn anew. Its change therefore has an interval:
the problems are the same, the attempts are not. V is the variance of a mean of 0/1 outcomes when the same problems
are attempted again, from the histogram of (n, c); a change has V0 + V1 where the attempts are others, and V0 - V1
where the run before is part of this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import polars as pl

from scorelake.counting.partials import Partial, described
from scorelake.publish.history import flat
from scorelake.publish.shown import Base
from scorelake.publish.snapshot import Manifest, Output
from scorelake.schemas import CHANGE, MODEL_SUMMARY, PROBLEM_HISTOGRAM, place_of_value
from scorelake.settings import Settings
from scorelake.storage.files import File
from scorelake.text import plural

_WHO = ("benchmark", "model", "protocol")
_FAMILY = ("benchmark", "protocol", "metric")
_PASSES = ("pass@1",)
_MEANS = ("pass@1", "avg@N", "bayes@N")
"""Metrics that are means of 0/1 outcomes, where the lake has no others."""


@dataclass(frozen=True)
class Scores:
    """What a run says of its models, and what that is made of."""

    summary: pl.DataFrame
    histogram: pl.DataFrame


@dataclass(frozen=True)
class Files:
    """How many files came, changed and went; and whether all that was counted before is counted still."""

    new: int
    changed: int
    gone: int
    grown: bool


def files(before: Iterable[Partial | None], now: Sequence[Partial]) -> Files:
    """Compare what two runs counted. A partial that is gone is None: then nothing is known of its files."""
    ours = {file.path: file for partial in now for file in partial.files}
    names = {partial.name for partial in now}
    theirs: dict[str, File] = {}
    unknown = False
    kept = True
    for partial in before:
        unknown |= partial is None
        if partial is not None:
            theirs |= {file.path: file for file in partial.files}
            kept &= partial.name in names or all(ours.get(file.path) == file for file in partial.files)
    changed = sum(path in ours and ours[path] != file for path, file in theirs.items())
    gone = sum(path not in ours for path in theirs)
    return Files(sum(path not in theirs for path in ours), changed, gone, kept and not unknown)


def changed_settings(before: Manifest, now: dict[str, Any]) -> list[str]:
    """Keys of settings that differ; the lake and the version are told with them."""
    keys = [
        {f"settings.{k}": v for k, v in flat(json.loads(run["settings"]))}
        | {name: str(run[name]) for name in ("lake", "version")}
        for run in (before["run"], now)
    ]
    names = sorted({*keys[0], *keys[1]})
    silent = ("settings.run.", "settings.storage.", "settings.gates.")  # none of them changes a number
    differ = [name for name in names if keys[0].get(name) != keys[1].get(name)]
    return [name.removeprefix("settings.") for name in differ if not name.startswith(silent)]


def scores(
    before: Scores, now: Scores, *, grown: bool, binary: bool, confidence: float, settings_changed: bool
) -> pl.DataFrame:
    """The table `change`. `grown`: this run counted all that the one before did, and more; `binary`: 0/1 outcomes."""
    sides = [_side(each, _MEANS if binary else _PASSES) for each in (before, now)]
    both = sides[0].join(sides[1], on=[*_WHO, "metric"], how="full", coalesce=True, nulls_equal=True, suffix="_now")
    same = pl.col("problems") == pl.col("problems_now")
    noise = (
        pl.when(pl.lit(grown) & same & pl.col("again") & pl.col("again_now"))
        .then((pl.col("V") - pl.col("V_now")).clip(lower_bound=0))
        .otherwise(pl.col("V") + pl.col("V_now"))
    )
    change = pl.col("value_now") - pl.col("value")
    both = both.with_columns(change=change, spread=(noise + pl.col("least") + pl.col("least_now")).sqrt())
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p = [
        None if d is None or s is None else 1.0 if d == 0 else 0.0 if s == 0 else _tail(abs(d) / s)
        for d, s in both.select("change", "spread").rows()
    ]
    both = both.with_columns(pl.Series("p", p, dtype=pl.Float64)).with_columns(
        what=_what(), lo=pl.col("change") - z * pl.col("spread"), hi=pl.col("change") + z * pl.col("spread")
    )
    both = _adjusted(both).with_columns(outside=(pl.col("q") <= 1 - confidence).fill_null(value=False))
    named = both.select(
        *_WHO,
        "metric",
        "what",
        pl.col("value").alias("value_before"),
        pl.col("value_now").alias("value"),
        *("change", "lo", "hi", "p", "q", "outside"),
        pl.col("rank").alias("rank_before"),
        pl.col("rank_now").alias("rank"),
        pl.col("problems").alias("problems_before"),
        pl.col("problems_now").alias("problems"),
        pl.col("attempts").alias("attempts_before"),
        pl.col("attempts_now").alias("attempts"),
        pl.lit(settings_changed).alias("settings_changed"),
    )
    return CHANGE.check(named.sort(*_WHO, "metric"))


def nothing() -> pl.DataFrame:
    """The table of a first run."""
    return pl.DataFrame(schema=CHANGE.schema)


def _tail(z: float) -> float:
    return 2 * NormalDist().cdf(-z)


def _what() -> pl.Expr:
    there, here = (pl.col(name).is_not_null() for name in ("there", "there_now"))
    return (
        pl.when(~there)
        .then(pl.lit("new"))
        .when(~here)
        .then(pl.lit("gone"))
        .when(pl.col("change").is_null())
        .then(pl.lit("unknown"))
        .when(pl.col("change") == 0)
        .then(pl.lit("same"))
        .otherwise(pl.lit("moved"))
    )


def _side(run: Scores, means: Sequence[str]) -> pl.DataFrame:
    """One run's scores with their ranks and the variance of each."""
    again = pl.col("metric").is_in(list(means)) & pl.col("rerun").is_not_null()
    return (
        run.summary.join(_rerun(run.histogram), on=_WHO, how="left", nulls_equal=True)
        .with_columns(again=again, rank=place_of_value().over(_FAMILY).cast(pl.Int64))
        .select(
            *_WHO,
            *("metric", "value", "problems", "attempts", "rank", "again"),
            pl.when("again").then("rerun").otherwise(pl.col("se") ** 2).alias("V"),  # se: problems a sample, so wider
            (2 / (pl.col("attempts") + 1.0) ** 2).alias("least"),
            pl.lit(1).alias("there"),
        )
    )


def _rerun(histogram: pl.DataFrame) -> pl.DataFrame:
    """V of every benchmark, model and protocol. Of problems with one attempt it is at most v (1 - v)."""
    n, c, m = (pl.col(name).cast(pl.Float64) for name in ("n", "c", "problems"))
    single = pl.col("n") == 1
    once, passed = (m.filter(single).sum(), (m * c).filter(single).sum())
    noise = (m * c * (n - c) / (n**2 * (n - 1))).filter(pl.col("n") > 1).sum()
    bound = pl.when(once > 0).then(passed * (once - passed) / once).otherwise(0.0)
    known = histogram.filter((pl.col("n") > 0) & pl.col("c").is_not_null())
    return known.group_by(_WHO).agg(rerun=(noise + bound) / m.sum() ** 2)


def _adjusted(rows: pl.DataFrame) -> pl.DataFrame:
    """With q: p adjusted within each family, so that of the changes it calls real only a share is not."""
    known = rows.filter(pl.col("p").is_not_null()).sort("p", descending=True)
    plural, place = pl.len().over(_FAMILY), pl.int_range(pl.len()).over(_FAMILY)
    q = (pl.col("p") * plural / (plural - place)).cum_min().over(_FAMILY).clip(upper_bound=1.0)
    found = known.with_columns(q=q).select(*_WHO, "metric", "q")
    return rows.join(found, on=[*_WHO, "metric"], how="left", nulls_equal=True)


def since(
    out: Output,
    before: Base,
    run: dict[str, Any],
    partials: Sequence[Partial],
    tables: Mapping[str, pl.DataFrame],
    settings: Settings,
) -> tuple[Change, pl.DataFrame]:
    """What changed since the run that is shown, in words and as the table `change`; of a first run nothing."""
    was, metric = before.manifest, settings.gates.metric
    if was is None:
        return Change(files=files([], partials), metric=metric), nothing()
    try:
        then = Scores(*(out.table(was, table.name) for table in (MODEL_SUMMARY, PROBLEM_HISTOGRAM)))
        now = Scores(tables[MODEL_SUMMARY.name], tables[PROBLEM_HISTOGRAM.name])
        mine = {partial.name: partial for partial in partials}
        theirs = [mine.get(name) or described(out.partials / name) for name in was["partials"]]
        found, keys = files(theirs, partials), changed_settings(was, run)
        table = scores(
            then,
            now,
            grown=found.grown and not keys,
            binary=not any(partial.rewards for partial in partials),
            confidence=settings.uncertainty.confidence,
            settings_changed=bool(keys),
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        name = was["run"]["run_id"]
        unknown = f"snapshots/{name} cannot be read ({first}): what changed since then is not known"
        return Change(since=name, files=files([], partials), metric=metric, unknown=unknown), nothing()
    return told(was["run"]["run_id"], table, found, keys, metric), table


# --- in words -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """All of it, for people and for report.json."""

    files: Files
    metric: str
    since: str = ""
    """The run before; empty for a first run."""
    settings: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    moved: int = 0
    """Scores of the metric that are not the same."""
    outside: tuple[str, ...] = ()
    """Of those, the ones that noise does not explain, in words."""
    order: tuple[str, ...] = ()
    unknown: str = ""
    """Why nothing can be said of scores."""

    @property
    def same_metrics(self) -> bool:
        """The run before was asked for the same metrics."""
        return not any(key.startswith("metrics.") for key in self.settings)

    def lines(self) -> list[str]:
        """For the log."""
        if not self.since:
            return []
        files = self.files
        out = [f"since {self.since}: {plural(files.new, 'file')} new, {files.changed:,} changed, {files.gone:,} gone"]
        for what, names in (("new", self.new), ("gone", self.gone)):
            if names:
                out.append(f"models {what}: {_some(names)}")
        if self.settings:
            out.append(f"settings changed: {_some(self.settings)}")
        if self.moved:
            out.append(
                f"{self.metric}: {plural(self.moved, 'score')} moved, {len(self.outside)} of them more than by noise"
            )
        if self.order:
            out.append(f"order in {self.metric}: {_some(self.order)}")
        return out

    def warnings(self) -> list[str]:
        """What could not be compared, and movements outside their interval."""
        out = [self.unknown] if self.unknown else []
        out += [f"moved more than by noise: {line}" for line in self.outside[:10]]
        more = len(self.outside) - 10
        return [*out, f"... and {more:,} more: see the table change"] if more > 0 else out


def told(since: str, table: pl.DataFrame, found: Files, keys: Sequence[str], metric: str) -> Change:
    """A change in words, by one metric, or where the board has it not by the first it has."""
    names = table["metric"].unique().sort().to_list()
    chosen = metric if metric in names else next(iter(names), metric)
    rows = table.filter(pl.col("metric") == chosen)
    models = {}
    for what in ("new", "gone"):
        mine = pl.col("what") == what
        models[what] = sorted(set(table.filter(mine)["model"]) - set(table.filter(~mine)["model"]))
    moved = rows.filter(pl.col("what") == "moved")
    order = moved_ranks(rows)
    outside = [_line(row, chosen) for row in moved.filter("outside").sort("q", *_WHO).rows(named=True)]
    return Change(
        files=found,
        metric=chosen,
        since=since,
        settings=tuple(keys),
        new=tuple(models["new"]),
        gone=tuple(models["gone"]),
        moved=moved.height,
        outside=tuple(outside),
        order=order,
    )


def moved_ranks(rows: pl.DataFrame) -> tuple[str, ...]:
    """Models of both runs that changed places among each other."""
    both = rows.filter(pl.col("rank").is_not_null() & pl.col("rank_before").is_not_null())
    places = [pl.col(name).rank("min").over("benchmark", "protocol") for name in ("rank_before", "rank")]
    shifted = both.with_columns(before=places[0], after=places[1]).filter(pl.col("before") != pl.col("after"))
    return tuple(
        f"{_who(row)} from {row['before']:.0f} to {row['after']:.0f}"
        for row in shifted.sort("benchmark", "protocol", "after", "model").rows(named=True)
    )


def _line(row: dict[str, Any], metric: str) -> str:
    return (
        f"{_who(row)}: {metric} {row['value_before']:.4f} to {row['value']:.4f}, "
        f"{row['change']:+.4f} ({row['lo']:+.4f} to {row['hi']:+.4f})"
    )


def _who(row: dict[str, Any]) -> str:
    return " / ".join(part for part in (row["benchmark"], row["model"], row["protocol"]) if part)


def _some(names: Sequence[str], most: int = 8) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
