"""Stage 2. One shard of attempts -> partial counts per problem; partial counts -> counts per problem.

A partial is a folder named by the fingerprint of its inputs and settings: if it exists, the work is done. Its
rows are sorted by a hash of the problem, so a bucket of problems is a range of rows in every partial, and a
merge reads one bucket at a time whatever the size of the lake.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from scorelake import answers, checksums, duplicates, footer
from scorelake.aside import beside, remove, replace_folder
from scorelake.coded import (
    DICTIONARIES,
    HASH,
    ROW_GROUP,
    Counted,
    added_by_hash,
    as_dictionary,
    bucket_table,
    by_hash,
    hashed,
    ranked,
    required,
    widened,
    write,
)
from scorelake.compact import shape
from scorelake.engines import Engine, local
from scorelake.errors import DataError, ScorelakeError, StorageError
from scorelake.lake import File, Shard, at_hand
from scorelake.settings import Settings
from scorelake.sorting import by_ranks
from scorelake.storage import checksum, is_remote, writing
from scorelake.tables import COUNTS, KEYS, LISTS, NAMED
from scorelake.tally import Shape, constants, tally, with_ends
from scorelake.threads import side_by_side

if TYPE_CHECKING:
    from scorelake.mirror import Mirror

FORMAT = 2
"""Raise when partials of an older version must not be added to new ones."""
_HASH_SPACE = 1 << 64
MERGED = 1 << 19
"""Rows of a bucket made of pieces that share no problem: large enough to be worth a file."""
MANY, LARGE, NEVER = 1 << 20, 1 << 22, sys.maxsize
"""Rows of a shard, or bytes of several, from which on compiled code is worth loading; and the rows for not at all."""
BROKEN = (Exception, pl.exceptions.PanicException)
"""What a broken file can make a reader do; a panic is not an Exception."""
OURS = (AssertionError, AttributeError, ImportError, NameError)
"""What no file can cause: a defect of the program or of its installation, not to be told as a broken file."""
_TEXTS = (pl.String, pl.Categorical, pl.Enum, pl.Binary, pl.Null)
Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)
Schema: TypeAlias = dict[str, pl.DataType]


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
    compiled: bool = False
    """Use compiled code, however small the shard is."""
    mirror: Mirror | None = None
    """The folder belongs to a mirror of an output in object storage, which gets the partial too."""

    @property
    def name(self) -> str:
        return self.shard.fingerprint(settings=identity(self.settings))


@dataclass(frozen=True)
class Partial:
    """What one shard contributed; read = graded + ungraded + rejected, duplicates still among them."""

    name: str
    files: tuple[File, ...]
    problems: int
    read: int
    graded: int
    ungraded: int
    rejected: int
    rejects: tuple[tuple[str, str, int], ...]
    """(file, reason, rows) of what was rejected."""
    quarantine: tuple[tuple[str, str], ...]
    """(file, reason) of what could not be read."""
    binary: bool
    rewards: bool
    pieces: tuple[str, ...]
    """Names of the files that hold the counts."""
    overlap: bool
    """Whether a problem may be in several pieces, as when they were made to keep within memory."""
    words: int
    """Sums of powers kept per problem and kind to find duplicate attempts; 0 without attempt numbers."""
    spelled: tuple[str, ...]
    """Names of the files that hold every attempt, where sums could not prove that there are no duplicates."""
    answers: Literal["none", "ignored", "counted"]
    """Whether the files have answers to vote with, and what was done with them."""
    answer_rows: int
    """Problems x their answers, in a file of their own; 0 where attempts are spelled out, answers and all."""
    checksum: str

    def enough(self, settings: Settings) -> bool:
        """Nothing that is wanted now was ignored then."""
        return self.answers != "ignored" or not settings.answers


@dataclass(frozen=True)
class Bucket:
    """Add up one range of problem hashes from every partial and write the sorted counts."""

    folder: str
    partials: tuple[Partial, ...]
    low: int
    high: int
    path: str
    rule: str
    """Which of several verdicts for one attempt counts."""
    answers: bool = False
    """Whether answers are wanted."""
    mirror: Mirror | None = None
    """Set where other machines made the partials, or will use what comes of them."""


@dataclass(frozen=True)
class Merged:
    """What one bucket came to."""

    graded: int
    ungraded: int
    duplicates: int
    conflicts: int
    examples: tuple[tuple[str, ...], ...]
    """Keys and attempt of the first few conflicts."""
    differing: dict[str, int]
    """For each carried column, how many problems had more than one value."""


def identity(settings: Settings) -> dict[str, Any]:
    """What partial counts depend on besides the files; the hash holds only within one Polars version."""
    return {"format": FORMAT, "polars": pl.__version__, "counting": settings.counting()}


def count(task: Task) -> Partial:
    """Count one shard, or find that it has been counted already. Many may count at once, even the same shard."""
    if task.mirror is None:
        return _make(task)
    home = Path(task.folder) / task.name
    with writing(home.parent):
        home.parent.mkdir(parents=True, exist_ok=True)
        sent = not task.again and task.mirror.bring(f"partials/{task.name}") and finished(home) is not None
    partial = _make(task)
    if not sent:
        task.mirror.send(home)
    return partial


def count_all(tasks: Sequence[Task]) -> list[Partial]:
    """Count small shards side by side; together they need the memory of a large one."""
    if len(tasks) == 1 or any(task.mirror or is_remote(task.shard.root) for task in tasks):
        return [count(task) for task in tasks]  # what waits for a store must be free to be interrupted
    large = sum(task.shard.size for task in tasks) >= LARGE
    alone = [replace(task, settings=task.settings.alone(), compiled=large) for task in tasks]
    return side_by_side(count, alone, pl.thread_pool_size())


def _make(task: Task) -> Partial:
    home = Path(task.folder) / task.name
    done = None if task.again else finished(home)
    if done is not None and done.enough(task.settings):
        return done
    aside = beside(home)
    try:
        with writing(aside):
            home.parent.mkdir(exist_ok=True)  # not its parents: without those, this machine does not see the output
            aside.mkdir()
        with at_hand(task.shard, aside / "lake", task.settings) as shard:
            partial = _count(replace(task, shard=shard), aside)
        with writing(home):
            partial = replace(partial, checksum=checksum(*_contents(aside, partial)))
            (aside / "shard.json").write_text(json.dumps(asdict(partial) | {"identity": identity(task.settings)}))
            replace_folder(aside, home)
    except BaseException:
        remove(aside)
        raise
    return partial


def finished(home: Path) -> Partial | None:
    """The partial that is there, if it is whole; not if it is made anew or removed while we look."""
    told = _told(home)
    partial = None if told is None else _partial(told)
    return partial if partial is not None and _sound(home, partial) else None


def _contents(home: Path, partial: Partial) -> list[Path]:
    counted = ["answers.parquet"] if partial.answer_rows else []
    return [home / name for name in (*partial.pieces, *partial.spelled, *counted)]


def _told(home: Path) -> dict[str, Any] | None:
    """What a task left beside its counts; None if there is nothing readable."""
    try:
        told = json.loads((home / "shard.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _partial(told: dict[str, Any]) -> Partial:
    told = {key: value for key, value in told.items() if key != "identity"}
    told["files"] = tuple(File(**file) for file in told["files"])
    for key in ("rejects", "quarantine"):
        told[key] = tuple(tuple(entry) for entry in told[key])
    told["pieces"], told["spelled"] = tuple(told["pieces"]), tuple(told["spelled"])
    return Partial(**told)


def known(folder: Path, files: Sequence[File], settings: Settings) -> list[Partial]:
    """Earlier partials of the same settings with every file as it was and enough counted, by their own word."""
    present, out = set(files), []
    for home in sorted(path.parent for path in folder.glob("[!.]*/shard.json")):
        told = _told(home)
        if told is not None and told.get("identity") == identity(settings):
            partial = _partial(told)
            if present.issuperset(partial.files) and partial.enough(settings):
                out.append(partial)
    return out


def reusable(folder: Path, files: Sequence[File], settings: Settings, engine: Engine = local) -> list[Partial]:
    """Earlier partials that still hold: known, sound, no file counted twice."""
    found = known(folder, files, settings)
    covered, out = set[File](), []
    for partial, sound in zip(found, engine.map(is_sound, [str(folder / p.name) for p in found]), strict=True):
        if sound and covered.isdisjoint(partial.files):
            covered.update(partial.files)
            out.append(partial)
    return out


def is_sound(home: str) -> bool:
    """A task: what is in a partial's folder is what was written. Its bytes are read where the task runs."""
    return finished(Path(home)) is not None


def _sound(home: Path, partial: Partial) -> bool:
    """What is on the disk is what was written; if not, the shard is simply counted again."""
    try:
        return checksum(*_contents(home, partial)) == partial.checksum
    except FileNotFoundError:
        return False


def buckets(
    folder: Path,
    partials: Sequence[Partial],
    rows: int,
    out: Path,
    rule: str,
    answered: bool = False,
    mirror: Mirror | None = None,
) -> list[Bucket]:
    """Plan the merge: as many hash ranges as keep one of them to about `rows` partial rows.

    Where there is one partial and its pieces share no problem, they are buckets as they are.
    """
    # one name per partial is all a merge needs; the list of files would go to every bucket
    filled = tuple(replace(p, files=p.files[:1], rejects=(), quarantine=()) for p in partials if p.problems)
    size = weight(filled)
    answered = answered and any(partial.answers == "counted" for partial in filled)
    edges = [_HASH_SPACE * i // max(1, -(-size // rows)) for i in range(max(1, -(-size // rows)) + 1)]
    parts = [(filled, low, high - 1) for low, high in pairwise(edges)]
    if len(filled) == 1 and not (filled[0].overlap or filled[0].spelled or answered):
        parts = [((piece,), 0, _HASH_SPACE - 1) for piece in _apart(filled[0], min(rows, MERGED))]
    return [
        Bucket(str(folder), some, low, high, str(out / f"part-{i:05d}.parquet"), rule, answered, mirror)
        for i, (some, low, high) in enumerate(parts)
    ]


def _apart(partial: Partial, rows: int) -> list[Partial]:
    """A partial as several, each of some of its pieces, with about so many rows together."""
    average = -(-partial.problems // len(partial.pieces))
    step = max(1, rows // max(1, average))
    groups = [partial.pieces[i : i + step] for i in range(0, len(partial.pieces), step)]
    return [replace(partial, pieces=group, problems=average * len(group)) for group in groups]


def weight(partials: Sequence[Partial]) -> int:
    """Rows that a merge of these partials reads."""
    return sum(p.read if p.spelled else max(p.problems, p.answer_rows) for p in partials)


def merge_all(buckets: Sequence[Bucket]) -> list[Merged]:
    """Merge small buckets side by side."""
    if any(bucket.mirror for bucket in buckets):
        return [merge(bucket) for bucket in buckets]
    return side_by_side(merge, buckets, pl.thread_pool_size())


def merge(bucket: Bucket) -> Merged:
    """Add up one bucket, one verdict per attempt, and write its problems in the order of their keys."""
    if bucket.mirror is None:
        return _merge(bucket)
    with writing(bucket.path):
        Path(bucket.path).parent.mkdir(parents=True, exist_ok=True)
        if not bucket.mirror.bring(*(f"partials/{partial.name}" for partial in bucket.partials)):
            raise StorageError("partial counts are gone from the output", where=bucket.mirror.url, hint="run again")
    merged = _merge(bucket)
    bucket.mirror.send_file(Path(bucket.path))
    return merged


def _merge(bucket: Bucket) -> Merged:
    parts, texts = _parts(bucket)
    once = len(parts) == 1 and not parts[0][0].overlap
    counts = _add_up([frame for _, frame in parts], once)
    if bucket.answers:
        told = [_bucket_rows(bucket, partial, ["answers.parquet"]) for partial, _ in parts if partial.answer_rows]
        counts = answers.with_lists(counts, answers.add_up(told))
    names = counts.columns
    carried = [name for name in names if name.startswith(("min:", "max:"))]
    conflicts = pl.DataFrame(schema=dict.fromkeys((*KEYS, "attempt"), pl.String))
    counts = counts.with_columns(duplicates=pl.lit(0, pl.Int64))
    if any(partial.words or partial.spelled for partial in bucket.partials):
        doubtful = _doubtful(counts, parts, bucket)
        if doubtful.height:
            attempts = [_spelled(bucket, partial, frame, doubtful, carried) for partial, frame in parts]
            every = pl.concat(attempts, how="diagonal_relaxed")
            if not bucket.answers:
                every = every.drop(duplicates.ANSWERS, strict=False)
            solved, conflicts, votes = duplicates.resolve(every, bucket.rule, "c" in names, carried)
            if votes is not None:
                solved = answers.with_lists(solved, answers.lists(votes.lazy()).collect())
            rest = counts.join(doubtful, on=KEYS, how="anti", nulls_equal=True)
            counts = pl.concat([rest, solved], how="diagonal_relaxed")
    conflicts = Counted(conflicts, {key: text for key, text in texts.items() if conflicts.height}).spelled().counts
    _write_problems(counts, texts, bucket.path)
    return Merged(
        graded=int(counts["n"].sum()),
        ungraded=int(counts["ungraded"].sum()),
        duplicates=int(counts["duplicates"].sum()),
        conflicts=conflicts.height,
        examples=tuple(conflicts.head(5).select(pl.all().cast(pl.String).fill_null("")).rows()),
        differing={
            name[4:]: int((counts[name] != counts["max:" + name[4:]]).sum())
            for name in carried
            if name.startswith("min:")
        },
    )


def _parts(bucket: Bucket) -> tuple[list[tuple[Partial, pl.LazyFrame]], dict[str, pl.Series]]:
    """The bucket's rows of every partial; keys as codes, unless attempts or lists must be matched by their texts."""
    if bucket.answers or any(partial.spelled or partial.rewards for partial in bucket.partials):
        return [(partial, _bucket_rows(bucket, partial, partial.pieces)) for partial in bucket.partials], {}
    files = [_home(bucket, partial) / name for partial in bucket.partials for name in partial.pieces]
    read = iter(side_by_side(lambda path: bucket_table(path, bucket.low, bucket.high), files))
    tables = [
        pa.concat_tables([next(read) for _ in partial.pieces], promote_options="permissive")
        for partial in bucket.partials
    ]
    whole = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    columns, texts = [], {}
    for key in KEYS:
        texts[key], codes = ranked(whole[key])
        columns.append(pl.Series(key, codes))
    frame = widened(pl.DataFrame(whole.drop_columns(list(KEYS))).lazy()).collect().with_columns(columns)
    edges = np.cumsum([0, *(table.num_rows for table in tables)])
    frames = [frame[low:high].lazy() for low, high in pairwise(edges.tolist())]
    return list(zip(bucket.partials, frames, strict=True)), texts


def _bucket_rows(bucket: Bucket, partial: Partial, names: Sequence[str]) -> pl.LazyFrame:
    span = pl.col(HASH).is_between(pl.lit(bucket.low, pl.UInt64), pl.lit(bucket.high, pl.UInt64))
    frames = [widened(pl.scan_parquet(_home(bucket, partial) / name, glob=False)) for name in names]
    return pl.concat(frames, how="diagonal_relaxed").filter(span)


def _home(bucket: Bucket, partial: Partial) -> Path:
    return Path(bucket.folder) / partial.name


def _add_up(parts: list[pl.LazyFrame], once: bool) -> pl.DataFrame:
    """Sum every count per problem; the smallest and largest of carried values; rewards list by list."""
    if once:  # every problem is in one row
        return parts[0].drop(HASH).collect()
    partials = pl.concat(parts, how="diagonal_relaxed")
    names = partials.collect_schema().names()
    plain = [_combine(name) for name in names if name not in (*KEYS, HASH, "rewards", "reward_counts")]
    if "rewards" in names:
        return _merge_rewards(partials, plain)
    if all(kind.is_integer() for kind in partials.collect_schema().dtypes()):
        added = added_by_hash(partials.collect())
        if added is not None:
            return added
    return partials.group_by(KEYS).agg(plain).collect(engine="streaming")


def _doubtful(counts: pl.DataFrame, parts: list[tuple[Partial, pl.LazyFrame]], bucket: Bucket) -> pl.DataFrame:
    """Problems whose sums do not prove that every attempt occurs once."""
    words = max(partial.words for partial in bucket.partials)
    unproven = counts.filter(~duplicates.proven(words)) if words else counts
    spelled = [frame.select(KEYS).collect() for partial, frame in parts if partial.spelled]
    return pl.concat([unproven.select(KEYS), *spelled]).unique()


def _spelled(
    bucket: Bucket, partial: Partial, counts: pl.LazyFrame, doubtful: pl.DataFrame, carried: Sequence[str]
) -> pl.DataFrame:
    """Every attempt of the doubtful problems that one partial knows of."""
    keep = {"on": KEYS, "how": "semi", "nulls_equal": True}
    if not partial.spelled:
        mine = counts.collect().join(doubtful, **keep)  # type: ignore[arg-type]
        attempts = duplicates.spell_out(mine, partial.words, carried).with_columns(at=pl.lit(partial.files[0].path))
        if bucket.answers and partial.answer_rows:
            rows = _bucket_rows(bucket, partial, ["answers.parquet"]).collect().join(doubtful, **keep)  # type: ignore[arg-type]
            attempts = answers.spell_out(attempts, rows, partial.words)
        return attempts
    frames = [_bucket_rows(bucket, partial, [name]).drop(HASH).collect() for name in partial.spelled]
    return pl.concat(frames, how="diagonal_relaxed").join(doubtful, **keep)  # type: ignore[arg-type]


def _write_problems(counts: pl.DataFrame, texts: dict[str, pl.Series], path: str) -> None:
    if "c" not in counts.columns:
        counts = counts.with_columns(c=pl.lit(None, pl.Int64))
    carried = [pl.col(name).alias(name[4:]) for name in counts.columns if name.startswith("min:")]
    lists = [name for name in LISTS if name in counts.columns]
    final = by_ranks(counts.select(*KEYS, *COUNTS, *carried, *lists), KEYS)
    columns: dict[str, Any] = dict(zip(final.columns, final.to_arrow().columns, strict=True))
    for key, text in texts.items():
        columns[key] = as_dictionary(final[key].to_numpy(), text.to_arrow(compat_level=pl.CompatLevel.oldest()))
    table = required(columns, [name for name in final.columns if final[name].null_count()])
    home = Path(path).parent.parent  # not among the finished ones, which are taken as they are found
    aside = beside(home.with_name(home.name.removeprefix(".") + Path(path).name))
    try:
        with writing(path):  # DuckDB loads these twice as fast as Polars'
            pq.write_table(table, aside, **(DICTIONARIES if texts else {"compression": "zstd"}))
            os.replace(aside, path)
    finally:
        remove(aside)


# --- one shard --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Opened:
    """A file whose footer could be read."""

    file: File
    path: str
    schema: dict[str, pl.DataType]
    footer: footer.Footer
    numbers: tuple[int, int] | None
    """The range of its attempt numbers by its own statistics; None if not known, not numbers, or some are null."""
    constants: dict[str, str]
    """Text columns that hold one value throughout, which need not be read."""

    def attempts(
        self, settings: Settings, words: int = 0, spell: bool = False, answered: bool = False
    ) -> pl.LazyFrame:
        """Its attempts under canonical names, lazily."""
        literals = [pl.lit(value, pl.String).alias(name) for name, value in self.constants.items()]
        frame = pl.scan_parquet(self.path, hive_partitioning=False, glob=False).with_columns(literals)
        canonical = _attempts(settings, self.schema, self.file.hive, words, spell)
        return frame.select(*canonical, *([_answer(settings, self.schema)] if answered else []))

    def source(self, settings: Settings, words: int) -> shape.Source | None:
        """Where its columns are, if it can be counted by codes."""
        return shape.source(self.path, self.footer, self.schema, self.file.hive, self.constants, settings, words)


def _count(task: Task, aside: Path) -> Partial:
    good: list[_Opened] = []
    quarantine: list[tuple[str, str]] = []
    schemas: dict[bytes, Schema] = {}
    fitting = set[tuple[Any, ...]]()
    for file in task.shard.files:
        try:
            opened = _open(task, file, schemas)
            like = opened.footer.schema, *file.hive
            if like not in fitting:
                _fits(opened, [*good[:1], opened][0], task.settings)
                fitting.add(like)
            good.append(opened)
        except UnreadableError as reason:
            quarantine.append((file.path, str(reason)))
    partial = _count_files(task, good, quarantine, aside)
    for file in task.shard.files:
        _unchanged(task.shard.root, file)
    return partial


def _count_files(
    task: Task, files: list[_Opened], quarantine: list[tuple[str, str]], aside: Path, codes: bool = True
) -> Partial:
    """Count the files together; if one proves to be broken inside, the others."""
    settings, words = task.settings, _words(files, task.settings)
    least = (0 if task.compiled else MANY) if codes else NEVER
    try:
        pieces = list(_settled(task, _group_whole(files, settings, words, least), files, words, aside))
        partial = _total(task, pieces, files, quarantine, words)
        if _identified(files, settings) and not (words and all(piece.proven for piece in pieces)):
            return replace(partial, words=0, spelled=_spell(files, settings, pieces[0].carried, aside))
        if partial.answers == "counted":
            return replace(partial, answer_rows=_count_answers(files, settings, words, aside))
        return partial
    except (ScorelakeError, *OURS):
        raise
    except shape.OtherShapeError:
        return _count_files(task, files, quarantine, aside, codes=False)
    except BROKEN as error:
        good, broken = _sieve(files, settings)
        if not broken:
            paths = ", ".join(opened.file.path for opened in good[:3])
            raise DataError(f"the files cannot be counted together: {_line(error)}", where=paths) from error
        return _count_files(task, good, [*quarantine, *broken], aside)


def _identified(files: Sequence[_Opened], settings: Settings) -> bool:
    """Attempts have an identity, so that duplicates can be told."""
    name = settings.columns.attempt
    return settings.duplicates.policy != "off" and bool(files) and name in files[0].schema


def _answered(files: Sequence[_Opened], settings: Settings) -> Literal["none", "ignored", "counted"]:
    """Whether attempts have answers that can be right or wrong, and whether those are wanted."""
    names, policy = settings.columns, settings.policy
    if not files or names.answer not in files[0].schema:
        return "none"
    if names.passed not in files[0].schema and policy.pass_threshold is None:
        return "none"
    return "counted" if settings.answers else "ignored"


def _count_answers(files: Sequence[_Opened], settings: Settings, words: int, aside: Path) -> int:
    """Write how often each answer of each problem was given, sorted like the counts; how many rows those are."""
    _verify(files, settings)
    frames = [opened.attempts(settings, words, answered=True) for opened in files]
    rows = answers.count(frames, [opened.footer.rows for opened in files], words)
    rows = _with_protocol(rows.filter(~pl.any_horizontal(pl.col(key).is_null() for key in NAMED)), settings)
    rows = rows.with_columns(hashed(rows)).sort(HASH, *KEYS, answers.ANSWER)
    if rows.height:
        with writing(aside):
            rows.write_parquet(aside / "answers.parquet", row_group_size=ROW_GROUP, statistics=True)
    return rows.height


def _words(files: Sequence[_Opened], settings: Settings) -> int:
    """How many 64-bit sums hold the attempt numbers; 0 if they must be spelled out, or are not looked at.

    Rewards do not fit into sums, nor does the order that `first` and `last` go by.
    """
    spelled = (
        settings.duplicates.rule in ("first", "last") or settings.columns.score in files[0].schema if files else True
    )
    if spelled or not _identified(files, settings) or any(opened.numbers is None for opened in files):
        return 0
    low = min(opened.numbers[0] for opened in files if opened.numbers)
    high = max(opened.numbers[1] for opened in files if opened.numbers)
    words = high // duplicates.WORD + 1
    return words if low >= 0 and words <= duplicates.MAX_WORDS else 0


def _spell(files: Sequence[_Opened], settings: Settings, carried: Sequence[str], aside: Path) -> tuple[str, ...]:
    """Write every valid attempt, one file of ours per file of the lake, sorted like the counts."""
    _verify(files, settings)
    names = []
    for i, opened in enumerate(files):
        attempts = opened.attempts(settings, spell=True, answered=_answered(files, settings) == "counted")
        valid = ~pl.col("_bad") & ~pl.any_horizontal(pl.col(key).is_null() for key in NAMED)
        attempts = _with_protocol(attempts.filter(valid), settings)
        rows = duplicates.tell_apart(attempts, settings.duplicates.rule, carried).collect()
        rows = rows.with_columns(hashed(rows), pl.lit(opened.file.path).alias("at"))
        names.append(f"attempts-{i:05d}.parquet")
        with writing(aside):
            rows.sort(HASH, *KEYS, maintain_order=True).write_parquet(aside / names[-1], row_group_size=ROW_GROUP)
    return tuple(names)


def _open(task: Task, file: File, schemas: dict[bytes, Schema]) -> _Opened:
    """A file's footer and schema; Polars is asked for a schema once, since that takes longer than all else here."""
    path = os.path.join(task.shard.root, file.path)
    if file.size == 0:
        raise UnreadableError("the file is empty (0 bytes)")
    try:
        told = footer.read(path)
        if told.schema not in schemas:
            schemas[told.schema] = dict(pl.scan_parquet(path, hive_partitioning=False, glob=False).collect_schema())
        schema = schemas[told.schema]
    except footer.DamagedError as error:
        raise UnreadableError(f"damaged: {error}") from None
    except BROKEN as error:
        raise UnreadableError(f"not a readable Parquet file: {_line(error)}") from None
    name = task.settings.columns.attempt
    numbers = _range(told, name) if name in schema and schema[name].is_integer() else None
    return _Opened(file, path, schema, told, numbers, constants(told, schema))


def _range(told: footer.Footer, name: str) -> tuple[int, int] | None:
    """Smallest and largest value of an integer column by the footer's statistics, if all groups have them."""
    ends: list[int] = []
    for chunk in told.of(name):
        if chunk.kind not in (footer.INT32, footer.INT64) or not chunk.low or not chunk.high or chunk.nulls != 0:
            return None
        ends += [int.from_bytes(end, "little", signed=True) for end in (chunk.low, chunk.high)]
    return (min(ends), max(ends)) if ends else None


def _fits(opened: _Opened, first: _Opened, settings: Settings) -> None:
    """Files of one lake have the same outcome columns, or their numbers would not mean the same."""
    opened.attempts(settings, answered=_answered([opened], settings) == "counted").collect_schema()
    columns = settings.columns
    for name in (columns.passed, columns.score, columns.attempt, *([columns.answer] if settings.answers else [])):
        if (name in opened.schema) != (name in first.schema):
            here, there = ("no " * (name not in f.schema) + f"column {name}" for f in (opened, first))
            raise UnreadableError(f"{here}, while {first.file.path} has {there}")


def _group_whole(files: Sequence[_Opened], settings: Settings, words: int, least: int) -> Iterator[Counted]:
    """Counts per key of the files, every row of them by their own footers."""
    read, expected = 0, sum(opened.footer.rows for opened in files)
    for counted in _group(files, settings, words, least):
        read += int(counted.counts["rows"].sum()) if files else 0
        yield counted
    if read != expected:
        raise UnreadableError(f"{read:,} rows were read where the footer says {expected:,}")


def _group(files: Sequence[_Opened], settings: Settings, words: int, least: int) -> Iterator[Counted]:
    """Counts per key of all files; with rewards, also per distinct reward. From so many rows on, by codes."""
    heights = [opened.footer.rows for opened in files]
    if sum(heights) >= max(least, 1):
        sources = [opened.source(settings, words) for opened in files]
        if None not in sources:
            yield from _group_codes([source for source in sources if source], settings, words)
            return
    _verify(files, settings)
    yield Counted(tally([opened.attempts(settings, words) for opened in files], heights, words), {})


def _verify(files: Sequence[_Opened], settings: Settings) -> None:
    """Pages as they were written, before somebody reads them who does not look."""
    for opened in files:
        checksums.verify(opened.path, opened.footer, settings.used)


def _group_codes(sources: Sequence[shape.Source], settings: Settings, words: int) -> Iterator[Counted]:
    """The same for files of the common shape, in pieces that fit into memory."""
    from scorelake.compact import counting  # noqa: PLC0415 - compiled code is loaded only for lakes worth it

    fail, memory = settings.policy.ungraded == "fail", int(settings.run.memory * 2**30 / 2)
    threads = settings.run.threads or pl.thread_pool_size()
    for counted in counting.count(sources, words, fail_ungraded=fail, memory=memory, threads=threads):
        carried = tuple(name for name in counted.texts if name.startswith("carry:"))
        if carried:
            spelled = counted.spelled(*carried)
            like = Shape(tuple(spelled.texts), carried, verdicts=True, hashable=True, words=words)
            yield replace(spelled, counts=with_ends(spelled.counts, like))
        else:
            yield counted


def _sieve(files: list[_Opened], settings: Settings) -> tuple[list[_Opened], list[tuple[str, str]]]:
    """Try files one at a time: those that can be counted, and the others with the reason.

    Pages that do not match their checksums are looked for first, which is quick and mostly explains it.
    """
    good, broken = _tried(files, lambda opened: _verify([opened], settings))
    return (good, broken) if broken else _tried(files, lambda opened: _read_to_the_end(opened, settings))


def _tried(files: list[_Opened], attempt: Callable[[_Opened], None]) -> tuple[list[_Opened], list[tuple[str, str]]]:
    good, broken = [], []
    for opened in files:
        try:
            attempt(opened)
            good.append(opened)
        except footer.DamagedError as error:
            broken.append((opened.file.path, f"damaged: {error}"))
        except BROKEN as error:
            broken.append((opened.file.path, f"cannot be read to its end: {_line(error)}"))
    return good, broken


def _read_to_the_end(opened: _Opened, settings: Settings) -> None:
    """Both ways: where duplicates are spelled out, Polars reads what was counted by codes."""
    for least in (0, NEVER):
        with suppress(shape.OtherShapeError):
            for _ in _group_whole([opened], settings, _words([opened], settings), least):
                pass
    if _identified([opened], settings):
        opened.attempts(settings, spell=True).select("_attempt").collect()
    if _answered([opened], settings) == "counted":
        opened.attempts(settings, answered=True).select(answers.ANSWER).collect()


@dataclass(frozen=True)
class _Piece:
    """What one file of counts holds."""

    name: str
    problems: int
    read: int
    graded: int
    ungraded: int
    rejected: int
    proven: bool
    """Every attempt in it is known to occur once."""
    binary: bool
    rewards: bool
    overlap: bool
    carried: tuple[str, ...]


def _settled(
    task: Task, grouped: Iterator[Counted], good: list[_Opened], words: int, aside: Path
) -> Iterator[_Piece]:
    """Every piece settled, two at a time: more would only wait in memory."""
    with ThreadPoolExecutor(2) as threads:
        waiting: deque[Future[_Piece]] = deque()
        for i, counted in enumerate(grouped):
            waiting.append(threads.submit(_settle, task, counted, good, words, aside / f"counts-{i:05d}.parquet"))
            if len(waiting) == 2:
                yield waiting.popleft().result()
        yield from (piece.result() for piece in waiting)


def _settle(task: Task, counted: Counted, good: list[_Opened], words: int, path: Path) -> _Piece:
    """Check the balance, set rejected rows apart, and write the counts in their final shape."""
    if not good:
        plain = dict.fromkeys(KEYS, pl.String) | {"n": pl.Int64, "ungraded": pl.Int64}
        counted, read, rejected = Counted(pl.DataFrame(schema=plain), {}), 0, 0
    else:
        counted, read, rejected = _final(counted, task.settings)
    counted = by_hash(counted)
    counts = counted.counts
    graded, ungraded = int(counts["n"].sum()), int(counts["ungraded"].sum())
    if read != graded + ungraded + rejected:
        raise AssertionError(f"row accounting: {read} != {graded} + {ungraded} + {rejected}")
    with writing(path):
        write(counted, path)
    return _Piece(
        path.name,
        counts.height,
        read,
        graded,
        ungraded,
        rejected,
        proven=bool(words) and bool(counts.select(duplicates.proven(words).all()).item()),
        binary="c" in counts.columns,
        rewards="rewards" in counts.columns,
        overlap=counted.overlap,
        carried=tuple(name for name in counts.columns if name.startswith(("min:", "max:"))),
    )


def _final(counted: Counted, settings: Settings) -> tuple[Counted, int, int]:
    """Counts of valid rows as they are kept, how many rows there were, and how many were rejected."""
    if settings.protocol.columns:
        counted = counted.spelled()
    grouped, texts = counted.counts, dict(counted.texts)
    nameless = pl.any_horizontal(pl.col(key).is_null() for key in NAMED)
    rejected = int(grouped.select(pl.when(nameless).then("rows").otherwise("bad").sum()).item())
    counts = grouped.filter(~nameless).with_columns(ungraded=pl.col("rows") - pl.col("n") - pl.col("bad"))
    if texts:
        counts = counts.with_columns(protocol=pl.lit(0, pl.UInt32))
        texts["protocol"] = pl.Series([""])
    else:
        counts = _with_protocol(counts, settings)
    if "_score" in counts.columns:
        counts = _fold_rewards(counts)
    counts = counts.drop("rows", "bad").filter((pl.col("n") > 0) | (pl.col("ungraded") > 0))
    return replace(counted, counts=counts, texts=texts), int(grouped["rows"].sum()), rejected


def _total(
    task: Task,
    pieces: list[_Piece],
    good: list[_Opened],
    quarantine: list[tuple[str, str]],
    words: int,
) -> Partial:
    sums = ("problems", "read", "graded", "ungraded", "rejected")
    told = {name: sum(getattr(piece, name) for piece in pieces) for name in sums}
    either = {name: any(getattr(piece, name) for piece in pieces) for name in ("binary", "rewards", "overlap")}
    return Partial(
        name=task.name,
        files=task.shard.files,
        **told,
        rejects=_rejects(good, task.settings) if told["rejected"] else (),
        quarantine=tuple(quarantine),
        **either,
        pieces=tuple(piece.name for piece in pieces),
        words=words,
        spelled=(),
        answers=_answered(good, task.settings),
        answer_rows=0,
        checksum="",
    )


def _with_protocol(counts: Frame, settings: Settings) -> Frame:
    """One `protocol` column: canonical JSON of the protocol columns, empty without any."""
    given = [f"protocol {name}" for name in settings.protocol.columns]
    if not given:
        return counts.with_columns(protocol=pl.lit(""))
    plain = pl.struct(pl.col(column).alias(column.removeprefix("protocol ")) for column in given)
    return counts.with_columns(protocol=plain.struct.json_encode()).drop(given)


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


def _rejects(good: list[_Opened], settings: Settings) -> tuple[tuple[str, str, int], ...]:
    """Which files hold the rejected rows, and why; a second look, only when there are any."""
    out = []
    nameless = pl.any_horizontal(pl.col(key).is_null() for key in NAMED)
    for opened in good:
        per_file = (
            opened.attempts(settings)
            .select(
                *(pl.col(key).is_null().sum().cast(pl.Int64).alias(f"no {key}") for key in NAMED),
                (pl.col("_bad") & ~nameless)
                .sum()
                .cast(pl.Int64)
                .alias("not a valid outcome, or in conflict with the folder's name"),
            )
            .collect()
        )
        out += [(opened.file.path, reason, rows) for reason, rows in per_file.row(0, named=True).items() if rows]
    return tuple(out)


def _unchanged(root: str, file: File) -> None:
    try:
        stat = os.stat(os.path.join(root, file.path))
        same = (stat.st_size, stat.st_mtime_ns) == (file.size, file.mtime_ns)
    except FileNotFoundError:
        same = False
    if not same:
        raise DataError("the file changed or vanished while the lake was read", where=file.path, hint="run again")


def _line(error: BaseException) -> str:
    """The first line of a library's message, without our own path in it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# --- one file's columns under canonical names ----------------------------------------------------------------


def _attempts(
    settings: Settings, schema: dict[str, pl.DataType], hive: dict[str, str | None], words: int, spell: bool
) -> list[pl.Expr]:
    """Expressions for keys, carried columns and outcome; `_bad` marks a row whose outcome is not valid."""
    names = settings.columns
    bad: list[pl.Expr] = []
    kind = schema.get(names.attempt, pl.Int64())
    if settings.duplicates.policy == "exact" and names.attempt not in schema:
        raise UnreadableError(_missing(names.attempt, "attempt", schema, hive))
    if settings.duplicates.policy != "off" and not (kind.is_integer() or kind in _TEXTS):
        raise UnreadableError(f"column {names.attempt} is {kind}; it must be a string or integer")
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
    if words:
        outcome.append(pl.col(names.attempt).cast(pl.UInt8).alias("_number"))
    if spell:
        outcome.append(pl.col(names.attempt).cast(pl.String).alias("_attempt"))
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
    if not (kind.is_integer() or kind in _TEXTS):
        raise UnreadableError(f"column {name} is {kind}; it must be a string or integer")
    text = pl.col(name).cast(pl.String, strict=False)
    if name in hive:
        bad.append(text.ne_missing(pl.lit(hive[name], pl.String)))
    return text


def _answer(settings: Settings, schema: dict[str, pl.DataType]) -> pl.Expr:
    """What an attempt answered, as a text."""
    name = settings.columns.answer
    if not answers.usable(schema[name]):
        raise UnreadableError(
            f"column {name} is {schema[name]}; to vote with, it must be a text, a number or a boolean; "
            'name another with [columns] answer = "...", or none with ""'
        )
    return answers.text(name, schema[name])


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
        raise UnreadableError(f"column {name} is {kind}; it must be a number")
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
