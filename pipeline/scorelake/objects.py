"""Objects in S3, Google Cloud Storage and Azure: listed, read, written, and replaced only if nobody else did.

The only module that knows obstore. Where the store is and who we are comes from the environment (AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_NAME, GOOGLE_SERVICE_ACCOUNT, ...), so that no secret can reach a table.
Every request has an end: silence is noticed, failures are tried again for a while, then told.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from scorelake.errors import DataError, LakeError, ScorelakeError, StorageError, UsageError
from scorelake.settings import Storage

PIECE = 8 << 20
"""Bytes asked for at once: a cut body costs one of them, and a slow line moves one within the time allowed."""
THREADS = 8
"""Requests at the same time."""
_SLOWEST = 250_000
"""Bytes per second below which an upload counts as stuck."""
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_STORES = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_AMAZON_ACCESS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
_AMAZON_ROLES = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
Result = TypeVar("Result")


class ChangedError(StorageError):
    """The object is not the one that was listed: changed, gone, or made by somebody else."""

    def __init__(self, where: str) -> None:
        super().__init__("changed or vanished meanwhile", where=where, hint="run again")


@dataclass(frozen=True)
class Object:
    """One object as it was listed."""

    key: str
    """Below the address that was listed."""
    size: int
    etag: str
    modified: float = 0.0
    """When, in seconds since 1970."""


class Objects:
    """Everything below one address such as s3://bucket/folder."""

    def __init__(self, url: str, storage: Storage) -> None:
        self.url, self.storage = url.rstrip("/"), storage
        scheme, _, rest = self.url.partition("://")
        self._bucket, _, self._folder = rest.partition("/")
        if not self._bucket or set("@:?") & set(self._bucket) or "?" in self._folder:
            raise UsageError(
                f"{scheme}:// must be followed by bucket/folder",
                hint="credentials and options belong into the environment, not into the address",
            )
        self._make: Any = _STORES[scheme]
        if scheme == "s3":
            _look_for_credentials(url)
        self._store = self._connect(4 * storage.timeout_s)

    def _connect(self, seconds: float) -> Any:
        quiet = timedelta(seconds=self.storage.timeout_s)
        with self._telling():
            return self._make(
                self._bucket,
                prefix=self._folder or None,
                client_options={
                    "allow_http": True,  # only an endpoint that says http:// is reached by it
                    "connect_timeout": min(quiet, timedelta(seconds=10)),
                    "read_timeout": max(quiet, timedelta(seconds=seconds / 4)),
                    "timeout": timedelta(seconds=seconds),
                    "user_agent": "scorelake",
                },
                retry_config={
                    "max_retries": 1000,  # time is what limits them
                    "retry_timeout": timedelta(seconds=self.storage.retry_s),
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=100),
                        "max_backoff": timedelta(seconds=max(0.2, min(15, self.storage.retry_s / 10))),
                        "base": 2,
                    },
                },
            )

    def list(self, folder: str | None = None) -> list[Object]:
        """Every object below, in the order of their keys."""

        def all_pages() -> list[Object]:
            pages = obstore.list(self._store, folder, chunk_size=1000)
            return [_object(meta) for page in pages for meta in page]

        return sorted(self._again(all_pages), key=lambda found: found.key)

    def find(self, key: str) -> Object | None:
        """One object, if it is there."""
        try:
            return self._again(lambda: _object(obstore.head(self._store, key)))
        except ChangedError:
            return None

    def read(self, found: Object, start: int, end: int) -> bytes:
        """Some bytes of an object as it was listed; ChangedError if it is no longer that."""

        def whole_range() -> bytes:
            options: Any = {"if_match": f'"{found.etag}"', "range": (start, end)}
            data = obstore.get(self._store, found.key, options=options).bytes().to_bytes()
            if len(data) != end - start:
                raise exceptions.GenericError(f"{len(data)} of {end - start} bytes came")
            return data

        return self._again(whole_range, found.key) if end > start else b""

    def copy(self, found: Object, path: Path, start: int, end: int) -> None:
        """Some bytes of an object into the same place of a file that is there."""
        data = self.read(found, start, end)
        with path.open("r+b") as copy:
            copy.seek(start)
            copy.write(data)

    def fetch(self, wanted: Sequence[tuple[Object, Path]]) -> None:
        """Whole objects into new files."""
        for found, path in wanted:
            begin(path, found.size)
        with ThreadPoolExecutor(THREADS) as pool:
            work = [(found, path, span) for found, path in wanted for span in pieces(0, found.size)]
            for _ in pool.map(lambda w: self.copy(w[0], w[1], *w[2]), work):
                pass

    def send(self, file: Path | bytes, key: str) -> None:
        """Put a file or some bytes, whatever was there."""
        self._again(lambda: obstore.put(self._store, key, file, chunk_size=PIECE, max_concurrency=4), key)

    def replace(self, path: Path, key: str, before: Object | None) -> str:
        """Put a file in one step if the object is still the one from before, or still not there; else ChangedError.

        An answer may get lost after the put was done, and the second try is then refused: what is there decides.
        Returns the etag of the new object.
        """
        size = path.stat().st_size
        store = self._connect(4 * self.storage.timeout_s + size / _SLOWEST)
        mode: Any = "create"
        if before is not None:
            now = self._again(lambda: obstore.head(self._store, key), key)
            if _etag(now) != before.etag:
                raise ChangedError(f"{self.url}/{key}")
            mode = {"e_tag": now["e_tag"]} | ({"version": now["version"]} if now["version"] else {})
        try:
            return _etag(self._again(lambda: obstore.put(store, key, path, mode=mode, use_multipart=False), key))
        except ChangedError:
            there = self.find(key)
            if there is None or there.size != size or self.read(there, 0, size) != path.read_bytes():
                raise
            return there.etag

    def delete(self, keys: Sequence[str]) -> None:
        self._again(lambda: obstore.delete(self._store, list(keys)))

    def _again(self, request: Callable[[], Result], key: str = "") -> Result:
        """Try until the time is up: what obstore does not try again itself is a body that was cut or stood still."""
        end = time.monotonic() + self.storage.retry_s
        with self._telling(key):
            while True:
                try:
                    return request()
                except exceptions.GenericError as error:
                    if time.monotonic() > end or 400 <= _status(error) < 500:
                        raise
                    time.sleep(0.1)

    @contextmanager
    def _telling(self, key: str = "") -> Iterator[None]:
        """Whatever obstore raises, as an error of ours."""
        where = f"{self.url}/{key}" if key else self.url
        try:
            yield
        except (exceptions.PreconditionError, exceptions.AlreadyExistsError, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and any(words in str(error) for words in _NO_BUCKET):
                raise _no_bucket(self.url) from None
            raise ChangedError(where) from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise _refused(where, error) from None
        except (exceptions.BaseError, ValueError) as error:
            raise self._generic(where, error) from None

    def _generic(self, where: str, error: Exception) -> ScorelakeError:
        status = _status(error)
        if status == 404:
            return _no_bucket(self.url)
        if status in (401, 403):
            return _refused(where, error)
        if status == 400 or isinstance(error, ValueError):
            return UsageError(_first(error), where=where, hint="look at the address and the environment's settings")
        if "invalid path" in str(error):
            return DataError(_first(error), where=where, hint="rename or remove it: keys must look like paths")
        return StorageError(
            f"cannot be reached or used: {_first(error)}",
            where=where,
            hint="nothing was published; run again: what was counted is kept",
        )


def begin(path: Path, size: int) -> None:
    """A file of a size, empty so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(start, end, PIECE):
        yield at, min(at + PIECE, end)


def _object(meta: Any) -> Object:
    return Object(meta["path"], meta["size"], _etag(meta), meta["last_modified"].timestamp())


def _etag(meta: Any) -> str:
    """Azure quotes it in some answers and not in others."""
    return str(meta["e_tag"] or "").strip('"')


def _no_bucket(url: str) -> LakeError:
    return LakeError("no such bucket or container", where=url, hint="look at the address, and at the endpoint set")


def _refused(where: str, error: Exception) -> UsageError:
    return UsageError(
        f"access refused: {_first(error)}",
        where=where,
        hint="set credentials in the environment that may list, read and write here",
    )


def _first(error: Exception) -> str:
    """What a library's long message says first, without the server's page, and without tokens in addresses."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return re.sub(r"\?\S*", "", line.split(": <")[0]).removeprefix("Generic ")[:300]


def _status(error: Exception) -> int:
    """The server's answer as the library tells it; 0 if there was none."""
    told = re.search(r"status code: (\d{3})", str(error))
    return int(told[1]) if told else 0


def _look_for_credentials(url: str) -> None:
    """Without any in the environment only a machine's own role is left; where there is none, say so at once."""
    if any(os.environ.get(name) for name in (*_AMAZON_ACCESS, *_AMAZON_ROLES)):
        return
    place = urlsplit(os.environ.get("AWS_METADATA_ENDPOINT", "http://169.254.169.254"))
    try:
        socket.create_connection((place.hostname, place.port or 80), timeout=2).close()
    except OSError:
        raise UsageError(
            "no credentials for S3 found",
            where=url,
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (`aws configure export-credentials --format env`"
            " prints those of a profile), or AWS_SKIP_SIGNATURE=true for public data",
        ) from None
