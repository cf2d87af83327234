"""Finding a Ray cluster and joining it. What is no cluster is told within seconds, and as what it is."""

from __future__ import annotations

import logging
import os
import signal
import socket

import ray

from scorelake.errors import ClusterError, UsageError

ANSWER = 5.0
"""Seconds for a port to answer."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How every client of a gRPC server begins, Ray's too: a fixed text and an empty frame of settings."""
SETTINGS = 4
"""The kind of frame that such a server answers with."""
PORT = "host:port of the head as `ray start --head` prints it, usually port 6379"


def join(address: str) -> None:
    """Make this process a driver of the cluster; an error if there is none."""
    if address != "auto":
        refuse_others(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise ClusterError(
            f"no Ray cluster to be joined: {line(error)}",
            where=address,
            hint="start one with `ray start --head`, or run on one of its nodes with --address auto",
        ) from None
    finally:
        signal.signal(signal.SIGTERM, handler)  # Ray puts its own there; ours tells people what happened


def refuse_others(address: str) -> None:
    """Ask the port first: Ray takes minutes to give up on what is no cluster, and does not say what is wrong."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise UsageError("not an address", where=address, hint="--address auto, or host:port of the cluster's head")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER) as port_of:
            answer = _answer(port_of)
    except (OSError, UnicodeError) as error:  # a host name may be none at all
        raise ClusterError(
            f"no Ray cluster answers: {getattr(error, 'strerror', None) or error}", where=address, hint=PORT
        ) from None
    if answer is not None and (len(answer) < 9 or answer[3] != SETTINGS):
        web = " but a web server" if answer.startswith(b"HTTP/1") else ""
        said = f"what answers there is no Ray cluster{web}" if answer else "something listens there, but says nothing"
        raise ClusterError(said, where=address, hint=f"{PORT}; not that of the dashboard (8265)")


def _answer(port: socket.socket) -> bytes | None:
    """The beginning of what a server says to a client's first words; None where only Ray can talk to it."""
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0", "false"):
        return None
    said = b""
    try:
        port.sendall(PREFACE)
        while len(said) < 9 and (more := port.recv(64)):
            said += more
    except (TimeoutError, ConnectionError):
        pass
    return said


def line(error: BaseException) -> str:
    """The first line of an error, or what it is."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
