"""Objects in S3, Google Cloud Storage and Azure: listed, read, written, and replaced only if nobody else did.

The only module that knows obstore. Where the store is and who we are comes from the environment (AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_NAME, GOOGLE_SERVICE_ACCOUNT, ...), so that no secret can reach a table.
Every request has an end: silence is noticed, failures are tried again for a while, then told.
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

from scorelake.errors import (
    DataError,
    LakeError,
    ScorelakeError,
    StorageError,
    UnreachableError,
    UnsettledError,
    UsageError,
)
from scorelake.settings import Storage

PIECE = 8 << 20
"""Bytes asked for at once: a cut body costs one of them, and a slow line moves one within the time allowed."""
AT_ONCE = 8
"""Requests at the same time."""
_HASTY = 5.0
"""Seconds to find out what became of a put: the time for failures has been used up already."""
_SLOWEST = 250_000
"""Bytes per second below which an upload counts as stuck."""
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_STORES = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_AMAZON_ACCESS = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
_AMAZON_ROLES = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
Item = TypeVar("Item")
Result = TypeVar("Result")


class ChangedError(StorageError):
    """The object is not the one that was listed: changed, gone, or made by somebody else."""


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
        _look_at_endpoints()
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

        async def all_pages() -> list[Object]:
            return [_object(meta) for meta in await obstore.list(self._store, folder).collect_async()]

        return sorted(asyncio.run(self._again(all_pages)), key=lambda found: found.key)

    def find(self, key: str) -> Object | None:
        """One object, if it is there."""
        try:
            return _object(asyncio.run(self._again(lambda: obstore.head_async(self._store, key))))
        except ChangedError:
            return None

    def read(self, found: Object, start: int, end: int) -> bytes:
        """Some bytes of an object as it was listed; ChangedError if it is no longer that."""
        return asyncio.run(self._read(found, start, end))

    async def _read(self, found: Object, start: int, end: int) -> bytes:
        async def whole_range() -> bytes:
            options: Any = {"if_match": f'"{found.etag}"', "range": (start, end)}
            answer = await obstore.get_async(self._store, found.key, options=options)
            data = (await answer.bytes_async()).to_bytes()
            if len(data) != end - start:
                raise exceptions.GenericError(f"{len(data)} of {end - start} bytes came")
            return data

        return await self._again(whole_range, found.key) if end > start else b""

    def copy(self, ranges: Iterable[tuple[Object, Path, int, int]]) -> None:
        """Some bytes of each object into the same place of a file that is there."""

        async def one(found: Object, path: Path, start: int, end: int) -> None:
            data = await self._read(found, start, end)
            with path.open("r+b") as file:
                file.seek(start)
                file.write(data)

        _at_once(lambda work: one(*work), ranges)

    def fetch(self, wanted: Sequence[tuple[Object, Path]]) -> None:
        """Whole objects into new files."""
        for found, path in wanted:
            begin(path, found.size)
        self.copy((found, path, *span) for found, path in wanted for span in pieces(0, found.size))

    def send(self, files: Mapping[str, Path | bytes]) -> None:
        """Put files or bytes at their keys, whatever was there."""

        async def one(key: str) -> None:
            options: Any = {"chunk_size": PIECE, "max_concurrency": 4}
            await self._again(lambda: obstore.put_async(self._store, key, files[key], **options), key)

        _at_once(one, files)

    def replace(self, path: Path, key: str, before: Object | None) -> str:
        """Put a file in one step if the object is still the one from before, or still not there; else ChangedError.

        An answer may get lost after the put was done: what is there decides. Returns the etag of the new object.
        """
        size = path.stat().st_size
        store = self._connect(4 * self.storage.timeout_s + size / _SLOWEST)
        mode: Any = "create"
        if before is not None:
            now = asyncio.run(self._again(lambda: obstore.head_async(self._store, key), key))
            if _etag(now) != before.etag:
                raise ChangedError("changed or vanished meanwhile", where=f"{self.url}/{key}", hint="run again")
            mode = {"e_tag": now["e_tag"]} | ({"version": now["version"]} if now["version"] else {})
        try:
            request = self._again(lambda: obstore.put_async(store, key, path, mode=mode, use_multipart=False), key)
            return _etag(asyncio.run(request))
        except UsageError:
            raise  # refused
        except (ScorelakeError, KeyboardInterrupt) as error:
            return self._found_out(path, key, before, error)

    def _found_out(self, path: Path, key: str, before: Object | None, error: BaseException) -> str:
        """After a put that failed, or whose answer was lost: what is there decides; its etag if it is ours."""
        hasty = self.storage.model_copy(update={"retry_s": min(_HASTY, self.storage.retry_s)})
        try:
            again = Objects(self.url, hasty)
            there = again.find(key)
            if there is not None and there.size == path.stat().st_size and again._equal(there, path):
                return there.etag
        except ScorelakeError:
            raise UnsettledError(
                "cannot be reached any more: whether the new leaderboard is there is not known",
                where=f"{self.url}/{key}",
                hint="run again: the next run finds out what is shown, and what was counted is kept",
            ) from None
        if isinstance(error, ChangedError) or (there and there.etag) != (before and before.etag):
            raise ChangedError("changed or vanished meanwhile", where=f"{self.url}/{key}", hint="run again") from None
        raise error

    def _equal(self, found: Object, path: Path) -> bool:
        with path.open("rb") as file:
            return all(self.read(found, *span) == file.read(PIECE) for span in pieces(0, found.size))

    def delete(self, keys: Sequence[str]) -> None:
        asyncio.run(self._again(lambda: obstore.delete_async(self._store, list(keys))))

    async def _again(self, request: Callable[[], Awaitable[Result]], key: str = "") -> Result:
        """Try until the time is up: what obstore does not try again itself is a body that was cut or stood still."""
        end = time.monotonic() + self.storage.retry_s
        with self._telling(key):
            while True:
                try:
                    return await request()
                except exceptions.GenericError as error:
                    if time.monotonic() > end or 400 <= _status(error) < 500:
                        raise
                    await asyncio.sleep(0.1)

    @contextmanager
    def _telling(self, key: str = "") -> Iterator[None]:
        """Whatever obstore raises, as an error of ours."""
        where = f"{self.url}/{key}" if key else self.url
        try:
            yield
        except (exceptions.PreconditionError, exceptions.AlreadyExistsError, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and any(words in str(error) for words in _NO_BUCKET):
                raise _no_bucket(self.url) from None
            raise ChangedError("changed or vanished meanwhile", where=f"{self.url}/{key}", hint="run again") from None
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
        return UnreachableError(
            f"cannot be reached or used: {_first(error)}",
            where=where,
            hint="nothing was published; run again: what was counted is kept",
        )


def _at_once(task: Callable[[Item], Awaitable[None]], items: Iterable[Item]) -> None:
    """A task for each item, a few at a time; in this thread, so that an interrupt ends them all at once."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(item: Item) -> None:
        async with limit:
            await task(item)

    async def everything() -> None:
        await asyncio.gather(*(limited(item) for item in items))

    asyncio.run(everything())


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
    """What a library's long message says first, without the server's page, tokens or passwords in addresses."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    line = re.sub(r"\?\S*", "", line.split(": <")[0]).removeprefix("Generic ")
    return re.sub(r"(?<=//)[^/\s]*@", "", line)[:300]


def _status(error: Exception) -> int:
    """The server's answer as the library tells it; 0 if there was none."""
    told = re.search(r"status code: (\d{3})", str(error))
    return int(told[1]) if told else 0


def _look_at_endpoints() -> None:
    """An endpoint that is no URL ends the library's thread. Its value is not told: it may hold a password."""
    for name in _ENDPOINTS:
        value = os.environ.get(name, "http://host")
        try:
            url = urlsplit(value)
            right = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
        except ValueError:
            right = False
        if not right or any(character.isspace() for character in value):
            raise UsageError(f"{name} is not a URL", hint="such as http://host:9000")


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
