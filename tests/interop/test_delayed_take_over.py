"""Apache's broker takes over a directory with delayed messages, and we take it back.

Every message is delivered once, by the broker that holds the directory when it is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.scheduled.delay_progress import DELAY_OFFSETS_FILE
from broker_core.broker.scheduled.delayed_delivery import DelayedDelivery
from broker_core.broker.scheduled.delayed_message import delayed
from broker_core.codec.records.record_layout import UNIT
from broker_core.config import StoreConfig, delay_levels_ms
from broker_core.runtime.clock import SystemClock
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.interop.java_broker import SERVER_VERSIONS, JavaBroker
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.peer_releases import releases

pytestmark = pytest.mark.interop

STOP_TIMEOUT_S = 60
# The files of the Java broker are this small, too.
CONFIG = StoreConfig(
    commit_log_file_size=1 << 20,
    consume_queue_file_size=20_000,
    index_hash_slots=1_000,
    index_entries_max=4_000,
)


class OurBroker:
    """Store and delivery of ours on a directory."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.store = MessageStore.open(root, CONFIG)
        self._files = PosixFileSystem(root)
        self.table = JsonTable(self._files, DELAY_OFFSETS_FILE)
        self._delivery = DelayedDelivery(
            store=self.store,
            table=self.table,
            clock=SystemClock(),
            levels=delay_levels_ms(CONFIG.message_delay_level),
        )
        self._grown = asyncio.Event()

    async def start(self) -> OurBroker:
        await self.store.start()
        self._delivery.start()
        self.store.on_arrival(lambda topic, _, __: self._grown.set())
        return self

    async def delay(self, body: bytes, level: int) -> None:
        assert (await self.store.put(delayed(Message("T", body, tags="A"), level, 18))).ok

    async def until_delivered(self, count: int) -> None:
        while len(self.bodies()) < count:
            self._grown.clear()
            await asyncio.wait_for(self._grown.wait(), 90)

    def bodies(self) -> list[bytes]:
        if self.store.offsets("T", 0) == (0, 0):
            return []
        return [message.body for message in self.store.get("T", 0, 0, 100).messages()]

    def stop(self) -> None:
        self._delivery.stop()
        self.store.close()
        self._files.close()


def _queued(root: Path) -> int:
    """Messages in queue 0 of topic T, by the file that Apache writes."""
    data = b"".join(path.read_bytes() for path in (root / "consumequeue/T/0").glob("*"))
    return sum(1 for _, size, _ in UNIT.iter_unpack(data) if size)


async def _apache_delivers(version: str, home: Path, count: int) -> None:
    try:
        broker = JavaBroker(version, home, "127.0.0.1:1")
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    await broker.start()
    try:
        await broker.until(lambda: _queued(home / "store") >= count)
        assert broker.process is not None
        broker.process.terminate()
        await asyncio.wait_for(broker.process.wait(), STOP_TIMEOUT_S)
    finally:
        await broker.kill()


@pytest.mark.parametrize("version", releases(SERVER_VERSIONS))
def test_there_and_back(version: str, tmp_path: Path, run_async: Callable[..., Any]) -> None:
    root = tmp_path / "store"

    async def run() -> None:
        ours = await OurBroker(root).start()
        for body in (b"1", b"2", b"3"):
            await ours.delay(body, 1)
        await ours.until_delivered(3)
        assert ours.bodies() == [b"1", b"2", b"3"]
        # Due when Apache has the directory, unless the machine stands still right here.
        await ours.delay(b"4", 3)
        await ours.delay(b"5", 3)
        ours.stop()

        await _apache_delivers(version, tmp_path, 5)

        back = await OurBroker(root).start()
        stored = back.table.load()
        assert stored is not None
        assert (stored["offsetTable"]["1"], stored["offsetTable"]["3"]) == (3, 2)
        assert "logPosition" not in stored
        await back.delay(b"6", 1)
        await back.until_delivered(6)
        assert back.bodies() == [b"1", b"2", b"3", b"4", b"5", b"6"]
        back.stop()

    run_async(run(), limit_s=400)
