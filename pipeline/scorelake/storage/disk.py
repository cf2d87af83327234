"""Files on a disk that may fill up, fail or lose power: there as written, or not there.

Whatever is written is written aside, flushed, and renamed into place. The name aside is one that no two writers
share, on any host, and it tells its writer: the machine, the process, and when that process began. So what a crash
left behind can be told from what somebody is still writing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from scorelake.errors import ScorelakeError, StorageError
from scorelake.threads import parallel_map

REMOTE = ("s3://", "gs://", "az://")
FOREIGN = 24 * 3600.0
"""Seconds after which something untouched is given up where its writer cannot be asked: that was another machine."""


RUN_ID, PARTIAL = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}"), re.compile(r"[0-9a-f]{32}")
"""What our snapshots and partials are called: nothing of another name is ever removed."""
BOARD, SNAPSHOTS = "leaderboard.duckdb", "snapshots"
MARK = "scorelake-output.json"
"""The file that makes a folder an output of ours."""
_ABOUT = "This folder is an output of scorelake. Only folders with this file are written to, cleaned or rolled back."
SET_ASIDE = "set-aside"
"""The folder of an output for what was damaged or changed by hand."""


def is_remote(location: object) -> bool:
    """An address of object storage, not a path."""
    return str(location).startswith(REMOTE)


DEFECTS = (
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""What no disk can cause."""


@contextmanager
def storage_errors(where: object) -> Iterator[None]:
    """Around code that only writes: whatever a library raises there is the storage's failure, told as such."""
    try:
        yield
    except (ScorelakeError, *DEFECTS):
        raise
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StorageError(
            f"cannot be written ({first}); nothing was published",
            where=str(where),
            hint="free space or mend permissions, then run again: what was counted is kept",
        ) from error


def checksum(*paths: Path) -> str:
    """SHA-256 of a file, or of several one after another."""
    return hashlib.sha256(b"".join(parallel_map(_digest, paths))).hexdigest()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def flush(path: Path) -> None:
    """Ask the system to put a file, or a folder's entries, on the disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def atomic_replace(aside: Path, final: Path) -> None:
    """Flush a finished folder or file, rename it into place, and flush the rename."""
    inside: Iterable[Path] = aside.rglob("*") if aside.is_dir() else ()
    parallel_map(flush, inside)
    flush(aside)
    os.replace(aside, final)
    flush(final.parent)


def replace_text(path: Path, text: str) -> None:
    """A small file, replaced in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = temp_path(path)  # several hosts may write here
    aside.write_text(text, encoding="utf-8")
    atomic_replace(aside, path)


def mark(folder: Path) -> None:
    """Say that a folder is an output of ours."""
    if (folder / MARK).is_dir():
        set_aside(folder / MARK, folder)
    replace_text(folder / MARK, json.dumps({"scorelake": "output", "about": _ABOUT}, indent=1) + "\n")


def is_marked(folder: Path) -> bool:
    """It carries our mark: it may be written to and cleaned, and it is part of no lake."""
    told = read_json(folder / MARK)
    return isinstance(told, dict) and told.get("scorelake") == "output"


def read_json(path: Path) -> Any:
    """What a small file of ours says; None if it is not there, or cannot be read or understood."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


@contextmanager
def private_copy(path: Path) -> Iterator[Path]:
    """A copy of a file for the time being, under the same name: whoever has the file open or locked is no matter."""
    with TemporaryDirectory(prefix="scorelake-") as folder:
        copy = Path(folder) / path.name
        try:
            shutil.copyfile(path, copy)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise StorageError(
                f"cannot be copied to be read ({error.strerror})",
                where=str(path),
                hint=f"it is read from a copy in {folder}: free space there, or set TMPDIR",
            ) from None
        yield copy


def literal(path: str) -> str:
    """A path that DuckDB takes as it is, not as a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def open_real(path: Path) -> IO[str]:
    """A file of our own to be written to or locked: made if it is not there, never reached through a link."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        handle = -1
    if handle < 0 or not stat.S_ISREG(os.fstat(handle).st_mode):
        if handle >= 0:
            os.close(handle)
        raise StorageError("is a link, or no plain file", where=str(path), hint="remove it: nothing of ours is in it")
    return os.fdopen(handle, "r+")


def set_aside(path: Path, root: Path) -> Path:
    """Move something out of the way without losing it: into the folder set-aside of an output; where it is now."""
    home = root / SET_ASIDE
    home.mkdir(exist_ok=True)
    there = home / f"{path.name}.{secrets.token_hex(4)}"
    os.rename(path, there)
    return there


# --- aside --------------------------------------------------------------------------------------------------------


def temp_path(final: Path) -> Path:
    """A new hidden name in the same folder."""
    pid = os.getpid()
    return final.with_name(f".{final.name}.{_machine()}-{pid}-{_began(pid)}-{secrets.token_hex(4)}")


def abandoned(path: Path) -> bool:
    """Nobody is writing there any more: its process is gone, or it is of another machine and a day old."""
    writer = path.name.rpartition(".")[2].split("-")
    if len(writer) == 4 and writer[0] == _machine() and writer[1].isdigit():
        return _began(int(writer[1])) != writer[2]
    try:
        touched = max(entry.stat().st_mtime for entry in [path, *path.rglob("*")])
    except FileNotFoundError:  # it moves, so it is somebody's
        return False
    return time.time() - touched > FOREIGN


def remove(path: Path) -> None:
    """Whatever it is, if it is still there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def replace_folder(aside: Path, final: Path, flushed: bool = True) -> None:
    """Put a finished folder in place of another that may be there; of writers at the same time, the last stays.

    What has a checksum of its own need not be flushed: after a power cut it is made again.
    """
    while True:
        try:
            if flushed:
                atomic_replace(aside, final)
            else:
                os.replace(aside, final)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        old = temp_path(final)
        try:
            os.rename(final, old)
        except FileNotFoundError:  # another writer is as far as we are
            continue
        remove(old)


@cache
def _machine() -> str:
    """Tells places apart where process numbers mean different processes: hosts, and containers on one host."""
    known = [socket.gethostname()]
    if os.path.exists("/proc/self/ns/pid"):
        known += [Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:12]


def _began(pid: int) -> str:
    """When a living process began, as far as the system tells, since numbers are used again; "" if it is gone."""
    try:
        state, *told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state == "Z" else told[18]  # who is dead but not yet buried writes no more
    except (FileNotFoundError, ProcessLookupError):
        pass
    if os.path.exists("/proc/self"):
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "0"
