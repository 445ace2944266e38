"""The HTTP server of the metrics."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from broker_core.broker.metrics.endpoint import (
    CONNECTIONS_MAX,
    REQUEST_SIZE_MAX,
    MetricsEndpoint,
)
from tests.broker.metrics.http_get import fetch
from tests.broker.running_broker import until
from tests.fakes.manual_clock import ManualClock


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics/../secret HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (2 * REQUEST_SIZE_MAX) + b"\r\n\r\n", b"431"),
    ],
)
def test_answers_of_the_endpoint(request_bytes: bytes, status: bytes) -> None:
    async def scenario() -> None:
        endpoint = MetricsEndpoint(lambda: b"page", "text/plain", ManualClock())
        port = await endpoint.start("127.0.0.1", 0)
        answer = await fetch(f"127.0.0.1:{port}", request_bytes)
        await endpoint.stop()
        await endpoint.stop()
        # The rest of an oversized request may reset the connection before its answer is read.
        assert answer.startswith(b"HTTP/1.1 " + status) or (status == b"431" and not answer)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("field", "status"),
    [
        (b"Authorization: Bearer let me in\r\n", b"200 OK"),
        (b"authorization:Bearer let me in \r\n", b"200 OK"),
        (b"Authorization: Bearer let me\r\n", b"401 Unauthorized"),
        (b"Authorization: let me in\r\n", b"401 Unauthorized"),
        (b"Authorization: Bearer let me in\r\nAuthorization: Bearer x\r\n", b"401 Unauthorized"),
        (b"", b"401 Unauthorized"),
    ],
)
def test_a_token_is_required(field: bytes, status: bytes) -> None:
    async def scenario() -> bytes:
        clock = ManualClock()
        endpoint = MetricsEndpoint(lambda: b"page", "text/plain", clock, "let me in")
        port = await endpoint.start("127.0.0.1", 0)
        try:
            return await fetch(f"127.0.0.1:{port}", b"GET /metrics HTTP/1.1\r\n%b\r\n" % field)
        finally:
            await endpoint.stop()

    answer = asyncio.run(scenario())
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert (b"page" in answer) == (status == b"200 OK")


def test_scrapes_share_one_look_beside_a_crowd() -> None:
    clock = ManualClock()
    looks: list[int] = []

    async def scenario() -> None:
        endpoint = MetricsEndpoint(lambda: b"page %d" % len(looks), "text/plain", clock)
        endpoint._scrape = lambda: (looks.append(1), b"page %d" % len(looks))[1]
        port = await endpoint.start("127.0.0.1", 0)
        address = f"127.0.0.1:{port}"
        pages = [await fetch(address) for _ in range(5)]
        assert all(page.endswith(b"page 1") for page in pages)
        clock.advance(1_000)
        assert (await fetch(address)).endswith(b"page 2")
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        await until(lambda: len(endpoint._tasks) == CONNECTIONS_MAX)
        assert (await fetch(address)).endswith(b"page 2")
        # The oldest has made room.
        assert not await silent[0][0].read()
        await until(lambda: len(endpoint._tasks) == CONNECTIONS_MAX - 1)
        for _, writer in silent:
            writer.close()
            await writer.wait_closed()
        await until(lambda: not endpoint._tasks)
        assert (await fetch(address)).endswith(b"page 2")
        await endpoint.stop()

    asyncio.run(scenario())
    assert len(looks) == 2


def test_the_host_with_the_most_connections_loses_one() -> None:
    async def scenario() -> None:
        endpoint = MetricsEndpoint(lambda: b"page", "text/plain", ManualClock())
        port = await endpoint.start("127.0.0.1", 0)
        first = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        await until(lambda: len(endpoint._tasks) == 1)
        crowd = []
        for _ in range(2 * CONNECTIONS_MAX):
            crowd.append(await asyncio.open_connection("127.0.0.1", port))
            assert len(endpoint._hosts) <= CONNECTIONS_MAX
        for reader, _ in crowd[: CONNECTIONS_MAX + 1]:
            with contextlib.suppress(ConnectionError):
                assert not await reader.read()
        # It came before all of them, and is alone at its host.
        first[1].write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await first[0].read()).endswith(b"page")
        for _, writer in (first, *crowd):
            writer.close()
        await endpoint.stop()
        assert not endpoint._hosts

    asyncio.run(scenario())
