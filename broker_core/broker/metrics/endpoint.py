"""A small HTTP server for one page: GET /metrics.

Runs on the event loop, which owns the tables that it reads. Any other request is answered with an
error and closed. Connections and time are limited, and scrapes within one second share a page. When
all connections are taken, the host that has the most of them loses its oldest one, so that idle
connections do not keep a scraper away.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final

from broker_core.remoting.server import bind_address
from broker_core.runtime.clock import Clock
from broker_core.runtime.listener import Listener
from broker_core.runtime.peer_host import counted_host, host_of

PATH: Final = b"/metrics"
CONNECTIONS_MAX: Final = 16
REQUEST_SIZE_MAX: Final = 8 << 10
TIMEOUT_S: Final = 10.0
SCRAPE_INTERVAL_S: Final = 1.0


class MetricsEndpoint:
    """`start` and `stop` it on the event loop; `scrape` returns the page."""

    def __init__(
        self, scrape: Callable[[], bytes], content_type: str, clock: Clock, token: str = ""
    ) -> None:
        """`token` is required as `Authorization: Bearer …` unless it is empty."""
        self._scrape = scrape
        self._authorization = f"Bearer {token}".encode() if token else b""
        self._content_type = content_type.encode()
        self._clock = clock
        self._listener: Listener | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Transports that were not aborted, oldest first, and their hosts.
        self._hosts: dict[asyncio.BaseTransport, str] = {}
        self._page = b""
        self._scraped_at: float | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises `OSError` with the address in its text."""
        bound: socket.socket = bind_address(host, port)
        self._listener = Listener(bound, self._protocol, CONNECTIONS_MAX)
        return int(bound.getsockname()[1])

    async def stop(self) -> None:
        """Close everything. Safe to call twice."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await listener.wait_closed()

    def _protocol(self) -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(REQUEST_SIZE_MAX)
        return asyncio.StreamReaderProtocol(reader, self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = host_of(writer.get_extra_info("peername"))
        self._hosts[writer.transport] = counted_host(host)
        if len(self._hosts) > CONNECTIONS_MAX:
            self._abort_oldest()
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _abort_oldest(self) -> None:
        most = Counter(self._hosts.values()).most_common(1)[0][0]
        oldest = next(transport for transport, host in self._hosts.items() if host == most)
        del self._hosts[oldest]
        assert isinstance(oldest, asyncio.WriteTransport)
        oldest.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(await asyncio.wait_for(self._answer(reader), TIMEOUT_S))
            await asyncio.wait_for(writer.drain(), TIMEOUT_S)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            # The client is gone or too slow.
            writer.transport.abort()
        finally:
            self._hosts.pop(writer.transport, None)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(b"431 Request Header Fields Too Large")
        first, *fields = head.split(b"\r\n")
        words = first.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(b"400 Bad Request")
        if not self._is_allowed(fields):
            return _response(b"401 Unauthorized", more=b"WWW-Authenticate: Bearer\r\n")
        if words[0] not in (b"GET", b"HEAD"):
            return _response(b"405 Method Not Allowed")
        if words[1].partition(b"?")[0] != PATH:
            return _response(b"404 Not Found")
        page = self._current_page()
        return _response(b"200 OK", page, self._content_type, is_head=words[0] == b"HEAD")

    def _is_allowed(self, fields: list[bytes]) -> bool:
        if not self._authorization:
            return True
        shown = [
            value.strip()
            for name, _, value in (field.partition(b":") for field in fields)
            if name.strip().lower() == b"authorization"
        ]
        return len(shown) == 1 and hmac.compare_digest(shown[0], self._authorization)

    def _current_page(self) -> bytes:
        now = self._clock.monotonic()
        if self._scraped_at is None or now - self._scraped_at >= SCRAPE_INTERVAL_S:
            self._page = self._scrape()
            self._scraped_at = now
        return self._page


def _response(
    status: bytes,
    body: bytes = b"",
    content_type: bytes = b"text/plain",
    *,
    is_head: bool = False,
    more: bytes = b"",
) -> bytes:
    head = (
        b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n"
        b"X-Content-Type-Options: nosniff\r\n%b\r\n"
    ) % (status, content_type, len(body), more)
    return head if is_head else head + body
