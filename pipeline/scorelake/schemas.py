"""The tables that flow between stages: names, columns, types, and what each column means.

The same descriptions become comments in leaderboard.duckdb.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import polars as pl

KEYS = ("benchmark", "subject", "model", "protocol", "problem_id")
"""What tells one problem from another, in the order everything is sorted by."""
NAMED = tuple(key for key in KEYS if key != "protocol")
"""Keys that must not be null."""

ALIASES = {
    "model": ("model_name", "model_id", "llm", "engine", "system", "agent", "policy", "checkpoint", "solver"),
    "benchmark": ("dataset", "dataset_name", "bench", "suite", "task_name", "eval", "eval_name", "data_source"),
    "subject": ("category", "topic", "domain", "field", "area", "subset", "subtask", "section"),
    "problem_id": (
        *("task_id", "question_id", "instance_id", "item_id", "example_id", "prompt_id", "doc_id", "qid", "problem"),
        *("question", "task", "item", "example", "instance", "id", "uid", "idx", "index"),
    ),
    "attempt": (
        *("sample_id", "attempt_id", "trial", "trial_id", "run", "run_id", "rollout", "rollout_id", "sample", "try"),
        *("sample_index", "sample_idx", "completion_id", "generation_id", "generation", "repeat", "epoch", "seed"),
    ),
    "passed": (
        *("correct", "is_correct", "pass", "is_pass", "success", "successful", "solved", "resolved", "accepted"),
        *("right", "ok", "verdict", "outcome", "label", "acc", "accuracy", "result", "status"),
    ),
    "score": ("reward", "rewards", "points", "grade", "rating", "value", "total_score"),
    "answer": ("extracted_answer", "final_answer", "prediction", "predicted", "pred", "model_answer", "choice"),
}
"""What other tools call our columns, the likeliest name first."""
GROUP = KEYS[:-1]
COUNTS = ("n", "c", "ungraded")
EARLIER = {name: f"prior_{name}" for name in ("n", "c", "rewards", "reward_counts")}
"""Counts of earlier attempts, where there are any, and what they are called in problem_counts."""
ABOUT_EARLIER = {
    "prior_n": "graded attempts of the problem in [uncertainty] prior_lake",
    "prior_c": "correct ones among them",
}
LISTS = ("rewards", "reward_counts", "answer_counts", "answer_passes", "prior_rewards", "prior_reward_counts")
"""Columns of problem_counts, where there are rewards or answers, that stay in the snapshot's files."""

TEXT, INT, REAL = pl.String(), pl.Int64(), pl.Float64()


@dataclass(frozen=True, eq=False)
class Table:
    name: str
    about: str
    columns: dict[str, tuple[pl.DataType, str]]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {name: kind for name, (kind, _) in self.columns.items()}

    def check(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame itself if it has exactly these columns and types; a defect of ours if not."""
        assert dict(frame.schema) == self.schema, f"{self.name}: {frame.schema} is not {self.schema}"
        return frame


def place_of_value() -> pl.Expr:
    """Ranks by value, the highest first. Values that differ by no more than the last digits of sums share theirs: the
    mean of 0.1, 0.1 and 0.1 is not that of 0.3, 0 and 0."""
    return pl.col("value").round_sig_figs(12).rank("min", descending=True)


def protocol_label(protocol: str) -> str:
    """A protocol as people read it: temperature=0.2, grader=x. Empty where none is configured."""
    known = json.loads(protocol) if protocol else {}
    parts = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in known.items())
    return ", ".join(parts)


_GROUP: dict[str, tuple[pl.DataType, str]] = {
    "benchmark": (TEXT, "a set of problems scored together"),
    "subject": (TEXT, "slice inside a benchmark"),
    "model": (TEXT, "the model as the lake names it"),
    "protocol": (TEXT, "the protocol columns as JSON; empty when none are configured"),
}
_PROBLEM = {**_GROUP, "problem_id": (TEXT, "unique within benchmark and subject")}
_N = {"n": (INT, "graded attempts")}
_C = {"c": (INT, "correct attempts; null when the lake has no pass/fail outcome")}
_UNGRADED = {"ungraded": (INT, "attempts without a verdict, not part of n")}

_SCORES: dict[str, tuple[pl.DataType, str]] = {
    "metric": (TEXT, "canonical name, such as pass@8"),
    "family": (TEXT, "the name without its k and parameter, such as pass@k"),
    "k": (INT, "draws; null for avg@N and bayes@N"),
    "param": (REAL, "tau of g-pass, lambda of geo-spectrum; null for the others"),
    "value": (REAL, "finite-bank estimate: unbiased, from the attempts made; null below min_coverage"),
    "lo": (REAL, "lower end of the interval of value: what the model would score on other problems like these"),
    "hi": (REAL, "upper end of the interval of value: what the model would score on other problems like these"),
    "se": (REAL, "standard error of value when the problems (or, if given, their clusters) are a sample"),
    "rerun_lo": (REAL, "lower end for the same problems attempted again; for means of pass/fail where n >= 2"),
    "rerun_hi": (REAL, "upper end for the same problems attempted again; for means of pass/fail where n >= 2"),
    "mu": (REAL, "posterior mean over all problems, which are fixed while attempts are random; null for votes"),
    "sigma": (REAL, "posterior standard deviation of mu, problems fixed"),
    "mu_lo": (REAL, "lower end of the posterior interval around mu, problems fixed; need not contain value"),
    "mu_hi": (REAL, "upper end of the posterior interval around mu, problems fixed; need not contain value"),
    "problems": (INT, "all problems of the group"),
    "problems_scored": (INT, "problems with at least k graded attempts"),
    "problems_of_benchmark": (INT, "problems (of the subject or slice) that any model attempted under the protocol"),
    "attempts": (INT, "graded attempts of the group"),
    "ungraded": (INT, "attempts without a verdict"),
}
_MODEL = {"benchmark": _GROUP["benchmark"], "model": _GROUP["model"], "protocol": _GROUP["protocol"]}
_SLICE: dict[str, tuple[pl.DataType, str]] = {
    "slice": (TEXT, "the carried column the problems are sliced by"),
    "slice_value": (TEXT, "its value; null where a problem has none"),
}

_REWARDS: dict[str, tuple[pl.DataType, str]] = {
    "reward_mean": (REAL, "mean score of the graded attempts, as the lake has them; null without scores"),
    "reward_max": (REAL, "best score of the graded attempts; null without scores"),
}
PROBLEM_COUNTS = Table(
    "problem_counts",
    "One row per problem: how many graded attempts it has and how many were correct.",
    {**_PROBLEM, **_N, **_C, **_UNGRADED, **_REWARDS},
)
_GROUP_NUMBER = {"_group": (pl.UInt32(), "number of the group, in the order of its columns")}
_NAME_NUMBER = {"_name": (pl.UInt32(), "number of the problem id, in the order of the ids")}
PROBLEM_GROUP = Table("problem_group", "The groups that the view `problem` names.", {**_GROUP_NUMBER, **_GROUP})
PROBLEM_NAME = Table(
    "problem_name",
    "The problem ids that the view `problem` names.",
    {**_NAME_NUMBER, "problem_id": _PROBLEM["problem_id"]},
)
PROBLEM_COUNT = Table(
    "problem_count",
    "What the view `problem` is made of: counts and carried columns, with numbers for the texts of the keys.",
    {**_GROUP_NUMBER, **_NAME_NUMBER, **_N, **_C, **_UNGRADED, **_REWARDS},
)
_VALUE: dict[str, tuple[pl.DataType, str]] = {
    **{name: _SCORES[name] for name in ("metric", "k")},
    "value": (REAL, "finite-bank value of one problem; null where it has fewer than k graded attempts"),
}
COUNT_SCORE = Table(
    "count_score",
    "What the view `problem_scores` is made of: metrics of pass/fail that were named, for every (n, c).",
    {**_N, **_C, **_VALUE},
)
PROBLEM_SCORE = Table(
    "problem_score",
    "What the view `problem_scores` is made of: metrics of scores and answers that were named, for every problem.",
    {**_GROUP_NUMBER, **_NAME_NUMBER, **_VALUE},
)
PROBLEM_HISTOGRAM = Table(
    "problem_histogram",
    "Problems of a group that share the same (n, c): all that any pass/fail metric needs.",
    {**_GROUP, **_N, **_C, "problems": (INT, "how many problems share this n and c")},
)
MODEL_SUMMARY = Table("model_summary", "One row per benchmark, model, protocol and metric.", {**_MODEL, **_SCORES})
SUBJECT_SUMMARY = Table(
    "subject_summary",
    "One row per benchmark, subject, model, protocol and metric.",
    {**_GROUP, **_SCORES},
)
SLICE_SUMMARY = Table(
    "slice_summary",
    "One row per value of a carried column asked for with --by, model, protocol and metric.",
    {"benchmark": _GROUP["benchmark"], **_SLICE, "model": _GROUP["model"], "protocol": _GROUP["protocol"], **_SCORES},
)
CURVE = Table(
    "curve",
    "pass@k and pass^k of every model for k = 1, 2, 3, ...: every k up to 64, then four in each doubling.",
    {
        **_MODEL,
        **{name: _SCORES[name] for name in ("metric", "family", "k", "value", "lo", "hi")},
        "problems": _SCORES["problems"],
        "problems_scored": _SCORES["problems_scored"],
        "coverage": (REAL, "share of the problems that have k graded attempts; below min_coverage there is no value"),
    },
)
OVERALL = Table(
    "overall",
    "Averages over benchmarks, which all count the same unless [overall] weights says otherwise.",
    {
        **{name: _SCORES[name] for name in ("metric", "family", "k", "param")},
        "rank": (INT, "place among the models under the protocol; null where there is no value"),
        "model": _GROUP["model"],
        "protocol": _GROUP["protocol"],
        "value": (REAL, "weighted mean of the model's values over the benchmarks; null where one is missing"),
        "lo": (REAL, "lower end of the interval of value: other problems like those of the benchmarks"),
        "hi": (REAL, "upper end of the interval of value: other problems like those of the benchmarks"),
        "se": (REAL, "standard error of value; null where a benchmark has one problem only"),
        "benchmarks": (INT, "benchmarks that any model tried under the protocol"),
        "missing": (TEXT, "benchmarks without a value of this model; null where there is none"),
    },
)
_PAIR: dict[str, tuple[pl.DataType, str]] = {
    "metric": _SCORES["metric"],
    "model_a": (TEXT, "the first model"),
    "model_b": (TEXT, "the second model"),
    "protocol": (TEXT, "the protocol both ran under; null when they share none"),
    "problems": (INT, "problems scored for both models; null when they share no protocol"),
    "lift": (REAL, "mean of B's score minus A's over those problems; null when not comparable"),
    "lo": (REAL, "lower end of the interval of the lift: paired bootstrap over whole problems"),
    "hi": (REAL, "upper end of the interval of the lift: paired bootstrap over whole problems"),
    "wins_a": (INT, "problems where A scored higher"),
    "wins_b": (INT, "problems where B scored higher"),
    "ties": (INT, "problems with equal scores"),
    "p_one_sided": (REAL, "sign-flip test of the lift: chance of one as large for B, were the two equal"),
    "p_one_sided_a": (REAL, "the same for A"),
    "p_two_sided": (REAL, "sign-flip test of the lift: chance of one as far from zero, were the two equal"),
    "p_holm": (REAL, "two-sided p-value adjusted over all pairs of the benchmark, protocol and metric (Holm)"),
    "q": (REAL, "the same by Benjamini and Hochberg: the share of false ones among claims up to this one"),
    "claim": (TEXT, "improvement, regression, equivalent, not worse or inconclusive (of B over A); or what differs"),
    "claim_a": (TEXT, "the same of A over B"),
    "resamples": (INT, "resamples and flips of this pair"),
}
_RANK: dict[str, tuple[pl.DataType, str]] = {
    "metric": _SCORES["metric"],
    "model": _GROUP["model"],
    "protocol": _GROUP["protocol"],
    "rank": (INT, "place by value among the ranked models; null for the others"),
    "rank_lo": (INT, "best rank that the problems leave open; null where the metric is not compared"),
    "rank_hi": (INT, "worst rank that the problems leave open; null where the metric is not compared"),
    "p_best": (REAL, "share of resamples in which the model leads; a tie for the lead is split"),
    "reason": (TEXT, "why the model is not ranked; null for ranked ones"),
}
_BENCHMARK = {"benchmark": _GROUP["benchmark"]}
_SUBJECT = {**_BENCHMARK, "subject": _GROUP["subject"]}
MODEL_PAIR = Table(
    "model_pair",
    "What the views `comparison` and `pair` are made of: two models on the problems both attempted.",
    {**_BENCHMARK, **_PAIR},
)
SUBJECT_PAIR = Table("subject_pair", "What the view `subject_comparison` is made of.", {**_SUBJECT, **_PAIR})
MODEL_RANK = Table("model_rank", "Ranks by value, and how far the problems settle them.", {**_BENCHMARK, **_RANK})
SUBJECT_RANK = Table("subject_rank", "The same within each subject.", {**_SUBJECT, **_RANK})
ANSWER_NOISE = Table(
    "answer_noise",
    "What the view `grader_noise` is made of: the same answer to the same problem, with two verdicts.",
    {
        **_MODEL,
        "problems": (INT, "problems that have an answer"),
        "answers": (INT, "different answers, problem by problem"),
        "answers_repeated": (INT, "those that two or more graded attempts gave"),
        "answers_mixed": (INT, "of those, the ones that both passed and failed"),
        "attempts_repeated": (INT, "attempts with an answer that others gave too"),
        "attempts_odd": (INT, "attempts whose verdict is not the more frequent one of their answer"),
        "disagreement": (REAL, "chance that two attempts with the same answer got different verdicts"),
        "examples": (pl.List(TEXT), "up to three problems with the most such pairs of attempts"),
    },
)
PROTOCOL_KEY = Table(
    "protocol_key",
    "What the view `protocol` is made of; beside these, one column per key.",
    {
        "protocol": (TEXT, "the protocol columns as JSON; empty when none are configured"),
        "label": (TEXT, "the same as people read it, such as temperature=0.2, grader=x"),
        "_grader": (TEXT, "who graded, where a key says so"),
        "_other": (TEXT, "the rest of the protocol"),
    },
)
_RUN_ID = {"run_id": (TEXT, "the run; its snapshot's folder has this name")}
_NUMBER = {"number": (INT, "one more than that of the run before: the order of runs, whatever clocks say")}
_STARTED = {"started": (pl.Datetime("us"), "when the run began by its machine's clock, UTC")}
_SETTINGS = {"settings": (TEXT, "digest of the settings; the table setting spells them out")}
_RECORD: dict[str, tuple[pl.DataType, str]] = {
    **_RUN_ID,
    **_NUMBER,
    **_STARTED,
    "finished": (pl.Datetime("us"), "when its numbers were ready by its machine's clock, UTC"),
    "version": (TEXT, "scorelake's version"),
    **_SETTINGS,
    "lake": (TEXT, "where the attempts were read"),
    "files": (INT, "Parquet files in the lake, without those excluded"),
    "excluded": (INT, "files left out by [lake] exclude"),
    "quarantined": (INT, "files that could not be read and were left out"),
    "rows_read": (INT, "rows read = graded + ungraded + duplicates + rejected"),
    "rows_new": (INT, "rows of files that no earlier run had counted"),
    "graded": (INT, "rows with a verdict"),
    "ungraded": (INT, "rows without a verdict"),
    "duplicates": (INT, "rows dropped as repeats of an attempt"),
    "rejected": (INT, "rows whose outcome or key is not valid"),
    "models": (INT, "models with at least one row in model_summary"),
    "problems": (INT, "problems of all models added up"),
}
RUN = Table(
    "run",
    "One row per run that was ever published here, in the order of number.",
    {**_RECORD, "shown": (pl.Boolean(), "true for the run whose numbers this file shows")},
)
RECORD = Table(
    "run_record",
    "What runs.parquet holds, one row per run that was ever published.",
    {
        **_RECORD,
        "settings_json": (TEXT, "the settings as JSON"),
        "quarantine_json": (TEXT, "the files left out, each with its reason, as JSON"),
    },
)
SETTING = Table(
    "setting",
    "The settings of every run: one row per digest and key.",
    {**_SETTINGS, "key": (TEXT, "section and name, such as uncertainty.confidence"), "value": (TEXT, "as JSON")},
)
QUARANTINE = Table(
    "quarantine",
    "Files of the lake that a run could not read and left out.",
    {
        **_RUN_ID,
        "file": (TEXT, "the file, relative to the lake"),
        "reason": (TEXT, "why it was left out"),
    },
)
HISTORY = Table(
    "history",
    "How scores moved: every metric of every model in every run that was ever published.",
    {
        **_RUN_ID,
        **_NUMBER,
        **_STARTED,
        **_MODEL,
        **{
            name: _SCORES[name]
            for name in ("metric", "value", "lo", "hi", "se", "problems", "problems_scored", "attempts")
        },
    },
)
CHANGE = Table(
    "change",
    "What moved since the run that was shown before: every metric of every model of either run.",
    {
        **_MODEL,
        "metric": _SCORES["metric"],
        "what": (TEXT, "moved, same, new or gone; unknown where neither or only one run has a value"),
        "value_before": (REAL, "value in the run before"),
        "value": (REAL, "value in this run"),
        "change": (REAL, "value minus value_before"),
        "lo": (REAL, "lower end of the interval of the change, as wide as noise of the attempts makes it"),
        "hi": (REAL, "upper end of that interval"),
        "p": (REAL, "chance of a change this large where nothing but the attempts differs, two-sided"),
        "q": (REAL, "the same adjusted over the models of the benchmark, protocol and metric (Benjamini-Hochberg)"),
        "outside": (pl.Boolean(), "true where q says that noise of the attempts does not explain the change"),
        "rank_before": (INT, "rank by value in the run before"),
        "rank": (INT, "rank by value in this run"),
        "problems_before": (INT, "problems in the run before"),
        "problems": (INT, "problems in this run"),
        "attempts_before": (INT, "graded attempts in the run before"),
        "attempts": (INT, "graded attempts in this run"),
        "settings_changed": (pl.Boolean(), "true where the settings, or the version, differ between the two runs"),
    },
)
BOARD = Table(
    "board",
    "Which run this file shows, and who built it.",
    {
        **_RUN_ID,
        "rolled_back": (pl.Boolean(), "true where scorelake rollback put an earlier run back"),
        "scorelake": (TEXT, "the version that built this file"),
        "duckdb": (TEXT, "the DuckDB that built it; digests are compared under the same one only"),
    },
)
DIGEST = Table(
    "digest",
    "What the tables held when this file was built, to notice a change by hand.",
    {
        "what": (TEXT, "a table, or all views and macros together"),
        "rows": (INT, "its rows"),
        "digest": (TEXT, "the sum of DuckDB's hash over its rows"),
    },
)
SUMMARIES = (MODEL_SUMMARY, SUBJECT_SUMMARY, SLICE_SUMMARY)
SCORES = (*SUMMARIES, CURVE, OVERALL, COUNT_SCORE, PROBLEM_SCORE)
EVIDENCE = (MODEL_PAIR, SUBJECT_PAIR, MODEL_RANK, SUBJECT_RANK, ANSWER_NOISE)
PROBLEM = (PROBLEM_GROUP, PROBLEM_NAME, PROBLEM_COUNT)
