"""Tables and views that only leaderboard.duckdb has: integer keys of problems, protocols, and the SELECTs of sql/.

The columns of a view are those of its SELECT. Here they are described, in any order and among those of its tables.
"""

from __future__ import annotations

from scorelake import schemas
from scorelake.schemas import COUNTS, FLAG, GROUP, INT, KEYS, MODEL, PROBLEM_COUNTS, REAL, TEXT, TEXTS, Table, shared

PROBLEM_GROUP = Table("problem_group", "Groups of problems; part of problem_counts.", **shared("_group", *GROUP))
PROBLEM_NAME = Table("problem_name", "Problem ids; part of problem_counts.", **shared("_name", "problem_id"))
PROBLEM_COUNT = Table(
    "problem_count",
    "Counts and carried columns with integer keys; part of problem_counts.",
    **shared("_group", "_name", *COUNTS, "reward_mean", "reward_max"),
)
PROTOCOL_KEY = Table(
    "protocol_key",
    "Evaluation protocols; source of the view protocol. One more column per protocol key.",
    **shared("protocol"),
    label=(TEXT, "Readable form, such as temperature=0.2, grader=x"),
    _grader=(TEXT, "Grader, if a protocol key names one"),
    _other=(TEXT, "Remaining protocol settings"),
)
PAIR_MEASURE = Table(
    "pair_measure",
    "What two models cost, with columns per measure; part of comparison and pair.",
    **{name: schemas.MODEL_PAIR.columns[name] for name in ("benchmark", "protocol", "metric", "model_a", "model_b")},
)
BOARD = Table(
    "board",
    "The run in this file and the versions that built it.",
    **schemas.RUN_ID,
    rolled_back=(FLAG, "True after `scorelake rollback`"),
    schema_version=(INT, "Version of the tables and columns of this file"),
    scorelake=(TEXT, "Version of scorelake that built this file"),
    duckdb=(TEXT, "Version of DuckDB that built this file"),
)
_COULD_BE_BEST = {"could_be_best": (FLAG, "True if no other model is significantly better")}
VIEWS = (
    Table(
        "leaderboard",
        "Models ranked by value, with rank ranges; unranked models have a reason.",
        **(schemas.MODEL_SUMMARY.columns | schemas.MODEL_RANK.columns | _COULD_BE_BEST),
    ),
    Table(
        "subject_leaderboard",
        "Models ranked by value within each subject, with rank ranges; unranked models have a reason.",
        **(schemas.SUBJECT_SUMMARY.columns | schemas.SUBJECT_RANK.columns | _COULD_BE_BEST),
    ),
    Table(
        "comparison",
        "Paired comparisons of two models on the problems both attempted; each pair once.",
        **schemas.MODEL_PAIR.columns,
    ),
    Table(
        "subject_comparison",
        "Paired comparisons of two models within each subject; each pair once.",
        **schemas.SUBJECT_PAIR.columns,
    ),
    Table("pair", "Paired comparisons of two models, in both orders.", **schemas.MODEL_PAIR.columns),
    PROBLEM_COUNTS,
    Table(
        "problem_scores",
        "Value of every metric for every problem; the mean over a group is its summary value.",
        **(PROBLEM_COUNTS.columns | schemas.VALUE_COLUMNS),
    ),
    Table(
        "problem_stats",
        "Difficulty and discrimination of every problem across models.",
        **shared(*KEYS),
        models=(INT, "Models with a graded attempt of the problem"),
        attempts=(INT, "Graded attempts of all models"),
        solved_by=(INT, "Models that solved it at least once"),
        difficulty=(REAL, "1 minus the mean success rate over models"),
        discrimination=(REAL, "Correlation over models with success on all other problems; null below 3 models"),
        saturated=(FLAG, "Every attempt of every model passed"),
        never_solved=(FLAG, "No attempt of any model passed"),
        suspicious=(FLAG, "Discrimination is significantly negative; null below 8 models"),
    ),
    Table(
        "flaky",
        "Problems that a model solves in some attempts and fails in others.",
        **PROBLEM_COUNTS.columns,
        rate=(REAL, "Share of the attempts that passed"),
    ),
    Table(
        "budget",
        "Variance of pass@1 split into attempts and problems, and the standard error after adding one of either.",
        **shared(*MODEL),
        value=(REAL, "pass@1"),
        problems=(INT, "Problems with a graded attempt"),
        attempts_per_problem=(REAL, "Mean number of graded attempts per problem"),
        se=(REAL, "Standard error of value (problems treated as a random sample)"),
        var_attempts=(REAL, "Part of the squared standard error due to the finite number of attempts"),
        var_problems=(REAL, "Part of the squared standard error due to the variation between problems"),
        share_attempts=(REAL, "var_attempts as a share of the squared standard error"),
        se_one_more_attempt=(REAL, "Standard error with one more attempt per problem"),
        se_endless_attempts=(REAL, "Limit of the standard error for many attempts per problem"),
        se_one_more_problem=(REAL, "Standard error with one more problem"),
    ),
    Table(
        "protocol", "Evaluation protocols: a readable label, and one column per protocol key.", **PROTOCOL_KEY.columns
    ),
    Table(
        "grader_noise",
        "How often the same answer to the same problem both passed and failed.",
        **schemas.ANSWER_NOISE.columns,
        grader=(TEXT, "Grader, if a protocol column names one"),
        share_mixed=(REAL, "answers_mixed as a share of answers_repeated"),
    ),
    Table(
        "grader_disagreement",
        "Two graders on the same problems of a model, with bounds on the attempts graded differently.",
        **shared(*MODEL),
        otherwise=(TEXT, "Remaining protocol settings, identical for both graders"),
        grader_a=(TEXT, "First grader (A)"),
        grader_b=(TEXT, "Second grader (B)"),
        problems=(INT, "Problems of the model that both graded"),
        gap=(REAL, "Mean over problems of the pass rate by B minus the pass rate by A"),
        absolute_gap=(REAL, "Mean over problems of the absolute difference of the pass rates"),
        problems_matched=(INT, "Problems with the same n under both, assumed to be the same attempts"),
        least_disagreement=(REAL, "Lower bound on the share of attempts graded differently"),
        most_disagreement=(REAL, "Upper bound on the share of attempts graded differently"),
        examples=(TEXTS, "Up to three problems with the largest gap"),
    ),
    Table(
        "rank_stability",
        "Whether two graders put the models of a benchmark into the same order.",
        **shared("benchmark", "metric"),
        otherwise=(TEXT, "Remaining protocol settings, identical for both graders"),
        grader_a=(TEXT, "First grader (A)"),
        grader_b=(TEXT, "Second grader (B)"),
        models=(INT, "Models ranked under both"),
        pairs=(INT, "Pairs of these models"),
        exchanged=(INT, "Pairs in the opposite order"),
        tau=(REAL, "Kendall's tau: share of pairs in the same order minus share in the opposite one"),
        largest_move=(INT, "Largest difference of a model's ranks"),
    ),
)
MACROS = {
    "MACRO pass_at_k": "pass@k of n attempts of which c are correct; null if it is not defined",
    "MACRO pass_hat_k": "pass^k of n attempts of which c are correct; null if it is not defined",
    "MACRO TABLE head_to_head": "Two models problem by problem: FROM head_to_head('model a', 'model b') ORDER BY gap",
}
SOURCES = (
    *(PROBLEM_GROUP, PROBLEM_NAME, PROBLEM_COUNT, schemas.PROBLEM_SCORE, schemas.COUNT_SCORE),
    *(PROTOCOL_KEY, PAIR_MEASURE, schemas.RECORD, BOARD, *schemas.EVIDENCE),
)
"""Tables that only the views read, in the schema `source`: listings have it after `main`."""
PUBLIC = (*schemas.SNAPSHOT, schemas.RUN, schemas.SETTING, schemas.QUARANTINE, schemas.HISTORY, *VIEWS)
"""Tables and views for users."""
