"""Is an output what it claims to be? Checksums, row accounting, and a recount of the lake that shares no code
with the job: plain SQL in DuckDB over the same files."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from scorelake.errors import DataError
from scorelake.lake.download import local_copy
from scorelake.lake.listing import listing
from scorelake.publish.publication import damaged
from scorelake.publish.shown import look
from scorelake.publish.snapshot import Output
from scorelake.settings import Settings
from scorelake.storage import parquet
from scorelake.storage.disk import literal, private_copy
from scorelake.storage.files import File, Shard

_KEYS = "benchmark, subject, model, protocol, problem_id"
_CHOOSING = ("any-pass", "all-pass")
"""Rules under which the smallest of several answers counts: which one that is depends on how they are spelled."""


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    what: str
    ok: bool
    detail: str
    hint: str = ""
    """What to do about it, where that is not to publish again."""


def check(out: Output, location: str | None = None) -> list[Finding]:
    """Check the published run; the lake is looked for where the run found it, unless another place is given."""
    if out.mirror is None:
        return _checked(out.known(), location)
    with out.held() as here:
        shown = look(here)
        if shown.run_id:
            out.mirror.complete(shown.run_id)
        return _checked(here, location)


def _checked(out: Output, location: str | None) -> list[Finding]:
    shown = look(out)
    manifest = out.manifest(shown.run_id) if shown.run_id else None
    if manifest is None and not shown.trouble:
        raise DataError("no published run here", where=out.name, hint="run `scorelake score` first")
    board = Finding(
        out.leaderboard.name, not shown.trouble, shown.trouble or f"as it was published by {shown.run_id}"
    )
    if manifest is None:
        return [board]
    found = [_checksums(out, manifest), _balance(manifest), board]
    if not shown.trouble:
        found[-1] = _tables(out, manifest)
    recounted = _recount(out, manifest, location or manifest["run"]["lake"])
    if shown.rolled_back and not recounted.ok:
        why = f"{recounted.detail}; the output was rolled back to {shown.run_id}, and the lake is another by now"
        recounted = replace(recounted, detail=why, hint="`scorelake score` ends the rollback: the lake as it is now")
    return [*found, recounted]


def _checksums(out: Output, manifest: dict[str, Any]) -> Finding:
    wrong = damaged(out.snapshots / manifest["run"]["run_id"], manifest)
    detail = f"differ or are missing: {', '.join(wrong)}" if wrong else f"{len(manifest['files'])} files"
    return Finding("snapshot checksums", not wrong, detail)


def _balance(manifest: dict[str, Any]) -> Finding:
    run = manifest["run"]
    parts = [run[key] for key in ("graded", "ungraded", "duplicates", "rejected")]
    text = " + ".join(f"{part:,}" for part in parts)
    return Finding("row accounting", run["rows_read"] == sum(parts), f"{run['rows_read']:,} = {text}")


def _tables(out: Output, manifest: dict[str, Any]) -> Finding:
    """The database is as it was published, and shows the same counts as the snapshot and the balance."""
    with private_copy(out.leaderboard) as copy, duckdb.connect(str(copy), read_only=True) as db:
        problems, graded, ungraded = db.execute(
            "SELECT count(*), sum(n), sum(ungraded) FROM problem_counts"
        ).fetchone()  # type: ignore[misc]
        (listed,) = db.execute("SELECT sum(problems) FROM problem_histogram").fetchone()  # type: ignore[misc]
    run = manifest["run"]
    same = (problems, graded, ungraded) == (listed, run["graded"], run["ungraded"])
    return Finding(
        "leaderboard.duckdb", same, f"as it was published: {problems:,} problems, {graded:,} graded attempts"
    )


def _recount(out: Output, manifest: dict[str, Any], location: str) -> Finding:
    """Count the lake again in SQL and compare problem by problem."""
    settings = Settings.model_validate(json.loads(manifest["run"]["settings"]))
    listed = listing(location, settings.storage, settings.lake.exclude, out.name)
    left_out = {file for file, _ in manifest["quarantine"]}
    files = [file for file in listed.files if file.path not in left_out]
    shard = Shard(listed.root, tuple(files))
    with (
        TemporaryDirectory() as aside,
        local_copy(shard, Path(aside) / "lake", settings) as here,
        duckdb.connect() as db,
    ):
        db.execute("SET TimeZone = 'UTC'")
        counts = out.snapshots / manifest["run"]["run_id"] / "problem_counts"
        db.read_parquet([literal(str(path)) for path in sorted(counts.glob("*"))]).create("published")
        db.execute(recount_sql(db, here.root, files, settings))
        columns = "benchmark, subject, model, protocol, problem_id, n, c, ungraded"
        published = {column for column, *_ in db.execute("DESCRIBE published").fetchall()}
        if "answer_counts" in published and settings.duplicates.rule not in _CHOOSING:
            columns += ", answer_counts, answer_passes"
        if settings.protocol.columns:  # the text of a protocol is Polars' spelling; compare without it
            columns = columns.replace(" protocol,", "")
        (missing,) = db.execute(
            f"SELECT count(*) FROM (SELECT {columns} FROM recount EXCEPT ALL SELECT {columns} FROM published)"
        ).fetchone()  # type: ignore[misc]
        (extra,) = db.execute(
            f"SELECT count(*) FROM (SELECT {columns} FROM published EXCEPT ALL SELECT {columns} FROM recount)"
        ).fetchone()  # type: ignore[misc]
        (problems,) = db.execute("SELECT count(*) FROM recount").fetchone()  # type: ignore[misc]
    if missing or extra:
        return Finding(
            "recount in SQL",
            ok=False,
            detail=f"{max(missing, extra):,} of {problems:,} problems differ (the lake may have changed since)",
        )
    return Finding("recount in SQL", ok=True, detail=f"{problems:,} problems equal")


def recount_sql(db: duckdb.DuckDBPyConnection, root: str, files: list[File], settings: Settings) -> str:
    """Create `attempts` from the files and return the query that counts it into the table `recount`."""
    names, policy = settings.columns, settings.policy
    _open(db, [str(Path(root) / file.path) for file in files], files)
    have = {column: kind for column, kind, *_ in db.execute("DESCRIBE raw").fetchall()}

    def text(name: str, default: str = "") -> str:
        beside = f"WHEN map_contains(keys, {_string(name)}) THEN keys[{_string(name)}] ELSE {_string(default)} END"
        own = f"WHEN list_contains(own, {_string(name)}) THEN {_identifier(name)}::VARCHAR " if name in have else ""
        return f"CASE {own}{beside}"

    passed, score = _identifier(names.passed), _identifier(names.score)
    bad, verdict, known = ["false"], "NULL::BOOLEAN", []
    if names.score in have:
        own = "FLOAT" if have[names.score] == "FLOAT" else "DOUBLE"
        levels = ", ".join(f"{level}::{own}" for level in settings.rubric.levels)
        no_number = f"ltrim({score}::DOUBLE::VARCHAR, '-') IN ('nan', 'inf')"  # by text: see _answer
        bad.append(f"{score} NOT IN ({levels})" if levels else no_number)
        known.append(f"{score} IS NOT NULL")
        if policy.pass_threshold is not None:
            verdict = f"{score} >= {policy.pass_threshold}::{own}"
    if names.passed in have:
        wrong, verdict = _verdict(passed, have[names.passed], settings)
        bad.append(wrong)
        known.append(f"{passed} IS NOT NULL")
    keys = {
        "benchmark": text(names.benchmark, "default"),
        "subject": text(names.subject, "all"),
        "model": text(names.model),
        "problem_id": text(names.problem_id),
    }
    conflicts = [
        f"(list_contains(own, {_string(name)}) AND map_contains(keys, {_string(name)}) "
        f"AND {_identifier(name)}::VARCHAR IS DISTINCT FROM keys[{_string(name)}])"
        for name in (names.benchmark, names.subject, names.model, names.problem_id)
        if name in have
    ]
    protocol = [_protocol(text(name), have.get(name)) for name in settings.protocol.columns] or ["''"]
    graded = "true" if policy.ungraded == "fail" else " AND ".join(known)
    told, order = settings.duplicates.policy != "off" and names.attempt in have, "(_path, file_row_number)"
    kept = {
        "first": f"arg_min(passed, {order}) FILTER (graded)",
        "last": f"arg_max(passed, {order}) FILTER (graded)",
        "all-pass": "bool_and(passed) FILTER (graded)",
    }.get(settings.duplicates.rule, "bool_or(passed) FILTER (graded)")
    said = {
        "first": f"struct_extract(arg_min(struct_pack(a := answer), {order}) FILTER (graded), 'a')",
        "last": f"struct_extract(arg_max(struct_pack(a := answer), {order}) FILTER (graded), 'a')",
    }.get(settings.duplicates.rule, "min(answer) FILTER (graded)")
    return f"""
        CREATE TABLE recount AS
        WITH attempts AS (
            SELECT {", ".join(f"{expression} AS {key}" for key, expression in keys.items())},
                concat_ws(chr(31), {", ".join(f"coalesce({p}, chr(30))" for p in protocol)}) AS protocol,
                coalesce({" OR ".join([*bad, *conflicts])}, false) AS bad,
                {graded} AS graded,
                coalesce({verdict}, false) AS passed,
                {f"{_identifier(names.attempt)}::VARCHAR" if told else "NULL"} AS attempt,
                {_answer(names.answer, have.get(names.answer) if settings.answers else None)} AS answer,
                _path,
                file_row_number
            FROM raw JOIN folders ON raw._path = folders.path
        ),
        verdicts AS (
            SELECT benchmark, subject, model, protocol, problem_id, attempt,
                CASE WHEN attempt IS NULL THEN {order} END AS alone,
                bool_or(graded) AS graded,
                coalesce({kept}, false) AS passed,
                {said} AS answer
            FROM attempts
            WHERE NOT bad AND benchmark IS NOT NULL AND subject IS NOT NULL
                AND model IS NOT NULL AND problem_id IS NOT NULL
            GROUP BY ALL
        ),
        answers AS (
            SELECT {_KEYS}, answer, count(*) AS given, count(*) FILTER (passed) AS passes
            FROM verdicts
            WHERE graded AND answer IS NOT NULL
            GROUP BY ALL
        ),
        ballots AS (
            SELECT {_KEYS},
                list(given ORDER BY given DESC, passes DESC) AS answer_counts,
                list(passes ORDER BY given DESC, passes DESC) AS answer_passes
            FROM answers
            GROUP BY ALL
        ),
        counts AS (
            SELECT {_KEYS},
                count(*) FILTER (graded) AS n,
                {"count(*) FILTER (graded AND passed)" if verdict != "NULL::BOOLEAN" else "NULL::BIGINT"} AS c,
                count(*) FILTER (NOT graded) AS ungraded
            FROM verdicts
            GROUP BY ALL
        )
        SELECT counts.*, coalesce(answer_counts, []) AS answer_counts, coalesce(answer_passes, []) AS answer_passes
        FROM counts LEFT JOIN ballots USING ({_KEYS})
    """


def _open(db: duckdb.DuckDBPyConnection, paths: list[str], files: list[File]) -> None:
    """Create `raw`, the rows of all files, and `folders`: which columns each file has, and what is said beside."""
    db.execute("CREATE TABLE folders (path VARCHAR, own VARCHAR[], keys MAP(VARCHAR, VARCHAR))")
    for path, file in zip(paths, files, strict=True):
        columns = parquet.field_ids(parquet.footer(path).schema.to_arrow_schema())
        db.execute("INSERT INTO folders VALUES (?, ?, ?)", [path, list(columns), file.constant_columns(columns)])
    listed = ", ".join(_string(literal(path)) for path in paths)
    options = "union_by_name = true, hive_partitioning = false, filename = '_path', file_row_number = true"
    db.execute(f"CREATE VIEW raw AS SELECT * FROM read_parquet([{listed}], {options})")


def _verdict(column: str, kind: str, settings: Settings) -> tuple[str, str]:
    """Which rows have no valid verdict, and which passed."""
    if not kind.startswith(("VARCHAR", "ENUM", "BLOB")):
        return f"{column}::DOUBLE NOT IN (0, 1)", f"{column}::DOUBLE = 1"
    passes, fails = settings.columns.pass_values, settings.columns.fail_values
    valid = ", ".join(_string(value) for value in (*passes, *fails))
    passing = ", ".join(_string(value) for value in passes)
    return f"{column}::VARCHAR NOT IN ({valid})" if fails else "false", f"{column}::VARCHAR IN ({passing})"


def _protocol(text: str, kind: str | None) -> str:
    """A protocol value as it is written: a whole number is one, of whatever type it is."""
    return f"regexp_replace({text}, '[.]0$', '')" if kind in ("FLOAT", "DOUBLE") else text


def _answer(name: str, kind: str | None) -> str:
    """What an attempt answered; NULL where there is no answer, or no column of answers that is wanted."""
    if kind is None:
        return "NULL::VARCHAR"
    column = f"{_identifier(name)}::VARCHAR"
    if kind in ("FLOAT", "DOUBLE"):  # by text: DuckDB believes a file's statistics that there is no NaN
        return f"CASE WHEN ltrim({column}, '-') = '0.0' THEN '0.0' WHEN {column} NOT LIKE '%nan' THEN {column} END"
    return column


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
