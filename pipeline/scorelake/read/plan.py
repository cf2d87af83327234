"""What to run next: the problems and attempts that answer a question, from the lake as a pilot."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import ndtri

from scorelake.comparing.tables import PROBLEM
from scorelake.errors import DataError, UsageError
from scorelake.metrics.bootstrap import resample
from scorelake.metrics.significance import Variance, attempts_needed, best_attempts, pilot_variance, problems_needed
from scorelake.read.board import opened
from scorelake.read.claim import POWER, PairRequest
from scorelake.read.format import check_names
from scorelake.read.recompute import StoredPair, stored_pairs
from scorelake.read.session import frame
from scorelake.storage.disk import atomic_replace, temp_path

QUESTIONS = '"A vs B", "top 1" or "half-width 0.02"'
_RESAMPLES = 1_000
_KEYS = ["benchmark", "protocol", "model"]
_CLOSE = """
    SELECT r.model FROM leaderboard AS r JOIN leaderboard AS top USING (benchmark, protocol, metric)
    WHERE benchmark = ? AND protocol = ? AND metric = 'pass@1' AND top.model = ? AND r.model <> top.model
        AND r.rank IS NOT NULL AND (top.rank_hi IS NULL OR r.rank <= top.rank_hi)
    ORDER BY r.rank, r.model
"""
_BOARDS = """
    SELECT benchmark, protocol, min(model) FROM leaderboard WHERE metric = 'pass@1' AND rank = 1
    GROUP BY benchmark, protocol ORDER BY ALL  -- one of several leaders with the same score
"""
BUDGET = """
    SELECT benchmark, protocol, model, problems, attempts_per_problem, var_attempts, var_problems
    FROM budget ORDER BY ALL
"""
_COUNTS = "SELECT benchmark, protocol, model, subject, problem_id, n + ungraded AS n FROM problem_counts"


@dataclass(frozen=True)
class Need:
    """What one comparison or one model needs."""

    benchmark: str
    protocol: str
    about: str
    target: float
    """The lift or half-width to reach."""
    problems: int
    """In the lake now, and how many are needed at the attempts per problem of now, with the pilot's uncertainty."""
    problems_needed: float
    problems_range: tuple[float, float] | None
    attempts: float
    attempts_needed: float | None
    """Attempts per problem that suffice on the problems of now; None if no number does."""
    best_attempts: float | None
    """Attempts per problem that cost least, if a problem costs so many times an attempt."""
    dominated_by: str
    """problems or attempts: what most of the variance comes from."""

    def text(self) -> str:
        where = ", ".join(part for part in (self.benchmark, self.protocol) if part)
        reach = f" ({self.problems_range[0]:,.0f} to {self.problems_range[1]:,.0f})" if self.problems_range else ""
        enough = (
            f"{self.attempts_needed or 0:,.0f} attempts each suffice"
            if self.attempts_needed
            else "no number of attempts suffices"
        )
        best = f"; cheapest with {self.best_attempts:,.1f} attempts each" if self.best_attempts else ""
        return (
            f"{where}: {self.about}: {self.problems_needed:,.0f} problems{reach} with {self.attempts:,.1f} attempts"
            f" each; on the present {self.problems:,} problems {enough}; most of the variance is that of"
            f" {self.dominated_by}{best}"
        )


def plan(
    folder: Path,
    out: str,
    question: str,
    benchmark: str | None = None,
    lift: float | None = None,
    cost_per_problem: float | None = None,
) -> list[Need]:
    """Answer a question of QUESTIONS about pass@1: a need per comparison or model; none if no rank is open."""
    for name, value in (("lift", lift), ("cost per problem", cost_per_problem)):
        if value is not None and not 0 < value < np.inf:
            raise UsageError(f"{value:g} is not a {name}", hint="give a number above 0")
    question = question.strip()
    with opened(folder) as read:
        run_id, models = read.run_id, read.names("model")
        boards, budget = ([row for row in read.rows(sql) if benchmark in (None, row[0])] for sql in (_BOARDS, BUDGET))
        check_names("benchmark", read.names("benchmark"), [benchmark])
        pairs = [(*row[:2], each[0], row[2]) for row in boards for each in read.rows(_CLOSE, *row)]
        labels = dict(read.rows("SELECT protocol, label FROM protocol"))
    needs: list[Need | None]
    if width := re.fullmatch(r"half-width\s+(0?\.\d*[1-9]\d*)", question):
        pilots = [(row[0], labels.get(row[1], ""), *row[2:]) for row in budget if None not in row[5:]]
        needs = [width_need(row, float(width[1]), cost_per_problem) for row in pilots]
    else:
        if question != "top 1":
            names = [name.strip() for name in question.split(" vs ")]
            if len(names) != 2:
                raise UsageError(f"cannot read the question {question!r}", hint=f"ask {QUESTIONS}")
            check_names("model", models, names)
            pairs = [(benchmark, None, names[1], names[0])]
        elif not boards:
            raise DataError("no model is ranked by pass@1", hint="`scorelake show OUT` says why")
        elif not pairs:
            return []
        needs, rivals = [], Counter((of, protocol) for of, protocol, *_ in pairs)
        for of, protocol, a, b in pairs:
            for pair in stored_pairs(out, run_id, PairRequest(a, b, "pass@1", of), "pass@1"):
                if pair.sides and protocol in (None, pair.sides[0]["protocol"][0]):
                    needs.append(_pair_need(pair, lift, 0.025 / rivals[of, protocol], cost_per_problem))
    if not (answered := [need for need in needs if need]):
        what = "nothing to plan by: no two problems have two attempts of each model, or both models score the same"
        raise DataError(what, hint="score more attempts, or give --lift")
    return answered


def _pair_need(pair: StoredPair, lift: float | None, level: float, cost: float | None) -> Need | None:
    """Plan a comparison, B over A; None if there is nothing to plan by."""
    both = pair.sides[1].join(pair.sides[0], on=PROBLEM, suffix="_a").filter((pl.col("n") > 1) & (pl.col("n_a") > 1))
    if both.height < 2 or both["c"].null_count():
        return None
    n_a, c_a, n_b, c_b = (both[name].to_numpy() for name in ("n_a", "c_a", "n", "c"))
    target = abs(float((c_b / n_b - c_a / n_a).mean())) if lift is None else lift
    if not target:
        return None
    n, variance = float((n_a + n_b).mean() / 2), pilot_variance(n_a, c_a, n_b, c_b)
    weights = resample(np.arange(both.height, dtype=np.uint64), _RESAMPLES, 0).weights
    spread = problems_needed(target, pilot_variance(n_a, c_a, n_b, c_b, weights), n, POWER, level)
    about = f"{pair.described['b']} vs {pair.described['a']}, a lift of {target:.4f}"
    enough = float(attempts_needed(target, variance, both.height, POWER, level))
    needed = float(problems_needed(target, variance, n, POWER, level))
    ends = float(np.quantile(spread, 0.05)), float(np.quantile(spread, 0.95))
    head = pair.benchmark, pair.described["protocol"], about, target, both.height
    return _need(head, needed, ends, n, enough, variance, cost)


def width_need(row: tuple[Any, ...], width: float, cost: float | None) -> Need:
    """Plan the half-width of one model's interval from the parts of its variance."""
    benchmark, protocol, model, problems, n, of_attempts, of_problems = row
    variance = of_attempts * problems * n, of_problems * problems
    per_problem = float((width / ndtri(0.975)) ** 2)
    needed = np.ceil((variance[1] + variance[0] / n) / per_problem)
    left = problems * per_problem - variance[1]
    enough = float(np.ceil(variance[0] / left)) if left > 0 else np.nan
    about = f"{model}, half-width {width:g}"
    return _need((benchmark, protocol, about, width, problems), float(needed), None, n, enough, variance, cost)


def _need(
    head: tuple[str, str, str, float, int],
    needed: float,
    ends: tuple[float, float] | None,
    n: float,
    enough: float,
    variance: Variance,
    cost: float | None,
) -> Need:
    w, s2 = float(variance[0]), float(variance[1])
    best = float(best_attempts(variance, cost)) if cost and w and s2 else None  # endless if problems are all alike
    dominated = "problems" if s2 >= w / n else "attempts"
    return Need(*head, needed, ends, n, None if np.isnan(enough) else max(enough, 1.0), best, dominated)


def document(needs: list[Need]) -> list[dict[str, Any]]:
    """Return the needs as JSON values."""
    return [asdict(need) for need in needs]


def write_work_list(folder: Path, path: Path, attempts: int | None, benchmark: str | None = None) -> int:
    """Write the attempts that are missing to an even number per model and problem, and return how many they are.

    By default that number is the largest of the board. The suffix of the file decides: .csv, .jsonl or .parquet.
    """
    counts = frame(folder, _COUNTS, problems=True)
    counts = counts.filter(pl.col("benchmark") == benchmark) if benchmark is not None else counts
    board = ["benchmark", "protocol"]
    every = counts.select(_KEYS).unique().join(counts.select(*board, *PROBLEM).unique(), on=board)
    wanted = pl.lit(attempts, pl.Int64) if attempts else pl.col("n").max().over(board)
    work = (
        every.join(counts, on=[*_KEYS, *PROBLEM], how="left").with_columns(pl.col("n").fill_null(0))
        .with_columns(attempts_missing=wanted - pl.col("n")).filter(pl.col("attempts_missing") > 0)
        .sort("n", *_KEYS, *PROBLEM).rename({"n": "attempts_made"})
    )  # fmt: skip
    writers: dict[str, Any] = {".csv": work.write_csv, ".jsonl": work.write_ndjson, ".parquet": work.write_parquet}
    if path.suffix not in writers:
        raise UsageError(f"{path.suffix or 'no suffix'} is not .csv, .jsonl or .parquet", where=f"--work-list {path}")
    temporary = temp_path(path)
    writers[path.suffix](temporary)
    atomic_replace(temporary, path)
    return int(work["attempts_missing"].sum())
