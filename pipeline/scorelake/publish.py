"""Stage 6. An immutable snapshot, then one leaderboard.duckdb, each put in place by a single rename.

A reader sees the old file or the new one, never a mixture: everything is written aside and flushed to disk
first. The only module of the job that knows DuckDB.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from scorelake.errors import DataError, LockedError
from scorelake.storage import checksum, settle, writing
from scorelake.tables import (
    EVIDENCE,
    HISTORY,
    MODEL_SUMMARY,
    PROBLEM_COUNTS,
    PROBLEM_HISTOGRAM,
    QUARANTINE,
    RUN,
    SUMMARIES,
    Table,
)

STORAGE = "v1.0.0"
"""The storage version every DuckDB 1.x and 2.x opens."""


@dataclass(frozen=True)
class Output:
    """The folder a job writes to."""

    root: Path

    @property
    def leaderboard(self) -> Path:
        return self.root / "leaderboard.duckdb"

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def partials(self) -> Path:
        return self.root / "partials"

    def manifests(self) -> list[dict[str, Any]]:
        """The manifests of every finished snapshot, oldest first."""
        told = [json.loads(path.read_text()) for path in self.snapshots.glob("[!.]*/manifest.json")]
        return sorted(told, key=lambda manifest: (manifest["run"]["started"], manifest["run"]["run_id"]))

    def table(self, manifest: dict[str, Any], name: str) -> pl.DataFrame:
        """One table of a finished snapshot."""
        return pl.read_parquet(self.snapshots / manifest["run"]["run_id"] / f"{name}.parquet", glob=False)

    def current(self) -> dict[str, Any] | None:
        """The manifest of the run that leaderboard.duckdb shows."""
        if not self.leaderboard.exists():
            return None
        try:
            with duckdb.connect(str(self.leaderboard), read_only=True) as db:
                shown = db.execute("SELECT run_id FROM run ORDER BY started DESC, run_id DESC LIMIT 1").fetchone()
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise DataError(
                f"not a leaderboard of ours: {first}",
                where=str(self.leaderboard),
                hint="move it away and run again",
            ) from None
        home = self.snapshots / str(shown[0] if shown else "") / "manifest.json"
        return json.loads(home.read_text()) if home.exists() else None


@contextmanager
def locked(out: Output) -> Iterator[None]:
    """Hold the one writer's lock. The system drops it with its holder, so a crash leaves nothing behind."""
    with writing(out.root):
        out.root.mkdir(parents=True, exist_ok=True)
        file = (out.root / ".lock").open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LockedError(
                "another run is writing here", where=str(out.root), hint="wait for it, or give another --out"
            ) from None
        yield


def stage(out: Output, run_id: str) -> Path:
    """An empty folder aside for a new snapshot; what a crash left of earlier ones is swept away."""
    with writing(out.root):
        return _stage(out, run_id)


def _stage(out: Output, run_id: str) -> Path:
    for leftover in [*out.snapshots.glob(".*"), *out.partials.glob(".*"), *out.root.glob(".leaderboard-*")]:
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    home = out.snapshots / f".{run_id}"
    (home / "problem_counts").mkdir(parents=True)
    return home


def publish(out: Output, staged: Path, manifest: dict[str, Any], tables: dict[str, pl.DataFrame]) -> None:
    """Complete the staged snapshot, rename it into place, and replace the leaderboard."""
    with writing(out.root):
        _publish(out, staged, manifest, tables)


def _publish(out: Output, staged: Path, manifest: dict[str, Any], tables: dict[str, pl.DataFrame]) -> None:
    for name, frame in tables.items():
        frame.write_parquet(staged / f"{name}.parquet")
    files = sorted(path for path in staged.rglob("*") if path.is_file())
    manifest = manifest | {
        "files": {path.relative_to(staged).as_posix(): checksum(path) for path in files},
    }
    (staged / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))
    final = staged.with_name(staged.name.removeprefix("."))
    settle(staged, final)
    aside = out.root / f".leaderboard-{manifest['run']['run_id']}"
    _build(aside, out.manifests(), final)
    settle(aside, out.leaderboard)


def collect_garbage(out: Output, keep: int) -> dict[str, list[str]]:
    """Remove all but the newest `keep` snapshots (never the current one) and the partials none of them uses."""
    current = out.current()
    manifests = out.manifests()
    shown = current["run"]["run_id"] if current else None
    kept = [m for m in manifests[max(0, len(manifests) - keep) :] if m is not None]
    kept += [m for m in manifests if m["run"]["run_id"] == shown and m not in kept]
    used = {name for m in kept for name in m["partials"]}
    names = {m["run"]["run_id"] for m in kept}
    old = sorted(path for path in out.snapshots.glob("[!.]*") if path.name not in names)
    stale = sorted(path for path in out.partials.glob("[!.]*") if path.name not in used)
    for path in [*old, *stale]:
        shutil.rmtree(path)
    return {"snapshots": [path.name for path in old], "partials": [path.name for path in stale]}


# --- leaderboard.duckdb ---------------------------------------------------------------------------------------


def view_files() -> list[tuple[str, str]]:
    """The views and macros in the order of their names: inside the wheel, or at the top of a checkout."""
    packaged = resources.files("scorelake") / "sql"
    home = packaged if packaged.is_dir() else Path(__file__).parents[2] / "sql"
    return sorted(
        (file.name, file.read_text(encoding="utf-8")) for file in home.iterdir() if file.name.endswith(".sql")
    )


def _build(path: Path, manifests: list[dict[str, Any]], snapshot: Path) -> None:
    """A new database with native tables, views, macros and comments; complete or not there."""
    path.unlink(missing_ok=True)
    with duckdb.connect() as db:
        db.execute("SET preserve_insertion_order = true")
        db.execute(f"ATTACH '{_quoted(str(path))}' AS fresh (STORAGE_VERSION '{STORAGE}')")
        db.execute("USE fresh")
        _native(db, snapshot)
        runs = [m["run"] for m in manifests]
        quarantine = [(m["run"]["run_id"], *entry) for m in manifests for entry in m["quarantine"]]
        _insert(db, RUN, [tuple(run[column] for column in RUN.columns) for run in runs])
        _insert(db, QUARANTINE, quarantine)
        _insert(db, HISTORY, [])
        for run in runs:
            summary = snapshot.parent / run["run_id"] / f"{MODEL_SUMMARY.name}.parquet"
            scores = db.read_parquet(literal(str(summary))).project(", ".join(list(HISTORY.columns)[2:]))
            scores.create_view("scores")
            db.execute("INSERT INTO history SELECT ?, ?, * FROM scores", (run["run_id"], run["started"]))
            db.execute("DROP VIEW scores")
        db.begin()  # a hundred small statements, one write to the disk
        for table in (*SUMMARIES, *EVIDENCE, PROBLEM_HISTOGRAM, RUN, QUARANTINE, HISTORY):
            _comment(db, table, table.name)
        _comment(db, PROBLEM_COUNTS, "problem")
        for _, sql in view_files():
            db.execute(sql)
        db.commit()
        db.execute("USE memory")
        db.execute("DETACH fresh")


def _native(db: duckdb.DuckDBPyConnection, snapshot: Path) -> None:
    counts = sorted(literal(str(path)) for path in (snapshot / "problem_counts").glob("*.parquet"))
    problems = db.read_parquet(counts)
    lists = [name for name in ("rewards", "reward_counts") if name in problems.columns]
    shown = [duckdb.ColumnExpression(name) for name in problems.columns if name not in lists]
    problems.select(*shown).create("problem")
    for table in (*SUMMARIES, *EVIDENCE, PROBLEM_HISTOGRAM):
        db.read_parquet(literal(str(snapshot / f"{table.name}.parquet"))).create(table.name)


def _insert(db: duckdb.DuckDBPyConnection, table: Table, rows: list[tuple[Any, ...]]) -> None:
    kinds = {pl.String: "VARCHAR", pl.Int64: "BIGINT", pl.Float64: "DOUBLE", pl.Datetime: "TIMESTAMP"}
    columns = ", ".join(f"{name} {kinds[type(kind)]}" for name, kind in table.schema.items())
    db.execute(f"CREATE TABLE {table.name} ({columns})")
    if rows:
        db.executemany(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})", rows)


def _comment(db: duckdb.DuckDBPyConnection, table: Table, name: str) -> None:
    """Descriptions from tables.py; DDL takes no parameters, and none of these words comes from a user."""
    db.execute(f"COMMENT ON TABLE {name} IS '{_quoted(table.about)}'")
    for column, (_, about) in table.columns.items():
        db.execute(f"COMMENT ON COLUMN {name}.{column} IS '{_quoted(about)}'")


def literal(path: str) -> str:
    """A path that DuckDB takes as it is, not as a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def _quoted(text: str) -> str:
    return text.replace("'", "''")
