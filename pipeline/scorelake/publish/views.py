"""Tables and views that only leaderboard.duckdb has: integer keys of problems, protocols, and the SELECTs of sql/."""

from __future__ import annotations

from scorelake import schemas
from scorelake.schemas import (
    FLAG,
    INT,
    NOISE_COLUMNS,
    REAL,
    SIZE_COLUMNS,
    TEXT,
    TEXTS,
    Columns,
    Table,
    shared_columns,
)

_PROBLEM = shared_columns(*schemas.KEYS, *schemas.COUNTS, "reward_mean", "reward_max")
_MODEL = shared_columns("benchmark", "model", "protocol")
PROBLEM_GROUP = Table(
    "problem_group", "Groups of problems; part of problem_counts.", {**schemas.GROUP_CODE, **schemas.GROUP_COLUMNS}
)
PROBLEM_NAME = Table(
    "problem_name", "Problem ids; part of problem_counts.", {**schemas.NAME_CODE, **schemas.PROBLEM_ID}
)
PROBLEM_COUNT = Table(
    "problem_count",
    "Counts and carried columns with integer keys; part of problem_counts.",
    {**schemas.GROUP_CODE, **schemas.NAME_CODE, **schemas.COUNT_COLUMNS, **schemas.REWARD_COLUMNS},
)
PROTOCOL_COLUMNS: Columns = {
    **shared_columns("protocol"),
    "label": (TEXT, "Readable form, such as temperature=0.2, grader=x"),
}
PROTOCOL_KEY = Table(
    "protocol_key",
    "Evaluation protocols; source of the view protocol. One more column per protocol key.",
    {
        **PROTOCOL_COLUMNS,
        "_grader": (TEXT, "Grader, if a protocol key names one"),
        "_other": (TEXT, "Remaining protocol settings"),
    },
)
BOARD = Table(
    "board",
    "The run in this file and the versions that built it.",
    {
        **schemas.RUN_ID,
        "rolled_back": (FLAG, "True after `scorelake rollback`"),
        "schema_version": (INT, "Version of the tables and columns of this file"),
        "scorelake": (TEXT, "Version of scorelake that built this file"),
        "duckdb": (TEXT, "Version of DuckDB that built this file"),
    },
)

_RANKED: Columns = {
    **shared_columns("metric", "rank", "rank_lo", "rank_hi"),
    "could_be_best": (FLAG, "True if no other model is significantly better"),
    **shared_columns("p_best", "model", "protocol", "value", "lo", "hi"),
    **SIZE_COLUMNS,
    **shared_columns("reason"),
}
_COMPARISON: Columns = {**shared_columns("metric"), **schemas.PAIR_COLUMNS}
VIEWS = (
    Table(
        "leaderboard",
        "Models ranked by value, with rank ranges; unranked models have a reason.",
        {**shared_columns("benchmark"), **_RANKED},
    ),
    Table(
        "subject_leaderboard",
        "Models ranked by value within each subject, with rank ranges; unranked models have a reason.",
        {**shared_columns("benchmark", "subject"), **_RANKED},
    ),
    Table(
        "comparison",
        "Paired comparisons of two models on the problems both attempted; each pair once.",
        {**shared_columns("benchmark"), **_COMPARISON},
    ),
    Table(
        "subject_comparison",
        "Paired comparisons of two models within each subject; each pair once.",
        {**shared_columns("benchmark", "subject"), **_COMPARISON},
    ),
    Table(
        "pair", "Paired comparisons of two models, in both orders.", {**shared_columns("benchmark"), **_COMPARISON}
    ),
    schemas.PROBLEM_COUNTS,
    Table(
        "problem_scores",
        "Value of every metric for every problem; the mean over a group is its summary value.",
        {**_PROBLEM, **schemas.VALUE_COLUMNS},
    ),
    Table(
        "problem_stats",
        "Difficulty and discrimination of every problem across models.",
        {
            **shared_columns("benchmark", "subject", "protocol", "problem_id"),
            "models": (INT, "Models with a graded attempt of the problem"),
            "attempts": (INT, "Graded attempts of all models"),
            "solved_by": (INT, "Models that solved it at least once"),
            "difficulty": (REAL, "1 minus the mean success rate over models"),
            "discrimination": (
                REAL,
                "Correlation over models with success on all other problems; null below 3 models",
            ),
            "saturated": (FLAG, "Every attempt of every model passed"),
            "never_solved": (FLAG, "No attempt of any model passed"),
            "suspicious": (FLAG, "Discrimination is significantly negative; null below 8 models"),
        },
    ),
    Table(
        "budget",
        "Variance of pass@1 split into attempts and problems, and the standard error after adding one of either.",
        {
            **_MODEL,
            "value": (REAL, "pass@1"),
            "problems": (INT, "Problems with a graded attempt"),
            "attempts_per_problem": (REAL, "Mean number of graded attempts per problem"),
            "se": (REAL, "Standard error of value (problems treated as a random sample)"),
            "var_attempts": (REAL, "Part of the squared standard error due to the finite number of attempts"),
            "var_problems": (REAL, "Part of the squared standard error due to the variation between problems"),
            "share_attempts": (REAL, "var_attempts as a share of the squared standard error"),
            "se_one_more_attempt": (REAL, "Standard error with one more attempt per problem"),
            "se_endless_attempts": (REAL, "Limit of the standard error for many attempts per problem"),
            "se_one_more_problem": (REAL, "Standard error with one more problem"),
        },
    ),
    Table("protocol", "Evaluation protocols: a readable label, and one column per protocol key.", PROTOCOL_COLUMNS),
    Table(
        "grader_noise",
        "How often the same answer to the same problem both passed and failed.",
        {
            **shared_columns("benchmark", "model"),
            "grader": (TEXT, "Grader, if a protocol column names one"),
            **shared_columns("protocol"),
            **{name: NOISE_COLUMNS[name] for name in ("problems", "answers", "answers_repeated", "answers_mixed")},
            "share_mixed": (REAL, "answers_mixed as a share of answers_repeated"),
            **{
                name: NOISE_COLUMNS[name]
                for name in ("attempts_repeated", "attempts_odd", "disagreement", "examples")
            },
        },
    ),
    Table(
        "grader_disagreement",
        "Two graders on the same problems of a model, with bounds on the attempts graded differently.",
        {
            **shared_columns("benchmark", "model"),
            "otherwise": (TEXT, "Remaining protocol settings, identical for both graders"),
            "grader_a": (TEXT, "First grader (A)"),
            "grader_b": (TEXT, "Second grader (B)"),
            "problems": (INT, "Problems of the model that both graded"),
            "gap": (REAL, "Mean over problems of the pass rate by B minus the pass rate by A"),
            "absolute_gap": (REAL, "Mean over problems of the absolute difference of the pass rates"),
            "problems_matched": (INT, "Problems with the same n under both, assumed to be the same attempts"),
            "least_disagreement": (REAL, "Lower bound on the share of attempts graded differently"),
            "most_disagreement": (REAL, "Upper bound on the share of attempts graded differently"),
            "examples": (TEXTS, "Up to three problems with the largest gap"),
        },
    ),
)

INTERNAL = (
    *(PROBLEM_GROUP, PROBLEM_NAME, PROBLEM_COUNT, schemas.PROBLEM_SCORE, schemas.COUNT_SCORE),
    *(PROTOCOL_KEY, schemas.RECORD, BOARD, *schemas.EVIDENCE),
)
"""Tables in the schema `internal`, which the views read."""
PUBLIC = (
    *(*schemas.SUMMARIES, schemas.CURVE, schemas.OVERALL, schemas.PROBLEM_HISTOGRAM, schemas.CHANGE),
    *(schemas.RUN, schemas.SETTING, schemas.QUARANTINE, schemas.HISTORY, *VIEWS),
)
"""Tables and views for users."""
