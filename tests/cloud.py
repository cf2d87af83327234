"""Object storage on loopback: moto's S3 server behind a proxy that can be told to fail, and azurite."""

from __future__ import annotations

import base64
import fcntl
import hmac
import os
import secrets
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from faulty import Faulty
from scorelake.settings import Storage
from scorelake.storage.objects import Objects

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
def bucket(proxy: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new bucket."""
    monkeypatch.setenv("SCORELAKE_CACHE", str(tmp_path / "cache"))
    name = f"bucket-{secrets.token_hex(6)}"
    urllib.request.urlopen(urllib.request.Request(f"{proxy.url}/{name}", method="PUT")).close()
    return f"s3://{name}"


def upload(folder: Path, url: str) -> str:
    """A local lake as objects."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    Objects(url, QUICK).send({path.relative_to(folder).as_posix(): path for path in files})
    return url


def azurite_home() -> Path:
    """Microsoft's emulator of Azure's blobs, installed once beside the environment; skips where npm is not."""
    home, npm = Path(sys.prefix) / "azurite", shutil.which("npm")
    if npm is None:
        pytest.skip("az:// is not tried here: npm, which azurite comes by, is not installed")
    with (Path(sys.prefix) / ".azurite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = home / "node_modules" / ".bin" / "azurite-blob"
        if not program.exists():
            install = [npm, "install", "--prefix", str(home), "--no-audit", "--no-fund", "azurite@3.35.0"]
            done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=240)
            if done.returncode:
                pytest.skip(f"az:// is not tried here: npm cannot install azurite: {done.stderr.strip()[-200:]}")
    return program


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a new container in an azurite of its own."""
    program = azurite_home()
    options = ["--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort", "0", "--skipApiVersionCheck"]
    with subprocess.Popen([program, *options, "--disableTelemetry"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = next(line for line in server.stdout if "successfully listens on" in line)
        url = f"{line.split()[-1]}/{AZURE_ACCOUNT}"
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", url)
        monkeypatch.setenv("SCORELAKE_CACHE", str(tmp_path / "cache"))
        _make_container(url, "box")
        yield "az://box"
        server.terminate()


AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every azurite has; no secret."""


def _make_container(url: str, name: str) -> None:
    """One signed request, which obstore has no call for."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    told = "\n".join(f"{key}:{value}" for key, value in headers.items())
    text = f"PUT{chr(10) * 12}{told}\n/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}\nrestype:container"
    signature = hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), "sha256")
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(f"{url}/{name}?restype=container", method="PUT", headers=headers)
    urllib.request.urlopen(request).close()
