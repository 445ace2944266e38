"""F18 and F19 with a real broker: consumers that take nothing, polls by the thousand, and churn.

Well-behaved clients are served all the while; the broker's memory, descriptors and threads stay
within
bounds and are given back when the others have gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker_core import EmbeddedBroker, SyncProducer
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.bulk_producer import BulkProducer, columns_of
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from tests.codec.wire_frames import frame_bytes
from tests.remoting.peers import until

pytestmark = pytest.mark.crash

BACKLOG = 1_000_000
DEAF_CONSUMERS = 40
PULLS_EACH = 500
POLLERS = 50
POLLS_EACH = 100
DRIPPING = 200
CHURNED = 3_000
GROWTH_MAX = 150 << 20
# What is held for an answer that is long in coming, and descriptors of files that are made ready.
SOME = 24


class Usage(NamedTuple):
    """Of the broker's process; pages of its mapped files belong to the system."""

    memory: int
    descriptors: int
    threads: int


def usage(process_id: int) -> Usage:
    home = Path(f"/proc/{process_id}")
    fields = dict(
        line.split(":", 1) for line in (home / "status").read_text().splitlines() if ":" in line
    )
    memory = int(fields["RssAnon"].split()[0]) << 10
    return Usage(memory, len(list((home / "fd").iterdir())), int(fields["Threads"]))


def pull_frames(topic: str, count: int, *, waits: bool) -> bytes:
    """Pulls of a queue's beginning, or polls at its end."""
    fields = {
        "consumerGroup": "CG", "topic": topic, "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "6" if waits else "4", "commitOffset": "0",
        "suspendTimeoutMillis": "20000", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    commands = (
        RemotingCommand(RequestCode.PULL_MESSAGE, opaque=number, ext=dict(fields))
        for number in range(count)
    )
    return b"".join(map(frame_bytes, commands))


async def fill(name_server: str, topic: str) -> None:
    client = ClientInstance(ClientConfig((name_server,)))
    await client.start()
    try:
        producer = BulkProducer(client, timeout_ms=60_000)
        part = columns_of(topic, bytes(100 * 50_000), array("q", range(0, 5_000_001, 100)))
        for _ in range(BACKLOG // part.count):
            await producer.send_columns(part)
    finally:
        await client.stop()


@contextlib.contextmanager
def connected(broker: EmbeddedBroker, count: int) -> Iterator[list[socket.socket]]:
    host, _, port = broker.address.rpartition(":")
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)
        ]


def send_what_goes(one: socket.socket, data: bytes) -> None:
    """Write as much as the peer accepts; a server need not read all of it."""
    one.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionError):
        while data:
            data = data[one.send(data) :]


def send_some(producer: SyncProducer, count: int) -> list[float]:
    """Seconds that each took; every one is acknowledged."""
    taken = []
    for number in range(count):
        started = time.perf_counter()
        producer.send("Live", b"%d" % number)
        taken.append(time.perf_counter() - started)
    return sorted(taken)


def test_consumers_that_take_nothing_and_polls_by_the_thousand(
    run_async: Callable[..., Any], summary_lines: list[str]
) -> None:
    with (
        EmbeddedBroker(topics={"Backlog": 1, "Empty": 1, "Live": 4}) as broker,
        SyncProducer(broker.name_server) as producer,
    ):
        run_async(fill(broker.name_server, "Backlog"))
        quiet = send_some(producer, 300)
        before = usage(broker.process_id)
        with connected(broker, DEAF_CONSUMERS) as deaf, connected(broker, POLLERS) as pollers:
            for one in deaf:
                send_what_goes(one, pull_frames("Backlog", PULLS_EACH, waits=False))
            for one in pollers:
                send_what_goes(one, pull_frames("Empty", POLLS_EACH, waits=True))
            loud = send_some(producer, 300)
            during = usage(broker.process_id)
            # One message wakes all pollers.
            producer.send("Empty", b"x")
            woken = send_some(producer, 300)
            after = usage(broker.process_id)
        grown = max(during.memory, after.memory) - before.memory
        summary_lines.append(
            f"F18 {DEAF_CONSUMERS} deaf consumers of {BACKLOG:,} messages, "
            f"{POLLERS * POLLS_EACH:,} polls: {max(grown, 0) >> 20} MB; sends of others p99 "
            f"{quiet[-3] * 1e3:.1f} ms before, {loud[-3] * 1e3:.1f} ms meanwhile, "
            f"{woken[-3] * 1e3:.1f} ms while all polls are answered"
        )
        assert grown < GROWTH_MAX
        assert after.threads <= before.threads + SOME

        async def settled() -> None:
            await until(lambda: _is_back(usage(broker.process_id), before))

        run_async(settled())
        assert usage(broker.process_id).memory - before.memory < GROWTH_MAX


def test_connections_that_come_and_go_and_those_that_drip(
    run_async: Callable[..., Any], summary_lines: list[str]
) -> None:
    with (
        EmbeddedBroker(topics={"Live": 4}) as broker,
        SyncProducer(broker.name_server) as producer,
    ):
        send_some(producer, 300)
        before = usage(broker.process_id)
        frame = pull_frames("Live", 1, waits=False)
        with connected(broker, DRIPPING) as dripping:
            churned = 0
            for position in range(CHURNED // 100):
                for one in dripping:
                    # A byte now and then: never a whole request.
                    with contextlib.suppress(ConnectionError):
                        one.send(frame[position : position + 1])
                with connected(broker, 100) as many:
                    churned += len(many)
                    send_some(producer, 5)
            during = usage(broker.process_id)

        async def settled() -> None:
            await until(lambda: _is_back(usage(broker.process_id), before))

        run_async(settled())
        grown = max(during.memory - before.memory, 0)
        summary_lines.append(
            f"F19 {churned:,} connections made and closed beside {DRIPPING} that drip: "
            f"{grown >> 10} KiB"
        )
        assert grown < GROWTH_MAX
        send_some(producer, 10)


def _is_back(now: Usage, before: Usage) -> bool:
    return now.descriptors <= before.descriptors + SOME and now.threads <= before.threads + SOME


def test_the_figures_are_the_brokers() -> None:
    """The bounds above are of something that can grow."""
    with EmbeddedBroker() as broker:
        before = usage(broker.process_id)
        with connected(broker, 100):

            async def seen() -> None:
                await until(lambda: usage(broker.process_id).descriptors >= before.descriptors + 99)

            asyncio.run(seen())
