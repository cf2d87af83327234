"""Files that no tool wrote: whatever is changed in them, they are refused or taken, and nothing else happens.

Mutations are of values (another type, null, nested, huge), of keys (missing) and of bytes. ScorelakeError is the only
exception there may be. FUZZ=20 in the environment tries twenty times as many.
"""

from __future__ import annotations

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from layouts import LAYOUTS, TABLE, Layout
from scorelake.errors import ScorelakeError
from scorelake.ingest.contract import IngestOptions
from scorelake.ingest.job import ingest

TIMES = int(os.environ.get("FUZZ", "1"))
STRANGE: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e308, float("nan"), float("inf"), 10**30, "", "x", "\u2028", "y" * 5000, "7"),
    *([], [None], [[]], {}, {"": None}, {"a": {"a": {"a": []}}}),
]
JSON = [
    name
    for name in LAYOUTS
    if name not in ("inspect_eval", "inspect_crashed", "generic_gzip", "generic_csv", "generic_parquet")
]


def places(told: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document."""
    inside = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    return [path, *(place for key, value in inside for place in places(value, (*path, key)))]


def mutated(told: Any, draw: random.Random) -> Any:
    told = copy.deepcopy(told)
    where = draw.choice([place for place in places(told) if place])
    holder = told
    for key in where[:-1]:
        holder = holder[key]
    if draw.random() < 0.3:
        del holder[where[-1]]
    else:
        holder[where[-1]] = draw.choice(STRANGE)
    return told


def survive(layout: Layout, home: Path, lake: Path) -> None:
    """Taken or refused; what is refused leaves nothing."""
    try:
        report = ingest([str(home)], str(lake), options=IngestOptions(**layout.options))
    except ScorelakeError:
        assert not lake.exists()
        return
    assert report.status != "refused" or not lake.exists()
    for told in report.sources:
        assert told.rows == told.graded + told.ungraded + told.duplicate + told.refused


@pytest.mark.parametrize("name", JSON)
def test_values(name: str, tmp_path: Path) -> None:
    layout, draw = LAYOUTS[name], random.Random(f"{name} {TIMES}")
    path = layout.write(tmp_path / "logs", TABLE)
    text = path.read_text(encoding="utf-8")
    for i in range(12 * TIMES):
        if layout.lines or path.name.endswith("_score.json"):
            records = [json.loads(line) for line in text.split("\n") if line]
            at = draw.randrange(len(records))
            records[at] = mutated(records[at], draw)
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        else:
            path.write_text(json.dumps(mutated(json.loads(text), draw)))
        survive(layout, tmp_path / "logs", tmp_path / f"lake-{i}")


@pytest.mark.parametrize("name", LAYOUTS)
def test_bytes(name: str, tmp_path: Path) -> None:
    layout, draw = LAYOUTS[name], random.Random(f"{name} {TIMES}")
    path = layout.write(tmp_path / "logs", TABLE)
    whole = path.read_bytes()
    for i in range(8 * TIMES):
        raw = bytearray(whole)
        for _ in range(draw.choice([1, 1, 3, 20])):
            raw[draw.randrange(len(raw))] = draw.choice([0, 10, 34, 44, 92, 123, 125, 255, draw.randrange(256)])
        path.write_bytes(raw)
        survive(layout, tmp_path / "logs", tmp_path / f"lake-{i}")


@pytest.mark.parametrize("name", JSON)
def test_spellings(name: str, tmp_path: Path) -> None:
    """A byte order mark, other ends of lines and spaces around change nothing."""
    layout = LAYOUTS[name]
    path = layout.write(tmp_path / "logs", TABLE)
    raw = path.read_bytes()
    plain = ingest([str(tmp_path / "logs")], str(tmp_path / "plain"), options=IngestOptions(**layout.options))
    path.write_bytes(b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n") + b"\r\n \n")
    other = ingest([str(tmp_path / "logs")], str(tmp_path / "other"), options=IngestOptions(**layout.options))
    assert not other.refused, [str(error) for error in other.refused]
    assert plain.total == other.total
