"""Infer the columns of a lake by names, types and values, as a config with reasons for a person to review."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from scorelake.lake.names import EITHER, FAILS, MODELS, PASSES, PROVENANCE, SETS, VARIANTS, means_failure, words_of
from scorelake.lake.sample import Column, LakeSample, is_point, one_line
from scorelake.schemas import ALIASES
from scorelake.settings import RESERVED
from scorelake.text import bare, plural, toml_text

CARRY = ("difficulty", "level", "tier", "title", "language", "lang", "year", "source")
"""Usual names of columns that are worth keeping per problem."""
MIN_ITEMS = 4
"""Up to this many samples of a task are attempts."""
MEASURES = {
    **dict.fromkeys(("cost", "price", "usd"), "cost"),
    **dict.fromkeys(("latency", "duration", "seconds"), "time"),
    "tokens": "tokens",
}
"""Words in names of columns that say what an attempt cost, and the kind of measure."""
PROBLEM = ("benchmark", "subject", "problem_id")
_OPTIONAL = ("benchmark", "subject", "score", "answer")
_ROW_IDS = ("id", "uid", "idx", "index", "item", "instance")


@dataclass(frozen=True)
class ColumnChoice:
    """The columns for a setting, of which several make a composite key, and the reason."""

    names: tuple[str, ...]
    why: str

    @property
    def column(self) -> str | None:
        return self.names[0] if self.names else None

    def with_part(self, name: str, why: str) -> ColumnChoice:
        return ColumnChoice((*self.names, name), f"{self.why}; {why}")


@dataclass(frozen=True)
class InferredConfig:
    """Proposed settings for a lake."""

    columns: dict[str, ColumnChoice]
    pass_values: tuple[str, ...] = ()
    fail_values: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Verdicts that are neither a known pass nor a known fail."""
    protocol: tuple[Column, ...] = ()
    carry: tuple[Column, ...] = ()
    measures: tuple[tuple[Column, str], ...] = ()
    """Columns of what attempts cost, and their kinds."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a column of the protocol was chosen, if not by its name."""
    numbers: str = ""
    """What these settings make of the sampled rows."""
    no_attempts: bool = False
    """There is a column named attempt that does not identify attempts."""
    unused: tuple[str, ...] = ()
    """Columns named passed or score that are neither: without a setting they would be read."""

    @property
    def missing(self) -> list[str]:
        """Required columns without a choice."""
        missing = [key for key in ("model", "problem_id") if not self.columns[key].names]
        return [*missing, *["passed"] * (not _names(self.columns, "passed", "score"))]


def infer_config(sample: LakeSample) -> InferredConfig:
    """Choose a column for each setting, in an order in which the clearest come first."""
    columns = list(sample.columns.values())
    texts = [each for each in columns if each.kind == "text"]
    models = [
        each for each in texts if all(len(text) < 200 and MODELS.search(text) for text in each.distinct.to_list())
    ]
    verdicts = [each for each in columns if each.kind in ("boolean", "text") and _is_verdict(each)]
    verdicts = [each for each in verdicts if not each.is_setting]
    rules: dict[str, tuple[Callable[[Column], bool], str, Sequence[Column]]] = {
        "model": (_is_name, "no column with names of models; or put files into folders model=NAME", models),
        "passed": (_is_verdict, "no column with a verdict", verdicts),
        "score": (_is_reward, "no column with a reward", ()),
        "problem_id": (lambda each: _is_problem(each, sample), "no column with names of problems", ()),
        "benchmark": (_is_name, "all problems are one benchmark, called default", ()),
        "subject": (_is_name, "all problems are one subject, called all", ()),
        "attempt": (_is_name, "rows that repeat an attempt cannot be found", ()),
        "answer": (lambda each: each.kind in ("text", "integer", "number", "boolean"), "no votes", ()),
    }
    chosen: dict[str, ColumnChoice] = {}
    for key, (fits, otherwise, by_value) in rules.items():
        free = [each for each in columns if each.name not in _names(chosen)]
        chosen[key] = _choose(key, free, fits, by_value, otherwise)
        if key == "problem_id":
            chosen[key] = _with_item(chosen[key], sample, free)
    chosen["problem_id"] = _with_set(chosen, sample)
    chosen = _with_points(chosen, sample)
    verdict = chosen["passed"].column
    words = _classify_verdicts(sample.columns[verdict]) if verdict else ((), (), ())
    inferred = _without_conflicts(sample, InferredConfig(chosen, *words, *_protocol_and_carry(sample, chosen)))
    taken = {*_names(inferred.columns), *(column.name for column in (*inferred.protocol, *inferred.carry))}
    free = [each for each in columns if each.name not in taken and _is_reward(each)]
    words_and_columns = [(word, each) for each in free for word in reversed(words_of(each.name))]  # the first decides
    costs = {each.name: (each, MEASURES[word]) for word, each in words_and_columns if word in MEASURES}
    unused = tuple(key for key in ("passed", "score") if not chosen[key].names and key in sample.columns)
    return replace(inferred, measures=tuple(costs.values()), unused=unused, numbers=_numbers(sample.rows, inferred))


def _names(chosen: Mapping[str, ColumnChoice], *keys: str) -> list[str]:
    """Return the columns of some keys, by default of all."""
    return [name for key in keys or chosen if key in chosen for name in chosen[key].names]


def _with_item(choice: ColumnChoice, sample: LakeSample, free: Sequence[Column]) -> ColumnChoice:
    """Add the item within its task: 400 samples of 2 tasks are 400 problems. A few samples per task are attempts."""
    if choice.column is None or bare(choice.column) != "task":
        return choice
    aliases = [bare(alias) for alias in (*ALIASES["problem_id"], ALIASES["attempt"][0], "sample")]
    items = [each for each in free if each.name != choice.column and bare(each.name) in aliases and _is_part(each)]
    for item in sorted(items, key=lambda each: aliases.index(bare(each.name))):
        per_task = sample.rows.group_by(choice.column).agg(pl.col(item.name).n_unique())[item.name].sort().to_list()
        is_row_number = sample.rows[item.name].n_unique() == sample.rows.height
        if per_task[0] > max(len(per_task), MIN_ITEMS) and not is_row_number:
            return choice.with_part(item.name, f"each has {per_task[0]:,} or more values of {item.name}")
    return choice


def _with_set(chosen: dict[str, ColumnChoice], sample: LakeSample) -> ColumnChoice:
    """Add the set of problems over which ids repeat: question 1 of two splits is two problems."""
    choice, keys = chosen["problem_id"], _names(chosen, *PROBLEM)
    for name, column in sample.columns.items() if len(choice.names) == 1 else ():
        is_set = _is_part(column) and not SETS.isdisjoint(words_of(name)) and not column.is_setting
        if is_set and name not in _names(chosen):
            repeated = sample.rows.group_by(keys).agg(pl.col(name).n_unique()).filter(pl.col(name) > 1).height
            if repeated:
                return choice.with_part(name, f"{repeated:,} ids occur with several values of {name}")
    return choice


def _with_points(chosen: dict[str, ColumnChoice], sample: LakeSample) -> dict[str, ColumnChoice]:
    """Make the column of training steps, or of other checkpoints, a part of the model, which would pool them."""
    model, problem = chosen["model"].names, _names(chosen, *PROBLEM)
    for name, column in sample.columns.items():
        if name not in _names(chosen) and _is_part(column) and is_point(column, sample.rows, model, problem):
            return _as_point(chosen, column, "most problems were tried at several of its values")
    return chosen


def _as_point(chosen: dict[str, ColumnChoice], column: Column, why: str) -> dict[str, ColumnChoice]:
    """Name a column as the step of its model if its values are numbers, else as a part of the model."""
    if column.kind == "integer" or (column.is_folder and column.distinct.str.contains(r"^\d+$").all()):
        return chosen | {"step": ColumnChoice((column.name,), f"by its name; {column.summary}; {why}")}
    return chosen | {"model": chosen["model"].with_part(column.name, why)}


def _without_conflicts(sample: LakeSample, inferred: InferredConfig) -> InferredConfig:
    """Add the column under which no attempt has two verdicts; without one, rows are not identified by attempt."""
    chosen, protocol, reasons = dict(inferred.columns), inferred.protocol, dict[str, str]()
    keys = [*_names(chosen, *PROBLEM, "model", "step", "attempt"), *(column.name for column in protocol)]
    outcomes, attempt = _names(chosen, "passed", "score"), chosen["attempt"].column
    number, added = 0, None
    if chosen["problem_id"].names and attempt and outcomes:
        conflicts = _conflicts(sample.rows.drop_nulls(attempt), keys, outcomes)
        if conflicts.height:
            number = conflicts.select(keys).n_unique()
            added = _separating_column(sample, conflicts, keys, outcomes, chosen["model"].column)
    if added is not None:
        reason = f"without {added.name}, {number:,} attempts have conflicting verdicts"
        is_set = not SETS.isdisjoint(words_of(added.name))
        if is_set and _is_part(added) and len(chosen["problem_id"].names) == 1:
            chosen["problem_id"] = chosen["problem_id"].with_part(added.name, reason)
        elif chosen["model"].names and _is_variant(added) and _is_part(added) and "step" not in chosen:
            chosen = _as_point(chosen, added, reason)
        else:
            protocol += (added,)
            reasons[added.name] = f"{reason}; if its values are sets of problems, name it as subject instead"
    elif number:
        reason = f"not {attempt}: {number:,} values have conflicting verdicts"
        chosen["attempt"] = ColumnChoice((), f"{reason}; is a run or checkpoint column missing?")
    no_attempts = "attempt" in sample.columns and not chosen["attempt"].names
    return replace(inferred, columns=chosen, protocol=protocol, reasons=reasons, no_attempts=no_attempts)


def _conflicts(rows: pl.DataFrame, keys: Sequence[str], outcomes: Sequence[str]) -> pl.DataFrame:
    """Return the rows of attempts that occur with two different verdicts or scores."""
    differ = (pl.col(name).drop_nulls().n_unique().over(keys) > 1 for name in outcomes)
    return rows.filter(pl.any_horizontal(differ))


def _separating_column(
    sample: LakeSample, conflicts: pl.DataFrame, keys: Sequence[str], outcomes: Sequence[str], model: str | None
) -> Column | None:
    """Return a column under which no attempt has two outcomes: by name a checkpoint, else by its values.

    An answer or the length of a text also differs where outcomes do. A checkpoint has one row per attempt and value,
    and the same values in most attempts of a model.
    """
    attempt_names = {bare(alias) for alias in ALIASES["attempt"]}  # seeds and runs are attempts
    names = [name for name in sample.columns if name not in (*keys, *outcomes) and bare(name) not in attempt_names]
    free = [sample.columns[name] for name in names if PROVENANCE.isdisjoint(words_of(name))]
    models = [] if model is None else [model]
    for column in sorted(free, key=lambda each: not _is_variant(each)):
        separated = [*keys, column.name]
        if column.kind in ("empty", "other") or _conflicts(conflicts, separated, outcomes).height:
            continue
        attempts = conflicts.select(separated).with_columns(
            total=pl.struct(keys).n_unique().over(models or pl.lit(1))
        )
        shares = attempts.group_by(*models, column.name).agg(pl.len() / pl.col("total").first())["len"]
        is_shared = 2 * (shares >= 0.5).sum() >= shares.len()
        if _is_variant(column) or (is_shared and not attempts.is_duplicated().any()):
            return column
    return None


def _numbers(rows: pl.DataFrame, inferred: InferredConfig) -> str:
    """Return what the settings make of the rows, so that a wrong guess is visible."""
    if inferred.missing:
        return ""
    model, problem, step = (_names(inferred.columns, *keys) for keys in (("model",), PROBLEM, ("step",)))
    attempt = [*problem, *model, *step, *(each.name for each in inferred.protocol)]
    sizes = rows.group_by(attempt).len()["len"].unique().sort().to_list()
    each = " to ".join(f"{size:,d}" for size in sizes[:: max(1, len(sizes) - 1)])
    steps = [plural(rows[name].n_unique(), "step") for name in step]
    per = f"{each} row{'s' * (each != '1')} per model{', step' * bool(step)} and problem"
    models, problems = rows.select(model).n_unique(), rows.select(problem).n_unique()
    parts = [plural(models, "model"), *steps, plural(problems, "problem"), per]
    for name in _names(inferred.columns, "passed"):
        number = pl.Int64 if rows[name].dtype.is_numeric() else pl.String
        verdict = rows[name].cast(number).cast(pl.String).drop_nulls()
        passed = verdict.is_in(list(inferred.pass_values) or ["1", "true"]).sum()
        parts.append(f"pass rate {passed / max(1, verdict.len()):.4f}")
    return ", ".join(parts)


def _choose(
    key: str, free: list[Column], fits: Callable[[Column], bool], by_value: Sequence[Column], otherwise: str
) -> ColumnChoice:
    """Choose by name, ours or one that other tools use, else by values if only one column qualifies."""
    aliases = {alias: [each for each in free if bare(each.name) == bare(alias)] for alias in (key, *ALIASES[key])}
    rewards = {bare(alias) for alias in ("score", *ALIASES["score"])}
    if key == "passed":
        aliases |= {alias: [each for each in free if bare(each.name) == alias] for alias in ("score", "reward")}
    for column in (each for columns in aliases.values() for each in columns if fits(each)):
        return ColumnChoice((column.name,), f"by its name; {column.summary}")
    if key == "passed" and not any(bare(each.name) in rewards and _is_reward(each) for each in free):
        for column in (each for each in free if means_failure(each.name) and fits(each)):
            return ColumnChoice((column.name,), f"its name means failure, so it is inverted; {column.summary}")
    matches = [column for column in by_value if column in free and not means_failure(column.name)]
    if len(matches) == 1:
        return ColumnChoice((matches[0].name,), f"by its values; {matches[0].summary}")
    names = {bare(alias) for alias in (key, *ALIASES[key][:6])} if key not in _OPTIONAL else set()
    for column in (each for each in free if bare(each.name) in names):  # why it was not chosen
        reason = ", which is no verdict" if key == "passed" else " of a type that does not fit"
        if key != "passed" and column.kind == "number" and (column.distinct == column.distinct.round()).all():
            reason = ": its numbers are whole, write them as integers"
        return ColumnChoice((), f"{otherwise}; {column.name} is {column.summary}{reason}")
    return ColumnChoice((), otherwise)


def _is_name(column: Column) -> bool:
    return column.kind in ("text", "integer")


def _is_reward(column: Column) -> bool:
    return column.kind in ("integer", "number") and not column.is_folder


def _is_verdict(column: Column) -> bool:
    """Return whether values are booleans, 0 and 1, or texts most of which are verdicts."""
    if column.is_folder:
        return False
    if column.kind in ("integer", "number"):
        return bool(((column.distinct == 0) | (column.distinct == 1)).all())
    if column.kind == "text" and len(column.distinct) <= 20:
        return 2 * len(_classify_verdicts(column)[2]) <= len(column.distinct)
    return column.kind == "boolean"


def _is_problem(column: Column, sample: LakeSample) -> bool:
    """Return whether a column may identify problems: not if it is a row number and another column may."""
    if not _is_name(column):
        return False
    if bare(column.name) not in _ROW_IDS or column.values.n_unique() < len(column.values):
        return True
    others = {bare(alias) for alias in ALIASES["problem_id"]} - set(_ROW_IDS)
    return not any(bare(name) in others and _is_name(other) for name, other in sample.columns.items())


def _classify_verdicts(column: Column) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the texts of a verdict that are a pass, a fail, or unknown."""
    is_inverted = means_failure(column.name)
    if column.kind != "text":
        no, yes = ("false", "true") if column.kind == "boolean" else ("0", "1")
        return ((no,), (yes,), ()) if is_inverted else ((), (), ())
    passes, fails, unknown = list[str](), list[str](), list[str]()
    for text in column.distinct.to_list():
        word = text.strip().casefold()
        is_pass = (word in PASSES) != (is_inverted and word in EITHER)
        (unknown if word not in PASSES | FAILS else passes if is_pass else fails).append(text)
    return tuple(passes), tuple(fails), tuple(unknown)


def _is_variant(column: Column) -> bool:
    """Return whether a column is named like one that tells variants of a model apart: train_step, Revision."""
    return not VARIANTS.isdisjoint(words_of(column.name))


def _is_part(column: Column) -> bool:
    """Return whether a column can be the second one of a composite key in every row."""
    has_separator = column.kind == "text" and column.distinct.str.contains("@", literal=True).any()
    return column.kind in ("text", "integer", "boolean") and not column.values.null_count() and not has_separator


def _protocol_and_carry(
    sample: LakeSample, chosen: dict[str, ColumnChoice]
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Return the columns of the protocol, and those with one value per problem that are worth keeping."""
    used, problem = _names(chosen), _names(chosen, *PROBLEM)
    free = [each for name, each in sample.columns.items() if name not in used and each.kind not in ("empty", "other")]

    def is_constant(name: str) -> bool:
        return not problem or sample.rows.group_by(problem).agg(pl.col(name).n_unique())[name].max() == 1

    def is_prompt(each: Column) -> bool:  # a text that differs between problems only is a part of the problem
        return bool(problem) and each.kind == "text" and len(each.distinct) > 1 and is_constant(each.name)

    protocol = tuple(each for each in free if each.is_setting and not is_prompt(each))
    candidates = [each for each in free if bare(each.name) in CARRY and each.name not in RESERVED]
    return protocol, tuple(each for each in candidates if each not in protocol and is_constant(each.name))


def config_head(lake: str) -> str:
    """Return the first line of an inferred config."""
    return f"# Inferred by `scorelake init` from some rows of {one_line(lake)}. Review it before you use it.\n"


def config_text(inferred: InferredConfig, lake: str) -> str:
    """Return the text of a scorelake.toml."""
    numbers = [f"# These rows are {inferred.numbers}."] if inferred.numbers else []
    lines = [config_head(lake).rstrip(), *numbers, "", "[columns]"]
    for key, choice in inferred.columns.items():
        if choice.names:
            names = toml_text(choice.names[0]) if len(choice.names) == 1 else _list(choice.names)
            lines.append(_line(f"{key} = {names}", choice.why))
        elif key in inferred.unused and not inferred.missing:
            lines.append(_line(f'{key} = ""', f"column {key} is not used: {choice.why}"))
        else:
            lines.append(_line(f'# {key} = "..."', f"{'MISSING: ' * (key in inferred.missing)}{choice.why}"))
        if key == "passed" and (inferred.pass_values or inferred.fail_values or inferred.unknown):
            inverted = "inverted, since the name means failure"
            meaning = inverted if means_failure(choice.column or "") else "meaning of these texts in most tools"
            lines.append(_line(f"pass_values = {_list(inferred.pass_values)}", meaning))
            lines.append(_line(f"fail_values = {_list(inferred.fail_values)}", "any other text is rejected"))
            if inferred.unknown:
                lines.append(f"# Pass or fail? {one_line(', '.join(inferred.unknown))}")
    if inferred.carry:
        lines.append(_columns("carry", inferred.carry, "kept with each problem"))
    if inferred.protocol:
        why = "; ".join(["different values are never pooled", *inferred.reasons.values()])
        lines += ["", "[protocol]", _columns("columns", inferred.protocol, why)]
    if inferred.measures:
        settings = [(f'{toml_text(each.name)} = {{kind = "{kind}"}}', each) for each, kind in inferred.measures]
        lines += ["", "[measures]", *(_line(text, f"by its name; {each.summary}") for text, each in settings)]
    if inferred.no_attempts:
        lines += ["", "[duplicates]", _line('policy = "off"', "attempt does not identify attempts, see above")]
    if not inferred.columns["passed"].names and inferred.columns["score"].names:
        why = "scores from here on pass; without a threshold there is no pass@k"
        lines += ["", "[policy]", _line("# pass_threshold = 0.5", why)]
    return "\n".join(lines) + "\n"


def _columns(key: str, columns: Iterable[Column], why: str) -> str:
    details = [why, *(f"{column.name}: {column.summary}" for column in columns)]
    return _line(f"{key} = {_list(column.name for column in columns)}", "; ".join(details))


def _line(setting: str, why: str) -> str:
    return f"{setting:<34} # {one_line(why)}"


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(toml_text(name) for name in names)}]"
