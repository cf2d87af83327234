"""Compiled functions do what they do in Python; their machine code is kept, checked, and made again if it must be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from scorelake.counting import compiled
from scorelake.counting.compiled import Function, U

_STEP = 3


@Function
def _twice(value: Any) -> Any:
    return value + value


@Function
def _total(numbers: Any, first: Any) -> Any:
    total = first
    for i in range(numbers.size):
        total += _twice(numbers[i]) + _STEP
    return total


@Function
def _ends(rows: Any, wanted: Any, out: Any) -> Any:
    for i in range(rows.shape[0]):
        out[i] = rows[i, 0] if wanted else rows[i, rows.shape[1] - 1]
    return rows.shape[0], rows.shape[1], np.int64(-1)


@Function
def _nothing(out: Any) -> None:
    out[0] = True


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiled, "_homes", lambda: [tmp_path / "code"])
    return tmp_path / "code"


def _again(function: Function) -> Function:
    """The same function in a process that has not loaded it yet."""
    return Function(function.function)


def test_numbers_in_and_out(home: Path) -> None:
    total = _again(_total)
    numbers = np.arange(10)
    assert total(numbers, 5) == 5 + 90 + 30
    assert total(numbers[::2], -100) == -100 + 40 + 15
    assert total(numbers[:0], -1) == -1
    assert len(list(home.iterdir())) == 2  # numbers in a row, and every second one
    twice = _again(_twice)
    assert (twice(-(2**62)), twice(U(2**63 - 1))) == (-(2**63), 2**64 - 2)


def test_arrays_in_and_several_results_out(home: Path) -> None:
    rows = np.arange(12, dtype=np.uint64).reshape(3, 4)
    out = np.zeros(3, np.uint32)
    assert _again(_ends)(rows, True, out) == (3, 4, -1)
    assert out.tolist() == [0, 4, 8]
    assert _again(_ends)(rows.T, False, out := np.zeros(4, np.uint32)) == (4, 3, -1)
    assert out.tolist() == [8, 9, 10, 11]
    flags = np.zeros(2, bool)
    assert _again(_nothing)(flags) is None
    assert flags.tolist() == [True, False]


def test_code_is_made_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.arange(4)
    assert _again(_total)(numbers, 0) == 24
    monkeypatch.setattr(compiled, "_compile", None)
    assert _again(_total)(numbers, 0) == 24


@pytest.mark.parametrize("wrong", [b"", b"short", None])
def test_damaged_code_is_made_again(home: Path, wrong: bytes | None) -> None:
    numbers = np.arange(4)
    assert _again(_total)(numbers, 0) == 24
    (file,) = home.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if wrong is None else wrong)
    assert _again(_total)(numbers, 0) == 24
    assert file.read_bytes() == whole
    assert list(home.iterdir()) == [file]


def test_what_a_function_is_made_from_names_its_code(home: Path) -> None:
    def changed(**given: Any) -> Function:
        old = _total.function
        return Function(FunctionType(old.__code__, {**old.__globals__, **given}, old.__name__))

    @Function
    def thrice(value: Any) -> Any:
        return value * 3

    numbers = np.arange(4)
    assert changed()(numbers, 0) == 24
    assert changed(_STEP=4)(numbers, 0) == 28
    assert changed(_twice=thrice)(numbers, 0) == 30  # also what it calls
    assert len(list(home.iterdir())) == 3


def test_no_place_for_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only installation without a home: compiled for this run, instead of calling every file broken."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(compiled, "_homes", lambda: [tmp_path / "file" / "code"])
    assert _again(_total)(np.arange(4), 0) == 24
    monkeypatch.setattr(compiled, "_homes", list)
    assert _again(_total)(np.arange(4), 0) == 24


def test_the_second_place_is_used_where_the_first_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(compiled, "_homes", lambda: [tmp_path / "file", tmp_path / "own"])
    assert _again(_total)(np.arange(4), 0) == 24
    assert len(list((tmp_path / "own").iterdir())) == 1


def test_what_a_function_may_not_do(home: Path) -> None:
    @Function
    def checked(value: Any) -> Any:
        if value < 0:
            raise ValueError("negative")
        return value

    @Function
    def copied(numbers: Any) -> Any:
        return numbers.copy()[0]

    @Function
    def shared(numbers: Any) -> Any:
        return numbers[0] / 2

    assert checked(1) == 1
    with pytest.raises(AssertionError, match="raised something"):
        checked(-1)
    for function in (copied, shared):
        with pytest.raises(Exception, match=r"NRT required|gives float64"):
            function(np.arange(3))


def test_numba_is_not_loaded_for_code_that_is_there(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    synth = [sys.executable, "-m", "scorelake", "synth", lake, "--models", "1", "--problems", "20000"]
    subprocess.run(synth, check=True, capture_output=True)
    code = (
        "import sys, scorelake as sl\n"
        f"sl.score({str(lake)!r}, out=sys.argv[1])\n"
        "print('llvmlite' in sys.modules, 'numba' in sys.modules)"
    )
    run = [sys.executable, "-c", code]
    subprocess.run([*run, tmp_path / "first"], check=True, capture_output=True)
    told = subprocess.run([*run, tmp_path / "second"], check=True, capture_output=True, text=True)
    assert told.stdout.split()[-2:] == ["True", "False"]
