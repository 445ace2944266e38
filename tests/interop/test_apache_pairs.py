"""Tables travel between Apache's brokers and ours, whichever of them is the slave.

Topics, groups and consumer offsets with delay offsets; the log itself is the business of
`tests/replication`. What consumers commit at our slave while Apache's master is away comes back.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.client.admin.admin import Admin
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RmqError
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.client import RemotingClient
from tests.broker.running_broker import Asker, broker_config
from tests.interop.clusters import APACHE_KINDS, run_or_skip
from tests.interop.consumer_ground import patient_config
from tests.interop.java_broker import JavaBroker
from tests.interop.loopback_ports import free_ports
from tests.patient_client import patient_client

pytestmark = pytest.mark.interop

COMPLETE = bool(os.environ.get("RMQ_INTEROP_ALL"))
VERSIONS = [kind.partition("-")[2] for kind in APACHE_KINDS]
TOPIC, GROUP = "Copied", "READERS"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
# The sizes of Apache's files are ours, or a slave could not copy them.
SIZES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


async def _until(reached: Callable[[], Awaitable[bool] | bool], what: str, limit_s: float) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    deadline = asyncio.get_running_loop().time() + limit_s
    while True:
        found = reached()
        if found if isinstance(found, bool) else await found:
            return
        assert asyncio.get_running_loop().time() < deadline, f"not within {limit_s} s: {what}"
        await asyncio.wait((never,), timeout=0.1)


async def _fill(name_server: str) -> None:
    """A topic with messages, one of them delayed, and a group that has read some."""
    async with ClientInstance(patient_config(name_server)) as client:
        admin = Admin(client)
        await admin.create_topic(TOPIC, queue_count=1)
        await admin.create_group(GROUP)
        async with Producer(client, "SENDERS") as producer:
            for number in range(20):
                await producer.send(OutgoingMessage(TOPIC, b"m%d" % number), queue=QUEUE)
            await producer.send(OutgoingMessage(TOPIC, b"later", delay_level=1), queue=QUEUE)
        await admin.commit_offset(GROUP, QUEUE, 7)


def _table(root: Path, name: str) -> Any:
    path = root / "config" / name
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}


@pytest.mark.parametrize("version", VERSIONS)
def test_our_slave_copies_the_tables_of_apache(
    run_async: Callable[..., Any], tmp_path: Path, version: str
) -> None:
    async def scenario() -> None:
        server, client = NameServer(), patient_client()
        name_server = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        properties = {**SIZES, "brokerIP2": "127.0.0.1", "brokerRole": "ASYNC_MASTER"}
        master = JavaBroker(version, tmp_path / "master", name_server, properties)
        slave = Broker(
            broker_config(
                tmp_path / "slave",
                **{**SIZES, "namesrvAddr": name_server, "brokerRole": "SLAVE", "brokerId": "1",
                   "registerNameServerPeriod": "1000", "flushCommitLogThoroughInterval": "500"},
            )
        )  # fmt: skip
        try:
            await master.start()
            await master.until(lambda: server.table.route("TBW102") is not None)
            await _fill(name_server)
            await slave.start()
            tables = slave.context
            await _until(
                lambda: (
                    tables.topics.find(TOPIC) is not None
                    and tables.groups.find(GROUP) is not None
                    and tables.offsets.query(GROUP, TOPIC, 0) == 7
                ),
                "the tables at our slave", 120,
            )  # fmt: skip
            if not COMPLETE:
                return
            await _until(
                lambda: _table(tmp_path / "slave", "delayOffset.json").get("offsetTable")
                == {"1": 1},
                "the delay offsets at our slave", 120,
            )  # fmt: skip
            # Consumers read here while the master is away, and the master hears of it.
            await master.kill()
            asker = Asker(slave, client)
            answer = await asker.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup=GROUP, topic=TOPIC, queueId=0, commitOffset=15,
            )  # fmt: skip
            assert answer.code == 0, answer.remark
            await master.start()
            await _until(lambda: _committed(client, master.address, 15), "at the master", 150)
            assert tables.offsets.query(GROUP, TOPIC, 0) == 15
        finally:
            await client.close()
            await slave.stop()
            await master.kill()
            await server.stop(100)

    run_or_skip(run_async, scenario(), limit_s=400)


async def _committed(client: RemotingClient, address: str, offset: int) -> bool:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    try:
        answer = await client.request(
            address, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext), 2_000
        )
    except RmqError:
        return False
    return answer.ext.get("offset") == str(offset)


# Slaves of 5.x copy once a minute; only the complete run has the time.
@pytest.mark.parametrize("version", VERSIONS if COMPLETE else ["4.9.7"])
def test_a_slave_of_apache_copies_our_tables(
    run_async: Callable[..., Any], tmp_path: Path, version: str
) -> None:
    async def scenario() -> None:
        server = NameServer()
        name_server = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        # Apache's slave asks for the tables on the VIP port.
        [port] = free_ports(1)
        ours = {"namesrvAddr": name_server, "listenPort": str(port), "vipPortEnable": "true"}
        master = Broker(broker_config(tmp_path / "master", **SIZES, **ours))
        properties = {**SIZES, "brokerIP2": "127.0.0.1", "brokerRole": "SLAVE", "brokerId": "1"}
        slave = JavaBroker(version, tmp_path / "slave", name_server, properties)
        store = tmp_path / "slave" / "store"
        try:
            await master.start()
            await _fill(name_server)
            await slave.start()

            def is_copied() -> bool:
                topics = _table(store, "topics.json").get("topicConfigTable", {})
                groups = _table(store, "subscriptionGroup.json").get("subscriptionGroupTable", {})
                offsets = _table(store, "consumerOffset.json").get("offsetTable", {})
                delays = _table(store, "delayOffset.json").get("offsetTable", {})
                return (
                    TOPIC in topics
                    and GROUP in groups
                    and offsets.get(f"{TOPIC}@{GROUP}") == {"0": 7}
                    and delays.get("1") == 1
                )

            await slave.until(is_copied, 120)
            logs = "".join(
                path.read_text(errors="replace")
                for path in (tmp_path / "slave").rglob("broker.log")
            )
            assert "SyncTopicConfig Exception" not in logs, json.dumps(logs[-2_000:])
        finally:
            await slave.kill()
            await master.stop()
            await server.stop(100)

    run_or_skip(run_async, scenario(), limit_s=400)
