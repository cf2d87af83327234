"""Where something is written before it is renamed into place: names that no two writers share, on any host.

A name tells its writer: the machine, the process, and when that process began. So what a crash left behind can be
told from what somebody is still writing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import socket
import time
from functools import cache
from pathlib import Path

from scorelake.storage import settle

FOREIGN = 24 * 3600.0
"""Seconds after which something untouched is given up where its writer cannot be asked: that was another machine."""


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


def replace_folder(aside: Path, final: Path) -> None:
    """Put a finished folder in place of another that may be there; of writers at the same time, the last stays."""
    while True:
        try:
            settle(aside, final)
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
        told = Path(f"/proc/{pid}/stat").read_text()
        return told.rpartition(")")[2].split()[19]
    except FileNotFoundError:
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
