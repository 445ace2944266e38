"""A schema registry in the test: a real HTTP server on loopback."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class HttpRegistry:
    """Answers by path; a body that is no dict is sent as it is. Counts requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.accounts: list[str | None] = []

    def add(self, number: int, schema: Any, **more: Any) -> None:
        self.answers[f"/schemas/ids/{number}"] = (200, {"schema": json.dumps(schema), **more})


@contextlib.contextmanager
def http_registry() -> Iterator[HttpRegistry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            registry.accounts.append(self.headers.get("Authorization"))
            status, found = registry.answers.get(self.path, (404, {"error_code": 40403}))
            body = json.dumps(found).encode() if isinstance(found, dict) else found
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", registry.url + "/schemas/ids/1")
            self.end_headers()
            # The client may have closed an answer that is too large.
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = HttpRegistry(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
