"""Reasons not to publish: rejected rows, unreadable files, conflicts, and the [gates] of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from scorelake.counting.merge import Merged
from scorelake.counting.partials import Partial, benchmark_kinds
from scorelake.errors import DataError, UsageError, listed
from scorelake.metrics import parse
from scorelake.metrics.significance import verdicts
from scorelake.schemas import CHANGE, GATE, KEYS, MODEL, MODEL_PAIR, MODEL_SUMMARY, TEXT
from scorelake.scoring.choose import is_default
from scorelake.scoring.survey import FOLDER, Survey, bucket_paths
from scorelake.settings import GateRule, Settings
from scorelake.text import plural, score_name

HUGE = 1e100
_SHARES = (
    ("max_ungraded_share", "ungraded", "rows_read"),
    ("max_rejected_share", "rejected", "rows_read"),
    ("max_quarantined_share", "quarantined", "files"),
)
_OPTIONAL = (("benchmark", 0, "default"), ("subject", 1, "all"))
"""Keys without which a lake can do: their index in an example, and their default."""


def refuse(
    partials: Sequence[Partial], quarantine: Sequence[tuple[str, str]], settings: Settings, allow_quarantine: bool
) -> None:
    """Raise if files are unreadable, rows are rejected, nothing is left, or files have different kinds of values."""
    if quarantine and not allow_quarantine:
        hint = "fix or remove them, or leave them out with --allow-quarantine"
        raise DataError(f"{len(quarantine):,} of the lake's files cannot be read:{listed(quarantine)}", hint=hint)
    rejected = sum(partial.rejected for partial in partials)
    if rejected > settings.policy.max_rejected:
        rejects = [(file, f"{rows:,} rows: {why}") for p in partials for file, why, rows in p.rejects]
        what = f"{rejected:,} rows rejected, {settings.policy.max_rejected:,} allowed:{listed(rejects)}"
        raise DataError(what, hint="fix these rows, or set [policy] max_rejected to the number you accept")
    counted = [partial for partial in partials if partial.problems]
    if not counted:
        raise DataError("no attempt in any file", hint="the files hold no rows, or none that can be used")
    benchmark_kinds(counted, settings.answers)  # raises if the attempts of a benchmark have different outcomes


def refuse_other_outcomes(lake: Sequence[Partial], earlier: Sequence[Partial], where: str) -> None:
    """Raise if a lake of earlier attempts has other outcomes than the lake itself."""
    kinds, others = (benchmark_kinds(partials, answers=False) for partials in (lake, earlier))
    if any(kinds[name] != others[name] for name in kinds.keys() & others.keys()):
        hint = "[uncertainty] prior_lake must have the same outcome columns (passed, score, or both)"
        raise DataError("its outcome columns are not those of the lake", where=where, hint=hint)


def balance(partials: Sequence[Partial], merged: Sequence[Merged]) -> dict[str, int]:
    """Return the row accounting; raise AssertionError if rows were lost or counted twice."""
    out = {"rows_read": sum(partial.read for partial in partials)}
    out |= {key: sum(getattr(each, key) for each in merged) for key in ("graded", "ungraded", "duplicates")}
    out["rejected"] = sum(partial.rejected for partial in partials)
    counted, taken = out["rows_read"] - out["rejected"], sum(each.rows for each in merged)
    given = sum(out[key] for key in ("graded", "ungraded", "duplicates"))
    if not counted == taken == given:
        raise AssertionError(f"row accounting: {counted} rows counted, {taken} merged, {given} in the tables: {out}")
    return out


def refuse_ungraded(ungraded: int, settings: Settings) -> None:
    """Raise if attempts have no verdict and the settings do not allow that."""
    if ungraded and settings.policy.ungraded == "error":
        hint = '[policy] ungraded = "exclude" counts them apart, "fail" counts them as failed'
        raise DataError(f"{ungraded:,} attempts are ungraded", hint=hint)


def check_survey(run: dict[str, Any], survey: Survey) -> None:
    """Hold the files of the snapshot against what was merged into them; raise for rewards that cannot be squared."""
    if (survey.graded, survey.ungraded) != (run["graded"], run["ungraded"]):
        raise AssertionError(f"row accounting: the files hold {survey.graded}, {survey.ungraded}, merged were {run}")
    for reward in survey.rewards or ():
        if abs(reward) > HUGE:
            hint = f"scores may be at most {HUGE:g}: scale them, or reject what is no score"
            raise DataError(f"a score of {reward:g} is too large to be added up and squared", hint=hint)


def refuse_conflicts(
    number: int, what: str, examples: Sequence[Sequence[Any]], rule: str, pooled: Sequence[str]
) -> None:
    """Raise if attempts have conflicting verdicts and no rule decides."""
    if number and rule == "error":
        named = [(f"{row[2]}, problem {row[4]}", f"attempt {row[5]}") for row in examples]
        choose = 'choose which one counts: [duplicates] rule = "first", "last", "any-pass" or "all-pass"'
        unnamed = [key for key, i, default in _OPTIONAL if all(row[i] == default for row in examples)]
        if unnamed:
            choose = (
                f"problem ids that are only unique within a {' or '.join(unnamed)} need that column first: "
                f'[columns] {unnamed[-1]} = "..."; else {choose}'
            )
        hint = "; ".join([*pooled, f"else {choose}"]) if pooled else choose
        raise DataError(f"{number:,} attempts have conflicting {what}:{listed(named, 5)}", hint=hint)


def refuse_loss(change: pl.DataFrame, same_metrics: bool, allow_empty: bool, settings: Settings) -> None:
    """Raise if the leaderboard would lose all values, or all of a named metric (without names: of a default one)."""
    if allow_empty or not change.height:
        return
    had, has = (pl.col(name).is_not_null().any() for name in ("value_before", "value"))
    is_wanted = pl.col("what").is_in(["new", "moved", "same", "unknown"]).any() | pl.lit(same_metrics)
    lost = change.group_by("metric").agg(lost=had & ~has & is_wanted, has=has, had=had).sort("metric")
    has_passes = "pass@1" in lost.filter("has")["metric"]
    names = lost.filter("lost")["metric"].to_list()
    if not settings.metrics.names:
        names = [name for name in names if is_default(parse(name, settings.spectra), rewards=not has_passes)]
    if names or (lost["had"].any() and not lost["has"].any()):
        what = f"every value of {', '.join(names[:8])}" if lost["has"].any() and names else "every value"
        hint = "check for missing attempts, or a k above n; publish anyway with --allow-empty"
        raise DataError(f"the leaderboard would lose {what}", hint=hint)


def check(
    settings: Settings, run: dict[str, Any], tables: Mapping[str, pl.DataFrame], before: Path, now: Path
) -> pl.DataFrame:
    """Return the verdicts about single models; raise with every gate that failed, and its evidence."""
    # `before` and `now` are the folders of the previous snapshot and of this one
    gates, failed = settings.gates, _dearer(before, now, settings)
    for key, column, of in _SHARES:
        share, limit = run[column] / max(1, run[of]), getattr(gates, key)
        if share > limit:
            failed.append(f"{key}: {run[column]:,} of {run[of]:,} is {share:.4g}, allowed {limit:g}")
    groups = tables[MODEL_SUMMARY.name].select(*MODEL, "problems", "attempts").unique().sort(MODEL)
    for key, column in (("min_model_problems", "problems"), ("min_model_attempts", "attempts")):
        low = groups.filter(pl.col(column) < getattr(gates, key)).rows(named=True)
        failed += [f"{key}: {score_name(row)} has {row[column]:,}, needed {getattr(gates, key):,}" for row in low]
    rules = {f"rule {i}": rule for i, rule in enumerate(gates.rule, start=1)}
    if gates.max_fall is not None:
        rules["max_fall"] = GateRule(metric=gates.metric, margin=gates.max_fall)
    decided = [pl.DataFrame(schema=GATE.schema)]
    models = {*tables[MODEL_SUMMARY.name]["model"], *tables[CHANGE.name]["model"]}
    for name, rule in rules.items():
        if models and not any(fnmatchcase(model, rule.candidate) for model in models):
            hint = "candidate is a model or a pattern, such as release-*"
            raise UsageError(f"[gates] {name}: no model is called {rule.candidate}", hint=hint)
        compared = (_since_previous if rule.base == "previous" else _against_base)(rule, tables)
        compared = compared.filter([fnmatchcase(model, rule.candidate) for model in compared["model"]])
        lo, hi = (compared[end].fill_null(np.nan) for end in ("lo", "hi"))
        verdict = (
            pl.when("is_lost").then(pl.lit("fail")).otherwise(pl.Series(verdicts(lo, hi, rule.margin), dtype=TEXT))
        )
        terms = {"rule": name, "metric": rule.metric, "base": rule.base, "margin": rule.margin}
        compared = compared.with_columns(verdict=verdict, **{key: pl.lit(value) for key, value in terms.items()})
        decided.append(compared.select(*GATE.columns))
        for row in compared.filter(verdict="fail").rows(named=True):
            lift = "" if row["is_lost"] else f" ({row['lift']:+.4f}, {row['lo']:+.4f} to {row['hi']:+.4f})"
            which = name if name == "max_fall" else f"{name} (candidate {rule.candidate})"
            failed.append(f"{which}: {score_name(row)} {row['says']}{lift} in {rule.metric}, allowed {rule.margin:g}")
    if failed:
        hint = "the published version is unchanged; fix the lake, or change [gates]"
        raise DataError(f"{plural(len(failed), 'gate')} failed:\n  " + "\n  ".join(failed[:20]), hint=hint)
    return GATE.check(pl.concat(decided))


def _dearer(before: Path, now: Path, settings: Settings) -> list[str]:
    """Return which models pay more than in another snapshot, beyond chance, by more than [gates] max_cost_rise."""
    limit, failed = settings.gates.max_cost_rise, list[str]()
    if limit is None or not bucket_paths(before / FOLDER):
        return []
    sides = [pl.scan_parquet(bucket_paths(snapshot / FOLDER), glob=False) for snapshot in (before, now)]
    for name in settings.measures:
        if not all(f"{name}_count" in side.collect_schema() for side in sides):
            continue
        cost = pl.col(f"{name}_sum") / pl.col(f"{name}_count")
        one, two = (side.filter(pl.col(f"{name}_count") > 0).select(*KEYS, cost=cost) for side in sides)
        rise = pl.col("cost_now") - pl.col("cost")  # paired by problem
        rows = (
            one.join(two, on=KEYS, suffix="_now").group_by(MODEL)
            .agg(pl.col("cost", "cost_now").mean(), se=rise.std() / pl.len().sqrt(), units=pl.len())
            .sort(MODEL).collect()
        )  # fmt: skip
        t = pl.Series(stdtrit(rows["units"].to_numpy() - 1.0, (1 + settings.uncertainty.confidence) / 2))
        least = (rise - t * pl.col("se")) / pl.col("cost")
        for row in rows.with_columns(least=least).filter(pl.col("least") > limit).rows(named=True):
            rose = f"rose from {row['cost']:.4g} to {row['cost_now']:.4g}, by {row['least']:.1%} or more"
            failed.append(f"max_cost_rise: {score_name(row)}: {name} per attempt {rose}, allowed {limit:.1%}")
    return failed


def _since_previous(rule: GateRule, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the changes of a metric since the previous run; a value that is gone is lost."""
    models, metric = tables[MODEL_SUMMARY.name], rule.metric
    change = tables[CHANGE.name].filter((pl.col("metric") == metric) & pl.col("value_before").is_not_null())
    computed = models.filter(pl.col("value").is_not_null())["metric"].unique().sort().to_list()
    if not change.height and metric not in computed:
        hint = f"computed are: {', '.join(computed) or 'none'}"
        raise UsageError(f"[gates] metric: {metric} is not computed, so nothing could ever fall", hint=hint)
    is_lost = pl.col("value").is_null() & ((pl.col("what") == "gone") | pl.col("problems").is_not_null())
    before, now = (pl.col(name).map_elements("{:.4f}".format, pl.String) for name in ("value_before", "value"))
    says = pl.format("fell from {} to {}", before, now.fill_null("nothing"))
    reason = pl.when(is_lost).then(pl.lit("no value in this run")).otherwise("reason")
    return change.select(*MODEL, "lo", "hi", lift="change", says=says, is_lost=is_lost, reason=reason)


def _against_base(rule: GateRule, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the comparisons of all models with a base of the same run."""
    pairs = tables[MODEL_PAIR.name].filter(pl.col("metric") == rule.metric)
    a_first = pairs.filter(model_a=rule.base).rename({"model_b": "model"})
    b_first = pairs.filter(model_b=rule.base).rename({"model_a": "model"})
    b_first = b_first.with_columns(-pl.col("lift"), lo=-pl.col("hi"), hi=-pl.col("lo"))
    both = pl.concat(each.select(*MODEL, "lift", "lo", "hi", "claim") for each in (a_first, b_first)).sort(MODEL)
    if not both.height:
        hint = 'base is "previous" or a model of the lake, and metric one of [compare] metrics'
        raise UsageError(f"[gates] rule: no comparison with {rule.base} in {rule.metric}", hint=hint)
    reason = pl.when(pl.col("lift").is_null()).then("claim")
    return both.with_columns(says=pl.lit(f"is worse than {rule.base}: lift"), is_lost=False, reason=reason)
