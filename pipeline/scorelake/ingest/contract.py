"""What an adapter is given and what it gives back. Everything else about ingesting is the same for all formats.

An adapter is a module in formats/ that binds FORMAT. It says by content whether a file is one of its own (`detect`)
and turns it into a Log: facts of the whole source, and attempts one after another (`read`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from scorelake.errors import DataError, UsageError
from scorelake.ingest.sight import Sight

Rule = Literal["fail", "ungraded"]
"""What an attempt without a verdict counts as."""
Kind = Literal["passed", "score"]
"""What the values of a log are: verdicts, or numbers that are verdicts only where all of them are 0 or 1."""


class Attempt(NamedTuple):
    """One attempt as the log tells it. What is None here is what the log says of the whole source."""

    problem_id: Any
    attempt: str
    value: float | None
    """1 or 0 for a verdict, any finite number for a reward; None where no verdict was made."""
    error: bool = False
    """There is no verdict, or the tool made one up: `--errors` decides what the row counts as."""
    answer: Any = None
    subject: Any = None
    benchmark: Any = None
    model: Any = None
    protocol: Mapping[str, Any] | None = None
    """Where rows of one source were made under different protocols."""
    carried: Mapping[str, Any] | None = None
    asked: Any = None
    """What the problem is, by a digest that the tool keeps: rows of one id must agree on it."""

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        return cls._fields

    def but(self, **changes: Any) -> Attempt:
        """The same attempt with something else in it."""
        return self._replace(**changes)


@dataclass(frozen=True)
class Claim:
    """A number that the tool itself tells of the same attempts, to be held against ours."""

    name: str
    value: float
    metric: str = "mean"
    """mean of all attempts; problems, the mean of the problems' means; pass@k or pass^k."""
    benchmark: str | None = None
    within: float = 1e-6
    """How far apart two numbers may be that are the same: a tool may have rounded."""


@dataclass
class Log:
    """One source. Facts may be filled in while the attempts are read; they are looked at after the last one."""

    rows: Iterable[Attempt]
    kind: Kind
    errors: Rule
    """The tool's own rule."""
    run: str = ""
    model: str | None = None
    benchmark: str | None = None
    subject: str | None = None
    tool: str | None = None
    protocol: dict[str, Any] = field(default_factory=dict)
    """`temperature` and `grader` have columns of their own; the rest becomes the text of the column `setup`."""
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names_benchmarks: bool = False
    """Its rows name their benchmarks, --benchmark included, since there are several to it."""
    once: bool = False
    """No attempt can be there twice; if one is, rows were told apart by something that is not in them."""
    left_out: int = 0
    """Rows that the format itself says do not count, such as a torn last line that is written again."""
    supersedes: tuple[str, str, bool] | None = None
    """(task, created, named): only the newest log of a task counts, unless attempts have names of their own."""


def _listed(typed: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for text in typed for part in text.split(",") if part.strip())


@dataclass(frozen=True)
class Options:
    """What a user may say that a file cannot know, or must not decide."""

    model: str | None = None
    benchmark: str | None = None
    subject: str | None = None
    scorer: str | None = None
    filter: str | None = None
    metric: str | None = None
    split: str | None = None
    map: tuple[tuple[str, str], ...] = ()
    true: tuple[str, ...] = ()
    threshold: float | None = None
    errors: Rule | None = None
    missing: Rule | None = None
    """What problems that were never attempted count as; by default nothing at all."""
    ignore: tuple[str, ...] = ()
    """Keys of the protocol that are not to tell attempts apart."""

    @classmethod
    def asked(cls, map: Sequence[str], true: Sequence[str], ignore: Sequence[str], **others: Any) -> Options:  # noqa: A002
        """From what was typed: lists with commas or one by one, pairs as KEY=THEIRS."""
        told: dict[str, str] = {}
        for part in _listed(map):
            key, _, theirs = part.partition("=")
            if not (key and theirs) or theirs.count("==") > (key == "passed"):
                raise UsageError(f"no pair: {part}", where="--map", hint="KEY=THEIRS, such as passed=correct")
            if key in told:
                raise UsageError(f"{key} is mapped twice", where="--map")
            told[key] = theirs
        for name, value in others.items():
            if value == "" or (isinstance(value, float) and not math.isfinite(value)):
                raise UsageError(f"{value!r} says nothing", where=f"--{name}")
        return cls(map=tuple(told.items()), true=_listed(true), ignore=_listed(ignore), **others)

    @property
    def mapped(self) -> dict[str, str]:
        return dict(self.map)

    @property
    def subject_key(self) -> str | None:
        """Where --subject says where to look, not what the subject is."""
        return self.subject if self.subject and self.subject.startswith("metadata.") else None

    def said(self, name: str) -> str | None:
        """A name that was given for the whole source."""
        return None if name == "subject" and self.subject_key else getattr(self, name)


@dataclass(frozen=True)
class Source:
    """What is read together and becomes attempts together: a file, or the files of one run."""

    path: Path
    """The file or the folder that people know it by."""
    files: tuple[Path, ...]
    """The files with attempts in them."""
    beside: tuple[Path, ...] = ()
    """Files that say more of the same run."""
    digest: str = ""
    """Of the bytes of all of them."""
    tag: str = ""
    """Of the bytes of the files with attempts: names attempts that have no other name, wherever a copy lies."""

    @property
    def file(self) -> Path:
        return self.files[0]

    def companion(self, name: str) -> Path | None:
        return next((path for path in self.beside if path.name == name), None)


def _alone(path: Path) -> Path:
    return path


def _nothing(path: Path) -> Iterable[Path]:
    return ()


@dataclass(frozen=True)
class Format:
    """An adapter: its name, how it is recognised, and how it is read."""

    name: str
    about: str
    detect: Callable[[Sight], bool]
    read: Callable[[Source, Options], Log]
    unit: Callable[[Path], Path] = _alone
    """The folder whose files are one run, for tools that write a file per attempt."""
    beside: Callable[[Path], Iterable[Path]] = _nothing
    """Other files that tell of the same run, where they are there."""
    almost: Callable[[Sight], str | None] = lambda sight: None
    """Why a file that looks like one of ours is none: samples that were never graded, a version nobody knows."""


def refuse(what: str, where: object, hint: str | None = None) -> DataError:
    """The error for a source that must not be counted."""
    return DataError(what, where=str(where), hint=hint)


def choose(names: Iterable[str], chosen: str | None, what: str, option: str, where: object) -> str:
    """The one name there is, or the one that was asked for; several are a question, not a guess."""
    known = sorted(set(names))
    if chosen is not None:
        if chosen not in known:
            raise refuse(f"no {what} {chosen}", where, f"there are: {', '.join(known) or 'none'}")
        return chosen
    if len(known) != 1:
        many = f"{len(known)} {what}s: {', '.join(known)}" if known else f"no {what}"
        raise refuse(many, where, f"choose one with {option}" if known else None)
    return known[0]
