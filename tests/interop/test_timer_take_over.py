"""We take over a directory in which Apache's broker has timer messages, delivered and waiting."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.scheduled.timer_delivery import TimerDelivery
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.config import StoreConfig
from broker_core.errors import RmqError
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.client import RemotingClient
from broker_core.runtime.clock import SystemClock
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore
from tests.interop.client_matrix import COMPLETE
from tests.interop.java_broker import JavaBroker, server_class_path
from tests.interop.maven_artifacts import PeerUnavailable
from tests.patient_client import patient_client
from tests.remoting.peers import until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not COMPLETE, reason="in the complete run: RMQ_INTEROP_ALL=1"),
]

STOP_TIMEOUT_S = 60
# The files of the Java broker are this small, too.
CONFIG = StoreConfig(
    commit_log_file_size=1 << 20,
    consume_queue_file_size=20_000,
    index_hash_slots=1_000,
    index_entries_max=4_000,
)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _send(client: RemotingClient, address: str, body: bytes, text: str) -> int:
    fields = {
        "a": "PG", "b": "T", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": str(_now_ms()),
        "h": "0", "i": text, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body)
    try:
        return (await client.request(address, command, 30_000)).code
    except RmqError:
        return -1


async def _sent(client: RemotingClient, address: str, number: int, properties: str) -> None:
    text = f"UNIQ_KEY\x01k{number}\x02{properties}"
    assert await _send(client, address, b"%d" % number, text) == 0


async def _apache(home: Path) -> int:
    """Three messages delivered, four that wait of which one is taken back; when they are due."""
    server_class_path("5.5.0")
    names, client = NameServer(), patient_client()
    port = await names.start("127.0.0.1", 0)
    broker = JavaBroker("5.5.0", home, f"127.0.0.1:{port}")
    await broker.start()
    try:
        await broker.until(lambda: _listens(broker.address), 120)
        assert broker.process is not None
        ended = asyncio.ensure_future(broker.process.wait())
        while await _send(client, broker.address, b"up", "UNIQ_KEY\x01up\x02") != 0:
            done, _ = await asyncio.wait((ended,), timeout=0.2)
            assert not done, "the broker ended"
        await broker.until(lambda: _stored(home) > 0)
        before, far_ms = _stored(home), _now_ms() + 50_000
        for number in range(3):
            await _sent(client, broker.address, number, "TIMER_DELAY_MS\x01100\x02")
        for number in range(3, 7):
            asked = f"TIMER_DELIVER_MS\x01{far_ms + number}\x02"
            await _sent(client, broker.address, number, asked)
        recall = f"TIMER_DELIVER_MS\x01{far_ms + 4}\x02TIMER_DEL_UNIQKEY\x01k4\x02"
        await _sent(client, broker.address, 99, recall)
        await broker.until(lambda: _stored(home) >= before + 3)
        broker.process.terminate()
        await asyncio.wait_for(ended, STOP_TIMEOUT_S)
        return far_ms
    finally:
        await client.close()
        await broker.kill()
        await names.stop(50)


def _listens(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def _stored(home: Path) -> int:
    """Messages in queue 0 of topic T, by the file that Apache writes."""
    data = b"".join(path.read_bytes() for path in (home / "store/consumequeue/T/0").glob("*"))
    return sum(1 for at in range(0, len(data), 20) if any(data[at : at + 12]))


def test_we_deliver_what_apache_left(tmp_path: Path, run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        try:
            far_ms = await _apache(tmp_path)
        except PeerUnavailable as reason:
            pytest.skip(str(reason))
        store = MessageStore.open(tmp_path / "store", CONFIG)
        files = PosixFileSystem(tmp_path / "store")
        await store.start()
        delivery = TimerDelivery(
            store=store, file_system=files, clock=SystemClock(), reserved_hours=72
        )
        delivery.start()
        assert delivery.pending_by_topic == {"T": 3}
        await until(lambda: delivery.delivered_count == 3, 90)
        store.flush()
        # The first may have been stored more than once before the broker answered.
        found = store.get("T", 0, 0, 100).messages()
        records = [record for record in found if record.body != b"up"]
        bodies = [record.body for record in records]
        assert sorted(bodies[:3]) == [b"0", b"1", b"2"]
        assert bodies[3:] == [b"3", b"5", b"6"]
        for record in records[3:]:
            assert 0 <= record.store_timestamp - (far_ms + int(record.body)) < 30_000
        delivery.stop()
        store.close()
        files.close()

    run_async(scenario(), limit_s=240)
