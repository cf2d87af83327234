"""Counts on the disk: what is written is what is read, in any range of hashes; what is damaged is nobody's word."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scorelake.counts import DOUBT, HASH, OUTCOMES, PROBLEM, TOLD, Counts, add
from scorelake.partials import Partial, Piece, Writer, as_dictionary, describe, described, read, sound

from made import counts, said
from scorelake import partials
from scorelake.schemas import KEYS
from scorelake.storage.disk import checksum
from scorelake.storage.files import File

ALL = (1 << 64) - 1


def split(home: Path, piece: Piece, edges: list[int], details: bool = True) -> list[Counts]:
    """What the ranges between the edges hold, those that hold something."""
    ends = [0, *edges, ALL + 1]
    parts = [read(home, piece, low, high - 1, details) for low, high in pairwise(ends)]
    return [part for part in parts if part is not None]


def write(whole: Counts, home: Path) -> Piece:
    return Writer(home).write(whole)


@pytest.mark.parametrize("details", [False, True])
def test_what_is_written_is_read(tmp_path: Path, details: bool) -> None:
    whole = add([counts(1, 60, words=2, details=details)])
    if whole.details is not None:
        whole = Counts(whole.texts, whole.problems, whole.details.sort(PROBLEM))
    piece = write(whole, tmp_path)
    hashes = whole.problems[HASH].to_list()
    assert piece == Piece(0, hashes[0], hashes[-1], whole.problems.height, whole.rows, 120 * details)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(piece.names)
    back = read(tmp_path, piece, 0, ALL, details=True)
    assert back is not None
    assert said(back) == said(whole)
    assert back.problems.select(*OUTCOMES, TOLD, DOUBT).schema == whole.problems.select(*OUTCOMES, TOLD, DOUBT).schema
    rng = np.random.default_rng(2)
    for _ in range(10):
        edges = sorted({*rng.choice(hashes, 3).tolist(), *(rng.choice(hashes, 2) + np.uint64(1)).tolist()})
        parts = split(tmp_path, piece, edges)
        assert sum(part.problems.height for part in parts) == whole.problems.height
        assert said(add(parts)) == said(whole), "the ranges together are the whole"
        for part in parts:
            assert part.details is None or part.details[PROBLEM].max() < part.problems.height  # type: ignore[operator]


def test_a_range_holds_its_ends(tmp_path: Path) -> None:
    piece = write(add([counts(3, 40)]), tmp_path)
    alone = read(tmp_path, piece, piece.low, piece.low, details=False)
    assert alone is not None
    assert alone.problems[HASH].to_list() == [piece.low]
    assert read(tmp_path, piece, piece.low + 1, piece.low + 1, details=False) is None
    assert read(tmp_path, piece, 0, piece.low - 1, details=False) is None
    assert read(tmp_path, piece, piece.high + 1, ALL, details=False) is None


def test_details_only_where_they_are_wanted(tmp_path: Path) -> None:
    piece = write(add([counts(4, 30, details=True)]), tmp_path)
    back = read(tmp_path, piece, 0, ALL, details=False)
    assert back is not None
    assert back.details is None


def test_every_piece_has_the_texts_that_it_uses_and_no_others(tmp_path: Path) -> None:
    """And pieces of several texts are added up by what their codes stand for."""
    writer, one, other = Writer(tmp_path), add([counts(1, 60)]), add([counts(2, 50)])
    half = one.problems.height // 2
    parts = [Counts(one.texts, one.problems[:half]), Counts(one.texts, one.problems[half:]), other]
    pieces = [writer.write(part) for part in parts]
    back = [part for part in (read(tmp_path, piece, 0, ALL, details=False) for piece in pieces) if part is not None]
    for part in back:
        for key in KEYS:
            assert set(part.problems[key]) == set(range(len(part.texts[key])))
    first = int(one.problems[HASH][0])
    some = read(tmp_path, pieces[0], first, first, details=False)
    assert some is not None
    assert [len(some.texts[key]) for key in KEYS] == [1] * len(KEYS)
    assert said(add(back)) == said(add([one, other]))


def test_carried_values_keep_their_type(tmp_path: Path) -> None:
    whole = add([counts(1, 30)])
    kinds = {"a": pl.UInt8, "b": pl.Int32, "c": pl.String, "d": pl.Date}
    more = [pl.lit(None, kind).alias(f"min:{name}") for name, kind in kinds.items()]
    whole = Counts(whole.texts, whole.problems.with_columns(*more, pl.lit(7, pl.UInt8).alias("max:a")))
    back = read(tmp_path, write(whole, tmp_path), 0, ALL, details=False)
    assert back is not None
    assert [back.problems.schema[f"min:{name}"] for name in kinds] == list(kinds.values())
    assert back.problems["max:a"].to_list() == [7] * back.problems.height
    assert back.problems.schema["max:a"] == pl.UInt8


def test_no_problems_at_all(tmp_path: Path) -> None:
    piece = write(counts(5, 0), tmp_path)
    assert (piece.problems, piece.rows) == (0, 0)
    assert read(tmp_path, piece, 0, ALL, details=True) is None


def test_numbers_beyond_32_bits(tmp_path: Path) -> None:
    whole = add([counts(6, 20)])
    large = whole.problems.with_columns(passed=pl.lit(1 << 40, pl.Int64), failed=pl.lit((1 << 31) - 1, pl.Int64))
    piece = write(Counts(whole.texts, large), tmp_path)
    assert piece.rows > 20 * (1 << 40) // 20
    back = read(tmp_path, piece, 0, ALL, details=False)
    assert back is not None
    assert back.rows == piece.rows
    assert set(back.problems["passed"]) == {1 << 40}


def test_texts_that_are_not_used_are_not_written() -> None:
    texts = pa.array(["a", None, "b", "c", *(f"t{i}" for i in range(100))], pa.large_string())
    for codes in ([2, 0, 2], [103, 0], []):
        made: Any = as_dictionary(np.array(codes, np.uint32), texts)
        assert made.to_pylist() == [texts[code].as_py() for code in codes]
        assert sorted(made.dictionary.to_pylist()) == sorted({texts[code].as_py() for code in codes})


# --- descriptions ---------------------------------------------------------------------------------------------

PARTIAL = Partial(
    name="x",
    files=(File("a.parquet", 5, 6, 7, 8), File("é/b.parquet", 1, 2, etag="tag")),
    way="plain: 3 rows, fewer than 10",
    read=3,
    graded=1,
    ungraded=1,
    rejected=1,
    rejects=(("a.parquet", "no model", 1),),
    quarantine=(("é/b.parquet", "the file is empty (0 bytes)"),),
    binary=True,
    rewards=False,
    answers="none",
    carried={"tier": "numbers"},
    pieces=(Piece(0, 1, ALL, 5, 9, 4), Piece(1, 1, 5, 2, 3, 0)),
    checksum="abc",
)
IDENTITY = {"format": 3, "counting": {"columns": {"model": "m"}}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the partial, which has its name."""
    (tmp_path / PARTIAL.name).mkdir()
    return tmp_path / PARTIAL.name


def test_a_description_comes_back(home: Path) -> None:
    describe(home, PARTIAL, IDENTITY)
    assert described(home) == PARTIAL
    assert described(home, IDENTITY) == PARTIAL
    assert described(home, {**IDENTITY, "format": 2}) is None
    home.rename(home.with_name("y"))
    assert described(home.with_name("y")) is None, "of another folder"
    assert (PARTIAL.problems, PARTIAL.weight) == (7, 8)
    names = [path.stem for path in PARTIAL.contents(home)]
    assert names == ["counts-00000", "texts-00000", "details-00000", "counts-00001", "texts-00001"]


def test_a_damaged_description_is_none(home: Path) -> None:
    assert described(home) is None
    assert described(home / "nowhere") is None
    describe(home, PARTIAL, IDENTITY)
    path = home / partials.DESCRIPTION
    good = path.read_bytes()
    told = json.loads(good)
    less: list[Any] = [{k: v for k, v in told.items() if k != key} for key in told if key != "checksum"]
    for bad in (*less, {**told, "more": 1}, {**told, "files": 5}, {**told, "pieces": [1]}, [], None, "x", 5):
        path.write_text(json.dumps(bad))
        assert described(home) is None, bad
    for end in range(len(good)):
        path.write_bytes(good[:end])
        assert described(home) is None, end
    path.write_bytes(b"\xff" + good)
    assert described(home) is None
    (home / "file").touch()
    assert described(home / "file") is None


def test_bytes_that_changed_are_noticed(tmp_path: Path) -> None:
    piece = write(add([counts(1, 60, details=True)]), tmp_path)
    partial = Partial(**{**vars(PARTIAL), "pieces": (piece,), "checksum": ""})
    partial = Partial(**{**vars(partial), "checksum": checksum(*partial.contents(tmp_path))})
    assert sound(tmp_path, partial)
    for path in partial.contents(tmp_path):
        good = path.read_bytes()
        path.write_bytes(good[:50] + bytes([good[50] ^ 1]) + good[51:])
        assert not sound(tmp_path, partial)
        path.unlink()
        assert not sound(tmp_path, partial)
        path.write_bytes(good)
        assert sound(tmp_path, partial)


def test_keys_survive(tmp_path: Path) -> None:
    """Names are data: whatever is in them comes back."""
    hard = ["", "a/b", "x=y", "007", "7", "\0", "é", "\n", "'; DROP TABLE", "z" * 5000]
    texts: dict[str, Any] = {key: pa.array(hard, pa.large_string()) for key in KEYS}
    many = len(hard)
    problems = pl.DataFrame(
        {
            HASH: np.arange(many, dtype=np.uint64),
            **{key: np.roll(np.arange(many, dtype=np.uint32), i) for i, key in enumerate(KEYS)},
            **{name: np.ones(many, np.int64) for name in (*OUTCOMES, TOLD)},
            DOUBT: np.zeros(many, bool),
        }
    )
    whole = Counts(texts, problems)
    back = read(tmp_path, write(whole, tmp_path), 0, ALL, details=False)
    assert back is not None
    assert said(back) == said(whole)
