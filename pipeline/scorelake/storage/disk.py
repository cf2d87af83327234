"""Write files and folders atomically: under a temporary name, flushed, and renamed.

Temporary names identify their writer, so that leftovers of a crash differ from files that are being written.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

from scorelake.errors import ScorelakeError, StorageError, UsageError
from scorelake.threads import parallel_map

if TYPE_CHECKING:
    from scorelake.settings import Storage

ABANDONED_AFTER_S = 24 * 3600.0
"""Age at which a temporary file of another machine, whose processes cannot be checked, counts as abandoned."""
RUN_ID, PARTIAL = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}"), re.compile(r"[0-9a-f]{32}")
"""Names of snapshots and partials. Nothing with another name is ever removed."""
BOARD, SNAPSHOTS = "leaderboard.duckdb", "snapshots"
MARK = "scorelake-output.json"
"""The file that identifies an output folder."""
_MARK_TEXT = """{
 "scorelake": "output",
 "about": "This folder is an output of scorelake. Only folders with this file are written to, cleaned or rolled back."
}
"""
# Exceptions that no disk can cause: bugs, or input that the caller handles.
_NOT_STORAGE = (
    *(ScorelakeError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError),
    *(TypeError, ValueError),
)


def is_remote(location: object) -> bool:
    """Return whether a location is an address of object storage."""
    return str(location).startswith(("s3://", "gs://", "az://"))


def check_location(value: object, argument: str = "out") -> str:
    """Return a path or URL as text."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise UsageError(f"{argument} must be a path or a URL, got {value!r}")
    return str(os.fspath(value))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def storage_errors(where: object) -> Iterator[None]:
    """Raise StorageError for whatever a library raises in code that only writes."""
    try:
        yield
    except _NOT_STORAGE:
        raise
    except Exception as error:
        raise StorageError(
            f"cannot be written ({first_line(error)}); nothing was published",
            where=str(where),
            hint="free disk space or fix permissions, then run again; finished counts are kept",
        ) from error


def checksum(*paths: Path) -> str:
    """Return the SHA-256 of the SHA-256 digests of files."""

    def digest(path: Path) -> bytes:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    return hashlib.sha256(b"".join(parallel_map(digest, paths))).hexdigest()


def flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def atomic_replace(temporary: Path, final: Path) -> None:
    """Flush a finished file or folder, rename it, and flush the rename."""
    parallel_map(flush, temporary.rglob("*") if temporary.is_dir() else ())
    flush(temporary)
    os.replace(temporary, final)
    flush(final.parent)


def replace_bytes(path: Path, data: bytes) -> None:
    """Write a small file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temp_path(path)
    temporary.write_bytes(data)
    atomic_replace(temporary, path)


def replace_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    replace_bytes(path, text.encode())


def cache_folder() -> Path:
    """Return SCORELAKE_CACHE, or the folder in the user's cache."""
    return Path(os.environ.get("SCORELAKE_CACHE") or "~/.cache/scorelake").expanduser().absolute()


def replace_folder(temporary: Path, final: Path, flushed: bool = True) -> None:
    """Rename a folder over another. Without `flushed` a power cut can damage it: only for folders with a checksum."""
    while True:
        try:
            return (atomic_replace if flushed else os.replace)(temporary, final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        old = temp_path(final)
        with suppress(FileNotFoundError):  # another writer has just moved it
            os.rename(final, old)
            remove(old)


def remove(path: Path) -> None:
    """Remove a file, link or folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def total_size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; links are not followed."""
    total = 0
    for file in path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]:
        with suppress(OSError):
            total += file.lstat().st_size if file.is_file() else 0
    return total


def mark(folder: Path) -> None:
    """Mark a folder as an output; refuse one in which DuckDB cannot write, or whose content would go elsewhere."""
    if set("?\\") & set(os.path.abspath(folder)):
        what = "the path of an output cannot contain ? or a backslash, which DuckDB does not read as letters"
        raise UsageError(what, where=str(folder), hint="choose another --out")
    if (folder / MARK).is_dir():
        set_aside(folder / MARK, folder)
    replace_text(folder / MARK, _MARK_TEXT)


def is_marked(folder: Path) -> bool:
    """Return whether a folder is an output: it may be written to and cleaned, and is not part of a lake."""
    content = read_json(folder / MARK)
    return isinstance(content, dict) and content.get("scorelake") == "output"


def read_json(path: Path) -> Any:
    """Return the content of a small JSON file, or None if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


@contextmanager
def private_copy(path: Path) -> Iterator[Path]:
    """Copy a file to a temporary folder, so that locks of other processes on it do not matter."""
    with TemporaryDirectory(prefix="scorelake-") as folder:
        copy = Path(folder) / path.name
        try:
            shutil.copyfile(path, copy)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise StorageError(
                f"cannot be copied for reading ({error.strerror})",
                where=str(path),
                hint=f"free disk space for the copy in {folder}, or set TMPDIR",
            ) from None
        yield copy


def read_bytes(location: str, storage: Storage) -> bytes:
    """Read a small file from a disk or from object storage; raise FileNotFoundError if it is missing."""
    if not is_remote(location):
        return Path(location).read_bytes()
    from scorelake.storage.objects import Objects  # noqa: PLC0415  (obstore loads slowly)

    folder, _, name = location.rpartition("/")
    store = Objects(folder, storage)
    source = store.find(name)
    if source is None:
        raise FileNotFoundError(f"no such object: {location}")
    return store.read(source)


def literal(path: str) -> str:
    """Escape the wildcards in a path for DuckDB."""
    return re.sub(r"([*?\[])", r"[\1]", path)


def open_real(path: Path) -> IO[str]:
    """Open a file for writing or locking; create it if it is missing, and refuse links and devices."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return os.fdopen(handle, "r+")
        os.close(handle)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
    raise StorageError("is not a regular file", where=str(path), hint="remove it: scorelake keeps no data in it")


def set_aside(path: Path, root: Path) -> Path:
    """Move a damaged or edited file or folder into `set-aside` of an output, and return its new path."""
    target = root / "set-aside" / f"{path.name}.{secrets.token_hex(4)}"
    if target.parent.is_symlink():
        raise StorageError("is a link to another folder", where=str(target.parent), hint="remove the link")
    target.parent.mkdir(exist_ok=True)
    os.rename(path, target)
    return target


def temp_path(final: Path) -> Path:
    """Return a new hidden name in the same folder, unique across hosts."""
    pid = os.getpid()
    return final.with_name(f".{final.name}.{_machine()}-{pid}-{_start_time(pid)}-{secrets.token_hex(4)}")


def is_abandoned(path: Path) -> bool:
    """Return whether the writer of a temporary path is gone: its process ended, or another machine's is a day old."""
    machine, *process = path.name.rpartition(".")[2].split("-")
    if len(process) == 3 and machine == _machine() and process[0].isdigit():
        return _start_time(int(process[0])) != process[1]
    try:
        modified = max(entry.stat().st_mtime for entry in [path, *path.rglob("*")])
    except FileNotFoundError:  # its entries are being renamed: it has a writer
        return False
    return time.time() - modified > ABANDONED_AFTER_S


@cache
def _machine() -> str:
    """Identify the scope of process numbers: the host, its boot, and the container."""
    parts = [socket.gethostname()]
    if os.path.exists("/proc/self/ns/pid"):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _start_time(pid: int) -> str:
    """Return when a process started, since its number may be reused; "" if it has ended, "0" without /proc."""
    try:
        if os.path.exists("/proc/self"):
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return "" if state == "Z" else fields[18]  # a zombie writes nothing
        with suppress(PermissionError):
            os.kill(pid, 0)
        return "0"
    except (FileNotFoundError, ProcessLookupError):
        return ""
