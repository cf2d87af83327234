"""Gates: is a candidate not worse than its base by more than a margin? Verdicts with known error rates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
from scipy.special import ndtri

from scorelake.comparing.tables import PROBLEM
from scorelake.errors import UsageError
from scorelake.metrics.distributions import Floats, Ints, ratio
from scorelake.metrics.families import needs_equal_n
from scorelake.metrics.interval import cluster_spread, interval
from scorelake.metrics.significance import (
    attempts_needed,
    e_value,
    joint_verdict,
    pilot_variance,
    problems_needed,
    verdicts,
)
from scorelake.publish.change import look_share
from scorelake.publish.snapshot import CALIBRATION_FILE
from scorelake.read.board import opened
from scorelake.read.claim import POWER, PairRequest
from scorelake.read.format import check_names
from scorelake.read.recompute import StoredPair, stored_pairs
from scorelake.read.report import markdown_table, plain
from scorelake.read.series import best_point
from scorelake.scoring.values import follow_from_counts, metric_bounds, problem_values
from scorelake.storage.disk import is_marked, is_remote, read_json, replace_text
from scorelake.text import plural
from scorelake.version import __version__

MARGIN = 0.02
_SPLITS, _MAX_DRAWS, _KEPT = 200, 1 << 22, 1000
_COLUMNS = ("lift", "lower", "upper")
_RULES = {
    "pass": "every benchmark passes",
    "fail": "a benchmark fails after Holm's adjustment",
    "undecided": "not every benchmark passes, and none fails after Holm's adjustment",
}


@dataclass(frozen=True)
class BenchmarkVerdict:
    """The verdict on one benchmark, with its evidence. Without numbers, `reason` says why."""

    benchmark: str
    protocol: str
    verdict: str = "undecided"
    reason: str = ""  # why it is undecided, and what would decide it
    lift: float | None = None
    lower: float | None = None  # one-sided bounds of the lift
    upper: float | None = None
    se: float = 0.0
    units: float = 0.0
    problems: int = 0
    problems_of_base: int = 0  # problems with a value of the base, in common or not
    attempts: tuple[int, int] = (0, 0)  # of the base and of the candidate
    fails_jointly: bool = False  # it fails after Holm's adjustment over benchmarks
    verdict_all_looks: str = "undecided"  # the verdict that is valid if the gate is applied after every published run
    e_value: float | None = None
    """Evidence for a difference, valid at any number of looks; only where n is 1 throughout."""
    detectable_fall: float | None = None  # A true fall of this size fails with a power of 80%
    calibration: dict[str, Any] | None = None
    """Verdicts between random halves of the same model's attempts, as shares with Wilson intervals; empty if these
    cannot be measured."""

    def text(self) -> str:
        """Return the verdict as one sentence."""
        if self.lift is None:
            return f"{self.where}: {self.verdict}: {self.reason}"
        numbers = f"lift {self.lift:+.4f}, above {self.lower:+.4f} and below {self.upper:+.4f}"
        sizes = f"{plural(self.problems, 'problem')}, {self.attempts[0]:,} and {self.attempts[1]:,} attempts"
        return f"{self.where}: {self.verdict}: {numbers}, {sizes}" + (f"; {self.reason}" if self.reason else "")

    @property
    def where(self) -> str:
        return ", ".join(part for part in (self.benchmark, self.protocol) if part)


@dataclass(frozen=True)
class Gate:
    """The joint verdict and that of every benchmark."""

    question: str
    metric: str
    margin: float
    confidence: float  # of each one-sided bound
    verdict: str
    rule: str
    looks: int  # published runs
    pooled: dict[str, float]  # lift and bounds of the unweighted mean over benchmarks
    benchmarks: tuple[BenchmarkVerdict, ...]

    def document(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Return all verdicts with their error rates, a line each."""
        lines = [f"{self.verdict}: {self.question} ({self.rule}; bounds of {self.confidence:.0%} each)"]
        for each in self.benchmarks:
            lines.append(f"  {each.text()}")
            if each.detectable_fall is not None:
                fall = f"a true fall of {each.detectable_fall:.4f} fails {POWER:.0%} of the time"
                lines.append(f"    detectable: {fall}")
            if each.calibration == {}:
                needs = "a pass/fail metric, 2 k attempts per problem and no clusters"
                lines.append(f"    calibration: cannot be measured; it needs {needs}")
            elif each.calibration:
                lines.append(
                    "    calibration: of {splits:,} comparisons of a model with itself, on halves of its attempts, "
                    "{fail[0]:.1%} failed ({fail[1]:.1%} to {fail[2]:.1%}), {undecided[0]:.1%} were undecided "
                    "({undecided[1]:.1%} to {undecided[2]:.1%})".format(**each.calibration)
                )
        if self.pooled and len(self.benchmarks) > 1:
            lines.append("  mean: lift {lift:+.4f}, above {lower:+.4f} and below {upper:+.4f}".format(**self.pooled))
        if self.looks > 1:
            every = ", ".join(f"{each.where} {each.verdict_all_looks}" for each in self.benchmarks)
            lines.append(f"  over all {self.looks} published runs: {every}")
        return "\n".join(lines)

    def markdown(self) -> str:
        """Return the verdicts as a table for a pull request."""
        rows = []
        for each in self.benchmarks:
            numbers = (getattr(each, name) for name in _COLUMNS)
            cells = ["" if number is None else f"{number:+.4f}" for number in numbers]
            rows.append([each.where, each.verdict, *cells, f"{each.problems:,}", each.reason])
        head = ("benchmark", "verdict", "lift", "above", "below", "problems", "")
        table = markdown_table(head, rows, (2, 3, 4, 5))
        return f"**{self.verdict}**: {plain(self.question)} ({self.rule})\n\n{table}\n"

    def junit(self, undecided: str | None = None) -> str:
        """Return one test case per benchmark as JUnit XML; undecided ones are skipped, or count as pass or fail."""
        elements = {"fail": "failure", "undecided": {None: "skipped", "fail": "failure"}.get(undecided)}
        suite = ElementTree.Element("testsuite", name=self.question, tests=str(len(self.benchmarks)))
        for each in self.benchmarks:
            case = ElementTree.SubElement(suite, "testcase", classname=self.metric, name=each.where)
            if kind := elements.get(each.verdict):
                ElementTree.SubElement(case, kind, message=each.text())
        for name, kind in (("failures", "failure"), ("skipped", "skipped")):
            suite.set(name, str(len(suite.findall(f"*/{kind}"))))
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def decide(
    folder: Path,
    out: str,
    request: PairRequest,
    margin: float = MARGIN,
    benchmarks: Sequence[str] = (),
    calibrate: bool = True,
) -> Gate:
    """Decide whether model B (the candidate) is not worse than A (the base) by the margin; with 0, whether better."""
    if not 0 <= margin < np.inf:
        raise UsageError(f"{margin:g} is not a margin", hint="give a number >= 0, such as 0.02")
    with opened(folder) as read:
        run_id, looks = read.run_id, len(read.rows("FROM run"))
        check_names("benchmark", read.names("benchmark"), benchmarks)
        metric = read.metric(request.metric)
        if request.model_a == "best" and "best" not in read.names("model"):
            request = replace(request, model_a=best_point(read, request.model_b, metric, benchmarks))
    stored = stored_pairs(out, run_id, request, metric)
    pairs = [pair for pair in stored if not benchmarks or pair.benchmark in benchmarks]
    if not pairs:
        raise UsageError(f"{request.model_a} and {request.model_b} have no benchmark with {metric} in common")
    first, confidence = pairs[0], pairs[0].settings.uncertainty.confidence
    low, high = metric_bounds(first.metric, first.settings, first.outcomes)
    if margin >= high - low:
        reach = f"{first.metric.name} lies between {low:g} and {high:g}"
        raise UsageError(f"with a margin of {margin:g} everything passes: {reach}", hint="0.02 is two points")
    levels = 1 - (1 - confidence) * np.array([1, look_share(looks), 1 / len(pairs)])
    each = tuple(_decide(pair, margin, levels, calibrate, out) for pair in pairs)
    # Holm's first step: a benchmark fails if its bound at the level divided by the number of benchmarks says so.
    verdict = joint_verdict([one.verdict for one in each], [0.0 if one.fails_jointly else 1.0 for one in each])
    names, how = first.described, f"at most {margin:g} worse" if margin else "better"
    question = f"is {names['b']} {how} than {names['a']} in {first.metric.name}?"
    pooled = _pool(each, first, confidence) if all(pair.outcomes == first.outcomes for pair in pairs) else {}
    return Gate(question, first.metric.name, margin, confidence, verdict, _RULES[verdict], looks, pooled, each)


def _bounds(
    lift: Floats, se: Floats | float, units: Floats | float, pair: StoredPair, confidence: Floats | float
) -> tuple[Floats, Floats]:
    """Return one-sided bounds of mean differences; one whole problem at the far end, as in equivalence intervals."""
    low, high = metric_bounds(pair.metric, pair.settings, pair.outcomes)
    errors, sizes = np.broadcast_to(se, lift.shape), np.broadcast_to(units, lift.shape)
    return interval(lift, errors, sizes, (low - high, high - low), 2 * np.asarray(confidence) - 1, far_problems=1.0)


def _decide(pair: StoredPair, margin: float, levels: Floats, calibrate: bool, out: str) -> BenchmarkVerdict:
    keys = pair.benchmark, pair.described["protocol"]
    if not pair.sides:
        return BenchmarkVerdict(*keys, reason=pair.claim)
    (both, of_base), metric, confidence = _join(pair), pair.metric, float(levels[0])
    if both["unit"].n_unique() < 2:
        reason = f"fewer than two problems (or clusters) have a value of {metric.name} on both sides"
        return BenchmarkVerdict(*keys, reason=reason, problems=both.height, problems_of_base=of_base)
    n, c = (both.select(f"{name}_base", name).to_numpy().T for name in ("n", "c"))
    means = n.mean(axis=1)
    if needs_equal_n(metric.name, means.max() / means.min()):
        return BenchmarkVerdict(*keys, reason=f"n differs, and {metric.name} depends on n: use another metric")
    d = (both["value"] - both["value_base"]).to_numpy()
    unit = both["unit"].rank("dense").to_numpy().astype(np.int64) - 1
    sums, counts = (np.bincount(unit, weights).astype(np.float64) for weights in (d, None))
    se, clusters = map(float, cluster_spread(sums, counts))
    units = clusters if pair.settings.columns.cluster else d.size
    # no other rule where n differs much: by simulation these bounds hold at 1 against 16 attempts (docs/gates.md)
    lower, upper = _bounds(np.full(3, d.mean()), se, units, pair, levels)
    if np.isnan(lower).any():
        reason = "all differences are equal, and nothing bounds the scores: set [rubric] bounds"
        return BenchmarkVerdict(*keys, reason=reason, problems=d.size)
    decided, reason, needed = verdicts(lower, upper, margin).tolist(), "", pair.settings.compare.min_share * of_base
    if decided[0] == "undecided":
        reason = _missing(n, c, d, margin, confidence, metric.is_mean)
    elif decided[0] == "pass" and d.size < needed:  # a candidate that drops the problems it fails must not pass
        decided = ["undecided" if each == "pass" else each for each in decided]
        reason = f"the base has {of_base:,} problems; {np.ceil(needed):,.0f} in common needed ([compare] min_share)"
    verdict, at_all_looks, jointly = decided
    return BenchmarkVerdict(
        *(*keys, verdict, reason),
        lift=float(d.mean()),
        lower=float(lower[0]),
        upper=float(upper[0]),
        se=se,
        units=float(units),
        problems=d.size,
        problems_of_base=of_base,
        attempts=(int(n[0].sum()), int(n[1].sum())),
        fails_jointly=jointly == "fail",
        verdict_all_looks=at_all_looks,
        e_value=float(e_value((d > 0).sum(), (d < 0).sum())) if n.max() == 1 else None,
        detectable_fall=float(margin + (ndtri(confidence) + ndtri(POWER)) * se),
        calibration=_calibrate(both, pair, margin, confidence, out) if calibrate else None,
    )


def _join(pair: StoredPair) -> tuple[pl.DataFrame, int]:
    """Return problems with a value on both sides, and how many problems have one of the base.

    Columns are n, c and value of the candidate, and of the base with _base.
    """
    cluster, problem = pair.settings.columns.cluster, pl.concat_str(PROBLEM, separator="\0")
    unit = pl.coalesce(pl.col(cluster).cast(pl.String), problem) if cluster else problem
    sides = []
    for rows in pair.sides:
        values = problem_values(rows, [pair.metric], pair.settings, pair.outcomes)[0]
        side = rows.select(*PROBLEM, "n", pl.col("c").fill_null(0), value=pl.Series(values), unit=unit)
        sides.append(side.filter((pl.col("n") > 0) & pl.col("value").is_not_nan()))
    return sides[1].join(sides[0], on=PROBLEM, suffix="_base").sort(PROBLEM), sides[0].height


def _missing(n: Ints, c: Ints, d: Floats, margin: float, confidence: float, is_mean: bool) -> str:
    """Say what would decide: problems, or attempts where these are what varies."""
    target, repeated = margin or abs(float(d.mean())), is_mean and bool((n > 1).all())
    if target == 0:
        return "both score the same, and the margin is 0"
    variance = pilot_variance(n[0], c[0], n[1], c[1]) if repeated else (0.0, float(d.var(ddof=1)))
    problems = problems_needed(target, variance, n.mean(), POWER, 1 - confidence)
    attempts = attempts_needed(target, variance, d.size, POWER, 1 - confidence)
    text = f"about {int(problems):,} such problems would decide it"
    text += f", or {int(attempts):,} attempts per problem" if repeated and attempts > n.mean() else ""
    return f"{text} (power {POWER:.0%}, if the true lift is {0 if margin else d.mean():.2g})"


def _calibrate(both: pl.DataFrame, pair: StoredPair, margin: float, confidence: float, out: str) -> dict[str, Any]:
    """Apply the gate to random halves of each side's attempts; empty if that is impossible.

    The result is kept in the output: 400 halvings of 10,000 problems take 0.5 s.
    """
    if not follow_from_counts([pair.metric], pair.outcomes) or pair.settings.columns.cluster:
        return {}
    sides = [both.select(n=f"n{suffix}", c=f"c{suffix}") for suffix in ("", "_base")]
    sides = [side.filter(pl.col("n") >= 2 * pair.metric.draws) for side in sides]
    path, is_kept = Path(out) / CALIBRATION_FILE, not is_remote(out) and is_marked(Path(out))
    terms = [pair.metric.name, margin, confidence, pair.settings.scoring(), __version__]
    digest = hashlib.sha256(json.dumps(terms, sort_keys=True).encode())
    for side in sides:
        digest.update(side.to_numpy().tobytes())
    kept = read_json(path) if is_kept else None
    kept = kept if isinstance(kept, dict) else {}
    if digest.hexdigest() in kept:
        return dict(kept[digest.hexdigest()])
    rng, results = np.random.default_rng(0), list[str]()
    for side in sides:
        problems = side.height
        if problems < 2:
            continue
        splits = max(1, min(_SPLITS, _MAX_DRAWS // problems))
        n, c = (np.tile(side[name].to_numpy(), (splits, 1)) for name in ("n", "c"))
        half = n // 2
        one = rng.hypergeometric(c, n - c, half)
        other = rng.hypergeometric(c - one, n - half - c + one, half)
        rows = pl.DataFrame({"n": np.tile(half.ravel(), 2), "c": np.concatenate([one.ravel(), other.ravel()])})
        values = problem_values(rows, [pair.metric], pair.settings, pair.outcomes)[0].reshape(2, *n.shape)
        d = values[1] - values[0]
        bounds = _bounds(d.mean(axis=1), d.std(axis=1, ddof=1) / np.sqrt(problems), problems, pair, confidence)
        results += verdicts(*bounds, margin).tolist()
    if not results:
        return {}
    size, square = len(results), float(ndtri(0.975)) ** 2
    measured: dict[str, Any] = {"splits": size}
    for verdict in ("fail", "undecided"):  # Wilson's interval; to import scipy.stats takes longer than the gate
        share = results.count(verdict) / size
        centre, half = share + square / 2 / size, (square * (share * (1 - share) + square / 4 / size) / size) ** 0.5
        measured[verdict] = [share, *(max(0.0, (centre + end) / (1 + square / size)) for end in (-half, half))]
    if is_kept:
        newest = dict([*kept.items(), (digest.hexdigest(), measured)][-_KEPT:])
        with suppress(OSError):  # an output that may only be read
            replace_text(path, json.dumps(newest, indent=1) + "\n")
    return measured


def _pool(each: Sequence[BenchmarkVerdict], pair: StoredPair, confidence: float) -> dict[str, float]:
    """Return the unweighted mean over benchmarks with its bounds; empty where a benchmark has no lift."""
    if any(one.lift is None for one in each):
        return {}
    lift, se, units = (np.array([getattr(one, name) for one in each]) for name in ("lift", "se", "units"))
    variances = (se / len(each)) ** 2
    effective = 1 + ratio(variances.sum() ** 2, (variances**2 / (units - 1)).sum())
    total = float(np.sqrt(variances.sum()))
    bounds = _bounds(lift.mean(keepdims=True), total, np.nan_to_num(effective, nan=units.sum()), pair, confidence)
    return dict(zip(_COLUMNS, (float(x) for x in (lift.mean(), *bounds[0], *bounds[1])), strict=True))
