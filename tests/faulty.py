"""A proxy that passes requests on to a server and now and then fails as networks do."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["403", "503", "cut", "stall", "lost"] | None
"""lost: the request is passed on, but its answer is not."""


class Faulty:
    """Listens on a free port; `plan(method, path)` chooses what happens to each request."""

    def __init__(self, host: str, port: int) -> None:
        self.plan: Callable[[str, str], Fault] = lambda method, path: None
        self.requests: list[tuple[str, str, Fault]] = []
        self.closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fault = outer.plan(self.command, self.path)
                outer.requests.append((self.command, self.path, fault))
                if fault in ("403", "503"):
                    self.reply(int(fault), [], b"<Error><Code>SlowDown or AccessDenied</Code></Error>")
                    return
                upstream = http.client.HTTPConnection(host, port, timeout=30)
                upstream.request(self.command, self.path, body, dict(self.headers))
                answer = upstream.getresponse()
                data = answer.read()
                if fault == "lost":
                    self.close_connection = True
                    return
                self.reply(answer.status, answer.getheaders(), data, fault)
                upstream.close()

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

            def reply(self, status: int, headers: list[tuple[str, str]], data: bytes, fault: Fault = None) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = dict(headers).get("Content-Length", len(data)) if self.command == "HEAD" else len(data)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                if self.command == "HEAD":
                    return
                if fault:
                    self.wfile.write(data[: len(data) // 2])
                    self.wfile.flush()
                    if fault == "stall":
                        outer.closing.wait(60)
                    self.close_connection = True
                    return
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):  # a client that has given up waiting
                    super().handle()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def first(self, many: int, fault: Fault, wanted: Callable[[str, str], bool] = lambda method, path: True) -> None:
        """Fail the first requests of a kind, then behave."""
        left: list[Fault] = [fault] * many
        self.plan = lambda method, path: left.pop() if left and wanted(method, path) else None

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
