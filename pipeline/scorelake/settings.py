"""One frozen, validated Settings: defaults, then the TOML file, then flags. Passed down, never global."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from scorelake.errors import UsageError

RESERVED = (
    *("benchmark", "subject", "model", "protocol", "problem_id", "n", "c", "ungraded", "k", "_group", "_name"),
    *("rewards", "reward_counts", "answer_counts", "answer_passes", "reward_mean", "reward_max", "metric", "value"),
    *("prior_n", "prior_c", "prior_rewards", "prior_reward_counts", "pass_at_k", "pass_hat_k"),
)
"""Names of our own output columns, which a carried column cannot take."""
_OF = ("sum", "squares", "count")
MEASURE_COLUMNS = (*(f"{of}{what}" for of in ("", "passed_", "ungraded_") for what in _OF), "max", "passed_bins")
"""Columns of each measure in problem_counts, after its name: of graded, of passed and of ungraded attempts."""
UNIFORM = (1.0, 1.0)
PRIORS = {"uniform": UNIFORM, "jeffreys": (0.5, 0.5), "empirical": None}
"""Priors with a name; the empirical one is learnt for each model and benchmark."""
COMPOSITE = ("model", "benchmark", "subject", "problem_id")
"""Keys of [columns] that may name several columns."""
NAMING = (*COMPOSITE, "attempt", "passed", "score", "answer", "cluster", "step")


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} is named twice")
    return names


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Lake(Part):
    """Which files of the lake count."""

    exclude: tuple[str, ...] = ()
    """Patterns such as date=2026-02-04/* over paths in the lake; * stands for any text, slashes too."""


class Columns(Part):
    """Which column (or Hive key) of the lake holds what; a key may be several columns, whose values `@` joins."""

    model: str | tuple[str, ...] = "model"
    benchmark: str | tuple[str, ...] = "benchmark"
    subject: str | tuple[str, ...] = "subject"
    problem_id: str | tuple[str, ...] = "problem_id"
    attempt: str = "attempt"
    passed: str = "passed"
    score: str = "score"
    answer: str = "answer"
    pass_values: tuple[str, ...] = ()  # texts that are a pass; any other is a fail
    fail_values: tuple[str, ...] = ()  # with these, a text that is neither is rejected
    cluster: str | None = None
    step: str | None = None  # training step or date: model and step name a point of a series, such as run@100
    carry: tuple[str, ...] = ()

    def parts(self, key: str) -> tuple[str, ...]:
        """Return the columns of a key of NAMING."""
        value = getattr(self, key) or ()
        parts = (value,) if isinstance(value, str) else value
        return (*parts, self.step) if key == "model" and self.step else parts

    @field_validator(*COMPOSITE, mode="before")
    @classmethod
    def _check_parts(cls, given: Any) -> Any:
        parts = [given] if isinstance(given, str) else given
        if not isinstance(parts, list | tuple) or not parts or not all(isinstance(part, str) for part in parts):
            raise ValueError("must be the name of a column, or a list of names")
        return parts[0] if len(parts) == 1 else _unique(tuple(parts))  # a list of one has the same partial counts

    @field_validator("carry", "cluster")
    @classmethod
    def _not_ours(cls, given: Any, info: ValidationInfo) -> Any:
        names = (given,) if isinstance(given, str) else given or ()
        free = names if (info.field_name, given) == ("cluster", "subject") else _free(names)
        return free if isinstance(given, tuple) else given or None  # "" is none

    @model_validator(mode="after")
    def _either(self) -> Columns:
        if both := sorted(set(self.pass_values) & set(self.fail_values)):
            raise ValueError(f"{', '.join(both)} cannot be a pass and a fail")
        if self.fail_values and not self.pass_values:
            raise ValueError("fail_values are of use only beside pass_values")
        return self


def _free(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names once each, if none is taken: DuckDB has no case, so n and N are one."""
    once = tuple(dict.fromkeys(names))
    if taken := sorted(name for name in once if name.lower() in RESERVED):
        raise ValueError(f"{', '.join(taken)} is a column of the output already")
    lower = [name.lower() for name in once]
    if same := sorted(name for name in once if lower.count(name.lower()) > 1):
        raise ValueError(f"{' and '.join(same)} differ only in case, which DuckDB does not tell apart")
    return once


class Protocol(Part):
    """Columns that tell evaluation protocols apart; different protocols are never pooled."""

    columns: tuple[str, ...] = ()
    _once = field_validator("columns")(_unique)


class Policy(Part):
    """What to do with rows that are not a plain verdict."""

    pass_threshold: float | None = None
    ungraded: Literal["exclude", "fail", "error"] = "exclude"
    max_rejected: int = Field(0, ge=0)


class Measure(Part):
    """A numeric column that says what an attempt cost."""

    kind: Literal["cost", "tokens", "time"]
    column: str | None = None  # by default the name of the measure


class Duplicates(Part):
    """Rows that repeat an attempt: found by the `attempt` column where there is one, unless off."""

    policy: Literal["auto", "off", "exact"] = "auto"
    rule: Literal["error", "first", "last", "any-pass", "all-pass"] = "error"  # which of two verdicts counts


class GateRule(Part):
    candidate: str = "*"
    base: str = "previous"
    metric: str = "pass@1"
    margin: float = Field(0.02, ge=0)


class Gates(Part):
    """Conditions for publishing; a run that fails one publishes nothing."""

    max_ungraded_share: float = Field(1.0, ge=0, le=1)
    max_rejected_share: float = Field(1.0, ge=0, le=1)
    max_quarantined_share: float = Field(1.0, ge=0, le=1)
    min_model_problems: int = Field(0, ge=0)
    min_model_attempts: int = Field(0, ge=0)
    max_fall: float | None = Field(None, ge=0)
    metric: str = "pass@1"
    rule: tuple[GateRule, ...] = ()


class Publish(Part):
    max_problems: int = Field(20_000_000, ge=0)  # more stay in the snapshot's Parquet files


class Rubric(Part):
    """The finite set of values `score` may take, and what each is worth (by default itself)."""

    levels: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    prior: tuple[Annotated[float, Field(ge=0)], ...] = ()  # outcomes of each level, added to one of each
    bounds: tuple[float, float] | None = None  # smallest and largest possible score, where there are no levels

    @model_validator(mode="after")
    def _same_length(self) -> Rubric:
        if self.bounds is not None and self.levels:
            raise ValueError("levels say what the bounds are: give one of the two")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"bounds must rise, got {self.bounds[0]:g} and {self.bounds[1]:g}")
        for what, given in (("weights", self.weights), ("prior outcomes", self.prior)):
            if given and len(given) != len(self.levels):
                raise ValueError(f"{len(self.levels)} levels but {len(given)} {what}")
        if len(set(self.levels)) != len(self.levels) or len(self.levels) == 1:
            raise ValueError("levels must be two or more different numbers")
        return self

    @property
    def worth(self) -> dict[float, float]:
        return dict(zip(self.levels, self.weights or self.levels, strict=True))

    @property
    def outcomes(self) -> dict[float, float]:
        """Prior outcomes per level; none at all where none are given."""
        return dict(zip(self.levels, self.prior, strict=True)) if self.prior else {}


class Metrics(Part):
    """Which metrics; none named means those that people read at k = 1, 2, 4, ..., "all" every family."""

    names: tuple[str, ...] = ()
    spectrum: tuple[float, ...] = ()


class Uncertainty(Part):
    confidence: float = Field(0.95, gt=0, le=1 - 1e-9)
    min_coverage: float = Field(0.9, ge=0, le=1)
    prior: str | tuple[float, float] = "uniform"  # of each problem: a name of PRIORS, or pseudo-counts of a Beta
    prior_lake: str | None = None  # earlier attempts of the same problems by the same models: prior outcomes
    bounds: tuple[float, float] | None = None  # of the posterior interval; by default those of the metric

    @field_validator("prior")
    @classmethod
    def _check_prior(cls, prior: str | tuple[float, float]) -> str | tuple[float, float]:
        if isinstance(prior, str) and prior not in PRIORS:
            raise ValueError(f"must be {', '.join(PRIORS)} or two pseudo-counts")
        if not isinstance(prior, str) and min(prior) <= 0:
            raise ValueError("both pseudo-counts must be > 0")
        return prior

    @field_validator("bounds")
    @classmethod
    def _rising(cls, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
        if bounds is not None and bounds[0] > bounds[1]:
            raise ValueError("the first must not exceed the second")
        return bounds

    @property
    def pseudo_counts(self) -> tuple[float, float] | None:
        """alpha and beta of the prior; None when they are to be learnt from the lake."""
        return PRIORS[self.prior] if isinstance(self.prior, str) else self.prior


class Overall(Part):
    weights: dict[str, Annotated[float, Field(ge=0)]] = {}  # of benchmarks: 1 unless given, 0 leaves one out


class Compare(Part):
    """Paired comparisons and ranks: which metrics, how many resamples, and what is too little to compare.

    No metric named means all of [metrics]; if there is none either, subjects are compared by pass@1 or avg@N alone.
    """

    metrics: tuple[str, ...] = ()
    resamples: int = Field(10_000, ge=100, le=10_000_000)
    seed: int = Field(0, ge=0)
    min_problems: int = Field(20, ge=2)  # fewer in common: no number and no range of ranks
    min_share: float = Field(0.9, ge=0, le=1)  # of the benchmark's problems that a ranked model has attempted
    margin: float | None = Field(None, gt=0)  # a difference that does not matter
    max_pairs: int = Field(1_000_000, ge=1)  # more in a table: each model with leaders and neighbours in rank only


class Window(Part):
    """Only the newest rows count, by a column or folder key of dates, times or whole numbers."""

    column: str | None = None
    last: Annotated[str, Field(pattern=r"^[0-9]+[hdw]?$")] | None = None  # up to the newest value: 7d, 12h, 2w, 3
    since: str | None = None  # follows from `last` where that is given

    @model_validator(mode="after")
    def _has_column(self) -> Window:
        if (self.column is None) != (self.last is None and self.since is None):
            raise ValueError("needs a column, and last or since")
        return self


class Series(Part):
    """Models that are points of a series over training steps or dates."""

    pattern: str | None = None  # of their names, with groups `model` and `step`

    @field_validator("pattern")
    @classmethod
    def _has_groups(cls, pattern: str | None) -> str | None:
        try:
            groups = set(re.compile(pattern or "").groupindex)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        if pattern and not {"model", "step"} <= groups:
            raise ValueError("must have the groups (?P<model>...) and (?P<step>...)")
        return pattern


class Run(Part):
    """How the work is cut; none of it changes a number."""

    memory_gb: float | None = Field(None, gt=0)  # shards are cut by it; by default half of the machine's
    shard_mb: float | None = Field(None, gt=0)
    bucket_rows: int | None = Field(None, gt=0)
    threads: int | None = Field(None, gt=0)  # of one task; by default every core, on a cluster one

    @property
    def memory(self) -> float:
        return self.memory_gb or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**31

    @property
    def shard_size(self) -> float:
        """Megabytes of files counted together. A guess: the need depends on keys not yet read."""
        return self.shard_mb or max(16.0, 512 * self.memory)


class Storage(Part):
    """Patience with object storage; where it is and who may use it comes from the environment alone."""

    timeout_s: float = Field(30.0, gt=0)  # a request that is silent for this long is tried again
    retry_s: float = Field(180.0, gt=0)  # one that keeps failing for this long is given up, and the run with it


PATIENCE = Storage()


class Settings(Part):
    lake: Lake = Lake()
    columns: Columns = Columns()
    protocol: Protocol = Protocol()
    policy: Policy = Policy()
    duplicates: Duplicates = Duplicates()
    rubric: Rubric = Rubric()
    metrics: Metrics = Metrics()
    spectra: dict[str, tuple[float, ...]] = {}
    """Weights w_1..w_k over thresholds, by name: `spectrum-NAME@k` and `geo-spectrum-NAME@k_L`."""
    uncertainty: Uncertainty = Uncertainty()
    overall: Overall = Overall()
    gates: Gates = Gates()
    publish: Publish = Publish()
    compare: Compare = Compare()
    window: Window = Window()
    series: Series = Series()
    run: Run = Run()
    storage: Storage = PATIENCE
    by: tuple[str, ...] = ()
    measures: dict[str, Measure] = Field({}, exclude_if=lambda measures: not measures)
    _once = field_validator("by")(_free)

    @field_validator("spectra")
    @classmethod
    def _named(cls, spectra: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
        wrong = [name for name in spectra if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or name == "star"]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: a name is small letters, digits and -, and not star")
        return spectra

    @model_validator(mode="after")
    def _slices_are_free(self) -> Settings:
        _free(self.carried)
        _free((*self.carried, *(f"{name}_{end}" for name in self.measures for end in MEASURE_COLUMNS)))
        return self

    @property
    def measured(self) -> dict[str, str]:
        """The column of each measure."""
        return {name: measure.column or name for name, measure in self.measures.items()}

    @property
    def carried(self) -> tuple[str, ...]:
        """Carried columns, those asked for as slices or clusters included."""
        cluster = (self.columns.cluster,) if self.columns.cluster not in (None, "subject") else ()
        return tuple(dict.fromkeys((*self.columns.carry, *self.by, *cluster)))

    @property
    def used(self) -> set[str]:
        """Every column the counts depend on."""
        keys = [key for key in NAMING if key != "answer" or self.answers]
        named = (*self.carried, *self.protocol.columns, *self.measured.values(), *filter(None, [self.window.column]))
        return {*(name for key in keys for name in self.columns.parts(key)), *named}

    @property
    def series_pattern(self) -> str | None:
        """Regular expression of the names of points; None where there are no series."""
        default = r"(?P<model>.+)@(?P<step>-?[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2})" if self.columns.step else None
        return self.series.pattern or default

    @property
    def answers(self) -> bool:
        """Answers are counted where the lake has them and a vote is wanted."""
        names = (*self.metrics.names, *self.compare.metrics)
        return self.metrics.names in ((), ("all",)) or any(
            name.strip().lower().startswith(("vote", "cons")) for name in names
        )

    def counting(self) -> dict[str, Any]:
        """The part of the settings that counts depend on; partials are named by it."""
        parts = self.model_dump(mode="json", include={"columns", "protocol", "policy", "duplicates", "window"})
        parts["policy"].pop("max_rejected")
        parts["window"].pop("last")  # `since` follows from it
        parts |= {"measures": self.measured} if self.measures else {}
        return parts | {"levels": list(self.rubric.levels), "carry": list(self.carried)}

    def scoring(self) -> dict[str, Any]:
        """The rest of what the published numbers depend on."""
        parts = {"metrics", "spectra", "uncertainty", "overall", "compare", "rubric", "by", "publish", "series"}
        return self.model_dump(mode="json", include=parts | {"measures"})


def load(config: Path | None = None, below: Mapping[str, Mapping[str, Any]] | None = None, **flags: Any) -> Settings:
    """Settings from an optional TOML file, then dotted flags such as **{"metrics.names": (...)}.

    `below` is what the lake says of itself: defaults, section by section, for what neither of the two says.
    """
    tree: dict[str, Any] = {}
    if config is not None:
        try:
            tree = tomllib.loads(config.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError("no such config file", where=str(config)) from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"cannot be read: {error}", where=str(config)) from None
    for section, keys in (below or {}).items():
        given = tree.get(section, {})
        tree[section] = {**keys, **given} if isinstance(given, dict) else given
    for dotted, value in flags.items():
        if value in (None, ()):
            continue
        *path, last = dotted.split(".")
        branch = tree
        for key in path:
            branch = branch.setdefault(key, {})
        branch[last] = value
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        message, where = _explain(error), str(config or "settings")
        if flags.get("by") and message.startswith("by: "):
            message, where = message.removeprefix("by: "), "--by"
        raise UsageError(message, where=where, hint=_hint(error)) from None


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        key, message = ".".join(str(part) for part in problem["loc"]), problem["msg"].removeprefix("Value error, ")
        plain = key in ("", "by")  # the whole tree, or names that are told already
        wrong = ": ".join(filter(None, (key, message))) + ("" if plain else f", got {problem['input']!r}")
        lines.append(f"unknown key {key}" if problem["type"] == "extra_forbidden" else wrong)
    return "; ".join(lines)


def _hint(error: ValidationError) -> str | None:
    """For an unknown key: the keys that are known at that place."""
    for problem in error.errors():
        if problem["type"] == "extra_forbidden":
            section: Any = Settings
            for part in problem["loc"][:-1]:
                section = section.model_fields[str(part)].annotation
            return f"known keys: {', '.join(section.model_fields)}"
    return None
