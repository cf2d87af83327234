"""Temporary names: unique, and with enough information to recognise abandoned files."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scorelake.errors import StorageError
from scorelake.storage import disk


def folder(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "text").write_text(text)
    return path


def test_no_two_names_are_the_same_and_all_are_hidden(tmp_path: Path) -> None:
    names = {disk.temp_path(tmp_path / "x").name for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith(".x.") for name in names)


def test_only_files_of_ended_processes_are_abandoned(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from scorelake.storage.disk import temp_path\n"
        "print(temp_path(pathlib.Path(sys.argv[1])), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "x")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        path = folder(Path(writer.stdout.readline().strip()), "half")
        assert not disk.is_abandoned(path)
        writer.kill()
        writer.wait()
    assert disk.is_abandoned(path)


def test_a_process_number_used_again_is_another_process(tmp_path: Path) -> None:
    mine = disk.temp_path(tmp_path / "x")
    writer = mine.name.split("-")
    assert not disk.is_abandoned(mine)
    writer[2] = str(int(writer[2]) - 1)
    assert disk.is_abandoned(tmp_path / "-".join(writer))


def test_files_of_other_machines_are_abandoned_after_a_day(tmp_path: Path) -> None:
    path = folder(tmp_path / ".x.0123456789ab-1-2-abcdef", "half")
    assert not disk.is_abandoned(path)
    yesterday = time.time() - 25 * 3600
    os.utime(path / "text", (yesterday, yesterday))
    os.utime(path, (yesterday, yesterday))
    assert disk.is_abandoned(path)
    (path / "text").write_text("still at it")
    assert not disk.is_abandoned(path)


def test_many_writers_of_one_folder(tmp_path: Path) -> None:
    """Concurrent replacements: always a complete folder, no error, no leftovers."""
    final = tmp_path / "final"

    def write(number: int) -> None:
        mine = folder(disk.temp_path(final), str(number))
        disk.replace_folder(mine, final)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(100)))
    assert list(tmp_path.iterdir()) == [final]
    assert (final / "text").read_text().isdecimal()
    with pytest.raises(FileNotFoundError):
        disk.replace_folder(tmp_path / "missing", final)


def test_nothing_is_set_aside_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "set-aside").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "file").touch()
    with pytest.raises(StorageError, match="is a link to another folder"):
        disk.set_aside(tmp_path / "out" / "file", tmp_path / "out")
    assert (tmp_path / "out" / "file").exists()
