"""List, read and write objects with obstore, with timeouts and limited retries.

Endpoints and credentials come from the environment, so that no secret can reach a table.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from scorelake import errors
from scorelake.errors import ScorelakeError, StorageError, UsageError
from scorelake.settings import Storage
from scorelake.storage.disk import first_line
from scorelake.storage.files import File

CHUNK_BYTES = 8 << 20
"""Size of a range request: what a broken connection costs, and what a slow one must transfer before the timeout."""
MAX_REQUESTS = 8
_VERIFY_S = 5.0
"""Time to find out the outcome of a failed put, after the time for retries has been used up."""
_MIN_UPLOAD_RATE = 250_000
"""Bytes per second below which an upload counts as stuck."""
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_STORES = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_S3_CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
Item = TypeVar("Item")
Result = TypeVar("Result")


class ChangedError(StorageError):
    """The object is not the one that was listed: it was replaced, deleted, or created by another writer."""


@dataclass(frozen=True)
class Object:
    """One object as it was listed."""

    key: str
    """Relative to the address that was listed."""
    size: int
    etag: str
    modified: float = 0.0
    """Seconds since 1970."""

    def as_file(self) -> File:
        return File(self.key, self.size, 0, etag=self.etag)


class Objects:
    """The objects below one address such as s3://bucket/folder."""

    def __init__(self, url: str, storage: Storage) -> None:
        self.url, self.storage = url.rstrip("/"), storage
        scheme, _, rest = self.url.partition("://")
        self._bucket, _, self._folder = rest.partition("/")
        if not self._bucket or set("@:?") & set(self._bucket) or "?" in self._folder:
            raise UsageError(
                f"{scheme}:// must be followed by bucket/folder",
                hint="set credentials and options in the environment, not in the address",
            )
        _check_endpoints()
        if scheme == "s3":
            _check_s3_credentials(url)
        self._class: Any = _STORES[scheme]
        self._store = self._connect(4 * storage.timeout_s)

    def _connect(self, timeout_s: float) -> Any:
        quiet = timedelta(seconds=self.storage.timeout_s)
        with self._errors():
            return self._class(
                self._bucket,
                prefix=self._folder or None,
                client_options={
                    "allow_http": True,  # used only for endpoints that start with http://
                    "connect_timeout": min(quiet, timedelta(seconds=10)),
                    "read_timeout": max(quiet, timedelta(seconds=timeout_s / 4)),
                    "timeout": timedelta(seconds=timeout_s),
                    "user_agent": "scorelake",
                },
                retry_config={
                    "max_retries": 1000,  # limited by time instead
                    "retry_timeout": timedelta(seconds=self.storage.retry_s),
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=100),
                        "max_backoff": timedelta(seconds=max(0.2, min(15, self.storage.retry_s / 10))),
                        "base": 2,
                    },
                },
            )

    def list(self, folder: str | None = None) -> list[Object]:
        """List all objects, or those in a folder, sorted by key."""
        listed = asyncio.run(self._retry(lambda: obstore.list(self._store, folder).collect_async()))
        return sorted(map(_object, listed), key=lambda each: each.key)

    def find(self, key: str) -> Object | None:
        """Return one object, or None if there is none."""
        try:
            return _object(asyncio.run(self._retry(lambda: obstore.head_async(self._store, key))))
        except ChangedError:
            return None

    def read(self, source: Object, start: int = 0, end: int | None = None) -> bytes:
        """Read a range of an object, or all of it; raise ChangedError if it is no longer the one that was listed."""
        return asyncio.run(self._read(source, start, source.size if end is None else end))

    async def _read(self, source: Object, start: int, end: int) -> bytes:
        async def request() -> bytes:
            options: Any = {"if_match": f'"{source.etag}"', "range": (start, end)}
            response = await obstore.get_async(self._store, source.key, options=options)
            data = (await response.bytes_async()).to_bytes()
            if len(data) != end - start:
                raise exceptions.GenericError(f"received {len(data)} of {end - start} bytes")
            return data

        return await self._retry(request, source.key) if end > start else b""

    def copy(self, ranges: Iterable[tuple[Object, Path, int, int]]) -> None:
        """Copy ranges of objects to the same offsets of existing files."""

        async def copy_chunk(work: tuple[Object, Path, int, int]) -> None:
            source, path, start, end = work
            data = await self._read(source, start, min(start + CHUNK_BYTES, end))
            with path.open("r+b") as file:
                file.seek(start)
                file.write(data)

        chunks = ((each, path, at, end) for each, path, start, end in ranges for at in range(start, end, CHUNK_BYTES))
        asyncio.run(_run_all(copy_chunk, chunks))

    def fetch(self, wanted: Sequence[tuple[Object, Path]]) -> None:
        """Download objects to new files."""
        for source, path in wanted:
            allocate(path, source.size)
        self.copy((source, path, 0, source.size) for source, path in wanted)

    def send(self, files: Mapping[str, Path | bytes]) -> None:
        """Upload files or bytes to their keys, and overwrite what is there."""

        async def upload(key: str) -> None:
            options: Any = {"chunk_size": CHUNK_BYTES, "max_concurrency": 4}
            await self._retry(lambda: obstore.put_async(self._store, key, files[key], **options), key)

        asyncio.run(_run_all(upload, files))

    def replace(self, path: Path, key: str, before: Object | None) -> str:
        """Upload a file if the object is still `before` (None: missing); return its etag, or raise ChangedError."""
        store = self._connect(4 * self.storage.timeout_s + path.stat().st_size / _MIN_UPLOAD_RATE)
        mode: Any = "create"
        if before is not None:
            now = asyncio.run(self._retry(lambda: obstore.head_async(self._store, key), key))
            if _etag(now) != before.etag:
                raise self._changed(key)
            mode = {"e_tag": now["e_tag"]} | ({"version": now["version"]} if now["version"] else {})
        try:
            request = self._retry(lambda: obstore.put_async(store, key, path, mode=mode, use_multipart=False), key)
            return _etag(asyncio.run(request))
        except UsageError:
            raise  # access was denied
        except (ScorelakeError, KeyboardInterrupt) as error:
            return self._verify(path, key, before, error)

    def _verify(self, path: Path, key: str, before: Object | None, error: BaseException) -> str:
        """Return the etag of an object whose put failed if it has the new content all the same; else raise."""
        quick = self.storage.model_copy(update={"retry_s": min(_VERIFY_S, self.storage.retry_s)})
        try:
            store = Objects(self.url, quick)
            now = store.find(key)
            if now is not None and now.size == path.stat().st_size:
                with path.open("rb") as file:
                    if all(
                        store.read(now, at, min(at + CHUNK_BYTES, now.size)) == file.read(CHUNK_BYTES)
                        for at in range(0, now.size, CHUNK_BYTES)
                    ):
                        return now.etag
        except ScorelakeError:
            raise errors.UnsettledError(
                "the store does not answer any more; it is not known whether the new leaderboard was published",
                where=f"{self.url}/{key}",
                hint="run again: the next run finds out, and finished counts are kept",
            ) from None
        if isinstance(error, ChangedError) or (now and now.etag) != (before and before.etag):
            raise self._changed(key) from None
        raise error

    def delete(self, keys: Sequence[str]) -> None:
        asyncio.run(self._retry(lambda: obstore.delete_async(self._store, list(keys))))

    async def _retry(self, request: Callable[[], Awaitable[Result]], key: str = "") -> Result:
        """Repeat a request until the time is up: obstore itself does not repeat one whose body was cut or stalled."""
        end = time.monotonic() + self.storage.retry_s
        with self._errors(key):
            while True:
                try:
                    return await request()
                except exceptions.GenericError as error:
                    is_final = 400 <= _status(error) < 500 or "invalid path" in str(error)  # a//b is no better later
                    if is_final or time.monotonic() > end:
                        raise
                    await asyncio.sleep(0.1)

    @contextmanager
    def _errors(self, key: str = "") -> Iterator[None]:
        """Convert exceptions of obstore."""
        try:
            yield
        except (exceptions.BaseError, FileNotFoundError, ValueError) as error:
            where, status, message = f"{self.url}/{key}".rstrip("/"), _status(error), clean_message(error)
            denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
            changed = (exceptions.PreconditionError, exceptions.AlreadyExistsError, FileNotFoundError)
            is_missing = isinstance(error, FileNotFoundError)
            kind: type[ScorelakeError] = UsageError
            if (status == 404 and not is_missing) or (is_missing and any(text in str(error) for text in _NO_BUCKET)):
                kind, where = errors.LakeError, self.url
                message, hint = "no such bucket or container", "check address and endpoint"
            elif isinstance(error, changed):
                raise self._changed(key) from None
            elif isinstance(error, denied) or status in (401, 403):
                message = f"access denied: {message}"
                hint = "set credentials in the environment that may list, read and write here"
            elif status == 400 or isinstance(error, ValueError):
                hint = "check the address and the settings in the environment"
            elif "invalid path" in str(error):
                kind, hint = errors.DataError, "rename or remove the object: keys must look like paths"
            else:
                kind, message = errors.UnreachableError, f"the store cannot be reached or used: {message}"
                hint = "nothing was published; run again: finished counts are kept"
            raise kind(message, where=where, hint=hint) from None

    def _changed(self, key: str) -> ChangedError:
        return ChangedError("the object was changed or deleted", where=f"{self.url}/{key}", hint="run again")


async def _run_all(task: Callable[[Item], Awaitable[None]], items: Iterable[Item]) -> None:
    """Run a task for each item, a few at a time; in this thread, so that an interrupt ends all of them."""
    limit = asyncio.Semaphore(MAX_REQUESTS)

    async def limited(item: Item) -> None:
        async with limit:
            await task(item)

    await asyncio.gather(*(limited(item) for item in items))


def allocate(path: Path, size: int) -> None:
    """Create a sparse file of a given size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def _object(meta: Any) -> Object:
    return Object(meta["path"], meta["size"], _etag(meta), meta["last_modified"].timestamp())


def _etag(meta: Any) -> str:
    """Return an etag without quotes: Azure uses them in some responses only."""
    return str(meta["e_tag"] or "").strip('"')


def clean_message(error: Exception) -> str:
    """Return the first line of a message without HTML, query strings (tokens) and passwords in addresses."""
    line = re.sub(r"\?\S*", "", first_line(error).split(": <")[0]).removeprefix("Generic ")
    return re.sub(r"(?<=//)[^/\s]*@", "", line)[:300]


def _status(error: Exception) -> int:
    """Return the HTTP status in a message of the library, or 0."""
    match = re.search(r"status code: (\d{3})", str(error))
    return int(match[1]) if match else 0


def _check_endpoints() -> None:
    """Refuse an endpoint that is not a URL: the library panics. It may hold a password, so it is not printed."""
    for name in _ENDPOINTS:
        value = os.environ.get(name, "http://host")
        try:
            url = urlsplit(value)
            valid = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
        except ValueError:
            valid = False
        if not valid or any(character.isspace() for character in value):
            raise UsageError(f"{name} is not a URL", hint="for example http://host:9000")


def _check_s3_credentials(url: str) -> None:
    """Raise at once if there are no credentials in the environment and no metadata service that may have some."""
    if any(os.environ.get(name) for name in _S3_CREDENTIALS):
        return
    service = urlsplit(os.environ.get("AWS_METADATA_ENDPOINT", "http://169.254.169.254"))
    try:
        socket.create_connection((service.hostname, service.port or 80), timeout=2).close()
    except OSError:
        raise UsageError(
            "no credentials for S3",
            where=url,
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (`aws configure export-credentials --format env`"
            " prints those of a profile), or AWS_SKIP_SIGNATURE=true for public data",
        ) from None
