"""Verify an output: checksums, row accounting, and a recount of the lake in SQL that shares no code with the job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from scorelake.errors import DataError
from scorelake.lake.download import local_copy
from scorelake.lake.listing import listing
from scorelake.publish.leaderboard import identifier, text_literal
from scorelake.publish.publication import damaged_files
from scorelake.publish.runs import find_current_run
from scorelake.publish.snapshot import Manifest, Output, stored_settings
from scorelake.settings import COMPOSITE, Settings
from scorelake.storage import parquet
from scorelake.storage.disk import literal, private_copy
from scorelake.storage.files import File, Shard

_KEYS = "benchmark, subject, model, protocol, problem_id"
_ORDER = "(_path, file_row_number)"
_SMALLEST_ANSWER = ("any-pass", "all-pass")
"""Duplicate rules that keep the smallest of several answers, which depends on their spelling."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    ok: bool
    detail: str
    hint: str = ""
    """What to do, unless the run should be published again."""


def check(out: Output, location: str | None = None) -> list[Finding]:
    """Check the current run, against the lake that it read or the one at `location`."""
    with out.synced() as local:
        current = find_current_run(local)
        if local.mirror and current.run_id:
            local.mirror.complete(current.run_id)
        manifest = local.manifest(current.run_id) if current.run_id else None
        if manifest is None:
            if not current.defect:
                raise DataError("no published run here", where=out.name, hint="run `scorelake score` first")
            return [Finding(local.leaderboard.name, ok=False, detail=current.defect)]
        recount = _check_counts(local, manifest, location or manifest["run"]["lake"])
        if current.rolled_back and not recount.ok:
            detail = f"{recount.detail}; the output was rolled back to {current.run_id}, and the lake has changed"
            recount = replace(recount, detail=detail, hint="`scorelake score` ends the rollback and reads the lake")
        wrong = damaged_files(local.snapshots / current.run_id, manifest)
        files = f"differ or are missing: {', '.join(wrong)}" if wrong else f"{len(manifest['files'])} files"
        run = manifest["run"]
        parts = [run[key] for key in ("graded", "ungraded", "duplicates", "rejected")]
        sums = f"{run['rows_read']:,} = {' + '.join(f'{part:,}' for part in parts)}"
        return [
            Finding("snapshot checksums", not wrong, files),
            Finding("row accounting", run["rows_read"] == sum(parts), sums),
            _check_tables(local, manifest, current.defect),
            recount,
        ]


def _check_tables(out: Output, manifest: Manifest, defect: str) -> Finding:
    """Compare the counts in the database with its histogram and with the row accounting."""
    name = out.leaderboard.name
    if defect:
        return Finding(name, ok=False, detail=defect)
    with private_copy(out.leaderboard) as copy, duckdb.connect(str(copy), read_only=True) as db:
        counts = _row(db, "SELECT count(*), sum(n), sum(ungraded) FROM problem_counts")
        (problems,) = _row(db, "SELECT sum(problems) FROM problem_histogram")
    run = manifest["run"]
    detail = f"as it was published: {counts[0]:,} problems, {counts[1]:,} graded attempts"
    return Finding(name, counts == (problems, run["graded"], run["ungraded"]), detail)


def _check_counts(out: Output, manifest: Manifest, location: str) -> Finding:
    """Count the lake again in SQL and compare problem by problem."""
    settings = stored_settings(manifest)
    listed = listing(location, settings.storage, settings.lake.exclude, out.name)
    quarantined = {file for file, _ in manifest["quarantine"]}
    shard = Shard(listed.root, tuple(file for file in listed.files if file.name not in quarantined))
    with (
        TemporaryDirectory() as folder,
        local_copy(shard, Path(folder) / "lake", settings) as local,
        duckdb.connect() as db,
    ):
        db.execute("SET TimeZone = 'UTC'")
        counts = out.snapshots / manifest["run"]["run_id"] / "problem_counts"
        db.read_parquet([literal(str(path)) for path in sorted(counts.glob("*"))]).create("published")
        is_binary = _create_attempts(db, local.root, shard.files, settings)
        _create_recount(db, settings.duplicates.rule, is_binary)
        columns = f"{_KEYS}, n, c, ungraded"
        published = {column for column, *_ in db.execute("DESCRIBE published").fetchall()}
        if "answer_counts" in published and settings.duplicates.rule not in _SMALLEST_ANSWER:
            columns += ", answer_counts, answer_passes"
        if settings.protocol.columns:  # Polars spells protocols differently; compare without them
            columns = columns.replace(" protocol,", "")
        (problems,) = _row(db, "SELECT count(*) FROM recount")
        one, two = (f"SELECT {columns} FROM {table}" for table in ("recount", "published"))
        differing = max(
            _row(db, f"SELECT count(*) FROM ({a} EXCEPT ALL {b})")[0] for a, b in ((one, two), (two, one))
        )
    detail = f"{problems:,} problems equal"
    if differing:
        detail = f"{differing:,} of {problems:,} problems differ (the lake may have changed since)"
    return Finding("recount in SQL", not differing, detail)


def _row(db: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    return db.execute(sql).fetchall()[0]


def _create_attempts(db: duckdb.DuckDBPyConnection, root: str, files: tuple[File, ...], settings: Settings) -> bool:
    """Create the view `attempts`: the rows of the lake with canonical columns. Return whether they pass or fail."""
    _create_raw(db, [str(Path(root) / file.path) for file in files], files)
    names, policy, has_attempts = settings.columns, settings.policy, settings.duplicates.policy != "off"
    types = {column: kind for column, kind, *_ in db.execute("DESCRIBE raw").fetchall()}

    def text(name: str, default: str = "") -> str:
        """Return the column of a file if it has one, else the value of its folder, else the default."""
        quoted, own = text_literal(name), ""
        if name in types:
            own = f"WHEN list_contains(own, {quoted}) THEN {identifier(name)}::VARCHAR "
        return f"CASE {own}WHEN map_contains(keys, {quoted}) THEN keys[{quoted}] ELSE {text_literal(default)} END"

    def key(name: str, default: str = "") -> str:
        """Return the text of a key; || gives NULL if a part is NULL."""
        return " || '@' || ".join(text(part, default) for part in names.parts(name))

    passed, score = identifier(names.passed), identifier(names.score)
    invalid, verdict, graded = ["false"], "NULL::BOOLEAN", []
    if names.score in types:
        kind = "FLOAT" if types[names.score] == "FLOAT" else "DOUBLE"
        levels = ", ".join(f"{level}::{kind}" for level in settings.rubric.levels)
        not_finite = f"ltrim({score}::DOUBLE::VARCHAR, '-') IN ('nan', 'inf')"  # as text: see _answer
        invalid.append(f"{score} NOT IN ({levels})" if levels else not_finite)
        graded.append(f"{score} IS NOT NULL")
        if policy.pass_threshold is not None:
            verdict = f"{score} >= {policy.pass_threshold}::{kind}"
    if names.passed in types:
        wrong, verdict = _verdict(passed, types[names.passed], settings)
        invalid.append(wrong)
        graded.append(f"{passed} IS NOT NULL")
    keys = {part for each in COMPOSITE for part in names.parts(each)}
    others = {*settings.protocol.columns, *settings.carried, *([names.attempt] if has_attempts else [])}
    invalid += [_contradicts_folder(name, is_key=name in keys) for name in sorted((keys | others) & types.keys())]
    invalid += [f"contains({text(part)}, '@')" for each in COMPOSITE for part in names.parts(each)[1:]]
    protocol = [_protocol(text(name), types.get(name)) for name in settings.protocol.columns] or ["''"]
    db.execute(f"""
        CREATE VIEW attempts AS
        SELECT
            {key("benchmark", "default")} AS benchmark,
            {key("subject", "all")} AS subject,
            {key("model")} AS model,
            {key("problem_id")} AS problem_id,
            concat_ws(chr(31), {", ".join(f"coalesce({value}, chr(30))" for value in protocol)}) AS protocol,
            coalesce({" OR ".join(invalid)}, false) AS is_invalid,
            {"true" if policy.ungraded == "fail" else " AND ".join(graded)} AS graded,
            coalesce({verdict}, false) AS passed,
            {f"nullif({text(names.attempt, chr(30))}, chr(30))" if has_attempts else "NULL"} AS attempt,
            {_answer(names.answer, types.get(names.answer) if settings.answers else None)} AS answer,
            _path,
            file_row_number
        FROM raw JOIN folders ON raw._path = folders.path
    """)
    return verdict != "NULL::BOOLEAN"


def _create_recount(db: duckdb.DuckDBPyConnection, rule: str, is_binary: bool) -> None:
    """Create the table `recount` from `attempts`: resolve duplicates by the rule, then count per problem."""
    passed = {
        "first": f"arg_min(passed, {_ORDER}) FILTER (graded)",
        "last": f"arg_max(passed, {_ORDER}) FILTER (graded)",
        "all-pass": "bool_and(passed) FILTER (graded)",
    }.get(rule, "bool_or(passed) FILTER (graded)")
    answer = {  # in a struct, since arg_min skips nulls
        "first": f"struct_extract(arg_min(struct_pack(a := answer), {_ORDER}) FILTER (graded), 'a')",
        "last": f"struct_extract(arg_max(struct_pack(a := answer), {_ORDER}) FILTER (graded), 'a')",
    }.get(rule, "min(answer) FILTER (graded)")
    db.execute(f"""
        CREATE TABLE recount AS
        WITH verdicts AS (
            SELECT {_KEYS}, attempt,
                CASE WHEN attempt IS NULL THEN {_ORDER} END AS unnumbered,
                bool_or(graded) AS graded,
                coalesce({passed}, false) AS passed,
                {answer} AS answer
            FROM attempts
            WHERE NOT is_invalid AND benchmark IS NOT NULL AND subject IS NOT NULL
                AND model IS NOT NULL AND problem_id IS NOT NULL
            GROUP BY ALL
        ),
        answers AS (
            SELECT {_KEYS}, answer, count(*) AS given, count(*) FILTER (passed) AS passes
            FROM verdicts
            WHERE graded AND answer IS NOT NULL
            GROUP BY ALL
        ),
        votes AS (
            SELECT {_KEYS},
                list(given ORDER BY given DESC, passes DESC) AS answer_counts,
                list(passes ORDER BY given DESC, passes DESC) AS answer_passes
            FROM answers
            GROUP BY ALL
        ),
        counts AS (
            SELECT {_KEYS},
                count(*) FILTER (graded) AS n,
                {"count(*) FILTER (graded AND passed)" if is_binary else "NULL::BIGINT"} AS c,
                count(*) FILTER (NOT graded) AS ungraded
            FROM verdicts
            GROUP BY ALL
        )
        SELECT counts.*, coalesce(answer_counts, []) AS answer_counts, coalesce(answer_passes, []) AS answer_passes
        FROM counts LEFT JOIN votes USING ({_KEYS})
    """)


def _create_raw(db: duckdb.DuckDBPyConnection, paths: list[str], files: tuple[File, ...]) -> None:
    """Create `raw`, the rows of all files, and `folders`: the columns of each file, and values from its path."""
    db.execute("CREATE TABLE folders (path VARCHAR, own VARCHAR[], keys MAP(VARCHAR, VARCHAR))")
    db.execute("CREATE TABLE deleted (_path VARCHAR, file_row_number BIGINT)")
    for path, file in zip(paths, files, strict=True):
        columns = parquet.field_ids(parquet.footer(path).schema.to_arrow_schema())
        db.execute("INSERT INTO folders VALUES (?, ?, ?)", [path, list(columns), file.constant_columns(columns)])
        db.execute("INSERT INTO deleted SELECT ?, unnest(?)", [path, file.deleted.tolist()])
    listed = ", ".join(text_literal(literal(path)) for path in paths)
    options = "union_by_name = true, hive_partitioning = false, filename = '_path', file_row_number = true"
    kept = "ANTI JOIN deleted USING (_path, file_row_number)"
    db.execute(f"CREATE VIEW raw AS FROM read_parquet([{listed}], {options}) {kept}")


def _verdict(column: str, kind: str, settings: Settings) -> tuple[str, str]:
    """Return conditions for rows with an invalid verdict, and for rows that passed."""
    if not kind.startswith(("VARCHAR", "ENUM", "BLOB")):
        return f"{column}::DOUBLE NOT IN (0, 1)", f"{column}::DOUBLE = 1"
    passes, fails = settings.columns.pass_values, settings.columns.fail_values
    valid, passing = (", ".join(map(text_literal, values)) for values in ((*passes, *fails), passes))
    return f"{column}::VARCHAR NOT IN ({valid})" if fails else "false", f"{column}::VARCHAR IN ({passing})"


def _contradicts_folder(name: str, is_key: bool) -> str:
    """Return a condition for rows with another value than their folder; except in keys, 0.7 and 0.70 are one."""
    column, folder = f"{identifier(name)}::VARCHAR", f"keys[{text_literal(name)}]"
    differs = f"{column} IS DISTINCT FROM {folder}"
    if not is_key:
        number = f"coalesce(TRY_CAST({folder} AS DOUBLE), 'nan')"
        differs = f"lower({column}) IS DISTINCT FROM lower({folder}) AND TRY_CAST({column} AS DOUBLE) <> {number}"
        differs = f"coalesce({differs}, lower({column}) IS DISTINCT FROM lower({folder}))"
    return f"(list_contains(own, {text_literal(name)}) AND map_contains(keys, {text_literal(name)}) AND {differs})"


def _protocol(text: str, kind: str | None) -> str:
    """Return a protocol value as text; whole numbers are spelled the same whatever their type."""
    return f"regexp_replace({text}, '[.]0$', '')" if kind in ("FLOAT", "DOUBLE") else text


def _answer(name: str, kind: str | None) -> str:
    """Return the answer as text; NULL for NaN, or without a column of answers."""
    if kind is None:
        return "NULL::VARCHAR"
    column = f"{identifier(name)}::VARCHAR"
    if kind in ("FLOAT", "DOUBLE"):  # as text: DuckDB trusts statistics of a file that exclude NaN
        return f"CASE WHEN ltrim({column}, '-') = '0.0' THEN '0.0' WHEN {column} NOT LIKE '%nan' THEN {column} END"
    return column
