"""Stage 2. One shard of attempts -> partial counts per problem; partial counts -> counts per problem.

A partial is a folder named by the fingerprint of its inputs and settings: if it exists, the work is done. Its
rows are sorted by a hash of the problem, so a bucket of problems is a range of rows in every partial, and a
merge reads one bucket at a time whatever the size of the lake.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from scorelake.errors import DataError
from scorelake.lake import File, Shard
from scorelake.settings import Settings
from scorelake.sorting import by_ranks
from scorelake.tables import KEYS
from scorelake.tally import constants, tally

FORMAT = 1
"""Raise when partials of an older version must not be added to new ones."""
HASH = "_hash"
_HASH_SPACE = 1 << 64
_ROW_GROUP = 1 << 16
_NUMERIC = "a number"


class UnreadableError(Exception):
    """A file that cannot be counted; the message is the reason given in the quarantine table."""


@dataclass(frozen=True)
class Task:
    """Count one shard into one partial. Small, frozen and picklable: the same here and on a cluster."""

    shard: Shard
    settings: Settings
    folder: str
    again: bool = False
    """Count even if that has been done."""

    @property
    def name(self) -> str:
        return self.shard.fingerprint(settings=identity(self.settings))


@dataclass(frozen=True)
class Partial:
    """What one shard contributed. `rows` is the balance: read = graded + ungraded + duplicates + rejected."""

    name: str
    files: tuple[File, ...]
    problems: int
    read: int
    graded: int
    ungraded: int
    duplicates: int
    rejected: int
    rejects: tuple[tuple[str, str, int], ...]
    """(file, reason, rows) of what was rejected."""
    quarantine: tuple[tuple[str, str], ...]
    """(file, reason) of what could not be read."""
    top_n: int
    binary: bool
    rewards: bool
    checksum: str


@dataclass(frozen=True)
class Bucket:
    """Add up one range of problem hashes from every partial and write the sorted counts."""

    partials: tuple[str, ...]
    low: int
    high: int
    path: str


def identity(settings: Settings) -> dict[str, Any]:
    """What partial counts depend on besides the files; the hash holds only within one Polars version."""
    return {"format": FORMAT, "polars": pl.__version__, "counting": settings.counting()}


def count(task: Task) -> Partial:
    """Count one shard, or find that it has been counted already."""
    home = Path(task.folder) / task.name
    if (home / "shard.json").exists() and not task.again:
        return load(home)
    counts, partial = _count(task)
    aside = home.with_name(f".{task.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    counts.write_parquet(aside / "counts.parquet", row_group_size=_ROW_GROUP, statistics=True)
    partial = Partial(**{**vars(partial), "checksum": checksum(aside / "counts.parquet")})
    (aside / "shard.json").write_text(json.dumps(asdict(partial) | {"identity": identity(task.settings)}))
    shutil.rmtree(home, ignore_errors=True)
    aside.rename(home)
    return partial


def load(home: Path) -> Partial:
    """A partial as its task left it."""
    told = json.loads((home / "shard.json").read_text())
    told.pop("identity")
    told["files"] = tuple(File(**file) for file in told["files"])
    for key in ("rejects", "quarantine"):
        told[key] = tuple(tuple(entry) for entry in told[key])
    return Partial(**told)


def reusable(folder: Path, files: Sequence[File], settings: Settings) -> list[Partial]:
    """Earlier partials that still hold: same settings, every file as it was, no file counted twice."""
    present, covered, out = set(files), set[File](), []
    for told in sorted(folder.glob("*/shard.json")):
        if json.loads(told.read_text()).get("identity") != identity(settings):
            continue
        partial = load(told.parent)
        mine = set(partial.files)
        if mine <= present and not mine & covered:
            covered |= mine
            out.append(partial)
    return out


def buckets(folder: Path, partials: Sequence[Partial], rows: int, out: Path) -> list[Bucket]:
    """Plan the merge: as many hash ranges as keep one of them to about `rows` partial rows."""
    many = max(1, -(-sum(partial.problems for partial in partials) // rows))
    edges = [_HASH_SPACE * i // many for i in range(many + 1)]
    paths = tuple(str(folder / partial.name / "counts.parquet") for partial in partials)
    return [
        Bucket(paths, low, high - 1, str(out / f"part-{i:05d}.parquet"))
        for i, (low, high) in enumerate(pairwise(edges))
    ]


def merge(bucket: Bucket) -> dict[str, int]:
    """Add up one bucket; returns for each carried column how many problems had differing values."""
    span = pl.col(HASH).is_between(pl.lit(bucket.low, pl.UInt64), pl.lit(bucket.high, pl.UInt64))
    frames = [pl.scan_parquet(path, glob=False).filter(span) for path in bucket.partials]
    merged = pl.concat(frames, how="vertical_relaxed")
    names = merged.collect_schema().names()
    sums = [pl.col(name).sum() for name in ("n", "c", "ungraded") if name in names]
    carried = [name.removeprefix("min:") for name in names if name.startswith("min:")]
    ends = [pl.col(f"min:{c}").min() for c in carried] + [pl.col(f"max:{c}").max() for c in carried]
    if len(bucket.partials) == 1:
        counts = merged.collect()  # a problem is in a partial once
    elif "rewards" in names:
        counts = _merge_rewards(merged, [*sums, *ends])
    else:
        counts = merged.group_by(KEYS).agg(*sums, *ends).collect(engine="streaming")
    if "c" not in names:
        counts = counts.with_columns(c=pl.lit(None, pl.Int64))
    differing = {c: int((counts[f"min:{c}"] != counts[f"max:{c}"]).sum()) for c in carried}
    lists = [name for name in ("rewards", "reward_counts") if name in names]
    final = by_ranks(counts, KEYS).select(
        *KEYS, "n", "c", "ungraded", *(pl.col(f"min:{c}").alias(c) for c in carried), *lists
    )
    pq.write_table(final.to_arrow(), bucket.path, compression="zstd")  # DuckDB loads these twice as fast as Polars'
    return differing


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- one shard --------------------------------------------------------------------------------------------


def _count(task: Task) -> tuple[pl.DataFrame, Partial]:
    good: list[tuple[File, pl.LazyFrame, int]] = []
    quarantine: list[tuple[str, str]] = []
    for file in task.shard.files:
        try:
            frame, rows = _open(task, file)
            if good:
                _fits(good[0], frame)
            good.append((file, frame, rows))
        except UnreadableError as reason:
            quarantine.append((file.path, str(reason)))
    try:
        grouped = _group(good)
    except Exception as error:  # one of the files is broken inside: find out which, alone
        good, broken = _sieve(good)
        if not broken:
            paths = ", ".join(file.path for file, *_ in good[:3])
            raise DataError(f"the files cannot be counted together: {_line(error)}", where=paths) from error
        quarantine += broken
        grouped = _group(good)
    for file in task.shard.files:
        _unchanged(task.shard.root, file)
    return _settle(task, grouped, good, quarantine)


def _open(task: Task, file: File) -> tuple[pl.LazyFrame, int]:
    """A file's attempts under canonical names, lazily, and its number of rows by its own footer."""
    path = os.path.join(task.shard.root, file.path)
    if file.size == 0:
        raise UnreadableError("the file is empty (0 bytes)")
    try:
        footer = pq.read_metadata(path)
        schema = pl.read_parquet_schema(path)
    except Exception as error:
        raise UnreadableError(f"not a readable Parquet file: {_line(error)}") from None
    frame = pl.scan_parquet(path, hive_partitioning=False, glob=False).with_columns(constants(footer, schema))
    return frame.select(_attempts(task.settings, dict(schema), file.hive)), footer.num_rows


def _fits(first: tuple[File, pl.LazyFrame, int], frame: pl.LazyFrame) -> None:
    """Files of one lake have the same outcome columns, or their numbers would not mean the same."""
    outcomes = [
        [name.removeprefix("_") for name in f.collect_schema().names() if name in ("_passed", "_score")]
        for f in (first[1], frame)
    ]
    if outcomes[0] != outcomes[1]:
        has, there = (" and ".join(names) for names in (outcomes[1], outcomes[0]))
        raise UnreadableError(f"outcome columns differ between files: {has} here, {there} in {first[0].path}")


def _group(files: list[tuple[File, pl.LazyFrame, int]]) -> pl.DataFrame:
    """Counts per key of all files; with rewards, also per distinct reward."""
    return tally([frame for _, frame, _ in files], [rows for *_, rows in files])


def _sieve(
    files: list[tuple[File, pl.LazyFrame, int]],
) -> tuple[list[tuple[File, pl.LazyFrame, int]], list[tuple[str, str]]]:
    """Try files one at a time: those that can be counted, and the others with the reason."""
    good, broken = [], []
    for file, frame, rows in files:
        try:
            _group([(file, frame, rows)])
            good.append((file, frame, rows))
        except Exception as error:
            broken.append((file.path, f"cannot be read to its end: {_line(error)}"))
    return good, broken


def _settle(
    task: Task,
    grouped: pl.DataFrame,
    good: list[tuple[File, pl.LazyFrame, int]],
    quarantine: list[tuple[str, str]],
) -> tuple[pl.DataFrame, Partial]:
    """Check the balance, set rejected rows apart, and bring the counts into their final shape."""
    told = {
        "name": task.name,
        "files": task.shard.files,
        "duplicates": 0,
        "quarantine": tuple(quarantine),
        "checksum": "",
    }
    if not good:
        empty = pl.DataFrame(
            schema={HASH: pl.UInt64, **dict.fromkeys(KEYS, pl.String), "n": pl.Int64, "ungraded": pl.Int64}
        )
        zero = dict.fromkeys(("problems", "read", "graded", "ungraded", "rejected", "top_n"), 0)
        return empty, Partial(**told, **zero, rejects=(), binary=False, rewards=False)  # type: ignore[arg-type]
    read = int(grouped["rows"].sum())
    expected = sum(rows for *_, rows in good)
    if read != expected:
        raise DataError(
            f"{read:,} rows were read where the files' footers say {expected:,}",
            where=", ".join(file.path for file, *_ in good[:3]),
            hint="the file is damaged, or was replaced while being read: run again",
        )
    nameless = pl.any_horizontal(pl.col(key).is_null() for key in KEYS if key != "protocol")
    rejected = int(grouped.select(pl.when(nameless).then("rows").otherwise("bad").sum()).item())
    rejects = _rejects(good) if rejected else ()
    counts = grouped.filter(~nameless).with_columns(ungraded=pl.col("rows") - pl.col("n") - pl.col("bad"))
    counts = _with_protocol(counts, task.settings)
    if "_score" in counts.columns:
        counts = _fold_rewards(counts)
    counts = counts.drop("rows", "bad").filter((pl.col("n") > 0) | (pl.col("ungraded") > 0))
    counts = counts.with_columns(pl.struct(KEYS).hash().alias(HASH)).sort(HASH, *KEYS)
    graded, ungraded = int(counts["n"].sum()), int(counts["ungraded"].sum())
    if read != graded + ungraded + rejected:
        raise AssertionError(f"row accounting: {read} != {graded} + {ungraded} + {rejected}")
    return counts.select(HASH, pl.exclude(HASH)), Partial(
        **told,  # type: ignore[arg-type]
        problems=counts.height,
        read=read,
        graded=graded,
        ungraded=ungraded,
        rejected=rejected,
        rejects=rejects,
        top_n=int(counts["n"].max() or 0),  # type: ignore[arg-type]
        binary="c" in counts.columns,
        rewards="rewards" in counts.columns,
    )


def _with_protocol(counts: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """One `protocol` column: canonical JSON of the protocol columns, empty without any."""
    given = [f"protocol {name}" for name in settings.protocol.columns]
    if not given:
        return counts.with_columns(protocol=pl.lit(""))
    plain = counts.select(pl.col(column).alias(column.removeprefix("protocol ")) for column in given)
    text = plain.select(protocol=pl.struct(pl.all()).struct.json_encode())
    return counts.drop(given).with_columns(text)


def _fold_rewards(counts: pl.DataFrame) -> pl.DataFrame:
    """From one row per problem and reward to one row per problem with the list of its rewards."""
    others = [name for name in counts.columns if name not in (*KEYS, "_score", "n")]
    graded = pl.col("n") > 0
    return counts.group_by(KEYS).agg(
        pl.col("n").sum().alias("n"),
        *(_combine(name) for name in others),
        pl.col("_score").filter(graded).sort_by(pl.col("_score").filter(graded)).alias("rewards"),
        pl.col("n").filter(graded).sort_by(pl.col("_score").filter(graded)).alias("reward_counts"),
    )


def _combine(name: str) -> pl.Expr:
    column = pl.col(name)
    if name.startswith("min:"):
        return column.min()
    return column.max() if name.startswith("max:") else column.sum()


def _merge_rewards(partials: pl.LazyFrame, columns: list[pl.Expr]) -> pl.DataFrame:
    """Add up problems whose rewards are lists: the plain columns, and the lists reward by reward."""
    plain = partials.group_by(KEYS).agg(columns)
    lists = (
        partials.select(*KEYS, "rewards", "reward_counts")
        .explode("rewards", "reward_counts")
        .drop_nulls("rewards")
        .group_by(*KEYS, "rewards")
        .agg(pl.col("reward_counts").sum())
        .group_by(KEYS)
        .agg(pl.col("rewards").sort(), pl.col("reward_counts").sort_by("rewards"))
    )
    return plain.join(lists, on=KEYS, how="left", nulls_equal=True).collect(engine="streaming")


def _rejects(good: list[tuple[File, pl.LazyFrame, int]]) -> tuple[tuple[str, str, int], ...]:
    """Which files hold the rejected rows, and why; a second look, only when there are any."""
    out = []
    for file, frame, _ in good:
        keys = [key for key in KEYS if key != "protocol"]
        per_file = frame.select(
            *(pl.col(key).is_null().sum().cast(pl.Int64).alias(f"no {key}") for key in keys),
            (pl.col("_bad") & ~pl.any_horizontal(pl.col(key).is_null() for key in keys))
            .sum()
            .cast(pl.Int64)
            .alias("not a valid outcome, or in conflict with the folder's name"),
        ).collect()
        out += [(file.path, reason, rows) for reason, rows in per_file.row(0, named=True).items() if rows]
    return tuple(out)


def _unchanged(root: str, file: File) -> None:
    try:
        stat = os.stat(os.path.join(root, file.path))
        same = (stat.st_size, stat.st_mtime_ns) == (file.size, file.mtime_ns)
    except FileNotFoundError:
        same = False
    if not same:
        raise DataError("the file changed or vanished while the lake was read", where=file.path, hint="run again")


def _line(error: Exception) -> str:
    """The first line of a library's message, without our own path in it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# --- one file's columns under canonical names ----------------------------------------------------------------


def _attempts(settings: Settings, schema: dict[str, pl.DataType], hive: dict[str, str | None]) -> list[pl.Expr]:
    """Expressions for keys, carried columns and outcome; `_bad` marks a row whose outcome is not valid."""
    names = settings.columns
    bad: list[pl.Expr] = []
    keys = [
        _key(schema, hive, names.benchmark, bad, default="default").alias("benchmark"),
        _key(schema, hive, names.subject, bad, default="all").alias("subject"),
        _key(schema, hive, names.model, bad, setting="model").alias("model"),
        _key(schema, hive, names.problem_id, bad, setting="problem_id").alias("problem_id"),
        *(_any(schema, hive, name, "protocol").alias(f"protocol {name}") for name in settings.protocol.columns),
        *(_any(schema, hive, name, "carry").alias(f"carry:{name}") for name in settings.carried),
    ]
    passed, score = _outcome(settings, schema, bad)
    invalid = pl.any_horizontal(flag.fill_null(value=False) for flag in bad) if bad else pl.lit(value=False)
    known = pl.all_horizontal(column.is_not_null() for column in (passed, score) if column is not None)
    graded = known & ~invalid
    outcome = [invalid.alias("_bad"), graded.alias("_graded")]
    if passed is not None:
        outcome.append((passed.fill_null(value=False) & graded).alias("_passed"))
    if score is not None:
        outcome.append(pl.when(graded).then(score + 0.0).alias("_score"))  # + 0.0: one zero, not two
    return [*keys, *outcome]


def _key(
    schema: dict[str, pl.DataType],
    hive: dict[str, str | None],
    name: str,
    bad: list[pl.Expr],
    default: str | None = None,
    setting: str = "",
) -> pl.Expr:
    """A key as a string, from the column or the folder; where both exist they must agree."""
    if name not in schema:
        if name in hive:
            return pl.lit(hive[name], pl.String)
        if default is not None:
            return pl.lit(default)
        raise UnreadableError(_missing(name, setting, schema, hive))
    kind = schema[name]
    if not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Binary, pl.Null)):
        raise UnreadableError(f"column {name} is {kind}; it must be a string or an integer")
    text = pl.col(name).cast(pl.String, strict=False)
    if name in hive:
        bad.append(text.ne_missing(pl.lit(hive[name], pl.String)))
    return text


def _any(schema: dict[str, pl.DataType], hive: dict[str, str | None], name: str, setting: str) -> pl.Expr:
    """A protocol or carried column, of whatever type it is."""
    if name in schema:
        return pl.col(name).cast(pl.String) if schema[name] in (pl.Categorical, pl.Enum) else pl.col(name)
    if name in hive:
        return pl.lit(hive[name], pl.String)
    raise UnreadableError(_missing(name, setting, schema, hive))


def _outcome(
    settings: Settings, schema: dict[str, pl.DataType], bad: list[pl.Expr]
) -> tuple[pl.Expr | None, pl.Expr | None]:
    """The verdict (boolean) and the reward (float) of an attempt, each null where ungraded or absent."""
    names, policy = settings.columns, settings.policy
    passed = score = None
    if names.score in schema:
        score = _score(settings, schema[names.score], bad)
    if names.passed in schema:
        passed = _passed(names.passed, schema[names.passed], bad)
    elif score is not None and policy.pass_threshold is not None:
        passed = score >= policy.pass_threshold
    if passed is None and score is None:
        raise UnreadableError(_missing(names.passed, "passed", schema, {}, also=f" and no {names.score}"))
    if policy.ungraded == "fail":
        lowest = min(settings.rubric.levels, default=0.0)
        passed = None if passed is None else passed.fill_null(value=False)
        score = None if score is None else score.fill_null(lowest)
    return passed, score


def _passed(name: str, kind: pl.DataType, bad: list[pl.Expr]) -> pl.Expr:
    column = pl.col(name)
    if kind == pl.Null:
        return column.cast(pl.Boolean)
    if kind == pl.Boolean:
        return column
    if not kind.is_numeric():
        raise UnreadableError(f"column {name} is {kind}; it must be boolean, 0/1 or 0.0/1.0")
    bad.append((column != 0) & (column != 1))
    return column == 1


def _score(settings: Settings, kind: pl.DataType, bad: list[pl.Expr]) -> pl.Expr:
    name, levels = settings.columns.score, settings.rubric.levels
    if not (kind.is_numeric() or kind == pl.Null):
        raise UnreadableError(f"column {name} is {kind}; it must be {_NUMERIC}")
    column = pl.col(name)
    number = column.cast(pl.Float64)
    if not levels:
        bad.append(number.is_nan() | number.is_infinite())
        return number
    # compare in the column's own precision, then use the level as the config spells it
    exact = pl.coalesce(pl.when(column == pl.lit(level).cast(kind)).then(pl.lit(level)) for level in levels)
    bad.append(column.is_not_null() & exact.is_null())
    return exact


def _missing(
    name: str, setting: str, schema: dict[str, pl.DataType], hive: dict[str, str | None], also: str = ""
) -> str:
    found = ", ".join([*schema, *(f"{key} (folder)" for key in hive)]) or "none"
    where = f'[columns] {setting} = "..."' if setting in Settings().columns.model_dump() else f"[{setting}]"
    return f"no column {name}{also}; found: {found}; map yours in the config with {where}"
