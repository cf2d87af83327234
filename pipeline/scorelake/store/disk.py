"""Files on a disk that may fill up, fail or lose power: there as written, or not there.

Whatever is written is written aside, flushed, and renamed into place. The name aside is one that no two writers
share, on any host, and it tells its writer: the machine, the process, and when that process began. So what a crash
left behind can be told from what somebody is still writing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from scorelake.errors import ScorelakeError, StorageError
from scorelake.threads import side_by_side

REMOTE = ("s3://", "gs://", "az://")
FOREIGN = 24 * 3600.0
"""Seconds after which something untouched is given up where its writer cannot be asked: that was another machine."""


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
def writing(where: object) -> Iterator[None]:
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
    return hashlib.sha256(b"".join(side_by_side(_digest, paths))).hexdigest()


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


def settle(aside: Path, final: Path) -> None:
    """Flush a finished folder or file, rename it into place, and flush the rename."""
    inside: Iterable[Path] = aside.rglob("*") if aside.is_dir() else ()
    side_by_side(flush, inside)
    flush(aside)
    os.replace(aside, final)
    flush(final.parent)


def replace_text(path: Path, text: str) -> None:
    """A small file, replaced in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # several hosts may write here
    aside.write_text(text, encoding="utf-8")
    settle(aside, path)


# --- aside --------------------------------------------------------------------------------------------------------


def beside(final: Path) -> Path:
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
                settle(aside, final)
            else:
                os.replace(aside, final)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        old = beside(final)
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
