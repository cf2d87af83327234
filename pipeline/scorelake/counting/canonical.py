"""The canonical attempts: where each thing is in a file, and the Polars expressions that make it what we mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from scorelake.counting.protocols import answer_ids, attempt_ids, in_microseconds, protocol_expr
from scorelake.counting.schema_check import Misfit, unfit
from scorelake.schemas import NAMED
from scorelake.settings import Columns as Names
from scorelake.settings import Settings

Schema: TypeAlias = Mapping[str, pl.DataType]
Hive: TypeAlias = Mapping[str, str | None]
FAILED, PASSED, UNGRADED, REJECTED = range(4)
"""The outcomes that a row of a lake can have."""
SCORED, UNSCORED = 4, 5
"""In files with verdicts and scores: a score without a verdict; UNSCORED + verdict is a verdict without a score.
Whether such a row is graded depends on the other rows of its benchmark, see `partials.benchmark_kinds`."""
OUTCOMES = {"passed": PASSED, "failed": FAILED, "ungraded": UNGRADED}
"""Column names of the outcomes that are counted; rejected rows are counted separately."""
DEFAULTS = {"benchmark": "default", "subject": "all"}
_TEXTS = (pl.String, pl.Categorical, pl.Enum, pl.Binary, pl.Null)


@dataclass(frozen=True)
class Source:
    """Where the values of one thing come from: a column, or one value for the whole file."""

    column: str | None
    value: str | None = None
    """What the folder says, or the default; where there is a column too, the two must agree."""
    agree: bool = False


@dataclass(frozen=True)
class Canonical:
    """One file's columns under the names that we know."""

    keys: dict[str, tuple[Source, ...]]
    """benchmark, subject, model and problem_id; a composite key has several sources."""
    protocol: dict[str, Source]
    carried: dict[str, Source]
    attempt: Source | None
    """What tells attempts apart, where that is wanted."""
    answer: str | None
    measures: dict[str, str]
    kind: pl.Expr
    """The outcome as a number."""
    score: pl.Expr | None
    gold: pl.Expr | None
    binary: bool
    answers: str
    """none, ignored or counted."""
    columns: tuple[str, ...]
    """What must be read."""
    verdicts: tuple[Source, ...] = ()
    """The columns of verdicts and rewards that folders name too."""

    @property
    def outcomes(self) -> str:
        """The outcomes that the file has: passed, score, or both, and answer if there are answers to vote with."""
        names = {"passed": self.binary, "score": self.score is not None, "answer": self.answers != "none"}
        return "+".join(name for name, is_there in names.items() if is_there)


def canonical(settings: Settings, schema: Schema, hive: Hive, strict: bool = False) -> Canonical:
    """Raises UnreadableError with everything that does not fit, all at once.

    If strict, that includes columns that other files may have instead.
    """
    names, wrong = settings.columns, list[Misfit]()
    keys = {key: tuple(_key(schema, hive, name, key, names, wrong) for name in names.parts(key)) for key in NAMED}
    others = {}
    for setting, columns in (("protocol", settings.protocol.columns), ("carry", settings.carried)):
        others[setting] = {name: _any(schema, hive, name, setting, settings, wrong) for name in columns}
    bad = list[pl.Expr]()
    passed, score = _outcome(settings, schema, hive, bad, wrong)
    gold = _passed("gold", names, schema, bad, wrong) if names.gold in schema else None
    attempt = _attempt(settings, schema, hive, wrong)
    answers = _answers(settings, schema, wrong)
    _check_optional(settings, schema, hive, wrong)
    if any(strict or not misfit.others_may_have for misfit in wrong):
        raise unfit(wrong, list(schema), list(hive))
    verdicts = [name for name in (names.passed, names.score) if name in schema]
    read = [
        *(column for column in settings.measured.values() if column in schema),
        *(source.column for sources in keys.values() for source in sources if source.column),
        *(source.column for sources in others.values() for source in sources.values() if source.column),
        *verdicts,
        *([names.gold] if names.gold and gold is not None else []),
        *([attempt.column] if attempt and attempt.column else []),
        *([names.answer] if answers == "counted" else []),
    ]
    return Canonical(
        keys=keys,
        protocol=others["protocol"],
        carried=others["carry"],
        attempt=attempt,
        answer=names.answer if answers == "counted" else None,
        measures=settings.measured,
        kind=_kind(passed, score, bad),
        score=None if score is None else pl.when(score == 0).then(0.0).otherwise(score),  # one zero, not two
        gold=gold,
        binary=passed is not None,
        answers=answers,
        columns=tuple(dict.fromkeys(read)),
        verdicts=tuple(Source(name, hive[name], agree=True) for name in verdicts if name in hive),
    )


def _key(schema: Schema, hive: Hive, name: str, key: str, names: Names, wrong: list[Misfit]) -> Source:
    is_part = len(names.parts(key)) > 1
    if name not in schema:
        # only a column that no setting names has a default
        if name not in hive and (is_part or key not in DEFAULTS or name != key):
            wrong.append(_missing(name, key))
        return Source(None, hive.get(name, DEFAULTS.get(key)))
    if not (is_part and schema[name] in (pl.Boolean, pl.Date)):
        _named(name, schema[name], key, wrong)
    return Source(name, hive.get(name), agree=name in hive)


def _named(name: str, kind: pl.DataType, key: str, wrong: list[Misfit]) -> None:
    """A name is a text or a whole number."""
    if not (kind.is_integer() or kind in _TEXTS):
        advice = "; if its numbers are whole, write them as integers" * kind.is_float()
        wrong.append(Misfit(key, f"column {name} is {kind}; it must be a string or integer{advice}"))


def _any(schema: Schema, hive: Hive, name: str, setting: str, settings: Settings, wrong: list[Misfit]) -> Source:
    """A protocol or carried column, of whatever type it is."""
    if name not in schema and name not in hive:
        if setting == "carry":  # or another setting that carries columns
            setting = "by" if name in settings.by else "cluster" if name == settings.columns.cluster else "carry"
        wrong.append(_missing(name, setting))
    elif setting == "carry" and name in schema and schema[name].is_nested():
        what = f"column {name} is {schema[name]}; a carried column must be a text, a number, a date or the like"
        wrong.append(Misfit("carry", what))
    return Source(name if name in schema else None, hive.get(name), agree=name in schema and name in hive)


def _attempt(settings: Settings, schema: Schema, hive: Hive, wrong: list[Misfit]) -> Source | None:
    name, policy = settings.columns.attempt, settings.duplicates.policy
    if policy == "off":
        return None
    if name in hive and name not in schema:
        return Source(None, hive[name])
    if name not in schema:
        if policy == "exact" or name != Names().attempt:
            wrong.append(_missing(name, "attempt"))
        return None
    _named(name, schema[name], "attempt", wrong)
    return Source(name, hive.get(name), agree=name in hive)


def _answers(settings: Settings, schema: Schema, wrong: list[Misfit]) -> str:
    """Whether attempts have answers that can be right or wrong, and whether those are wanted."""
    names, policy = settings.columns, settings.policy
    if names.answer not in schema and names.answer not in ("", Names().answer) and settings.answers:
        others_may_have = names.passed not in schema and policy.pass_threshold is None
        wrong.append(_missing(names.answer, "answer", others_may_have))
    if names.answer not in schema or (names.passed not in schema and policy.pass_threshold is None):
        return "none"
    kind = schema[names.answer]
    if settings.answers and not (kind.is_numeric() or kind in (*_TEXTS, pl.Boolean)):
        wanted = 'a text, a number or a boolean; name another with [columns] answer = "...", or none with ""'
        wrong.append(Misfit("answer", f"column {names.answer} is {kind}; to vote with, it must be {wanted}"))
    return "counted" if settings.answers else "ignored"


def _check_optional(settings: Settings, schema: Schema, hive: Hive, wrong: list[Misfit]) -> None:
    """Measures, trusted grades and windows are null where a file lacks them; some file must have them."""
    optional = [("measures", column) for column in settings.measured.values()]
    optional += [("gold", settings.columns.gold)] if settings.columns.gold else []
    window = settings.window.column
    optional += [("window", window)] if window and window not in hive else []
    for key, column in optional:
        if column not in schema:
            wrong.append(_missing(column, key, others_may_have=True))
        elif key == "measures" and not (schema[column].is_numeric() or schema[column] == pl.Null):
            wrong.append(Misfit(key, f"column {column} is {schema[column]}; it must be a number"))


def _kind(passed: pl.Expr | None, score: pl.Expr | None, bad: list[pl.Expr]) -> pl.Expr:
    invalid = pl.any_horizontal(flag.fill_null(value=False) for flag in bad) if bad else pl.lit(value=False)
    verdict = pl.lit(FAILED) if passed is None else pl.when(passed).then(PASSED).otherwise(FAILED)
    is_graded = pl.all_horizontal(column.is_not_null() for column in (passed, score) if column is not None)
    kind = pl.when(invalid).then(REJECTED).when(is_graded).then(verdict)
    if passed is not None and score is not None:
        kind = kind.when(score.is_not_null()).then(SCORED).when(passed.is_not_null()).then(verdict + UNSCORED)
    return kind.otherwise(UNGRADED).cast(pl.UInt8)


def _outcome(
    settings: Settings, schema: Schema, hive: Hive, bad: list[pl.Expr], wrong: list[Misfit]
) -> tuple[pl.Expr | None, pl.Expr | None]:
    """The verdict (boolean) and the reward (float) of an attempt, each null where ungraded or absent."""
    names, policy = settings.columns, settings.policy
    passed = score = None
    named = {key: getattr(names, key) for key in ("passed", "score")}
    lost = [key for key, name in named.items() if name not in (key, "") and name not in schema]
    # a typo must not change the scores, but of a lake of several kinds some files have one and some the other
    others_may_have = any(name in schema for name in named.values())
    wrong += [_missing(named[key], key, others_may_have) for key in lost]
    if names.score in schema:
        score = _score(settings, schema[names.score], bad, wrong)
    if names.passed in schema:
        passed = _passed("passed", names, schema, bad, wrong)
    elif score is not None and policy.pass_threshold is not None:
        own = schema[names.score] if schema[names.score].is_float() else pl.Float64  # a 32-bit 0.7 reaches 0.7
        passed = pl.col(names.score).cast(own) >= pl.lit(policy.pass_threshold).cast(own)
    if not lost and not any(name in schema for name in named.values()):
        folder = "; a folder cannot hold it" * any(name in hive for name in named.values())
        wrong.append(Misfit("passed", f"no column {names.passed} and no {names.score}{folder}", names.passed))
    if policy.ungraded == "fail" and not (names.passed in schema and names.score in schema):
        lowest = min(settings.rubric.levels, default=0.0)
        passed = None if passed is None else passed.fill_null(value=False)
        score = None if score is None else score.fill_null(lowest)  # with both columns it is up to the benchmark
    return passed, score


def _passed(key: str, names: Names, schema: Schema, bad: list[pl.Expr], wrong: list[Misfit]) -> pl.Expr:
    name = getattr(names, key)
    column, kind = pl.col(name), schema[name]
    spellings = {"true", "false"} if kind == pl.Boolean else {"0", "1"}
    is_inverted = not (kind in _TEXTS or kind.is_nested()) and not spellings.isdisjoint(names.pass_values)
    if kind in (pl.Null, pl.Boolean) and not is_inverted:
        return column.cast(pl.Boolean)
    if (kind in _TEXTS and names.pass_values) or is_inverted:
        text = protocol_expr(column) if is_inverted else column.cast(pl.String) if kind == pl.Binary else column
        if "" not in (*names.pass_values, *names.fail_values):
            text = pl.when(text != "").then(text)  # an empty cell is no verdict
        if names.fail_values:
            bad.append(~text.is_in([*names.pass_values, *names.fail_values]))
        return text.is_in(names.pass_values)
    if not kind.is_numeric():
        wanted = "boolean, 0/1, 0.0/1.0, or a text with [columns] pass_values"
        wrong.append(Misfit(key, f"column {name} is {kind}; it must be {wanted}"))
    bad.append((column != 0) & (column != 1))
    return column == 1


def _score(settings: Settings, kind: pl.DataType, bad: list[pl.Expr], wrong: list[Misfit]) -> pl.Expr:
    name, levels = settings.columns.score, settings.rubric.levels
    if not (kind.is_numeric() or kind == pl.Null):
        wrong.append(Misfit("score", f"column {name} is {kind}; it must be a number"))
        return pl.lit(None, pl.Float64)
    column = pl.col(name)
    number = column.cast(pl.Float64)
    if not levels:
        bad.append(number.is_nan() | number.is_infinite())
        return number
    # compare in the column's own precision, then use the level as the config spells it
    own = kind if kind.is_float() else pl.Float64
    exact = pl.coalesce(
        pl.when(column.cast(own) == pl.lit(level).cast(own)).then(pl.lit(level, pl.Float64)) for level in levels
    )
    bad.append(column.is_not_null() & exact.is_null())
    return exact


def _missing(name: str, key: str, others_may_have: bool = False) -> Misfit:
    return Misfit(key, f"no column {name}", name, others_may_have)


PROTOCOL_PREFIX, CARRY_PREFIX, MEASURE_PREFIX, SEPARATOR = "protocol:", "carry:", "measure:", "@"
MAX_MEASURE = 1e8
"""A measure is added in whole units of 1e-9; squares of larger ones would not fit."""
CATEGORIES = {key: pl.Categorical(pl.Categories(f"scorelake {key}")) for key in (*NAMED, "protocol")}
"""Types of the keys: dictionary codes group three times faster than texts."""
INVALID = "not a valid outcome"


def rejection_reasons(canonical: Canonical, schema: Schema) -> dict[str, pl.Expr]:
    """For each reason to reject a row, the rows that it applies to; a row with wrong keys has no other reason."""
    wrong_keys = dict[str, pl.Expr]()
    for key, sources in canonical.keys.items():
        text = _key_text(key, sources, schema)
        wrong_keys[f"no {key}"] = text.is_null()
        if len(sources) > 1:  # else `a@b` and `c` would be the same key as `a` and `b@c`
            has_separator = (_text(source).str.contains(SEPARATOR, literal=True) for source in sources[1:])
            reason = f"{SEPARATOR} in a column of {key} that is not its first"
            wrong_keys[reason] = text.is_not_null() & pl.any_horizontal(has_separator)
    every = [source for sources in canonical.keys.values() for source in sources]
    differing = [_text(source).ne_missing(pl.lit(source.value, pl.String)) for source in every if source.agree]
    others = [*canonical.protocol.values(), *canonical.carried.values(), *canonical.verdicts, canonical.attempt]
    differing += [_differs(source) for source in others if source is not None and source.agree]
    if differing:
        is_other = pl.any_horizontal(differing) & ~pl.any_horizontal(wrong_keys.values())
        wrong_keys["in conflict with the folder's name"] = is_other
    reasons = {**wrong_keys, INVALID: (canonical.kind == REJECTED) & ~pl.any_horizontal(wrong_keys.values())}
    for name in canonical.measures:
        is_wrong = ~_measure(canonical, name).is_between(0, MAX_MEASURE)  # NaN is in no interval
        has_reason = pl.any_horizontal(reasons.values())
        reasons[f"{name} is negative, infinite, NaN or above {MAX_MEASURE:.0f}"] = is_wrong & ~has_reason
    return reasons


def attempt_columns(canonical: Canonical, schema: Schema) -> dict[str, pl.Expr]:
    """One row per attempt under canonical names: keys, protocol, outcome, attempt, score, answer, carried columns."""
    rejected = pl.any_horizontal(rejection_reasons(canonical, schema).values())
    outcome = pl.when(rejected).then(pl.lit(REJECTED, pl.UInt8)).otherwise(canonical.kind)
    columns = {key: _key_text(key, sources, schema) for key, sources in canonical.keys.items()}
    for name, source in canonical.protocol.items():
        text = pl.lit(source.value, pl.String) if source.column is None else protocol_expr(pl.col(source.column))
        columns[PROTOCOL_PREFIX + name] = text.cast(CATEGORIES["protocol"])
    columns["outcome"] = outcome
    if canonical.attempt is not None:
        if canonical.attempt.column is None:
            columns["attempt"] = pl.lit(
                attempt_ids(pl.Series([canonical.attempt.value], dtype=pl.String)).item(), pl.Int64
            )
        else:
            columns["attempt"] = _attempt_id(pl.col(canonical.attempt.column), schema[canonical.attempt.column])
    if canonical.score is not None:
        columns["score"] = canonical.score
    if canonical.answer is not None:
        columns["answer"] = pl.col(canonical.answer).map_batches(answer_ids, pl.UInt64)
    if canonical.gold is not None:
        columns["gold"] = canonical.gold.cast(pl.UInt8)
    for name, source in canonical.carried.items():
        columns[CARRY_PREFIX + name] = _carried(source, schema)
    for name in canonical.measures:
        columns[MEASURE_PREFIX + name] = _measure(canonical, name)
    return columns


def _measure(canonical: Canonical, name: str) -> pl.Expr:
    column = canonical.measures[name]
    return pl.col(column).cast(pl.Float64) if column in canonical.columns else pl.lit(None, pl.Float64)


def read_types(canonical: Canonical, schema: Schema) -> dict[str, pl.DataType]:
    """Types in which columns are read: texts as dictionary codes, except attempt ids, which rarely repeat."""
    types = dict[str, pl.DataType]()
    for name in canonical.columns:
        is_attempt = canonical.attempt is not None and name == canonical.attempt.column
        text: pl.DataType = pl.String() if is_attempt else pl.Categorical()
        types[name] = text if schema[name] in (pl.String, pl.Categorical, pl.Enum) else schema[name]
    for key, sources in canonical.keys.items():
        for source in sources:
            if source.column is not None and types[source.column] == pl.Categorical():
                types[source.column] = CATEGORIES[key]
    return types


def _key_text(key: str, sources: Sequence[Source], schema: Schema) -> pl.Expr:
    """A key, null if a part of it is."""
    column = sources[0].column
    if len(sources) == 1 and column is not None and schema[column] == CATEGORIES[key]:
        return pl.col(column)
    return pl.concat_str(map(_text, sources), separator=SEPARATOR).cast(CATEGORIES[key])


def _text(source: Source) -> pl.Expr:
    """A value as it is written. Bytes that are not UTF-8 raise: a name must stay what it is."""
    return pl.lit(source.value, pl.String) if source.column is None else pl.col(source.column).cast(pl.String)


def _differs(source: Source) -> pl.Expr:
    """Whether a column has another value than the folder: 0.7 and 0.70 are one value, and so are true and True."""
    assert source.column is not None
    text = protocol_expr(pl.col(source.column)).str.to_lowercase()
    value = None if source.value is None else source.value.lower()
    with suppress(TypeError, ValueError):
        number = pl.lit(float(value))  # type: ignore[arg-type]
        return (text.cast(pl.Float64, strict=False) != number).fill_null(text.ne_missing(pl.lit(value)))
    return text.ne_missing(pl.lit(value, pl.String))


def _attempt_id(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """64 bits that identify an attempt: a whole number is itself, however it was written; a text is its hash.

    Two of n texts of one problem collide with probability n**2 / 2**65.
    """
    if kind.is_integer() and kind not in (pl.UInt64, pl.Int128):
        return column.cast(pl.Int64)
    return column.cast(pl.String).map_batches(attempt_ids, pl.Int64)


def _carried(source: Source, schema: Schema) -> pl.Expr:
    """A carried value: texts of any kind as codes, since long ones would take memory in every row."""
    if source.column is None:
        return pl.lit(source.value, pl.Null if source.value is None else pl.Categorical())
    column, kind = pl.col(source.column), schema[source.column]
    if kind.is_temporal():
        return column.cast(in_microseconds(kind))
    if kind.is_float():  # one zero, not two; DuckDB has no half float
        return column.cast(pl.Float64 if kind == pl.Float64 else pl.Float32) + 0
    column = column.cast(pl.String) if kind == pl.Binary else column
    return column.cast(pl.Categorical()) if kind in _TEXTS and kind != pl.Null else column
