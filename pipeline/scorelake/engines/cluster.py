"""Join a Ray cluster, with a clear error within seconds if there is none."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket

import ray

from scorelake.errors import ClusterError, UsageError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The start of every gRPC connection: HTTP/2's fixed text and an empty SETTINGS frame."""
SETTINGS_FRAME = 4
PORT_HINT = "host:port of the head as `ray start --head` prints it, usually port 6379; not the dashboard (8265)"


def join_cluster(address: str) -> None:
    """Connect this process to a cluster as its driver."""
    if address != "auto":
        check_address(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        raise ClusterError(
            f"cannot join a Ray cluster: {summary(error)}",
            where=address,
            hint="start one with `ray start --head`, or run on one of its nodes with --address auto",
        ) from None
    finally:
        signal.signal(signal.SIGTERM, handler)  # Ray installs its own, which would hide our message


def check_address(address: str, timeout_s: float = 5.0) -> None:
    """Raise if no gRPC server listens at an address: `ray.init` takes minutes to notice, and does not say why."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise UsageError("not an address", where=address, hint="--address auto, or host:port of the cluster's head")
    answer = b""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0", "false"):
                return  # only Ray itself has the keys
            with contextlib.suppress(TimeoutError, ConnectionError):
                connection.sendall(PREFACE)
                while len(answer) < 9 and (more := connection.recv(64)):
                    answer += more
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        reason = getattr(error, "strerror", None) or error
        raise ClusterError(f"no Ray cluster answers: {reason}", where=address, hint=PORT_HINT) from None
    if len(answer) < 9 or answer[3] != SETTINGS_FRAME:
        raise ClusterError("the port is open but does not answer like a Ray cluster", where=address, hint=PORT_HINT)


def summary(error: BaseException) -> str:
    """Return the first line of an error, or its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
