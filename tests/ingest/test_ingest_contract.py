"""Laws that every adapter keeps, over every layout of every format: counts, repeats, cuts, one changed verdict."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ingested as lakes
from layouts import LAYOUTS, TABLE, Layout, Table
from scorelake.errors import DataError
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.formats import FORMATS, GENERIC
from scorelake.ingest.ingest_report import IngestReport
from scorelake.ingest.job import ingest
from scorelake.ingest.probe import probe

every = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def taken(layout: Layout, home: Path, lake: Path, **options: Any) -> IngestReport:
    return ingest([str(home)], str(lake), options=IngestOptions(**{**layout.options, **options}))


def cells(layout: Layout, lake: Path) -> Counter[tuple[int, int]]:
    """Problems per (n, c), by code of the tests' own."""
    return Counter((len(told), sum(told)) for told in lakes.problems(lake, layout.benchmark).values())


def expected(table: Table) -> Counter[tuple[int, int]]:
    graded = [[value for value in told if value is not None] for told in table.values()]
    return Counter((len(told), sum(told)) for told in graded)


def test_every_format_has_a_layout() -> None:
    assert {layout.format for layout in LAYOUTS.values()} == set(FORMATS)
    assert all(format_.name == name and format_.about for name, format_ in FORMATS.items())


@every
def test_counts(layout: Layout, tmp_path: Path) -> None:
    layout.write(tmp_path / "logs", TABLE)
    report = taken(layout, tmp_path / "logs", tmp_path / "lake")
    assert report.status == "written", [str(error) for error in report.refused]
    assert {told.format for told in report.sources} == {layout.format}
    assert cells(layout, tmp_path / "lake") == expected(TABLE)
    for told in report.sources:
        assert told.rows == told.graded + told.ungraded + told.duplicate + told.refused
        assert sum(told.histogram.values()) == 4 * len(told.benchmarks)
    assert report.total.rows == sum(told.rows for told in report.sources)
    names = {row["problem_id"].removeprefix("HumanEval/") for row in lakes.rows(tmp_path / "lake")}
    assert names == set(TABLE)
    assert not [path for path in (tmp_path).iterdir() if path.name.startswith(".")], "nothing is left aside"


@every
def test_no_verdict(layout: Layout, tmp_path: Path) -> None:
    """An attempt without a verdict counts by the tool's own rule, and by the other one when asked; both are told."""
    if not layout.nulls:
        return
    table = {name: [*told[:-1], None] for name, told in TABLE.items()}
    layout.write(tmp_path / "logs", table)
    failed = {name: [*told[:-1], 0] for name, told in TABLE.items()}
    taken(layout, tmp_path / "logs", tmp_path / "fail", errors="fail")
    assert cells(layout, tmp_path / "fail") == expected(failed)
    report = taken(layout, tmp_path / "logs", tmp_path / "ungraded", errors="ungraded")
    assert cells(layout, tmp_path / "ungraded") == expected(table)
    assert sum(told.errors for told in report.sources) >= 4
    told = report.total
    assert told.ungraded >= 4
    assert told.mean_errors_failed is not None
    assert told.mean_errors_ungraded is not None
    assert told.mean_errors_failed < told.mean_errors_ungraded


@every
def test_again_changes_nothing(layout: Layout, tmp_path: Path) -> None:
    layout.write(tmp_path / "logs", TABLE)
    taken(layout, tmp_path / "logs", tmp_path / "lake")

    def state() -> dict[str, tuple[int, bytes]]:
        files = [path for path in (tmp_path / "lake").rglob("*") if path.is_file() and path.name != "lock"]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = state()
    report = taken(layout, tmp_path / "logs", tmp_path / "lake")
    assert {told.status for told in report.sources} == {"unchanged"}
    assert state() == before
    (tmp_path / "logs").rename(tmp_path / "moved")
    taken(layout, tmp_path / "moved", tmp_path / "lake")
    assert cells(layout, tmp_path / "lake") == expected(TABLE), "a moved folder holds the same attempts"


@every
def test_one_changed_verdict_changes_one_count(layout: Layout, tmp_path: Path) -> None:
    table = {name: list(told) for name, told in TABLE.items()}
    table["g__h-4"][1] = 0
    layout.write(tmp_path / "logs", TABLE)
    taken(layout, tmp_path / "logs", tmp_path / "lake")
    layout.write(tmp_path / "logs", table)
    taken(layout, tmp_path / "logs", tmp_path / "lake")
    assert cells(layout, tmp_path / "lake") == expected(table), "what changed replaces what was read before"


def rows_of(layout: Layout, path: Path, home: Path) -> int:
    """Attempts that are read of a single file; DataError if it is refused."""
    report = ingest([str(path)], str(home / "lake"), options=IngestOptions(**layout.options))
    if report.refused:
        raise report.refused[0]
    return report.sources[0].rows - report.sources[0].refused


@every
def test_a_cut_is_refused(layout: Layout, tmp_path: Path) -> None:
    path = layout.write(tmp_path / "logs", TABLE)
    whole = path.read_bytes()
    rows = rows_of(layout, path, tmp_path / "whole")
    draw = random.Random(len(whole))
    cuts = {*range(len(whole) - 12, len(whole)), *draw.sample(range(1, len(whole)), min(30, len(whole) - 1))}
    for cut in sorted(cuts):
        part = whole[:cut]
        path.write_bytes(part)
        between = layout.lines and (part.endswith(b"\n") or whole[cut : cut + 1] == b"\n")
        try:
            found = rows_of(layout, path, tmp_path / "part")
        except DataError as error:
            told = error
        else:
            told = None
        if told is not None:
            assert told.where is not None
            assert not between or layout.format == "generic", f"{told} at {cut} of {len(whole)}"
            continue
        if layout.format == "prime-rl":  # a torn last line is written again, and told
            assert found == part.count(b"\n") + (whole[cut : cut + 1] == b"\n" and not part.endswith(b"\n"))
            continue
        assert between or part.rstrip() == whole.rstrip(), f"{found} of {rows} rows from {cut} of {len(whole)} bytes"


STRANGE = [
    *("yes", "1", [], {}, [1], {"value": 1}, 2, -1, 0.5, 1e308),
    *(float("inf"), float("-inf"), 10**400, "", "C\ud800"),
]


@every
def test_a_strange_verdict_is_never_a_pass(layout: Layout, tmp_path: Path) -> None:
    """Refused, or taken as a number for what it is; never a traceback, never another verdict."""
    if not layout.raw:
        return
    for i, strange in enumerate(STRANGE):
        table = {**TABLE, "a__b-1": [strange, 0, 1]}
        home = tmp_path / str(i)
        try:
            layout.write(home / "logs", table)
        except (UnicodeEncodeError, OverflowError):
            continue
        report = taken(layout, home / "logs", home / "lake")
        if report.status == "refused":
            assert not (home / "lake").exists()
            continue
        assert isinstance(strange, int | float), f"{strange!r} was taken"
        assert math.isfinite(strange)
        rewards = [row["score"] for row in lakes.rows(home / "lake") if "score" in row]
        assert strange in rewards or (layout.format in ("harbor", "tau-bench", "tau2") and strange != 1)


@pytest.mark.parametrize("strange", [None, True, 1.5, [], {}, "", "x" * 5000, "half \ud800"])
def test_a_strange_id_is_refused(strange: Any, tmp_path: Path) -> None:
    path = tmp_path / "any.jsonl"
    path.write_text(json.dumps({"problem_id": strange, "passed": True, "model": "m"}) + "\n")
    report = ingest([str(path)], str(tmp_path / "lake"), "generic", IngestOptions(benchmark="b"))
    assert report.status == "refused"


@every
def test_nothing_else_takes_it(layout: Layout, tmp_path: Path) -> None:
    path = layout.write(tmp_path / "logs", TABLE)
    found = [format_.name for format_ in FORMATS.values() if format_.detect(probe(path))]
    assert found == ([] if FORMATS[layout.format] is GENERIC else [layout.format])
