"""Bytes on a disk that may fill up, fail or lose power: there as written, or not there."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scorelake.errors import ScorelakeError, StorageError
from scorelake.threads import side_by_side

REMOTE = ("s3://", "gs://", "az://")


def is_remote(location: object) -> bool:
    """An address of object storage, not a path."""
    return str(location).startswith(REMOTE)


@contextmanager
def writing(where: object) -> Iterator[None]:
    """Around code that only writes: whatever a library raises there is the storage's failure, told as such."""
    try:
        yield
    except (ScorelakeError, AssertionError):
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
