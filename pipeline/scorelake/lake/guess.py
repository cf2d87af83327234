"""Which column is which? A guess for each thing that is wanted, by names, types and values, and what it rests on.

A guess is a proposal: it is written into a config with its reason beside it, for a person to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import polars as pl

from scorelake.lake.look import Column, Seen
from scorelake.schemas import ALIASES
from scorelake.settings import RESERVED

PASSES = {
    *(
        "c",
        "correct",
        "pass",
        "passed",
        "true",
        "yes",
        "y",
        "success",
        "successful",
        "resolved",
        "solved",
        "accepted",
    ),
    *("ok", "right", "1", "win"),
}
FAILS = {
    *("i", "incorrect", "fail", "failed", "false", "no", "n", "failure", "unsuccessful", "unresolved", "unsolved"),
    *("rejected", "wrong", "0", "loss"),
}
"""Texts that are a verdict in most tools, whatever their case."""
MODELS = re.compile(
    r"gpt|claude|llama|qwen|gemini|gemma|mistral|mixtral|deepseek|phi-|grok|command-r|olmo|granite|falcon",
    re.IGNORECASE,
)
PROTOCOL = (
    *("temperature", "top_p", "top_k", "max_tokens", "reasoning_effort", "num_fewshot", "n_shot", "shots"),
    *(
        "prompt_version",
        "prompt_template",
        "prompt_name",
        "system_prompt",
        "grader",
        "judge",
        "judge_model",
        "scorer",
    ),
    *("filter", "task_version", "harness_version", "tools"),
)
"""What must not be pooled, by its usual names."""
CARRY = ("difficulty", "level", "tier", "title", "language", "lang", "year", "source")
"""What is worth keeping with a problem."""
_ROW_IDS = ("id", "uid", "idx", "index", "item", "instance")


@dataclass(frozen=True)
class Guess:
    """A column for one thing, and why; or none, and what to do then."""

    column: str | None
    why: str


@dataclass(frozen=True)
class Guesses:
    """The whole proposal."""

    columns: dict[str, Guess]
    pass_values: tuple[str, ...] = ()
    fail_values: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Verdicts in words that nobody here knows."""
    protocol: tuple[Column, ...] = ()
    carry: tuple[Column, ...] = ()
    no_attempts: bool = False
    """There is a column called attempt that does not name attempts."""

    @property
    def missing(self) -> list[str]:
        """What must be there before the lake can be scored."""
        found = {key for key, guess in self.columns.items() if guess.column is not None}
        outcome = [] if found & {"passed", "score"} else ["passed"]
        return [*(key for key in ("model", "problem_id") if key not in found), *outcome]


def guess(seen: Seen) -> Guesses:
    taken: dict[str, Guess] = {}

    def settle(key: str, fits: Callable[[Column], bool], else_why: str, by_value: Iterable[Column] = ()) -> None:
        used = {guess.column for guess in taken.values()}
        free = {name: column for name, column in seen.columns.items() if name not in used}
        taken[key] = _chosen(key, free, fits, list(by_value), used) or Guess(None, _almost(key, free, else_why))

    settle("model", _is_name, "no column with names of models; or put files into folders model=NAME", _models(seen))
    settle("passed", _is_verdict, "no column with a verdict", _verdicts(seen))
    settle("score", _is_reward, "no column with a reward")
    settle("problem_id", lambda column: _names_problems(column, seen), "no column with names of problems")
    settle("benchmark", _is_name, "all problems are one benchmark, called default")
    settle("subject", _is_name, "all problems are one subject, called all")
    settle("attempt", _is_name, "rows that repeat an attempt cannot be found")
    settle("answer", lambda column: column.kind in ("text", "whole", "number", "boolean"), "no votes")
    unlike = _unlike(seen, taken)
    if unlike:
        taken["attempt"] = Guess(
            None, f"{taken['attempt'].column} is not it: {unlike:,} have two verdicts in one problem"
        )
    verdict = taken["passed"].column
    words = _words(seen.columns[verdict]) if verdict else ((), (), ())
    return Guesses(taken, *words, *_others(seen, taken), "attempt" in seen.columns and unlike > 0)


def _chosen(
    key: str, free: dict[str, Column], fits: Callable[[Column], bool], by_value: list[Column], used: set[str | None]
) -> Guess | None:
    """By its name if that is ours or one that other tools use, else by its values."""
    bare: dict[str, list[str]] = {}
    for name in free:
        bare.setdefault(_bare(name), []).append(name)
    also = ("score", "reward") if key == "passed" else ()
    for alias in (key, *ALIASES[key], *also):
        for name in bare.get(_bare(alias), ()):
            if fits(free[name]):
                return Guess(name, f"by its name; {free[name].told}")
    fitting = [column for column in by_value if column.name not in used]
    if len(fitting) == 1:
        return Guess(fitting[0].name, f"by its values; {fitting[0].told}")
    return None


def _almost(key: str, free: dict[str, Column], why: str) -> str:
    """Why a column of the right name was not taken."""
    known = {_bare(alias) for alias in (key, *ALIASES[key][:6])}
    for name, column in free.items():
        if _bare(name) in known and key in ("model", "problem_id", "passed", "attempt"):
            whole = column.kind == "number" and bool(
                (column.known == column.known.cast(pl.Int64, strict=False)).all()
            )
            mend = ": its numbers are whole, write them as integers" if whole else " of a type that does not fit"
            return f"{why}; {name} is {column.told}{mend if key != 'passed' else ', which is no verdict'}"
    return why


def _bare(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum()) or name


def _is_text(column: Column) -> bool:
    return column.kind == "text"


def _is_name(column: Column) -> bool:
    return column.kind in ("text", "whole")


def _is_reward(column: Column) -> bool:
    return column.kind in ("whole", "number") and not column.folder


def _is_verdict(column: Column) -> bool:
    if column.folder:
        return False
    if column.kind in ("whole", "number"):
        return bool(((column.known == 0) | (column.known == 1)).all())
    return column.kind == "boolean" or (column.kind == "text" and _spoken(column) and len(column.known) <= 20)


def _spoken(column: Column) -> bool:
    """At least one of its texts is a verdict, and most are."""
    known = [text.strip().casefold() in PASSES | FAILS for text in column.known.to_list()]
    return 2 * sum(known) >= len(known)


def _verdicts(seen: Seen) -> list[Column]:
    """Columns that can be nothing else: booleans, or texts that are all verdicts."""
    some = (column for column in seen.columns.values() if _is_verdict(column))
    return [column for column in some if column.kind in ("boolean", "text")]


def _models(seen: Seen) -> list[Column]:
    texts = (column for column in seen.columns.values() if column.kind == "text")
    return [column for column in texts if all(len(t) < 200 and MODELS.search(t) for t in column.known.to_list())]


def _names_problems(column: Column, seen: Seen) -> bool:
    """Not where every row has another one, and another column may name problems: then it is a number of the row."""
    if not _is_name(column):
        return False
    if _bare(column.name) not in _ROW_IDS or column.values.n_unique() < len(column.values):
        return True
    others = {_bare(alias) for alias in ALIASES["problem_id"]} - set(_ROW_IDS)
    return not any(_bare(name) in others and _is_name(other) for name, other in seen.columns.items())


def _words(column: Column) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Which of a verdict's texts are a pass, a fail, or unknown, as they are written."""
    if column.kind != "text":
        return (), (), ()
    texts = column.known.to_list()
    passes, fails = (tuple(t for t in texts if t.strip().casefold() in some) for some in (PASSES, FAILS))
    return passes, fails, tuple(t for t in texts if t not in {*passes, *fails})


def _unlike(seen: Seen, taken: dict[str, Guess]) -> int:
    """How many attempts come twice with two verdicts: then the column is no name of an attempt."""
    keys = [taken[key].column for key in ("benchmark", "subject", "model", "problem_id", "attempt")]
    outcome = taken["passed"].column
    if outcome is None or keys[-1] is None or keys[-2] is None:
        return 0
    found = seen.rows.drop_nulls(keys[-1]).group_by(*(key for key in keys if key)).agg(pl.col(outcome).n_unique())
    return found.filter(pl.col(outcome) > 1).height


def _others(seen: Seen, taken: dict[str, Guess]) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Columns that tell protocols apart, and columns worth keeping with a problem, of which each has one value."""
    used = {guess.column for guess in taken.values()}
    free = [
        column for name, column in seen.columns.items() if name not in used and column.kind not in ("empty", "other")
    ]
    protocol = tuple(column for column in free if _bare(column.name) in {_bare(name) for name in PROTOCOL})
    problem = [guess.column for key, guess in taken.items() if key in ("benchmark", "subject", "problem_id")]
    named = [name for name in problem if name]
    carry = tuple(
        column
        for column in free
        if _bare(column.name) in CARRY
        and column not in protocol
        and column.name not in RESERVED
        and (not named or seen.rows.group_by(named).agg(pl.col(column.name).n_unique())[column.name].max() == 1)
    )
    return protocol, carry
