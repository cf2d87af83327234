"""Verify an output: checksums, row accounting, and a recount of the lake in SQL that shares no code with the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from scorelake.counting.window import rows_outside
from scorelake.errors import DataError
from scorelake.lake.download import local_copy
from scorelake.lake.listing import listing
from scorelake.publish.leaderboard import identifier, text_literal
from scorelake.publish.publication import damaged_files
from scorelake.publish.runs import find_current_run
from scorelake.publish.snapshot import Manifest, Output, stored_settings
from scorelake.settings import COMPOSITE, Settings
from scorelake.storage import parquet
from scorelake.storage.disk import first_line, literal, private_copy
from scorelake.storage.files import File, Shard

_RECOUNT = "recount in SQL"
_KEYS = "benchmark, subject, model, protocol, problem_id"
_ORDER = "(_lake_path, file_row_number)"
_SMALLEST_ANSWER = ("any-pass", "all-pass")
"""Duplicate rules that keep the smallest of several answers, which depends on their spelling."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    ok: bool | None  # None: not checked
    detail: str
    hint: str = ""  # what to do, unless the run should be published again


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
        try:
            recount = _check_counts(local, manifest, location or manifest["run"]["lake"])
        except duckdb.Error as error:  # an encoding or a column that Arrow reads and DuckDB does not
            recount = Finding(_RECOUNT, ok=None, detail=f"DuckDB cannot read the lake ({first_line(error)[:200]})")
        if current.rolled_back and recount.ok is False:
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
    if settings.policy.sampling == "first":
        return Finding(_RECOUNT, ok=None, detail='[policy] sampling = "first" counts a part of the attempts only')
    listed = listing(location, settings.storage, settings.lake.exclude, out.name)
    quarantined = {file for file, _ in manifest["quarantine"]}
    shard = Shard(listed.root, tuple(file for file in listed.files if file.name not in quarantined))
    with (
        TemporaryDirectory() as folder,
        local_copy(shard, Path(folder) / "lake", settings) as local,
        duckdb.connect(
            config={"memory_limit": f"{max(1.0, settings.run.memory)}GiB", "temp_directory": folder}
        ) as db,
    ):
        db.execute("SET TimeZone = 'UTC'")
        counts = out.snapshots / manifest["run"]["run_id"] / "problem_counts"
        db.read_parquet([literal(str(path)) for path in sorted(counts.glob("*"))]).create("published")
        _create_attempts(db, local.root, shard.files, settings)
        _create_graded(db, fails=settings.policy.ungraded == "fail")
        _create_recount(db, settings.duplicates.rule)
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
    return Finding(_RECOUNT, not differing, detail)


def _row(db: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...]:
    return db.execute(sql).fetchall()[0]


def _create_attempts(db: duckdb.DuckDBPyConnection, root: str, files: tuple[File, ...], settings: Settings) -> None:
    """Create the view `attempts`: the rows of the lake with canonical columns.

    Files with the same columns are read together: DuckDB would make one type of two, such as a text of a boolean.
    """
    db.execute("CREATE TABLE folders (path VARCHAR, keys MAP(VARCHAR, VARCHAR))")
    db.execute("CREATE TABLE deleted (_lake_path VARCHAR, file_row_number BIGINT)")
    groups: dict[str, tuple[list[str], dict[str, str], set[str]]] = {}
    for file in files:
        path = str(Path(root) / file.path)
        metadata = parquet.footer(path)
        schema = metadata.schema.to_arrow_schema()
        stored = file.stored_names(schema)
        folder = file.constant_columns(stored)
        db.execute("INSERT INTO folders VALUES (?, ?)", [path, folder])
        left_out = np.union1d(file.deleted, rows_outside(path, metadata, folder, settings, stored)).tolist()
        db.execute("INSERT INTO deleted SELECT ?, unnest(?)", [path, left_out])
        stored = stored if file.table else {}
        halves = {field.name for field in parquet.renamed(schema, stored) if pa.types.is_float16(field.type)}
        key = str(([(field.name, field.type) for field in schema], stored))
        groups.setdefault(key, ([], stored, halves))[0].append(path)
    branches = [_select_attempts(db, *group, settings) for group in groups.values()]
    db.execute(f"CREATE VIEW attempts AS {' UNION ALL '.join(branches)}")


def _select_attempts(
    db: duckdb.DuckDBPyConnection, paths: list[str], stored: dict[str, str], halves: set[str], settings: Settings
) -> str:
    """Return the query of the canonical columns of files whose columns have the same names and types."""
    names, has_attempts = settings.columns, settings.duplicates.policy != "off"
    rows = _kept_rows(paths, stored)
    types = {column: kind for column, kind, *_ in db.execute(f"DESCRIBE FROM {rows}").fetchall()}

    def folder(name: str) -> str:
        return f"folders.keys[{text_literal(name)}]"

    def text(name: str, default: str = "") -> str:
        """Return the column of a file if it has one, else the value of its folder, else the default."""
        if name in types:
            column = f"raw.{identifier(name)}"
            return f"decode({column})" if types[name] == "BLOB" else f"{column}::VARCHAR"
        has_folder = f"map_contains(folders.keys, {text_literal(name)})"
        return f"CASE WHEN {has_folder} THEN {folder(name)} ELSE {text_literal(default)} END"

    def key(name: str, default: str = "") -> str:
        """Return the text of a key; || gives NULL if a part is NULL."""
        return " || '@' || ".join(text(part, default) for part in names.parts(name))

    invalid, verdict = _outcome(types, text(names.passed), settings, names.score in halves)
    keys = {part for each in COMPOSITE for part in names.parts(each)}
    others = {names.passed, names.score, *settings.protocol.columns, *settings.carried}
    for name in sorted((keys | others | ({names.attempt} if has_attempts else set())) & types.keys()):
        has_both = f"map_contains(folders.keys, {text_literal(name)})"
        invalid.append(f"({has_both} AND {_differs(text(name), folder(name), is_key=name in keys)})")
    invalid += [f"contains({text(part)}, '@')" for each in COMPOSITE for part in names.parts(each)[1:]]
    protocol = [_value(text(name), types.get(name)) for name in settings.protocol.columns] or ["''"]
    has_answers = settings.answers and names.answer in types
    answer = _value(text(names.answer), types[names.answer], nan="NULL") if has_answers else "NULL"
    return f"""
        SELECT
            {key("benchmark", "default")} AS benchmark,
            {key("subject", "all")} AS subject,
            {key("model")} AS model,
            {key("problem_id")} AS problem_id,
            concat_ws(chr(31), {", ".join(f"coalesce({value}, chr(30))" for value in protocol)}) AS protocol,
            coalesce({" OR ".join(invalid)}, false) AS is_invalid,
            {verdict} AS passed,
            {f"{text(names.score)} IS NOT NULL" if names.score in types else "false"} AS has_score,
            {"false" if verdict == "NULL::BOOLEAN" else "true"} AS has_verdicts,
            {f"nullif({text(names.attempt, chr(30))}, chr(30))" if has_attempts else "NULL"} AS attempt,
            {answer} AS answer,
            raw._lake_path,
            raw.file_row_number
        FROM {rows} AS raw JOIN folders ON raw._lake_path = folders.path
    """


def _kept_rows(paths: list[str], stored: dict[str, str]) -> str:
    """Return the query of the rows of files that are not deleted, with the columns of the table if there is one."""
    columns = [f"{identifier(there)} AS {identifier(name)}" for name, there in stored.items()]
    listed = ", ".join(text_literal(literal(path)) for path in paths)
    scan = f"read_parquet([{listed}], hive_partitioning = false, filename = '_lake_path', file_row_number = true)"
    selected = ", ".join([*columns, "_lake_path", "file_row_number"]) if stored else "*"
    return f"(SELECT {selected} FROM {scan} ANTI JOIN deleted USING (_lake_path, file_row_number))"


def _create_graded(db: duckdb.DuckDBPyConnection, fails: bool) -> None:
    """Create the view `graded`: valid attempts, and whether they count.

    Where attempts of a benchmark have verdicts and scores, an attempt is graded if it has both.
    """
    db.execute(f"""
        CREATE VIEW graded AS
        WITH valid AS (
            FROM attempts
            WHERE NOT is_invalid AND benchmark IS NOT NULL AND subject IS NOT NULL
                AND model IS NOT NULL AND problem_id IS NOT NULL
        ),
        kinds AS (
            SELECT benchmark,
                bool_or(passed IS NOT NULL AND has_score) AS has_both,
                bool_or(passed IS NOT NULL) OR (bool_or(has_verdicts) AND NOT bool_or(has_score)) AS verdicts
            FROM valid
            GROUP BY benchmark
        )
        SELECT valid.* REPLACE (coalesce(passed, false) AS passed), kinds.verdicts,
            {str(fails).lower()} OR CASE WHEN has_both THEN passed IS NOT NULL AND has_score
                ELSE passed IS NOT NULL OR has_score END AS graded
        FROM valid JOIN kinds USING (benchmark)
    """)


def _create_recount(db: duckdb.DuckDBPyConnection, rule: str) -> None:
    """Create the table `recount` from `graded`: resolve duplicates by the rule, then count per problem."""
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
                {answer} AS answer,
                any_value(verdicts) AS verdicts
            FROM graded
            GROUP BY ALL
        ),
        answers AS (
            SELECT {_KEYS}, answer, count(*) AS given, count(*) FILTER (passed) AS passes
            FROM verdicts
            WHERE graded AND verdicts AND answer IS NOT NULL
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
                CASE WHEN any_value(verdicts) THEN count(*) FILTER (graded AND passed) END AS c,
                count(*) FILTER (NOT graded) AS ungraded
            FROM verdicts
            GROUP BY ALL
        )
        SELECT counts.*, coalesce(answer_counts, []) AS answer_counts, coalesce(answer_passes, []) AS answer_passes
        FROM counts LEFT JOIN votes USING ({_KEYS})
    """)


def _outcome(types: Mapping[str, str], text: str, settings: Settings, is_half: bool) -> tuple[list[str], str]:
    """Return conditions for rows with an invalid outcome, and the verdict; `text` is the column `passed` as text."""
    names, threshold = settings.columns, settings.policy.pass_threshold
    passed, score = f"raw.{identifier(names.passed)}", f"raw.{identifier(names.score)}"
    invalid, verdict = ["false"], "NULL::BOOLEAN"
    if names.score in types:
        kind = "FLOAT" if types[names.score] == "FLOAT" else "DOUBLE"
        stored = np.float16 if is_half else float  # DuckDB reads a half float as a 32-bit one
        levels = ", ".join(f"{float(stored(level))}::{kind}" for level in settings.rubric.levels)
        not_finite = f"ltrim({score}::DOUBLE::VARCHAR, '-') IN ('nan', 'inf')"  # as text: see _value
        invalid.append(f"{score} NOT IN ({levels})" if levels else not_finite)
        verdict = verdict if threshold is None else f"{score} >= {float(stored(threshold))}::{kind}"
    kind = types.get(names.passed, "")
    spellings = ("true", "false") if kind == "BOOLEAN" else ("0", "1")
    is_text = kind.startswith(("VARCHAR", "ENUM", "BLOB"))
    if kind and (is_text or any(spelling in names.pass_values for spelling in spellings)):
        text = text if is_text else f"regexp_replace({text}, '[.]0$', '')"
        passes, fails = names.pass_values, names.fail_values
        text = text if "" in (*passes, *fails) else f"nullif({text}, '')"
        valid, passing = (", ".join(map(text_literal, values)) for values in ((*passes, *fails), passes))
        invalid += [f"{text} NOT IN ({valid})"] * bool(fails)
        verdict = f"{text} IN ({passing})"
    elif kind:
        invalid.append(f"{passed}::DOUBLE NOT IN (0, 1)")
        verdict = f"{passed}::DOUBLE = 1"
    return invalid, verdict


def _value(text: str, kind: str | None, nan: str = "'NaN'") -> str:
    """Return a text that is the same for equal values of any type: 1, 1.0 and the text 1; 0.0 and -0.0."""
    if kind not in ("FLOAT", "DOUBLE") and not str(kind).startswith("DECIMAL"):
        return text
    # by the text: DuckDB trusts statistics of a file that exclude NaN, and a 32-bit 0.1 is not that of 64 bits
    number = f"{text}::DOUBLE"
    is_whole = f"abs({number}) < 1e18 AND {number} = trunc({number})"
    whole = f"WHEN {is_whole} THEN {number}::HUGEINT::VARCHAR"
    return f"CASE WHEN {text} LIKE '%nan' THEN {nan} {whole} ELSE {number}::VARCHAR END"


def _differs(column: str, folder: str, is_key: bool) -> str:
    """Return a condition for rows with another value than their folder; except in keys, 0.7 and 0.70 are one."""
    if is_key:
        return f"{column} IS DISTINCT FROM {folder}"
    number = f"coalesce(TRY_CAST({folder} AS DOUBLE), 'nan')"
    differs = f"lower({column}) IS DISTINCT FROM lower({folder}) AND TRY_CAST({column} AS DOUBLE) <> {number}"
    return f"coalesce({differs}, lower({column}) IS DISTINCT FROM lower({folder}))"
