"""Objects: exact keys, verified versions, retries, and errors within a time limit."""

import time
from pathlib import Path

import pytest

from cloud import QUICK
from faulty import Fault, Faulty
from scorelake.errors import StorageError, UsageError
from scorelake.storage.objects import ChangedError, Objects, clean_message

DATA = bytes(range(256)) * 1000


@pytest.fixture
def there(bucket: str, tmp_path: Path) -> Objects:
    objects = Objects(f"{bucket}/some folder", QUICK)
    (tmp_path / "data").write_bytes(DATA)
    objects.send({"a/data": tmp_path / "data"})
    return objects


def read_all(objects: Objects, key: str = "a/data") -> bytes:
    found = objects.find(key)
    assert found is not None
    return objects.read(found, 0, found.size)


def test_keys_are_data(bucket: str, tmp_path: Path) -> None:
    keys = ["model=a%2Fb/x", "it's/*", "a b/ü🦀#?", "x=y=z/[1]", "+ +", "c\\d"]
    objects = Objects(f"{bucket}/100%25", QUICK)
    for key in keys:
        (tmp_path / "one").write_text(key)
        objects.send({key: tmp_path / "one"})
    assert [found.key for found in objects.list()] == sorted(keys)
    assert [read_all(objects, key).decode() for key in keys] == keys


def test_ranges(there: Objects) -> None:
    (found,) = there.list()
    assert (found.key, found.size) == ("a/data", len(DATA))
    assert there.read(found, 1000, 3000) == DATA[1000:3000]
    assert there.read(found, 5, 5) == b""


def test_a_changed_or_missing_object_is_noticed(there: Objects, tmp_path: Path) -> None:
    (found,) = there.list()
    (tmp_path / "data").write_bytes(DATA[::-1])
    there.send({"a/data": tmp_path / "data"})
    with pytest.raises(ChangedError):
        there.read(found, 0, 10)
    there.delete(["a/data"])
    with pytest.raises(ChangedError):
        there.read(found, 0, 10)
    assert there.find("a/data") is None


def test_only_one_of_two_replaces(there: Objects, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.write_text("mine")
    theirs.write_text("theirs")
    there.replace(mine, "new", None)
    with pytest.raises(ChangedError):
        there.replace(theirs, "new", None)
    before = there.find("new")
    there.replace(theirs, "new", before)
    with pytest.raises(ChangedError):
        there.replace(mine, "new", before)
    assert read_all(there, "new") == b"theirs"


@pytest.mark.parametrize(("fault", "many"), [("503", 8), ("cut", 5), ("stall", 1), ("lost", 3)])
def test_a_few_failures_are_retried(there: Objects, proxy: Faulty, fault: Fault, many: int) -> None:
    (found,) = there.list()
    proxy.first(many, fault)
    assert there.read(found, 100, 200_000) == DATA[100:200_000]
    proxy.first(many, fault)
    assert there.list() == [found]
    assert proxy.requests[-1][2] is None


@pytest.mark.parametrize("fault", ["503", "cut", "stall"])
def test_endless_failure_is_reported_in_time(there: Objects, proxy: Faulty, fault: Fault) -> None:
    (found,) = there.list()
    there = Objects(there.url, QUICK.model_copy(update={"retry_s": 2.0}))
    proxy.plan = lambda method, path: fault
    began = time.monotonic()
    with pytest.raises(StorageError, match="cannot be reached or used") as caught:
        there.read(found, 0, found.size)
    assert time.monotonic() - began < 30
    assert "<" not in str(caught.value)
    assert "\n  hint: nothing was published" in str(caught.value)


def test_no_permission(there: Objects, proxy: Faulty, tmp_path: Path) -> None:
    (found,) = there.list()
    proxy.plan = lambda method, path: "403"
    for request in (there.list, lambda: there.read(found, 0, 9), lambda: there.send({"x": tmp_path / "data"})):
        with pytest.raises(UsageError, match="access denied"):
            request()
    with pytest.raises(UsageError, match="access denied"):
        there.replace(tmp_path / "data", "x", None)
    assert len(proxy.requests) < 10, "no use in trying again"


def test_no_credentials(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UsageError, match="no credentials for S3"):
        Objects(bucket, QUICK)


def test_messages_hold_no_secret(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an address, nor what a store answers, nor an endpoint: with one that is no URL the library panics."""
    words = "Generic Azure error: Error performing GET http://host/box?sv=1&sig=hunter2 in 3ms - HTTP error"
    assert clean_message(ValueError(words)) == "Azure error: Error performing GET http://host/box in 3ms - HTTP error"
    for url in ("s3://", "s3:///x", "s3://key:hunter2@bucket/x", "az://box/x?sig=hunter2"):
        with pytest.raises(UsageError) as caught:
            Objects(url, QUICK)
        assert "hunter2" not in str(caught.value)
    for endpoint in ("user:hunter2@host", "not a url", "http://", "http://u:hunter2@h:port", ""):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(UsageError, match="AWS_ENDPOINT_URL is not a URL") as caught:
            Objects(bucket, QUICK)
        assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hunter2@127.0.0.1:9")
    with pytest.raises(StorageError, match="cannot be reached") as unreachable:
        Objects(bucket, QUICK.model_copy(update={"retry_s": 1.0})).list()
    assert "hunter2" not in str(unreachable.value)


def test_google_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    objects = Objects("gs://bucket/some/folder", QUICK)
    assert (objects._store.prefix, objects._store.config["bucket"]) == ("some/folder", "bucket")
