"""Reasons not to publish: rejected rows, unreadable files, conflicts, and the [gates] of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import polars as pl

from scorelake.counting.merge import Merged
from scorelake.counting.partials import Partial, benchmark_kinds
from scorelake.errors import DataError, UsageError, listed
from scorelake.metrics import parse
from scorelake.schemas import CHANGE, MODEL_PAIR, MODEL_SUMMARY
from scorelake.scoring.choose import is_default
from scorelake.scoring.survey import Survey
from scorelake.settings import GateRule, Gates, Settings

HUGE = 1e100
_WHO = ("benchmark", "model", "protocol")
_WHO_A, _WHO_B = ("benchmark", "model_a", "protocol"), ("benchmark", "model_b", "protocol")
_OPTIONAL = (("benchmark", 0, "default"), ("subject", 1, "all"))
"""Keys without which a lake can do: their index in an example, and their default."""


def refuse(
    partials: Sequence[Partial], quarantine: Sequence[tuple[str, str]], settings: Settings, allow_quarantine: bool
) -> None:
    """Raise if files are unreadable, rows are rejected, nothing is left, or files have different kinds of values."""
    if quarantine and not allow_quarantine:
        raise DataError(
            f"{len(quarantine):,} of the lake's files cannot be read:{listed(quarantine)}",
            hint="fix or remove them, or leave them out with --allow-quarantine",
        )
    rejected = sum(partial.rejected for partial in partials)
    if rejected > settings.policy.max_rejected:
        rejects = [(file, f"{rows:,} rows: {why}") for p in partials for file, why, rows in p.rejects]
        raise DataError(
            f"{rejected:,} rows rejected, {settings.policy.max_rejected:,} allowed:{listed(rejects)}",
            hint="fix these rows, or set [policy] max_rejected to the number you accept",
        )
    counted = [partial for partial in partials if partial.problems]
    if not counted:
        raise DataError("no attempt in any file", hint="the files hold no rows, or none that can be used")
    benchmark_kinds(counted, settings.answers)


def refuse_other_outcomes(lake: Sequence[Partial], earlier: Sequence[Partial], where: str) -> None:
    """Raise if a lake of earlier attempts has other outcomes than the lake itself."""
    kinds, others = (benchmark_kinds(partials, answers=False) for partials in (lake, earlier))
    if any(kinds[name] != others[name] for name in kinds.keys() & others.keys()):
        raise DataError(
            "its outcome columns are not those of the lake",
            where=where,
            hint="[uncertainty] prior_lake must have the same outcome columns (passed, score, or both)",
        )


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
        raise DataError(
            f"{ungraded:,} attempts are ungraded",
            hint='[policy] ungraded = "exclude" counts them apart, "fail" counts them as failed',
        )


def written(run: dict[str, Any], survey: Survey) -> None:
    """Raise AssertionError if the files of the snapshot have other numbers of attempts than were merged."""
    if (survey.graded, survey.ungraded) != (run["graded"], run["ungraded"]):
        raise AssertionError(f"row accounting: the files have {survey.graded, survey.ungraded}, merged were {run}")


def refuse_huge(survey: Survey) -> None:
    """Raise if sums of squared rewards would overflow."""
    for reward in survey.rewards or ():
        if abs(reward) > HUGE:
            raise DataError(
                f"a score of {reward:g} is too large to be added up and squared",
                hint=f"scores may be at most {HUGE:g}: scale them, or reject what is no score",
            )


def refuse_conflicts(number: int, what: str, examples: Sequence[Sequence[Any]], rule: str) -> None:
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
        raise DataError(f"{number:,} attempts have conflicting {what}:{listed(named, 5)}", hint=choose)


def check(gates: Gates, run: dict[str, Any], tables: Mapping[str, pl.DataFrame]) -> None:
    """Raise with every gate that failed, and the numbers."""
    failed = []
    for key, field, of in (
        ("max_ungraded_share", "ungraded", "rows_read"),
        ("max_rejected_share", "rejected", "rows_read"),
        ("max_quarantined_share", "quarantined", "files"),
    ):
        share, limit = run[field] / max(1, run[of]), getattr(gates, key)
        if share > limit:
            failed.append(f"{key}: {run[field]:,} of {run[of]:,} is {share:.4g}, allowed {limit:g}")
    groups = tables[MODEL_SUMMARY.name].select(*_WHO, "problems", "attempts").unique().sort(_WHO)
    for key, column in (("min_model_problems", "problems"), ("min_model_attempts", "attempts")):
        limit = getattr(gates, key)
        low = groups.filter(pl.col(column) < limit)
        failed += [f"{key}: {_who(row)} has {row[column]:,}, needed {limit:,}" for row in low.rows(named=True)]
    rules = {f"rule {i} (candidate {rule.candidate})": rule for i, rule in enumerate(gates.rule, start=1)}
    if gates.max_fall is not None:
        rules["max_fall"] = GateRule(metric=gates.metric, margin=gates.max_fall)
    for name, rule in rules.items():
        find = _falls if rule.base == "previous" else _behind
        failed += [f"{name}: {line} in {rule.metric}, allowed {rule.margin:g}" for line in find(rule, tables)]
    if failed:
        raise DataError(
            f"{len(failed)} gate{'s' * (len(failed) > 1)} failed:" + "".join(f"\n  {line}" for line in failed[:20]),
            hint="the published version is unchanged; fix the lake, or change [gates]",
        )


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
        raise DataError(
            f"the leaderboard would lose {what}",
            hint="check for missing attempts, or a k above n; publish anyway with --allow-empty",
        )


def _falls(rule: GateRule, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    """Find falls beyond noise: the whole interval of the change is below the margin."""
    models, metric = tables[MODEL_SUMMARY.name], rule.metric
    changes = tables[CHANGE.name].filter((pl.col("metric") == metric) & pl.col("value_before").is_not_null())
    computed = models.filter(pl.col("value").is_not_null())["metric"].unique().sort().to_list()
    if not changes.height and metric not in computed:
        raise UsageError(
            f"[gates] metric: {metric} is not computed, so nothing could ever fall",
            hint=f"computed are: {', '.join(computed) or 'none'}",
        )
    is_lost = pl.col("value").is_null() & ((pl.col("what") == "gone") | pl.col("problems").is_not_null())
    fallen = changes.filter((pl.col("hi") < -rule.margin) | is_lost)
    lines = []
    for row in fallen.rows(named=True):
        if fnmatchcase(row["model"], rule.candidate):
            change = "nothing" if row["value"] is None else f"{row['value']:.4f} {_interval(row, 'change')}"
            lines.append(f"{_who(row)} fell from {row['value_before']:.4f} to {change}")
    return lines


def _behind(rule: GateRule, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    """Find candidates that are significantly worse than a base of the same run."""
    pairs = tables[MODEL_PAIR.name].filter(pl.col("metric") == rule.metric)
    a_first = pairs.filter(pl.col("model_a") == rule.base).select(*_WHO_B, "lift", "lo", "hi")
    b_first = pairs.filter(pl.col("model_b") == rule.base).select(
        *_WHO_A, -pl.col("lift"), lo=-pl.col("hi"), hi=-pl.col("lo")
    )
    both = pl.concat([frame.rename({frame.columns[1]: "model"}) for frame in (a_first, b_first)])
    if not both.height:
        raise UsageError(
            f"[gates] rule: no comparison with {rule.base} in {rule.metric}",
            hint='base is "previous" or a model of the lake, and metric one of [compare] metrics',
        )
    return [
        f"{_who(row)} is worse than {rule.base}: lift {_interval(row, 'lift')}"
        for row in both.filter(pl.col("hi") < -rule.margin).sort(_WHO).rows(named=True)
        if fnmatchcase(row["model"], rule.candidate)
    ]


def _interval(row: dict[str, Any], column: str) -> str:
    return f"({row[column]:+.4f}, {row['lo']:+.4f} to {row['hi']:+.4f})"


def _who(row: dict[str, Any]) -> str:
    return " / ".join(part for part in (row["benchmark"], row["model"], row["protocol"]) if part)
