"""Which run does leaderboard.duckdb show, and is it still what was published?

The file says so itself: it names its run and carries digests of its tables. Nothing is inferred from clocks, names or
order. Reading it takes a copy, since somebody may hold DuckDB's lock; so what was found is remembered together with
the file's size, times and inode, and while those are the same nothing needs to be read.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl

from scorelake.errors import DataError, LockedError
from scorelake.publish.history import NOTHING, Past, fitted, read
from scorelake.publish.snapshot import Manifest, Output, problem_files
from scorelake.storage.disk import checksum, private_copy, read_json, replace_text, set_aside
from scorelake.storage.files import File, stat

REMEMBERED = ".shown.json"


@dataclass(frozen=True)
class Shown:
    """What is shown: the run, and what is wrong with the file if anything is."""

    run_id: str = ""
    rolled_back: bool = False
    trouble: str = ""
    """How the file differs from what was published; empty if it does not, or if there is none."""
    ours: bool = True
    """False if the file is no leaderboard of ours: then it is kept when another takes its place."""
    file: File | None = None
    """The file as it was looked at."""

    @property
    def intact(self) -> bool:
        return bool(self.run_id) and not self.trouble


def look(out: Output) -> Shown:
    """What the leaderboard of an output shows now."""
    board = out.leaderboard
    try:
        file = stat(board, board.name)
    except FileNotFoundError:
        return Shown()
    if log(board).exists():
        return Shown(trouble=f"has changes of somebody's session beside it, in {log(board).name}", file=file)
    known = _remembered(out)
    if known is not None and known.file == file:
        return _placed(out, Shown(known.run_id, known.rolled_back, file=file), known.problems)
    if not board.is_file():
        return Shown(trouble="is no file", ours=False, file=file)
    return _read(out, file, known.sha256 if known else "")


def _read(out: Output, file: File, digest: str) -> Shown:
    from scorelake.publish.leaderboard import identity  # noqa: PLC0415  (DuckDB loads slowly)

    board = out.leaderboard
    with private_copy(board) as copy:
        told = identity(copy)
    if told is None:
        return Shown(trouble="is damaged, or not a leaderboard of ours", ours=False, file=file)
    if told.edited:
        changed = ", ".join(told.edited[:5])
        return Shown(told.run_id, told.rolled_back, f"was changed after it was published: {changed}", file=file)
    if not told.comparable and checksum(board) != digest:
        return Shown(told.run_id, told.rolled_back, "was made by another version of DuckDB and moved here", file=file)
    remember(out, told.run_id, told.rolled_back, told.problems)
    return _placed(out, Shown(told.run_id, told.rolled_back, file=file), told.problems)


def _placed(out: Output, shown: Shown, problems: str) -> Shown:
    """The same, or what is wrong if the problems are read from files that are not of this output: it was moved."""
    if not problems or problems == problem_files(out.snapshots / shown.run_id):
        return shown
    return replace(shown, trouble=f"reads its problems where the output was before ({problems})")


@dataclass(frozen=True)
class _Remembered:
    file: File
    run_id: str
    rolled_back: bool
    problems: str
    sha256: str


def remember(out: Output, run_id: str, rolled_back: bool, problems: str) -> None:
    """The leaderboard that is there now is as it was published. Only a shortcut: it may be lost at any time."""
    board = out.leaderboard
    known = _Remembered(stat(board, board.name), run_id, rolled_back, problems, checksum(board))
    with suppress(OSError):
        replace_text(out.root / REMEMBERED, json.dumps(asdict(known)))


def _remembered(out: Output) -> _Remembered | None:
    try:
        known = read_json(out.root / REMEMBERED)
        return _Remembered(
            File(**known["file"]),
            str(known["run_id"]),
            bool(known["rolled_back"]),
            str(known["problems"]),
            str(known["sha256"]),
        )
    except (TypeError, KeyError):
        return None


def log(board: Path) -> Path:
    """Where DuckDB keeps changes of a session that is open, or was killed; whoever opens the file applies them."""
    return board.with_name(f"{board.name}.wal")


@dataclass(frozen=True)
class Base:
    """What a new run follows: the run that is shown, every run there ever was, and what was found to be wrong."""

    shown: Shown
    manifest: Manifest | None
    past: Past
    notes: tuple[str, ...]

    def standing(self, inputs: str) -> Manifest | None:
        """The run that is shown, if a run of these inputs would publish just that."""
        return self.manifest if self.shown.intact and self.manifest and self.manifest["inputs"] == inputs else None

    def still(self, out: Output) -> None:
        """Raise if another leaderboard is there by now: then this run knows of a lake that may be older."""
        board = out.leaderboard
        now = stat(board, board.name) if board.exists() else None
        if now != self.shown.file:
            raise LockedError(
                "another run has published here meanwhile",
                where=out.name,
                hint="run again: what was counted is kept",
            )


def base(out: Output) -> Base:
    """Look at what is there, under the lock. Whatever is damaged and can be made again is named and set aside."""
    shown = look(out)
    notes = [f"{out.leaderboard.name} {shown.trouble}; it is published again"] if shown.trouble else []
    past, troubles = _past(out, shown)
    run_id = shown.run_id
    if not shown.intact and past.runs.height:
        if not shown.file:
            notes.append(f"{out.leaderboard.name} was gone; it is published again")
        run_id = str(past.runs["run_id"][-1])
    manifest = None
    try:
        manifest = out.manifest(run_id) if run_id else None
        if run_id and manifest is None:
            notes.append(f"snapshots/{run_id} is gone; what it showed is published again")
    except DataError as error:
        kept = set_aside(out.snapshots / run_id, out.root)
        notes.append(f"{error.where} {error.what}; its snapshot is now {kept.relative_to(out.root)}")
    return Base(shown, manifest, past, (*notes, *troubles))


def all_runs(out: Output, shown: Shown) -> pl.DataFrame:
    """Every run that was ever published."""
    return _past(out, shown, mend=False)[0].runs


def _past(out: Output, shown: Shown, mend: bool = True) -> tuple[Past, list[str]]:
    """Every run there was: what the files say, and what only the leaderboard knows."""
    notes = []
    try:
        past = read(out.root)
    except Exception as error:  # whatever Polars raises over a damaged file
        past = None
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        for path in out.histories:
            if mend and path.exists():
                kept = set_aside(path, out.root).relative_to(out.root)
                notes.append(f"{path.name} cannot be read ({first}); it is now {kept}, and made again")
    if shown.intact and (past is None or shown.run_id not in past.runs["run_id"]):
        from scorelake.publish.leaderboard import past as told  # noqa: PLC0415  (DuckDB loads slowly)

        with private_copy(out.leaderboard) as copy:
            past = (past or NOTHING).joined(fitted(told(copy)))
    return past or NOTHING, notes
