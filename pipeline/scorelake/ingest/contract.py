"""Types shared by all adapters. `formats/__init__.py` describes how they fit together.

An adapter gets a LogRun, yields AttemptRows, and fills in the metadata of the run. Everything else (discovery,
validation, statistics, writing) is the same for all formats.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from scorelake.errors import DataError, UsageError
from scorelake.ingest import json_stream
from scorelake.ingest.archives import Reading
from scorelake.ingest.json_stream import FileProbe

ErrorRule: TypeAlias = Literal["fail", "ungraded"]
"""How attempts without a verdict count."""
Outcome: TypeAlias = Literal["passed", "score"]
"""Verdicts; or numbers, which become verdicts only if all of them are 0 or 1."""

CHOICES = ("scorer", "filter", "metric")
"""Options that choose between verdicts on the same attempts, for every task or for one."""


KINDS = {"cost_usd": "cost", "input_tokens": "tokens", "output_tokens": "tokens", "seconds": "time"}
"""Columns of what an attempt cost, which every file has, and what kind of measure they are."""
MEASURES = (*KINDS, "step")
"""Columns of numbers that an attempt may have; `step` is the training step of its model."""


class AttemptRow(NamedTuple):
    """One attempt. Fields that are None fall back to those of the run."""

    problem_id: Any
    attempt: Any
    value: float | None
    """1 or 0 for a verdict, any finite number for a reward, None if ungraded."""
    error: bool | None = None
    """The tool made no verdict, or made one up after an error: `--errors` applies. Default: value is None."""
    answer: Any = None
    subject: Any = None
    benchmark: Any = None
    model: Any = None
    protocol: Mapping[str, Any] | None = None
    """Settings that differ between rows of one source."""
    carried: Mapping[str, Any] | None = None
    """Additional columns of the problem."""
    measures: Mapping[str, Any] | None = None
    """Numbers of the attempt, by their names in MEASURES."""
    content: Any = None
    """Digest of the problem's content, where the tool stores one: rows of one problem_id must agree on it."""


class Claim(NamedTuple):
    """A number that the tool reports about the same attempts, to be compared with ours."""

    name: str
    value: float
    metric: str = "mean"
    """mean of all attempts; problems, the mean of the problems' means; pass@k or pass^k."""
    benchmark: str | None = None
    tolerance: float = 1e-6


@dataclass(frozen=True)
class IngestOptions:
    """Options of the command line that adapters use. The fields are part of the digest that detects changes."""

    model: str | None = None
    benchmark: str | None = None
    subject: str | None = None
    scorer: tuple[str, ...] = ()
    """NAME for every task that has it, or TASK=NAME; TASK may be a shell pattern. The same for filter and metric."""
    filter: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()
    split: str | None = None
    map: tuple[tuple[str, str], ...] = ()
    true: tuple[str, ...] = ()
    threshold: float | None = None
    errors: ErrorRule | None = None
    missing: ErrorRule | None = None
    """How problems that were never attempted count; by default they are no rows."""
    ignore: tuple[str, ...] = ()
    """Protocol settings that do not separate attempts."""

    @classmethod
    def parse(cls, **typed: Any) -> IngestOptions:
        """Parse command-line arguments: lists may be repeated or separated by commas, pairs are KEY=THEIRS."""
        typed = {name: value for name, value in typed.items() if value is not None}
        lists = {
            name: tuple(part.strip() for text in value for part in text.split(",") if part.strip())
            for name, value in typed.items()
            if isinstance(value, list)
        }
        pairs: dict[str, str] = {}
        for part in lists.pop("map", ()):
            key, _, theirs = part.partition("=")
            if not (key and theirs) or theirs.count("==") > (key == "passed"):
                raise UsageError(f"not a pair: {part}", where="--map", hint="KEY=THEIRS, such as passed=correct")
            if key in pairs:
                raise UsageError(f"{key} is mapped twice", where="--map")
            pairs[key] = theirs
        for option in CHOICES:
            texts = lists.get(option, ())
            if any(text[0] == "=" or text[-1] == "=" for text in texts):
                raise UsageError("not a choice", where=f"--{option}", hint="NAME, or TASK=NAME")
            for task, count in Counter(_task_and_name(text)[0] for text in texts).items():
                if count > 1:
                    raise UsageError(f"{count} choices for {task or 'every task'}", where=f"--{option}")
        for name, value in typed.items():
            if value == "" or (isinstance(value, float) and not math.isfinite(value)):
                raise UsageError(f"invalid value {value!r}", where=f"--{name}")
        return cls(**typed | lists | {"map": tuple(pairs.items())})

    def choice(self, option: str, task: str) -> tuple[str, str]:
        """Return the text of --scorer, --filter or --metric that applies to a task, and the name in it.

        An exact name goes before a pattern, and a pattern before a name for every task; "" if there is no choice.
        """
        texts = getattr(self, option)
        exact = [text for text in texts if _task_and_name(text)[0] == task]
        matching = [text for text in texts if names_task(text, task)]
        text = next(iter([*exact, *matching, *(text for text in texts if "=" not in text)]), "")
        return text, _task_and_name(text)[1]

    @property
    def subject_key(self) -> str | None:
        """The metadata key that --subject names, if it names a key and not a subject."""
        prefix, _, key = (self.subject or "").partition("metadata.")
        return None if prefix or not key else key

    def fixed_name(self, column: str) -> str | None:
        """Return the model, benchmark or subject that was given for all rows."""
        return None if column == "subject" and self.subject_key is not None else getattr(self, column)


def _task_and_name(text: str) -> tuple[str, str]:
    task, has_task, name = text.partition("=")
    return (task, name) if has_task else ("", text)


def names_task(text: str, task: str) -> bool:
    """Check whether TASK=NAME is about a task; pkg/task is also called task."""
    pattern = _task_and_name(text)[0]
    return any(fnmatchcase(name, pattern) for name in (task, task.rpartition("/")[2]))


@dataclass
class LogRun:
    """The files of one run of a tool, how to read them, and what an adapter finds out about the run."""

    path: Path
    """The file or folder by which users know the run."""
    format: str
    files: tuple[Path, ...]
    """Files with attempts."""
    companions: tuple[Path, ...] = ()
    """Files with metadata of the same run."""
    digest: str = ""
    """Checksum of all files."""
    tag: str = ""
    """Checksum of the files with attempts: names attempts that have no id, the same for every copy of a file."""
    reading: Reading = field(default_factory=Reading)
    options: IngestOptions = field(default_factory=IngestOptions)
    outcome: Outcome = "passed"
    errors: ErrorRule = "ungraded"

    # Set by the adapter, until the last attempt:
    run_id: str = ""
    model: str | None = None
    benchmark: str | None = None
    subject: str | None = None
    tool: str | None = None
    protocol: dict[str, Any] = field(default_factory=dict)
    """Settings that change what is measured: the columns `temperature` and `grader`, and the others in `setup`."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Settings that do not, such as commits, package versions and concurrency: recorded, but attempts are pooled."""
    choices: dict[tuple[str, str], str] = field(default_factory=dict)
    """Which scorer, filter or metric counts and why, by option and task; "" where there was nothing to choose."""
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)
    """What a document has besides its records."""
    excluded_rows: int = 0
    """Rows that do not count by the format's own rules, such as a torn last line that is written again."""
    rows_name_benchmark: bool = False
    """Every row names its benchmark, derived from --benchmark: a file covers several."""
    unique_attempts: bool = False
    """An attempt cannot occur twice; if one does, rows differ by something that is not in the file."""
    identity: str = ""
    """The tool's own id of the run, by which a log is recognised that was moved, regraded or retried."""
    named_models: set[str] = field(default_factory=set)
    """Models that rows name where --model names another; the first few."""
    precedence: float = 0.0
    """Of several logs of one identity only those with the highest count: a retry replaces what it retries."""

    @property
    def file(self) -> Path:
        return self.files[0]

    @property
    def folder(self) -> Path:
        return self.file.resolve().parent

    def lines(self, path: Path | None = None, torn: list[int] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (line number, record) of a JSON Lines file; see `json_stream.lines`."""
        return json_stream.lines(path or self.file, torn, self.reading)

    def members(self, *keys: str, skip: Collection[str] = ()) -> Iterator[tuple[str, Any, Any]]:
        """Yield (key, name, value) of a large JSON document; see `json_stream.members`."""
        return json_stream.members(self.file, keys, reading=self.reading, skip=skip)

    def records(self, key: str, skip: Collection[str] = ()) -> Iterator[tuple[Any, Any]]:
        """Yield (name, value) of the elements below one key of a large document; the rest is put into `document`."""
        for top, name, value in self.members(key, skip=skip):
            if top == key and name is not None:
                yield name, value
            else:
                self.document[top] = value

    def companion(self, name: str | None = None) -> dict[str, Any]:
        """Load the companion file, by its name if there may be several; {} if there is none."""
        path = next((path for path in self.companions if name in (None, path.name)), None)
        return {} if path is None else json_stream.load_object(path)

    def add_claim(self, name: str, value: Any, *more: Any, **options: Any) -> None:
        """Add a Claim if the tool reports a number."""
        if isinstance(value, int | float):
            self.claims.append(Claim(name, float(value), *more, **options))

    def choose(
        self, option: str, task: str, names: Iterable[str], what: str = "", order: str = "", where: object = None
    ) -> str:
        """Return the scorer, filter or metric that counts for a task, and record the reason.

        The names are in the default order, which `order` describes; without one, several are refused unless one is
        chosen. `what` is the tool's word for the option.
        """
        available, what, where = list(dict.fromkeys(names)), what or option, where or self.path
        text, wanted = self.options.choice(option, task)
        if wanted in available:
            name, reason = wanted, f"chosen by --{option} {text}"
        elif wanted and ("=" in text or not order):
            raise refusal(f"no {what} {wanted}", where, f"available: {', '.join(sorted(available)) or 'none'}")
        elif not available:
            raise refusal(f"no {what}", where)
        elif len(available) > 1 and not order:
            listed = ", ".join(sorted(available))
            raise refusal(f"{len(available)} {what}s: {listed}", where, f"choose one with --{option}")
        else:
            name, lacks = available[0], f"there is no {wanted}, and " if wanted else ""
            reason = f"chosen because {lacks}it is the {f'first in {order}' if len(available) > 1 else 'only one'}"
        others = ", ".join(other for other in available if other != name)
        line = f"{task or where}: {what} {name}, {reason}{f'; also there: {others}' if others else ''}"
        self.choices.setdefault((option, task), line if others or wanted not in ("", name) else "")
        return name


@dataclass(frozen=True)
class LogFormat:
    """An adapter: how files of one format are recognised, grouped and read."""

    name: str
    outcome: Outcome
    errors: ErrorRule
    """The tool's own rule for attempts without a verdict."""
    detect: Callable[[FileProbe], bool]
    """Decide by content whether a file has attempts of this format."""
    read: Callable[[LogRun], Iterator[AttemptRow]]
    """Yield the attempts of a run, and fill in its metadata on the way."""
    group: Callable[[Path], Path] = lambda path: path
    """Return the path that stands for the run, for tools that write one file per attempt."""
    companions: Callable[[Path], Iterable[Path]] = lambda path: ()
    """List the files that may hold metadata of the same run."""
    passes: Callable[[float], bool] | None = None
    """The tool's own rule by which a reward passes; --threshold overrides it."""
    explain: Callable[[FileProbe], str | None] = lambda probe: None
    """Say why a file that resembles this format cannot be read, such as samples that were never graded."""


def siblings(*names: str) -> Callable[[Path], Iterable[Path]]:
    """List companions in the same folder."""
    return lambda path: [path.with_name(name) for name in names]


def refusal(what: str, where: object, hint: str | None = None) -> DataError:
    """Build the error for a source that must not be counted."""
    return DataError(what, where=str(where), hint=hint)
