"""Object storage on loopback: moto's S3 server behind a proxy that can be told to fail."""

from __future__ import annotations

import os
import secrets
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from faulty import Faulty
from scorelake.objects import Objects
from scorelake.settings import Storage

QUICK = Storage(timeout_s=2, retry_s=30)
PATIENT = "[storage]\ntimeout_s = 2\nretry_s = 30\n"


@pytest.fixture(scope="session")
def moto() -> Iterator[tuple[str, int]]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture
def proxy(moto: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """The S3 of the environment, for this process and those it starts."""
    faulty = Faulty(*moto)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2secret")
    yield faulty
    faulty.close()


@pytest.fixture
def bucket(proxy: Faulty) -> str:
    """The address of a new bucket."""
    name = f"bucket-{secrets.token_hex(6)}"
    urllib.request.urlopen(urllib.request.Request(f"{proxy.url}/{name}", method="PUT")).close()
    return f"s3://{name}"


def upload(folder: Path, url: str) -> str:
    """A local lake as objects."""
    there = Objects(url, QUICK)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        there.send(path, path.relative_to(folder).as_posix())
    return url
