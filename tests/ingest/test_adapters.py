"""Laws that every adapter keeps, over every layout of every format: counts, repeats, truncation, malformed values.

Fuzzing changes values (another type, null, nested, huge), keys (missing) and bytes; ScorelakeError is the only
exception there may be. FUZZ=20 in the environment tries twenty times as many.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ingested as lakes
from layouts import LAYOUTS, TABLE, Layout, Table
from scorelake.errors import ScorelakeError
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.formats import FORMATS, GENERIC
from scorelake.ingest.ingest_report import IngestReport
from scorelake.ingest.job import ingest
from scorelake.ingest.json_stream import probe

TIMES = int(os.environ.get("FUZZ", "1"))
PACKED = ("inspect_eval", "inspect_crashed", "lighteval", "trl", "generic_gzip", "generic_csv", "generic_parquet")
every = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
every_text = pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in PACKED])
BAD_VERDICTS = [
    *("yes", "1", [], {}, [1], {"value": 1}, 2, -1, 0.5, 1e308),
    *(float("inf"), float("-inf"), 10**400, "", "C\ud800"),
]
ODD_VALUES: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, float("nan"), float("inf"), 10**30, "", "x", "\u2028", "y" * 5000, "7"),
    *([], [None], [[]], {}, {"": None}, {"a": {"a": {"a": []}}}),
]


def load(layout: Layout, home: Path, lake: Path, **options: Any) -> IngestReport:
    return ingest([str(home)], str(lake), options=IngestOptions(**{**layout.options, **options}))


def counts(layout: Layout, lake: Path) -> Counter[tuple[int, int]]:
    """Count problems per (n, c), by code of the tests' own."""
    return Counter((len(values), sum(values)) for values in lakes.problems(lake, layout.benchmark).values())


def expected(table: Table) -> Counter[tuple[int, int]]:
    graded = [[value for value in verdicts if value is not None] for verdicts in table.values()]
    return Counter((len(values), sum(values)) for values in graded)


def check_rows(report: IngestReport) -> None:
    for source in report.sources:
        assert source.rows == source.graded + source.ungraded + source.duplicate + source.refused


def test_every_format_has_a_layout() -> None:
    assert {layout.format for layout in LAYOUTS.values()} == set(FORMATS)
    assert all(format_.name == name for name, format_ in FORMATS.items())


@every
def test_only_one_format_accepts_a_file(layout: Layout, tmp_path: Path) -> None:
    path = layout.write(tmp_path / "logs", TABLE)
    accepting = [format_.name for format_ in FORMATS.values() if format_.detect(probe(path))]
    assert accepting == ([] if FORMATS[layout.format] is GENERIC else [layout.format])


@every
def test_counts_equal_the_table(layout: Layout, tmp_path: Path) -> None:
    layout.write(tmp_path / "logs", TABLE)
    report = load(layout, tmp_path / "logs", tmp_path / "lake")
    assert report.status == "written", [str(error) for error in report.refused]
    check_rows(report)
    assert {source.format for source in report.sources} == {layout.format}
    assert counts(layout, tmp_path / "lake") == expected(TABLE)
    assert all(sum(source.histogram.values()) == 4 * len(source.benchmarks) for source in report.sources)
    assert report.total.rows == sum(source.rows for source in report.sources)
    names = {row["problem_id"].removeprefix("HumanEval/") for row in lakes.rows(tmp_path / "lake")}
    assert names == set(TABLE) if layout.named else len(names) == len(TABLE)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "no temporary folder is left"


@pytest.mark.slow
@every
def test_attempts_without_a_verdict_count_by_rule(layout: Layout, tmp_path: Path) -> None:
    if not layout.nulls:
        return
    table = {name: [*verdicts[:-1], None] for name, verdicts in TABLE.items()}
    layout.write(tmp_path / "logs", table)
    load(layout, tmp_path / "logs", tmp_path / "fail", errors="fail")
    assert counts(layout, tmp_path / "fail") == expected({name: [*v[:-1], 0] for name, v in TABLE.items()})
    report = load(layout, tmp_path / "logs", tmp_path / "ungraded", errors="ungraded")
    assert counts(layout, tmp_path / "ungraded") == expected(table)
    assert min(report.total.ungraded, sum(source.errors for source in report.sources)) >= 4
    assert report.total.mean_errors_failed is not None
    assert report.total.mean_errors_ungraded is not None
    assert report.total.mean_errors_failed < report.total.mean_errors_ungraded


@pytest.mark.parametrize("name", ["inspect_eval", "harbor", "generic_csv"])
def test_ingesting_again_changes_nothing(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    layout.write(tmp_path / "logs", TABLE)
    load(layout, tmp_path / "logs", tmp_path / "lake")

    def state() -> dict[str, tuple[int, bytes]]:
        files = [path for path in (tmp_path / "lake").rglob("*") if path.is_file() and path.name != "lock"]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = state()
    report = load(layout, tmp_path / "logs", tmp_path / "lake")
    assert {source.status for source in report.sources} == {"unchanged"}
    assert state() == before


@pytest.mark.slow
@every
def test_truncated_file_is_refused(layout: Layout, tmp_path: Path) -> None:
    path = layout.write(tmp_path / "logs", TABLE)
    complete = path.read_bytes()
    rows = load(layout, path, tmp_path / "complete").total.rows
    draw = random.Random(len(complete))
    cuts = {
        *range(len(complete) - 12, len(complete)),
        *draw.sample(range(1, len(complete)), min(30, len(complete) - 1)),
    }
    for cut in sorted(cuts):
        part = complete[:cut]
        path.write_bytes(part)
        is_between_lines = layout.lines and (part.endswith(b"\n") or complete[cut : cut + 1] == b"\n")
        report = load(layout, path, tmp_path / "part")
        if report.refused:
            assert report.refused[0].where is not None
            assert not is_between_lines or layout.format == "generic", f"{report.refused} at {cut}"
            continue
        n = report.sources[0].rows - report.sources[0].refused
        if layout.format == "prime-rl":  # an incomplete last line is written again by the tool, and reported
            assert n == part.count(b"\n") + (complete[cut : cut + 1] == b"\n" and not part.endswith(b"\n"))
        else:
            is_complete = is_between_lines or part.rstrip() == complete.rstrip()
            assert is_complete, f"{n} of {rows} rows from {cut} of {len(complete)} bytes"


@pytest.mark.slow
@every
def test_malformed_verdict_is_never_a_pass(layout: Layout, tmp_path: Path) -> None:
    """It is refused, or read as the number it is."""
    for i, value in enumerate(BAD_VERDICTS if layout.raw else []):
        home = tmp_path / str(i)
        try:
            layout.write(home / "logs", {**TABLE, "a__b-1": [value, 0, 1]})
        except (UnicodeEncodeError, OverflowError):
            continue
        report = load(layout, home / "logs", home / "lake")
        if report.status == "refused":
            assert not (home / "lake").exists()
            continue
        assert isinstance(value, int | float), f"{value!r} was accepted"
        assert math.isfinite(value)
        rewards = [row["score"] for row in lakes.rows(home / "lake") if "score" in row]
        assert value in rewards or (layout.format in ("harbor", "tau-bench", "tau2") and value != 1)


@pytest.mark.parametrize("value", [None, True, 1.5, [], {}, "", "x" * 5000, "half \ud800"])
def test_malformed_id_is_refused(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "any.jsonl"
    path.write_text(json.dumps({"problem_id": value, "passed": True, "model": "m"}) + "\n")
    report = ingest([str(path)], str(tmp_path / "lake"), "generic", IngestOptions(benchmark="b"))
    assert report.status == "refused"


# --- fuzzing ------------------------------------------------------------------------------------------------------


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the path of every value in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, inner in inside for each in paths_in(inner, (*path, key)))]


def mutate(document: Any, draw: random.Random) -> Any:
    document = copy.deepcopy(document)
    *parents, last = draw.choice([path for path in paths_in(document) if path])
    holder = document
    for key in parents:
        holder = holder[key]
    if draw.random() < 0.3:
        del holder[last]
    else:
        holder[last] = draw.choice(ODD_VALUES)
    return document


def check_survival(layout: Layout, home: Path, lake: Path) -> None:
    """The input is read or refused; if it is refused, nothing is written."""
    try:
        report = load(layout, home, lake)
    except ScorelakeError:
        assert not lake.exists()
        return
    assert report.status != "refused" or not lake.exists()
    check_rows(report)


@pytest.mark.slow
@every
def test_mutated_values_and_bytes(layout: Layout, tmp_path: Path) -> None:
    draw = random.Random(f"{layout.write.__name__} {TIMES}")
    path = layout.write(tmp_path / "logs", TABLE)
    complete = path.read_bytes()
    is_text = layout.write.__name__ not in PACKED
    for i in range((20 if is_text else 8) * TIMES):
        if is_text and i >= 8 * TIMES:
            is_lines = layout.lines or path.name.endswith("_score.json")
            records = (
                [json.loads(line) for line in complete.split(b"\n") if line] if is_lines else [json.loads(complete)]
            )
            at = draw.randrange(len(records))
            records[at] = mutate(records[at], draw)
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        else:
            raw = bytearray(complete)
            for _ in range(draw.choice([1, 1, 3, 20])):
                raw[draw.randrange(len(raw))] = draw.choice([0, 10, 34, 44, 92, 123, 125, 255, draw.randrange(256)])
            path.write_bytes(raw)
        check_survival(layout, tmp_path / "logs", tmp_path / f"lake-{i}")


@pytest.mark.slow
@every_text
def test_byte_order_mark_and_line_ends_change_nothing(name: str, tmp_path: Path) -> None:
    path = LAYOUTS[name].write(tmp_path / "logs", TABLE)
    raw = path.read_bytes()
    plain = load(LAYOUTS[name], tmp_path / "logs", tmp_path / "plain")
    path.write_bytes(b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n") + b"\r\n \n")
    other = load(LAYOUTS[name], tmp_path / "logs", tmp_path / "other")
    assert not other.refused, [str(error) for error in other.refused]
    assert plain.total == other.total
