"""A master and a slave as real brokers in one loop, with a name server between them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from broker_core.broker.broker import Broker
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.config import StoreConfig
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import BrokerRole, FlushDiskType
from broker_core.store.writes.message import Message

FILE_SIZE = 1 << 20
TIMEOUT_S = 90.0
# Of a test; a machine that pauses for a while must not make it fail.
TEST_LIMIT_S = 300.0
PATIENCE_MS = 60_000


def config_of(
    root: Path, role: BrokerRole, broker_id: int, name_server: str, **settings: Any
) -> BrokerConfig:
    """A broker with small files on any port and, by default, long timeouts for slaves and disks."""
    of_store: dict[str, Any] = {
        "commit_log_file_size": FILE_SIZE,
        "consume_queue_file_size": 20_000,
        "index_hash_slots": 1000,
        "index_entries_max": 4000,
        "broker_role": role,
        "flush_disk_type": FlushDiskType.ASYNC_FLUSH,
        "sync_flush_timeout_ms": PATIENCE_MS,
        "page_cache_busy_timeout_ms": PATIENCE_MS,
        **settings.pop("store", {}),
    }
    return BrokerConfig(
        broker_id=broker_id,
        listen_port=settings.pop("listen_port", 0),
        vip_port_enable=False,
        name_servers=(name_server,) if name_server else (),
        store_root=str(root),
        store=StoreConfig(**of_store),
        register_period_ms=settings.pop("register_period_ms", 200),
        slave_timeout_ms=settings.pop("slave_timeout_ms", PATIENCE_MS),
        **settings,
    )


@contextlib.asynccontextmanager
async def name_server() -> AsyncIterator[str]:
    """A running name server; its address."""
    server = NameServer()
    port = await server.start(port=0)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def running(config: BrokerConfig) -> AsyncIterator[Broker]:
    """One broker."""
    broker = Broker(config)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@contextlib.asynccontextmanager
async def pair(
    root: Path,
    role: BrokerRole = BrokerRole.ASYNC_MASTER,
    *,
    of_master: dict[str, Any] | None = None,
    of_slave: dict[str, Any] | None = None,
) -> AsyncIterator[tuple[Broker, Broker]]:
    """Master and slave that know each other through a name server."""
    async with (
        name_server() as address,
        running(config_of(root / "master", role, 0, address, **(of_master or {}))) as master,
        running(
            config_of(root / "slave", BrokerRole.SLAVE, 1, address, **(of_slave or {}))
        ) as slave,
    ):
        yield master, slave


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own, with a limit."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def limited() -> None:
            await asyncio.wait_for(test(*arguments, **named), TEST_LIMIT_S)

        asyncio.run(limited(), debug=True)

    return run


async def until(
    reached: Callable[[], object],
    timeout_s: float = TIMEOUT_S,
    told: Callable[[], object] | None = None,
) -> None:
    """Poll a condition."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    never = loop.create_future()
    while not reached():
        assert loop.time() < deadline, f"not reached in time: {told() if told else None}"
        await asyncio.wait((never,), timeout=0.01)


def log_bytes(broker: Broker, start: int | None = None, end: int | None = None) -> bytes:
    """The raw log of a broker."""
    log = broker.context.store.replication.log
    position = log.start if start is None else start
    until_position = log.end if end is None else end
    pieces = []
    while position < until_position:
        data = log.read(position, until_position - position)
        assert data, position
        pieces.append(data)
        position += len(data)
    return b"".join(pieces)


async def same_log(master: Broker, slave: Broker) -> None:
    """Wait until the slave has all, and compare byte for byte."""
    ours, theirs = (b.context.store.replication.log for b in (master, slave))
    await until(
        lambda: theirs.safe_end == ours.end,
        told=lambda: [b.role.status() for b in (master, slave)],
    )
    assert log_bytes(master, theirs.start) == log_bytes(slave)


def make_topic(broker: Broker, name: str = "T", queues: int = 2) -> None:
    """Known to the broker without a client."""
    broker.context.topics.put(TopicConfig(name, queues, queues))


def put(broker: Broker, count: int, size: int = 100, topic: str = "T", first: int = 0) -> None:
    """Append numbered messages."""
    for number in range(first, first + count):
        body = str(number).encode().ljust(size, b".")
        result = broker.context.store.append(Message(topic, body, queue_id=number % 2))
        assert result.ok, result
