"""What Apache's brokers and tools ask of our consumers, and our consumers in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_core import SyncPullConsumer, SyncPushConsumer
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.types import ConsumeContext
from broker_core.codec.wire.bodies.heartbeat_data import FROM_FIRST_OFFSET
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from tests.interop.clusters import APACHE_KINDS, KINDS, REQUEST_TIMEOUT_MS, run_or_skip
from tests.interop.consumer_ground import Collected, Ground, bodies, ground, until

pytestmark = pytest.mark.interop

Run = Callable[..., Any]


async def played(kind: str, tmp_path: Path, check: Any) -> None:
    async with ground(kind, tmp_path) as found:
        await check(found)


@pytest.mark.parametrize("kind", APACHE_KINDS)
def test_administration(run_async: Run, tmp_path: Path, kind: str) -> None:
    run_or_skip(run_async, played(kind, tmp_path, administered), limit_s=300)


async def administered(found: Ground) -> None:
    queues = await found.topic("Managed", 2)
    await found.send("Managed", bodies(20))
    listener = Collected()
    consumer = await found.push("MANAGED", "Managed", listener, from_where=FROM_FIRST_OFFSET)
    await listener.until_bodies(bodies(20))
    client_id = consumer.client.client_id
    mqadmin = found.cluster.broker.mqadmin
    # 307
    status = await mqadmin("consumerStatus", "-g", "MANAGED", "-i", client_id)
    assert "CONSUME_FROM_FIRST_OFFSET" in status or "PROP_CONSUME_TYPE" in status
    assert "Managed" in status
    # 309
    message_id = listener.messages[0].offset_message_id
    seen = len(listener.messages)
    # The tool of 4.9 has no such option, that of 5.x insists on it.
    topic = () if found.kind == "apache-4.9.7" else ("-t", "Managed")
    direct = await mqadmin(
        "queryMsgById", "-i", message_id, *topic, "-g", "MANAGED", "-d", client_id
    )
    assert "CR_SUCCESS" in direct, direct
    assert len(listener.messages) == seen + 1
    # 221
    assert client_id in await consumer_status(found, "Managed", "MANAGED")
    # 220
    seen = len(listener.messages)
    await found.admin.reset_offsets("MANAGED", "Managed", 0)
    await until(lambda: len(listener.messages) >= seen + 20, "everything once more", 90)
    assert sorted(listener.bodies()[seen:]) == sorted(bodies(20))
    await consumer.stop()
    reader = PullConsumer(found.client, "MANAGED")
    assert sum([await reader.committed(queue) or 0 for queue in queues]) == 20


async def consumer_status(found: Ground, topic: str, group: str) -> str:
    ext = {"topic": topic, "group": group, "clientAddr": ""}
    command = RemotingCommand(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext)
    answer = await found.client.ask_broker(found.cluster.broker_name, command, REQUEST_TIMEOUT_MS)
    return bytes(answer.body).decode()


@pytest.mark.parametrize("kind", KINDS)
def test_consumers_in_threads(run_async: Run, tmp_path: Path, kind: str) -> None:
    run_or_skip(run_async, played(kind, tmp_path, in_threads), limit_s=300)


async def in_threads(found: Ground) -> None:
    [queue] = await found.topic("Threads", 1)
    await found.send("Threads", bodies(300), queue)
    await found.readable(queue, 300)
    # In a thread of its own: this one's loop may run the name server and must not be held up.
    await asyncio.to_thread(use_sync_consumers, found.cluster.name_server)


def use_sync_consumers(name_server: str) -> None:
    with SyncPullConsumer(name_server, "SYNC") as puller:
        [queue] = puller.queues("Threads")
        assert (puller.min_offset(queue), puller.max_offset(queue)) == (0, 300)
        assert len(puller.pull(queue, 0, max_count=7).messages) == 7
        runs = list(puller.stream(queue, 10, 290))
        assert sum(run.count for run in runs) == 280
        begun = puller.stream(queue, 0)
        assert next(begun).first_offset == 0
        begun.close()
        puller.commit(queue, 5)
        assert puller.committed(queue) == 5
    seen: set[bytes] = set()
    threads: set[str] = set()
    all_seen = threading.Event()

    def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        threads.add(threading.current_thread().name)
        seen.update(message.body for message in messages)
        if len(seen) == 300:
            all_seen.set()

    consumer = SyncPushConsumer(
        name_server, "SYNC_PUSH", listen, from_where=FROM_FIRST_OFFSET, suspend_ms=1_000
    )
    consumer.subscribe("Threads")
    with consumer:
        assert all_seen.wait(60)
    assert all(name.startswith("consume-SYNC_PUSH") for name in threads)
