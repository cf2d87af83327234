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

GOLD_COLUMNS = ("gold_n", "gold_c", "gold_judged", "gold_both")
"""Columns of problem_counts: graded attempts with a trusted grade; those passed by it, as judged and both ways."""
RESERVED = (
    *("benchmark", "subject", "model", "protocol", "problem_id", "n", "c", "ungraded", "k", "_group", "_name"),
    *("rewards", "reward_counts", "answer_counts", "answer_passes", "reward_mean", "reward_max", "metric", "value"),
    *("prior_n", "prior_c", "prior_rewards", "prior_reward_counts", "pass_at_k", "pass_hat_k"),
    *GOLD_COLUMNS,
)
"""Names of our own output columns, which a carried column cannot take."""
_SUMS = ("sum", "squares", "count")
MEASURE_COLUMNS = (*(f"{of}{what}" for of in ("", "passed_", "ungraded_") for what in _SUMS), "max", "passed_bins")
"""Suffixes of the columns of a measure in problem_counts: graded, passed and ungraded attempts."""
UNIFORM = (1.0, 1.0)
PRIORS = {"uniform": UNIFORM, "jeffreys": (0.5, 0.5), "empirical": None}
"""Named priors. The empirical prior is estimated per model and benchmark."""
COMPOSITE = ("model", "benchmark", "subject", "problem_id")
"""Keys of [columns] that may name several columns."""
NAMING = (*COMPOSITE, "attempt", "passed", "score", "answer", "cluster", "step", "gold")


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} is named twice")
    return names


Share = Annotated[float, Field(ge=0, le=1)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Lake(Part):
    exclude: tuple[str, ...] = ()  # patterns of paths to leave out, such as date=2026-02-04/*; * matches slashes too


class Columns(Part):
    """The column or Hive key of each field. A field may have several columns, whose values are joined by `@`."""

    model: str | tuple[str, ...] = "model"
    benchmark: str | tuple[str, ...] = "benchmark"
    subject: str | tuple[str, ...] = "subject"
    problem_id: str | tuple[str, ...] = "problem_id"
    attempt: str = "attempt"
    passed: str = "passed"
    score: str = "score"
    answer: str = "answer"
    pass_values: tuple[str, ...] = ()  # texts that mean passed; other texts mean failed
    fail_values: tuple[str, ...] = ()  # texts that mean failed; texts in neither list are rejected
    cluster: str | None = None
    step: str | None = None  # training step or date, appended to the model: run@100
    gold: str | None = None  # trusted grade of some attempts, written like `passed`: judges `passed`
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
            raise ValueError("fail_values need pass_values")
        return self


def _free(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return distinct names; raise if one is reserved, or two differ only in case, which DuckDB ignores."""
    once = tuple(dict.fromkeys(names))
    if taken := sorted(name for name in once if name.lower() in RESERVED):
        raise ValueError(f"{', '.join(taken)} is a column of the output already")
    lower = [name.lower() for name in once]
    if same := sorted(name for name in once if lower.count(name.lower()) > 1):
        raise ValueError(f"{' and '.join(same)} differ only in case, which DuckDB does not tell apart")
    return once


class Protocol(Part):
    """Columns that identify the evaluation protocol. Different protocols are never pooled."""

    columns: tuple[str, ...] = ()
    _once = field_validator("columns")(_unique)


class Policy(Part):
    """Treatment of rows without a plain verdict."""

    pass_threshold: float | None = None
    ungraded: Literal["exclude", "fail", "error"] = "exclude"
    sampling: Literal["all", "first"] = "all"  # first: as many attempts per problem as all problems of the model have
    max_rejected: int = Field(0, ge=0)


class Measure(Part):
    """A numeric column with the cost of an attempt."""

    kind: Literal["cost", "tokens", "time"]
    column: str | None = None  # by default the name of the measure


class Duplicates(Part):
    """Rows with the same attempt id. `rule` decides between different verdicts; by default the run fails."""

    policy: Literal["auto", "off", "exact"] = "auto"
    rule: Literal["error", "first", "last", "any-pass", "all-pass"] = "error"


class GateRule(Part):
    candidate: str = "*"
    base: str = "previous"
    metric: str = "pass@1"
    margin: float = Field(0.02, ge=0)


class Gates(Part):
    """Conditions for publishing; a run that fails one publishes nothing."""

    max_ungraded_share: Share = 1.0
    max_rejected_share: Share = 1.0
    max_quarantined_share: Share = 1.0
    min_model_problems: int = Field(0, ge=0)
    min_model_attempts: int = Field(0, ge=0)
    max_fall: float | None = Field(None, ge=0)
    max_cost_rise: float | None = Field(None, ge=0)  # of any measure per attempt, as a share
    metric: str = "pass@1"
    rule: tuple[GateRule, ...] = ()


class Publish(Part):
    max_problems: int = Field(20_000_000, ge=0)  # larger tables are left in the Parquet files of the snapshot


class Rubric(Part):
    """The possible values of `score`, each with a weight (default: the value)."""

    levels: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    prior: tuple[Annotated[float, Field(ge=0)], ...] = ()  # prior counts per level, added to one of each
    bounds: tuple[float, float] | None = None  # range of scores without levels

    @model_validator(mode="after")
    def _same_length(self) -> Rubric:
        if self.bounds is not None and self.levels:
            raise ValueError("levels define the bounds: set only one of the two")
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
        """Prior counts per level; empty if none are set."""
        return dict(zip(self.levels, self.prior, strict=True)) if self.prior else {}


class Metrics(Part):
    """Metrics to compute. Default: the common ones at k = 1, 2, 4, ...; "all": every family."""

    names: tuple[str, ...] = ()
    spectrum: tuple[float, ...] = ()


class Uncertainty(Part):
    confidence: float = Field(0.95, gt=0, le=1 - 1e-9)
    min_coverage: Share = 0.9
    prior: str | tuple[float, float] = "uniform"  # per problem: a name in PRIORS or Beta pseudo-counts
    prior_lake: str | None = None  # earlier attempts of the same models and problems, used as prior counts
    bounds: tuple[float, float] | None = None  # of the posterior interval; default: those of the metric

    @field_validator("prior", "bounds")
    @classmethod
    def _check_pair(cls, given: Any, info: ValidationInfo) -> Any:
        if isinstance(given, str) and given not in PRIORS:
            raise ValueError(f"must be {', '.join(PRIORS)} or two pseudo-counts")
        if info.field_name == "prior" and not isinstance(given, str) and min(given) <= 0:
            raise ValueError("both pseudo-counts must be > 0")
        if info.field_name == "bounds" and given is not None and given[0] > given[1]:
            raise ValueError("the first must not exceed the second")
        return given

    @property
    def pseudo_counts(self) -> tuple[float, float] | None:
        """Alpha and beta of the prior; None for the empirical prior."""
        return PRIORS[self.prior] if isinstance(self.prior, str) else self.prior


class Overall(Part):
    weights: dict[str, Annotated[float, Field(ge=0)]] = {}  # per benchmark: default 1; 0 excludes it


class Compare(Part):
    """Paired comparisons and ranks. Default metrics: those of [metrics], else pass@1 or avg@N."""

    metrics: tuple[str, ...] = ()
    resamples: int = Field(10_000, ge=100, le=10_000_000)
    seed: int = Field(0, ge=0)
    min_problems: int = Field(20, ge=2)  # common problems that a comparison needs
    min_share: Share = 0.9  # share of the problems that a ranked model has attempted
    margin: float | None = Field(None, gt=0)  # differences below it do not matter
    max_pairs: int = Field(1_000_000, ge=1)  # with more pairs, models are compared with leaders and neighbours only


class Window(Part):
    """Count only the newest rows, by a column or folder key of dates, times or whole numbers."""

    column: str | None = None
    last: Annotated[str, Field(pattern=r"^[0-9]+[hdw]?$")] | None = None  # before the newest value: 7d, 12h, 2w, 3
    since: str | None = None  # computed from `last` if that is set

    @model_validator(mode="after")
    def _has_column(self) -> Window:
        if (self.column is None) != (self.last is None and self.since is None):
            raise ValueError("needs a column, and last or since")
        return self


class SeriesNames(Part):
    """Models whose names are points of a series; the pattern has the groups `model` and `step`."""

    pattern: str | None = None

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
    """Resources. They do not change results."""

    memory_gb: float | None = Field(None, gt=0)  # sets the size of shards; default: half of the machine
    shard_mb: float | None = Field(None, gt=0)
    bucket_rows: int | None = Field(None, gt=0)
    threads: int | None = Field(None, gt=0)  # per task; default: all cores, on a cluster 1

    @property
    def memory(self) -> float:
        return self.memory_gb or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**31

    @property
    def shard_size(self) -> float:
        """Megabytes of files per shard: an estimate, since memory depends on the number of keys."""
        return self.shard_mb or max(16.0, 512 * self.memory)


class Storage(Part):
    """Limits for requests to object storage. Addresses and credentials come from the environment."""

    timeout_s: float = Field(30.0, gt=0)  # a request without a response for this long is repeated
    retry_s: float = Field(180.0, gt=0)  # the run fails if a request fails for this long


PATIENCE = Storage()


class Settings(Part):
    lake: Lake = Lake()
    columns: Columns = Columns()
    protocol: Protocol = Protocol()
    policy: Policy = Policy()
    duplicates: Duplicates = Duplicates()
    rubric: Rubric = Rubric()
    metrics: Metrics = Metrics()
    spectra: dict[str, tuple[float, ...]] = {}  # weights w_1..w_k of spectrum-NAME@k and geo-spectrum-NAME@k_L
    uncertainty: Uncertainty = Uncertainty()
    overall: Overall = Overall()
    gates: Gates = Gates()
    publish: Publish = Publish()
    compare: Compare = Compare()
    window: Window = Window()
    series: SeriesNames = SeriesNames()
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
        if self.gates.max_cost_rise is not None and not self.measures:
            raise ValueError("[gates] max_cost_rise needs [measures]")
        _free(self.carried)
        _free((*self.carried, *(f"{name}_{end}" for name in self.measures for end in MEASURE_COLUMNS)))
        return self

    @property
    def measured(self) -> dict[str, str]:
        """Return the column of each measure."""
        return {name: measure.column or name for name, measure in self.measures.items()}

    @property
    def carried(self) -> tuple[str, ...]:
        """Return all carried columns, including slices and clusters."""
        cluster = (self.columns.cluster,) if self.columns.cluster not in (None, "subject") else ()
        return tuple(dict.fromkeys((*self.columns.carry, *self.by, *cluster)))

    @property
    def used(self) -> set[str]:
        """Return every column that the counts depend on."""
        keys = [key for key in NAMING if key != "answer" or self.answers]
        named = (*self.carried, *self.protocol.columns, *self.measured.values(), *filter(None, [self.window.column]))
        return {*(name for key in keys for name in self.columns.parts(key)), *named}

    @property
    def series_pattern(self) -> str | None:
        """Return the regular expression of series; None without series."""
        default = r"(?P<model>.+)@(?P<step>-?[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2})" if self.columns.step else None
        return self.series.pattern or default

    @property
    def answers(self) -> bool:
        """Return whether a metric needs the answers."""
        names = [name.strip().lower() for name in (*self.metrics.names, *self.compare.metrics)]
        return self.metrics.names in ((), ("all",)) or any(name.startswith(("vote", "cons")) for name in names)

    def counting(self) -> dict[str, Any]:
        """Return the settings that counts depend on; the names of partials depend on them."""
        parts = self.model_dump(mode="json", include={"columns", "protocol", "policy", "duplicates", "window"})
        for later in ("max_rejected", "sampling"):
            parts["policy"].pop(later)
        parts["window"].pop("last")  # `since` follows from it
        parts |= {"measures": self.measured} if self.measures else {}
        return parts | {"levels": list(self.rubric.levels), "carry": list(self.carried)}

    def scoring(self) -> dict[str, Any]:
        """Return the other settings that published numbers depend on."""
        parts = {"metrics", "spectra", "uncertainty", "overall", "compare", "rubric", "by", "publish", "series"}
        return self.model_dump(mode="json", include=parts | {"measures"}) | {"sampling": self.policy.sampling}


def load(config: Path | None = None, below: Mapping[str, Mapping[str, Any]] | None = None, **flags: Any) -> Settings:
    """Return settings: those in `below`, then a TOML file, then flags such as **{"metrics.names": (...)}."""
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
        (message, hint), where = _explain(error), str(config or "settings")
        if flags.get("by") and message.startswith("by: "):
            message, where = message.removeprefix("by: "), "--by"
        raise UsageError(message, where=where, hint=hint) from None


def _explain(error: ValidationError) -> tuple[str, str | None]:
    """Return all problems, and for the first unknown key the known ones."""
    lines, hint = [], None
    for problem in error.errors():
        key, message = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            section: Any = Settings
            for part in problem["loc"][:-1]:
                section = section.model_fields[str(part)].annotation
            hint = hint or f"known keys: {', '.join(section.model_fields)}"
            lines.append(f"unknown key {key}")
        elif key in ("", "by"):  # the message has the value
            lines.append(": ".join(filter(None, (key, message))))
        else:
            lines.append(f"{key}: {message}, got {problem['input']!r}")
    return "; ".join(lines), hint
