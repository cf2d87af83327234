"""Table schemas: the name, type and description of every column, in one list.

It feeds the Parquet files and the tables and comments of leaderboard.duckdb; its views are in publish/views.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import polars as pl

KEYS = ("benchmark", "subject", "model", "protocol", "problem_id")
"""Identify a problem; also the sort order of every table."""
NAMED = tuple(key for key in KEYS if key != "protocol")
"""Keys that must not be null."""

_ALIASES = {
    "model": "model_name model_id llm engine system agent policy checkpoint solver",
    "benchmark": "dataset dataset_name bench suite task_name eval eval_name data_source",
    "subject": "category topic domain field area subset subtask section",
    "problem_id": "task_id question_id instance_id item_id example_id prompt_id doc_id qid problem question task "
    "item example instance id uid idx index",
    "attempt": "sample_id attempt_id trial trial_id run run_id rollout rollout_id sample try sample_index sample_idx "
    "completion_id generation_id generation repeat epoch seed",
    "passed": "correct is_correct pass is_pass success successful solved resolved accepted right ok verdict outcome "
    "label acc accuracy result status",
    "score": "reward rewards points grade rating value total_score",
    "answer": "extracted_answer final_answer prediction predicted pred model_answer choice",
}
ALIASES = {key: tuple(names.split()) for key, names in _ALIASES.items()}
"""Names of our columns in other tools, the likeliest first."""
GROUP, MODEL = KEYS[:-1], ("benchmark", "model", "protocol")
COUNTS = ("n", "c", "ungraded")
EARLIER = {name: f"prior_{name}" for name in ("n", "c", "rewards", "reward_counts")}
"""Counts of earlier attempts ([uncertainty] prior_lake) and their columns in problem_counts."""
LISTS = ("rewards", "reward_counts", "answer_counts", "answer_passes", "prior_rewards", "prior_reward_counts")
"""Columns of problem_counts (rewards, answers) that are not loaded into leaderboard.duckdb."""

TEXT, INT, REAL, FLAG = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()
TIME, TEXTS, CODE = pl.Datetime("us"), pl.List(pl.String()), pl.UInt32()
SCHEMA_VERSION = 1
"""In every snapshot and leaderboard; raised when a table or column is renamed, removed or changes its meaning."""
Columns: TypeAlias = dict[str, tuple[pl.DataType, str]]


class Table:
    """A published table or view: its columns with their types and descriptions."""

    def __init__(self, name: str, about: str, /, **columns: tuple[pl.DataType, str]) -> None:
        self.name, self.about, self.columns = name, about, columns

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {name: kind for name, (kind, _) in self.columns.items()}

    def check(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame if it has exactly these columns and types; anything else is a bug."""
        assert dict(frame.schema) == self.schema, f"{self.name}: {frame.schema} is not {self.schema}"
        return frame

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Select exactly the columns of this version, whichever version wrote them; missing ones are null."""
        return frame.select(
            pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, dtype=kind).alias(name)
            for name, kind in self.schema.items()
        )

    def read(self, snapshot: Path) -> pl.DataFrame:
        """Read the table from a snapshot of any version; empty if that version did not have it."""
        path = snapshot / f"{self.name}.parquet"
        return self.conform(pl.read_parquet(path, glob=False)) if path.exists() else pl.DataFrame(schema=self.schema)


def _ends(column: str, note: str = "", lo: str = "lo", hi: str = "hi", kind: str = "confidence") -> Columns:
    """Describe both ends of an interval."""
    of = f"end of the {kind} interval of {column}{note}"
    return {lo: (REAL, f"Lower {of}"), hi: (REAL, f"Upper {of}")}


def rank_of_value() -> pl.Expr:
    """Rank by value, the highest first; rounded: means of 0.1, 0.1, 0.1 and 0.3, 0, 0 differ in the last digit."""
    return pl.col("value").round_sig_figs(12).rank("min", descending=True)


GROUP_COLUMNS: Columns = {
    "benchmark": (TEXT, "Set of problems that are scored together"),
    "subject": (TEXT, "Part of a benchmark"),
    "model": (TEXT, "Model name as in the lake"),
    "protocol": (TEXT, "Protocol columns as JSON; empty if none are configured"),
}
_PROBLEM: Columns = {
    "_group": (CODE, "Row number of the group in source.problem_group"),
    "_name": (CODE, "Row number of the problem id in source.problem_name"),
    "problem_id": (TEXT, "Unique within benchmark and subject"),
    "n": (INT, "Graded attempts"),
    "c": (INT, "Correct attempts; null if the lake has no pass/fail outcome"),
    "ungraded": (INT, "Attempts without a verdict, not part of n"),
    "reward_mean": (REAL, "Mean score of the graded attempts; null without scores"),
    "reward_max": (REAL, "Best score of the graded attempts; null without scores"),
}
_METRIC: Columns = {
    "metric": (TEXT, "Canonical name, such as pass@8"),
    "family": (TEXT, "Name without k and parameter, such as pass@k"),
    "k": (INT, "Number of draws; null for avg@N and bayes@N"),
    "param": (REAL, "tau of g-pass, lambda of geo-spectrum; null for other metrics"),
}
_ESTIMATE: Columns = {
    "value": (REAL, "Estimate from the observed attempts; null below min_coverage"),
    **_ends("value", " (problems treated as a random sample)"),
    "se": (REAL, "Standard error of value (problems, or their clusters, treated as a random sample)"),
}
_SIZE: Columns = {
    "problems": (INT, "Problems of the group"),
    "problems_scored": (INT, "Problems with at least k graded attempts; value is their mean"),
    "problems_of_benchmark": (INT, "Problems (of the subject or slice) that any model attempted under the protocol"),
    "attempts": (INT, "Graded attempts of the group"),
}
_SUMMARY: Columns = {
    **_METRIC,
    **_ESTIMATE,
    "bound_lo": (REAL, "lo if every problem with fewer than k attempts had the least value; null for blends"),
    "bound_hi": (REAL, "hi if every problem with fewer than k attempts had the largest value; null for blends"),
    **_ends("value", " for new attempts at the same problems; pass/fail means", "rerun_lo", "rerun_hi"),
    "mu": (REAL, "Posterior mean over all problems (problems fixed, attempts random); null for votes"),
    "sigma": (REAL, "Posterior standard deviation of mu"),
    **_ends("mu", "; need not contain value", "mu_lo", "mu_hi", "credible"),
    **_SIZE,
    "ungraded": (INT, "Attempts without a verdict"),
}
RUN_ID: Columns = {"run_id": (TEXT, "Run id; also the name of its snapshot folder")}
_SETTINGS: Columns = {"settings": (TEXT, "Digest of the settings; see the table setting")}
_BOTH_MODELS: Columns = {"model_a": (TEXT, "First model (A)"), "model_b": (TEXT, "Second model (B)")}
EARLIER_COUNTS: Columns = {
    "prior_n": (INT, "Graded attempts of the problem in [uncertainty] prior_lake"),
    "prior_c": (INT, "Correct attempts of the problem in [uncertainty] prior_lake"),
}
_ALL: Columns = {**_PROBLEM, **GROUP_COLUMNS, **_METRIC, **_ESTIMATE, **_SIZE}


def shared(*names: str) -> Columns:
    """Return columns that have the same meaning in every table."""
    return {name: _ALL[name] for name in names}


PROBLEM_COUNTS = Table(
    "problem_counts",
    "One row per problem: n graded and c correct attempts; mean and best score; carried columns.",
    **shared(*KEYS, *COUNTS, "reward_mean", "reward_max"),
)
PROBLEM_HISTOGRAM = Table(
    "problem_histogram",
    "Number of problems per group, n and c: sufficient for every pass/fail metric.",
    **shared(*GROUP, "n", "c"),
    problems=(INT, "Problems with this n and c"),
)
MODEL_SUMMARY = Table(
    "model_summary",
    "One row per benchmark, model, protocol and metric.",
    **shared(*MODEL),
    **_SUMMARY,
    sampling=(TEXT, "fixed, adaptive (n follows outcomes: biased) or unknown"),
)
SUBJECT_SUMMARY = Table(
    "subject_summary", "One row per benchmark, subject, model, protocol and metric.", **GROUP_COLUMNS, **_SUMMARY
)
SLICE_SUMMARY = Table(
    "slice_summary",
    "One row per value of a carried column (--by), model, protocol and metric.",
    **shared("benchmark"),
    slice=(TEXT, "Carried column by which the problems are sliced"),
    slice_value=(TEXT, "Value of that column; null for problems without one"),
    **shared("model", "protocol"),
    **_SUMMARY,
)
CURVE = Table(
    "curve",
    "pass@k and pass^k of every model for every k up to 64, then four values of k per doubling.",
    **shared(*MODEL, "metric", "family", "k", "value", "lo", "hi", "problems", "problems_scored"),
    scored=(REAL, "Share of problems with at least k graded attempts; value is null below min_coverage"),
)
OVERALL = Table(
    "overall",
    "Averages over benchmarks, equally weighted unless [overall] weights is set.",
    **_METRIC,
    rank=(
        INT,
        "Rank among the models of the protocol; null without a value, or where one of the benchmarks has no rank",
    ),
    rank_lo=(INT, "1 + the number of models that are significantly better; null if some pair is not compared"),
    rank_hi=(INT, "The last rank above the models that are significantly worse; null as rank_lo"),
    **shared("model", "protocol"),
    value=(REAL, "Weighted mean over the benchmarks of one kind; null if one of them is missing"),
    **_ends("value"),
    se=(REAL, "Standard error of value; null if a benchmark has only one problem"),
    benchmarks=(INT, "Benchmarks under the protocol that have metrics of the family, on one scale"),
    missing=(TEXT, "Benchmarks for which the model has no value; null if none"),
)
VALUE_COLUMNS: Columns = {
    **shared("metric", "k"),
    "value": (REAL, "Value of one problem; null below k graded attempts"),
}
COUNT_SCORE = Table(
    "count_score",
    "Values of the requested pass/fail metrics for every (n, c); source of problem_scores.",
    **(shared("n", "c") | VALUE_COLUMNS),
)
PROBLEM_SCORE = Table(
    "problem_score",
    "Values of the requested score and answer metrics for every problem; source of problem_scores.",
    **(shared("_group", "_name") | VALUE_COLUMNS),
)
MODEL_PAIR = Table(
    "model_pair",
    "Paired comparisons; source of comparison and pair.",
    **shared("benchmark", "metric"),
    **_BOTH_MODELS,
    protocol=(TEXT, "Protocol of both models; null if they share none"),
    problems=(INT, "Problems scored for both models; null if they share no protocol"),
    lift=(REAL, "Mean score of B minus mean score of A on those problems; null if not comparable"),
    **_ends("lift", " (paired bootstrap over problems)"),
    wins_a=(INT, "Problems on which A scored higher"),
    wins_b=(INT, "Problems on which B scored higher"),
    ties=(INT, "Problems with equal scores"),
    p_one_sided=(REAL, "One-sided p-value of the sign-flip test that B is better"),
    p_one_sided_a=(REAL, "One-sided p-value of the sign-flip test that A is better"),
    p_two_sided=(REAL, "Two-sided p-value of the sign-flip test"),
    p_holm=(REAL, "Holm-adjusted p_two_sided, over all pairs of the benchmark, protocol and metric"),
    q=(REAL, "Benjamini-Hochberg adjusted p-value (false discovery rate)"),
    claim=(TEXT, "improvement, regression, equivalent, not worse or inconclusive (B over A); or why not comparable"),
    claim_a=(TEXT, "The claim with the models exchanged (A over B)"),
    resamples=(INT, "Resamples and sign flips; null if the interval comes from those of both models (n differs)"),
)
SUBJECT_PAIR = Table(
    "subject_pair",
    "Paired comparisons per subject; source of subject_comparison.",
    **(shared("benchmark", "subject") | MODEL_PAIR.columns),
)
MODEL_RANK = Table(
    "model_rank",
    "Ranks and rank ranges; source of leaderboard.",
    **shared("benchmark", "metric", "model", "protocol"),
    rank=(INT, "Rank by value; null for unranked models"),
    rank_lo=(INT, "1 + the number of ranked models that are claimed better; null if the metric is not compared"),
    rank_hi=(INT, "The last rank above the ranked models that are claimed worse; null if the metric is not compared"),
    p_best=(REAL, "Share of bootstrap resamples in which the model ranks first; ties are split"),
    reason=(TEXT, "Why the model is not ranked; null for ranked models"),
)
SUBJECT_RANK = Table(
    "subject_rank",
    "Ranks and rank ranges per subject; source of subject_leaderboard.",
    **(shared("benchmark", "subject") | MODEL_RANK.columns),
)
ANSWER_NOISE = Table(
    "answer_noise",
    "Identical answers with different verdicts; source of grader_noise.",
    **shared(*MODEL),
    problems=(INT, "Problems with an answer"),
    answers=(INT, "Distinct answers, summed over problems"),
    answers_repeated=(INT, "Answers given by two or more graded attempts"),
    answers_mixed=(INT, "Repeated answers that both passed and failed"),
    attempts_repeated=(INT, "Attempts with a repeated answer"),
    attempts_odd=(INT, "Attempts with the less frequent verdict of their answer"),
    disagreement=(REAL, "Probability that two attempts with the same answer were graded differently"),
    examples=(TEXTS, "Up to three problems with the most such pairs of attempts"),
)
CHANGE = Table(
    "change",
    "Changes since the previous published run: every metric of every model of either run.",
    **shared(*MODEL, "metric"),
    what=(TEXT, "moved, same, new, gone or unknown"),
    reason=(TEXT, "Why the change is unknown; null otherwise"),
    value_before=(REAL, "Value in the previous run"),
    value=(REAL, "Value in this run"),
    change=(REAL, "Mean over the problems of both runs of value now minus value before"),
    **_ends("change", " (paired by problem)"),
    p=(REAL, "Two-sided p-value of no change, of this run alone (paired by problem)"),
    q=(REAL, "Benjamini-Hochberg adjusted p, over the models of the benchmark, protocol and metric"),
    outside=(FLAG, "True if the change is significant (q <= 1 - confidence)"),
    look=(INT, "Number of earlier published runs with a value of this score"),
    alarm=(FLAG, "True if the change is significant over all looks: p at most this look's share of 1 - confidence"),
    from_added=(REAL, "Movement of value due to problems of this run alone"),
    from_dropped=(REAL, "Movement of value due to problems of the previous run alone"),
    problems_both=(INT, "Problems with a value in both runs, over which change is the mean"),
    problems_added=(INT, "Problems with a value in this run alone"),
    problems_dropped=(INT, "Problems with a value in the previous run alone"),
    **{
        name: (INT, f"{text} in {run}")
        for column, text in (("rank", "Rank by value"), ("problems", "Problems"), ("attempts", "Graded attempts"))
        for name, run in ((f"{column}_before", "the previous run"), (column, "this run"))
    },
    settings_changed=(FLAG, "True if the settings or the version differ between the two runs"),
)
GATE = Table(
    "gate",
    "Verdicts of the configured gates about single models: max_fall and the rules of [gates].",
    rule=(TEXT, "Setting: max_fall, or rule 1, rule 2, ... in their order"),
    **shared(*MODEL, "metric"),
    base=(TEXT, "Model of the same run that it is held against; previous: the model itself in the previous run"),
    margin=(REAL, "The fall that is still accepted"),
    verdict=(TEXT, "pass: lo is above -margin; fail: hi is below -margin; else undecided"),
    lift=(REAL, "Mean score minus that of the base, on the problems of both; null if not comparable"),
    **_ends("lift"),
    reason=(TEXT, "Why there is no lift; null if there is one"),
)

ADJUSTED = Table(
    "adjusted",
    "pass@1 over all problems of a board under a Rasch model, where some models tried only a part of them.",
    **shared(*MODEL),
    value=(REAL, "pass@1 on the problems that the model tried"),
    value_adjusted=(REAL, "Expected pass@1 over all problems: success depends on ability minus difficulty"),
    **_ends("value_adjusted", ", if the Rasch model holds", "lo_adjusted", "hi_adjusted"),
    adjusted_rank=(INT, "Rank by value_adjusted"),
    share_tried=(REAL, "Share of the board's problems with a graded attempt of the model"),
    misfit=(REAL, "Squared deviations from the Rasch model over their expected size; near 1 where it holds"),
    bound_lo=(REAL, "Lower bound of the success rate of all attempts, whatever the ungraded ones are"),
    bound_hi=(REAL, "Upper bound of the success rate of all attempts, whatever the ungraded ones are"),
    reason=(TEXT, "Why there is no adjusted value; null if there is one"),
)
FORECAST = Table(
    "forecast",
    "pass@k for more attempts than were made, where [metrics] names it; never part of model_summary.",
    **shared(*MODEL, "metric", "k"),
    value=(REAL, "Forecast of a beta-binomial model, within the interval"),
    lo=(REAL, "Lower end of the interval: profile likelihood over all distributions of success rates"),
    hi=(REAL, "Upper end of that interval"),
    **shared("problems"),
    attempts_per_problem=(REAL, "Mean number of graded attempts per problem"),
)
_MEASURED: Columns = {**shared(*MODEL), "measure": (TEXT, "Name of the measure in [measures]")}
_PAID_PROBLEMS: Columns = {"problems": (INT, "Problems with a graded attempt that has the measure")}
MEASURE_SUMMARY = Table(
    "measure_summary",
    "What attempts cost, by model and measure, also of each subject (if several) and slice; only with [measures].",
    **shared("benchmark"),
    subject=(TEXT, "Subject; null for all of them"),
    slice=(TEXT, "Carried column by which the problems are sliced; null for all problems"),
    slice_value=(TEXT, "Value of that column"),
    **{name: column for name, column in _MEASURED.items() if name != "benchmark"},
    value=(REAL, "Mean over problems of the mean per graded attempt"),
    **_ends("value"),
    per_pass=(REAL, "Sum over graded attempts per passed attempt; null if none passed, or without verdicts"),
    **_ends("per_pass", " (bootstrap over problems; no upper end if unbounded)", "per_pass_lo", "per_pass_hi"),
    total=(REAL, "Sum over graded attempts, each paid once"),
    ungraded_total=(REAL, "Sum over ungraded attempts"),
    **_PAID_PROBLEMS,
    never_solved=(INT, "Problems of these that no attempt solved; null without verdicts"),
    attempts=(INT, "Graded attempts that have the measure"),
    missing=(INT, "Graded attempts of these problems without the measure"),
)
COST_CURVE = Table(
    "cost_curve",
    "pass@k and the expected cost of sampling until solved, at most k times; only with [measures].",
    **_MEASURED,
    k=(INT, "Largest number of attempts"),
    value=(REAL, "pass@k"),
    **_ends("value"),
    cost=(REAL, "cost@k: mean over problems of the expected cost until one attempt passes, at most k"),
    **_ends("cost", "", "cost_lo", "cost_hi"),
    solved_per_cost=(REAL, "value divided by cost"),
    **_ends("solved_per_cost", " (no upper end if unbounded)", "solved_per_cost_lo", "solved_per_cost_hi"),
    **_PAID_PROBLEMS,
)
BUDGET_CURVE = Table(
    "budget_curve",
    "What one attempt scores if it must not cost more than a budget; only with [measures].",
    **_MEASURED,
    budget=(REAL, "Largest cost of an attempt: an edge of the logarithmic bins, four per doubling"),
    value=(REAL, "Mean over problems of the share of attempts that passed within the budget"),
    **_ends("value"),
)
FRONTIER = Table(
    "frontier",
    "Score against cost, by benchmark and protocol; only with [measures].",
    **_MEASURED,
    score=(REAL, "pass@1; avg@N without verdicts"),
    cost=(REAL, "Mean over problems of the mean per graded attempt"),
    on_front=(FLAG, "No other model is better and cheaper, both beyond chance"),
    front_by_value=(FLAG, "No other model has a score as high and a cost as low, one of them better"),
    p_front=(REAL, "Share of bootstrap resamples in which front_by_value holds"),
)
MEASURE_PAIR = Table(
    "measure_pair",
    "What two models cost on the problems that both attempted, paired by problem; only with [measures].",
    **shared("benchmark", "protocol"),
    measure=_MEASURED["measure"],
    **_BOTH_MODELS,
    problems=(INT, "Problems attempted by both, with the measure"),
    lift=(REAL, "Mean cost of B minus mean cost of A on those problems"),
    **_ends("lift", " (paired bootstrap over problems)", "lift_lo", "lift_hi"),
    lift_per=(REAL, "Lift in score per unit of lift in cost; null where the interval of the latter contains 0"),
    **_ends("lift_per", " (bootstrap over problems)", "lift_per_lo", "lift_per_hi"),
)
MEASURE_TABLES = (MEASURE_SUMMARY, COST_CURVE, BUDGET_CURVE, FRONTIER, MEASURE_PAIR)
_LABELLED: Columns = {
    "problems": (INT, "Problems with a graded attempt (of both models)"),
    "labelled": (INT, "Problems of these with trusted grades (of both models); a correction needs 20"),
}
JUDGE_QUALITY = Table(
    "judge_quality",
    "The judge of every model against the trusted grades of [columns] gold, and pass@1 corrected by them.",
    **shared(*MODEL),
    **_LABELLED,
    attempts=(INT, "Attempts with both grades"),
    **{
        f"{name}{end}": (REAL, f"{of}{text}")
        for name, text in (
            ("agreement", "share of attempts that both grade alike"),
            ("sensitivity", "share of the attempts that pass by the trusted grade that the judge passes"),
            ("specificity", "share of the attempts that fail by the trusted grade that the judge fails"),
            ("kappa", "agreement beyond chance (Cohen)"),
        )
        for end, of in (("", ""), ("_lo", "Lower end: "), ("_hi", "Upper end: "))
    },
    value=(REAL, "pass@1 as judged"),
    value_corrected=(REAL, "pass@1 corrected by the trusted grades"),
    **_ends("value_corrected"),
    bias=(REAL, "Mean over labelled problems of the judged score minus the trusted one"),
    bias_p=(REAL, "p-value that it is the same on all other models, Holm-adjusted over the models of the board"),
)
JUDGE_LIFT = Table(
    "judge_lift",
    "Lifts in pass@1 corrected by trusted grades.",
    **shared("benchmark", "protocol"),
    **_BOTH_MODELS,
    **_LABELLED,
    lift=(REAL, "Mean score of B minus mean score of A, as judged"),
    lift_corrected=(REAL, "The same corrected by the trusted grades"),
    **_ends("lift_corrected"),
)
ESTIMATES = (ADJUSTED, FORECAST, JUDGE_QUALITY, JUDGE_LIFT)
SERIES = Table(
    "series",
    "Scores of every run over its training steps: the first metric, and the same at the largest shared k.",
    **shared("benchmark"),
    model=(TEXT, "Name of the run, without the step"),
    **shared("protocol"),
    step=(INT, "Training step, or the digits of a date"),
    **shared("metric", "value", "lo", "hi"),
    band_lo=(REAL, "Lower end of the band that contains the curve at all steps at once (problems in common)"),
    band_hi=(REAL, "Upper end of that band; null below [compare] min_problems in common"),
    smoothed=(REAL, "Local linear trend of pass@1 over the steps; null where attempts are not repeated"),
    rank_in_series=(INT, "Rank of the step among those of its run, on the problems of all steps"),
    **shared("problems", "attempts"),
)
_RUN_METRIC: Columns = {name: SERIES.columns[name] for name in (*MODEL, "metric")}
_STEPS: Columns = {"step_from": (INT, "Earlier step"), "step_to": (INT, "Later step")}
_COUNTS_AT_STEPS: Columns = {
    f"{column}_{end}": (INT, f"{what} attempts at the {which} step")
    for end, which in (("from", "earlier"), ("to", "later"))
    for column, what in (("n", "Graded"), ("c", "Correct"))
}
SERIES_CHANGE = Table(
    "series_change",
    "Paired comparisons of neighbouring steps, and of the first with the last.",
    **_RUN_METRIC,
    kind=(TEXT, "neighbours, or first to last"),
    **_STEPS,
    problems=(INT, "Problems attempted at all steps that are compared"),
    lift=(REAL, "Mean over problems of the later score minus the earlier one"),
    **_ends("lift", " (t, paired by problem)"),
    p=(REAL, "Two-sided p-value of no change; null if no score differs"),
    q=(REAL, "Benjamini-Hochberg adjusted p, over the comparisons of the run"),
)
BEST_STEP = Table(
    "best_step",
    "The best step of every run, its value without the luck of having been picked, and the largest change.",
    **_RUN_METRIC,
    step=(INT, "Step with the highest value on the problems of all steps"),
    value=(REAL, "Its value, which is too high because the step was picked"),
    value_corrected=(REAL, "value minus the mean excess of picked steps over bootstrap resamples"),
    contenders=(INT, "Steps that may be the best (max-T over the steps)"),
    first_contender=(INT, "The first of them"),
    last_contender=(INT, "The last of them"),
    last_step=(INT, "Last step of the run that is compared"),
    last_value=(REAL, "Its value on the same problems"),
    change_step=(INT, "First step after the largest change of level"),
    change_p=(REAL, "p-value of that change by permuting the steps; null below four steps"),
)
CROSSOVER = Table(
    "crossover",
    "Stretches of steps in which pass@1 and pass@k moved in opposite directions, each beyond chance.",
    **_RUN_METRIC,
    metric_k=(TEXT, "The metric at the larger k"),
    **_STEPS,
    direction=(TEXT, "rises or falls: what the first metric does"),
    **{
        f"{name}{of}": (REAL, f"{text} of the {'metric at the larger k' if of else 'first metric'}")
        for of in ("", "_k")
        for name, text in (("lift", "Change"), ("lo", "Lower end of the change"), ("hi", "Upper end of the change"))
    },
)
LEARNED = Table(
    "learned",
    "Problems whose success rate changed beyond chance between two steps of a run.",
    **{name: SERIES.columns[name] for name in MODEL},
    **shared("subject", "problem_id"),
    **_STEPS,
    direction=(TEXT, "learned or forgotten"),
    **_COUNTS_AT_STEPS,
    p=(REAL, "p-value of Fisher's exact test"),
    q=(REAL, "Benjamini-Hochberg adjusted p, over the problems"),
)
SERIES_TABLES = (SERIES, SERIES_CHANGE, BEST_STEP, CROSSOVER, LEARNED)

# --- runs and their history ---

_RUN: Columns = {
    **RUN_ID,
    "number": (INT, "Sequential run number"),
    "started": (TIME, "Start of the run, UTC"),
    "finished": (TIME, "End of scoring, UTC"),
    "version": (TEXT, "Version of scorelake"),
    **_SETTINGS,
    "lake": (TEXT, "Location of the lake"),
    "files": (INT, "Parquet files in the lake, without excluded files"),
    "excluded": (INT, "Files excluded by [lake] exclude"),
    "quarantined": (INT, "Unreadable files that were left out"),
    "rows_read": (INT, "Rows read = graded + ungraded + duplicates + rejected"),
    "rows_new": (INT, "Rows in files that no earlier run had counted"),
    "graded": (INT, "Rows with a verdict"),
    "ungraded": (INT, "Rows without a verdict"),
    "duplicates": (INT, "Rows dropped as repetitions of an attempt"),
    "rejected": (INT, "Rows with an invalid outcome or key"),
    "models": (INT, "Models in model_summary"),
    "problems": (INT, "Problems, summed over models"),
}
RUN = Table("run", "One row per published run.", **_RUN, shown=(FLAG, "True for the run that this file contains"))
RECORD = Table(
    "run_record",
    "Rows of runs.parquet: one per published run.",
    **_RUN,
    settings_json=(TEXT, "Settings as JSON"),
    quarantine_json=(TEXT, "Quarantined files and reasons as JSON"),
)
SETTING = Table(
    "setting",
    "Settings of every run: one row per digest and key.",
    **_SETTINGS,
    key=(TEXT, "Section and name, such as uncertainty.confidence"),
    value=(TEXT, "Value as JSON"),
)
QUARANTINE = Table(
    "quarantine",
    "Unreadable files that a run left out.",
    **RUN_ID,
    file=(TEXT, "Path relative to the lake"),
    reason=(TEXT, "Why the file was left out"),
)
HISTORY = Table(
    "history",
    "Every metric of every model in every published run.",
    **{name: _RUN[name] for name in ("run_id", "number", "started")},
    **shared(*MODEL, "metric", *_ESTIMATE, "problems", "problems_scored", "attempts"),
)
SUMMARIES = (MODEL_SUMMARY, SUBJECT_SUMMARY, SLICE_SUMMARY)
EVIDENCE = (MODEL_PAIR, SUBJECT_PAIR, MODEL_RANK, SUBJECT_RANK, ANSWER_NOISE)
SNAPSHOT = (*SUMMARIES, CURVE, OVERALL, PROBLEM_HISTOGRAM, CHANGE, GATE, *ESTIMATES, *SERIES_TABLES)
"""Tables for users that every snapshot has as files."""
