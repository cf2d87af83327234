"""The contract of every engine; `local` is the specification."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from conftest import run, tables
from scorelake import synth
from scorelake.engines import Engine, local
from scorelake.errors import DataError, LakeError


@pytest.fixture(params=["local", pytest.param("on_ray", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "local":
        return local
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this file
    on_ray: Engine = request.getfixturevalue(request.param)
    return on_ray


def square(number: int) -> int:
    time.sleep(0.3 if number == 0 else 0)
    return number * number


def picky(number: int) -> int:
    if number == 3:
        raise LakeError("three", where="here", hint="choose another")
    if number == 5:
        raise DataError("five")
    return number


def noted(path: str) -> str:
    Path(path).touch()
    time.sleep(0.05)
    return path


def test_results_in_the_order_of_the_items(engine: Engine) -> None:
    assert list(engine.map(square, (i for i in range(100)))) == [i * i for i in range(100)]
    assert list(engine.map(square, [])) == []


def test_two_maps_at_once(engine: Engine) -> None:
    assert list(zip(engine.map(square, [1, 2]), engine.map(picky, [1, 2]), strict=True)) == [(1, 1), (4, 2)]


def test_errors_keep_their_type_and_order(engine: Engine) -> None:
    results = engine.map(picky, range(10))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(LakeError) as caught:
        next(results)
    error = caught.value
    assert type(error) is LakeError
    assert (error.what, error.where, error.hint, error.exit_code) == ("three", "here", "choose another", 5)


def test_other_errors_keep_their_type(engine: Engine) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        list(engine.map(os.listdir, ["/no/such/folder"]))
    assert (type(missing.value), missing.value.filename) == (FileNotFoundError, "/no/such/folder")
    with pytest.raises(ZeroDivisionError):
        list(engine.map((1).__floordiv__, [0]))


def test_closing_the_iterator_stops_the_work(engine: Engine, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{i}") for i in range(500)]
    results = engine.map(noted, iter(paths))
    assert next(results) == paths[0]
    results.close()  # type: ignore[attr-defined]
    begun = len(list(tmp_path.iterdir()))
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) == begun < 100


@pytest.mark.slow
def test_the_whole_job_is_byte_identical(engine: Engine, tmp_path: Path) -> None:
    """The same cut of the work, wherever it is done: every file of the snapshot."""
    synth.write(tmp_path / "lake", synth.Plan(3, 40, 8, layout="shuffled", files=6, rewards=True))
    cut = "[run]\nshard_mb = 0.001\nbucket_rows = 300\n[metrics]\nnames = ['pass@1', 'avg@N', 'max@2']\n"
    run(tmp_path / "lake", tmp_path / "local", cut)
    report = run(tmp_path / "lake", tmp_path / "out", cut, engine=engine)
    assert (report.status, report.files_read) == ("published", 6)
    assert tables(tmp_path / "out") == tables(tmp_path / "local")
    assert any(name.startswith("problem_score/") for name in tables(tmp_path / "out"))
    assert run(tmp_path / "lake", tmp_path / "out", cut, engine=engine).status == "unchanged"
