"""Our producer and administration against real brokers: what they store is what we sent.

Every scenario takes a kind of cluster from `clusters.KINDS`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import SyncAdmin, SyncProducer
from broker_core.client.admin.admin import Admin
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.result import SendResult, SendStatus
from broker_core.client.pull.queue_offsets import EARLIEST_MS, LATEST_MS
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.records.compression import decompress_body
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    InvalidArgument,
    MessageTooLarge,
    NoPermission,
    QueryNotFound,
    RemoteError,
    RmqError,
    TopicNotExist,
)
from broker_core.protocol_codes import RequestCode
from tests.interop.clusters import APACHE_KINDS, KINDS, Cluster, cluster, run_or_skip
from tests.interop.consumer_ground import patient_config

pytestmark = pytest.mark.interop

M = OutgoingMessage
each_kind = pytest.mark.parametrize("kind", KINDS)
# Segments large enough for the largest message.
ROOMY = {"mappedFileSizeCommitLog": str(16 << 20)}


class Peers:
    """A cluster with a client of ours and what is built on it."""

    def __init__(self, found: Cluster, client: ClientInstance, producer: Producer) -> None:
        self.cluster = found
        self.client = client
        self.producer = producer
        self.admin = Admin(client)

    async def stored(self, result: SendResult) -> MessageRecord:
        """The message that a result says was stored."""
        record = await self.admin.view_message(result.offset_msg_id, result.queue.topic)
        assert record.properties["UNIQ_KEY"] == result.msg_id
        assert (record.queue_id, record.queue_offset) == (
            result.queue.queue_id,
            result.queue_offset,
        )
        return record

    async def count(self, topic: str) -> int:
        """Messages in all queues of a topic."""
        offsets = await self.admin.topic_offsets(topic)
        return sum(last - first for first, last in offsets.values())

    async def until_count(self, topic: str, expected: int) -> None:
        """Brokers count a message in its queue shortly after they have answered."""

        async def is_reached() -> bool:
            return await self.count(topic) == expected

        await self.cluster.until(is_reached, 60)


def plain_body(record: MessageRecord) -> bytes:
    return decompress_body(record.body, record.sys_flag, 16 << 20)


async def with_peers(
    kind: str,
    home: Path,
    *checks: Callable[[Peers], Any],
    cluster_options: dict[str, Any] | None = None,
    **client_options: Any,
) -> None:
    """Run checks one after another in one cluster, for a broker takes seconds to start."""
    options = {"properties": ROOMY, **(cluster_options or {})}
    async with (
        cluster(kind, home, **options) as found,
        ClientInstance(patient_config(found.name_server, **client_options)) as client,
        Producer(client, "PG") as producer,
    ):
        peers = Peers(found, client, producer)
        for check in checks:
            await check(peers)


@each_kind
def test_everything_that_one_broker_is_asked_for(
    run_async: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    """One after another in one cluster; each check has topics of its own."""
    checks = (
        check_topic_is_created,
        check_single_messages,
        check_odd_messages,
        check_large_messages,
        check_batches,
        check_order,
        check_oneway,
        check_many_at_once,
        check_new_topics_and_refusals,
        check_the_broker_knows_the_producer,
        check_messages_are_found_by_key,
        check_cluster,
        check_offsets,
        check_progress,
        check_groups,
        check_deletion,
        check_the_sync_faces,
    )
    run_or_skip(run_async, with_peers(kind, tmp_path, *checks))


async def check_topic_is_created(peers: Peers) -> None:
    await peers.admin.create_topic("T", queue_count=4)
    assert "T" in await peers.admin.topics()
    assert len(await peers.producer.publish_queues("T")) == 4
    await peers.admin.create_topic("Narrow", read_queue_count=3, write_queue_count=2)
    assert len(await peers.producer.publish_queues("Narrow")) == 2
    assert len(await peers.admin.queues("Narrow")) == 3


async def check_single_messages(peers: Peers) -> None:
    send = peers.producer.send
    result = await send("T", b"hello", tags="TagA", keys="k1 k2", properties={"名": "значение"})
    assert result.status is SendStatus.SEND_OK
    record = await peers.stored(result)
    assert record.body == b"hello"
    found = record.properties
    assert (found["TAGS"], found["KEYS"], found["名"]) == ("TagA", "k1 k2", "значение")
    assert (await peers.stored(await send(M("T", b"x", flag=-7)))).flag == -7

    with pytest.raises(QueryNotFound):
        await peers.admin.view_message(result.offset_msg_id[:16] + f"{1 << 40:016X}", "T")


async def check_odd_messages(peers: Peers) -> None:
    send = peers.producer.send
    assert plain_body(await peers.stored(await send("T", b""))) == b""
    record = await peers.stored(await send("T", bytes(range(256))))
    assert record.body == bytes(range(256))
    many = {f"n{number}": "v" for number in range(3_000)}
    record = await peers.stored(await send("T", b"x", properties=many))
    assert many.items() <= record.properties.items()
    await peers.admin.create_topic("Later", queue_count=1)
    assert (await send("Later", b"later", delay_level=1)).status is SendStatus.SEND_OK
    await peers.until_count("Later", 1)


async def check_large_messages(peers: Peers) -> None:
    send = peers.producer.send
    noise = random.Random(5).randbytes(4 << 20)
    assert plain_body(await peers.stored(await send("T", noise))) == noise
    text = b"compressible " * 300_000
    record = await peers.stored(await send("T", text))
    assert len(record.body) < len(text) // 10
    assert plain_body(record) == text
    with pytest.raises(MessageTooLarge, match="4194304"):
        send("T", noise + b"x")


async def check_batches(peers: Peers) -> None:
    messages = [M("T", b"b%d" % n, tags=f"tag{n}", properties={"n": str(n)}) for n in range(5)]
    messages.append(M("T", b"", tags="empty"))
    results = await peers.producer.send_batch(messages)
    first = results[0].queue_offset
    assert [one.queue_offset for one in results] == list(range(first, first + 6))
    for message, result in zip(messages, results, strict=True):
        record = await peers.stored(result)
        assert (record.body, record.properties["TAGS"]) == (message.body, message.tags)
    with pytest.raises(MessageTooLarge):
        peers.producer.send_batch([M("T", bytes(3 << 20))] * 2)


async def check_order(peers: Peers) -> None:
    sends = [peers.producer.send_ordered(M("T", b"%d" % n), f"order-{n % 5}") for n in range(200)]
    results = await asyncio.gather(*sends)
    for key in range(5):
        mine = results[key::5]
        assert len({one.queue for one in mine}) == 1
        offsets = [one.queue_offset for one in mine]
        assert offsets == sorted(offsets)
    assert (await peers.stored(results[0])).properties["__SHARDINGKEY"] == "order-0"


async def check_oneway(peers: Peers) -> None:
    await peers.admin.create_topic("Oneway", queue_count=1)
    for number in range(10):
        await peers.producer.send_oneway(M("Oneway", b"%d" % number))
    await peers.until_count("Oneway", 10)


async def check_many_at_once(peers: Peers) -> None:
    await peers.admin.create_topic("Many", queue_count=4)
    sends = [peers.producer.send("Many", b"%d" % n, tags="A") for n in range(3_000)]
    results = await asyncio.gather(*sends)
    assert len({(one.queue, one.queue_offset) for one in results}) == 3_000
    await peers.until_count("Many", 3_000)
    assert len({one.queue for one in results}) == 4
    for number in (0, 1_234, 2_999):
        assert (await peers.stored(results[number])).body == b"%d" % number


async def check_new_topics_and_refusals(peers: Peers) -> None:
    result = await peers.producer.send("MadeBySend", b"x")
    assert (await peers.stored(result)).topic == "MadeBySend"

    async def has_route() -> bool:
        return "MadeBySend" in await peers.admin.topics()

    await peers.cluster.until(has_route, 60)
    with pytest.raises(NoPermission):
        await peers.producer.send("SCHEDULE_TOPIC_XXXX", b"x")
    queue = result.queue._replace(queue_id=77)
    with pytest.raises(RemoteError, match="MadeBySend"):
        await peers.producer.send("MadeBySend", b"x", queue=queue)
    await peers.admin.create_topic("ReadOnly", queue_count=1, perm=4)
    with pytest.raises(BrokerNotExist, match="read-only"):
        await peers.producer.send("ReadOnly", b"x")


async def check_the_broker_knows_the_producer(peers: Peers) -> None:
    command = RemotingCommand(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "PG"})

    async def is_known() -> bool:
        answer = await peers.client.request_broker(peers.cluster.broker_name, command)
        return answer.code == 0 and peers.client.client_id.encode() in bytes(answer.body)

    await peers.cluster.until(is_known, 60)
    command = RemotingCommand(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "PG"})
    answer = await peers.client.request_broker(peers.cluster.broker_name, command)
    [connection] = parse_json(answer.body)["connectionSet"]
    assert connection["language"] == "PYTHON"


async def check_messages_are_found_by_key(peers: Peers) -> None:
    await peers.admin.create_topic("Keyed", queue_count=2)
    result = await peers.producer.send("Keyed", b"x", keys="k1 k2")

    async def found_by(key: str, is_unique_id: bool) -> bool:
        records = await peers.admin.query_messages("Keyed", key, is_unique_id=is_unique_id)
        return [one.message_id for one in records] == [result.offset_msg_id]

    # Indexes are written after the answer.
    for key, is_unique_id in (("k1", False), ("k2", False), (result.msg_id, True)):
        await peers.cluster.until(lambda key=key, u=is_unique_id: found_by(key, u), 60)
    assert await peers.admin.query_messages("Keyed", "never used") == []


async def check_cluster(peers: Peers) -> None:
    info = await peers.admin.cluster_info()
    assert info.clusters == {"DefaultCluster": (peers.cluster.broker_name,)}
    assert info.brokers[peers.cluster.broker_name].addresses == {0: peers.cluster.broker.address}
    with pytest.raises(InvalidArgument, match="DefaultCluster"):
        await peers.admin.create_topic("X", cluster="Other")
    with pytest.raises(BrokerNotExist, match="broker-z"):
        await peers.admin.create_topic("X", broker_names=["broker-z"])
    with pytest.raises(TopicNotExist):
        await peers.admin.route("X")
    # An id may name any address; only those of the cluster are asked.
    with pytest.raises(BrokerNotExist, match=r"10\.9\.8\.7:6"):
        await peers.admin.view_message("0A0908070000000600000000000000FF")


async def check_offsets(peers: Peers) -> None:
    await peers.admin.create_topic("O", queue_count=1)
    [queue] = await peers.admin.queues("O")
    assert (await peers.admin.min_offset(queue), await peers.admin.max_offset(queue)) == (0, 0)
    results = [await peers.producer.send("O", b"%d" % n) for n in range(5)]
    await peers.until_count("O", 5)
    assert await peers.admin.topic_offsets("O") == {queue: (0, 5)}
    records = [await peers.stored(result) for result in results]
    at = await peers.admin.offset_by_time(queue, records[0].store_timestamp)
    assert at == 0
    found = await peers.admin.offset_by_time(queue, records[3].store_timestamp)
    assert records[found].store_timestamp == records[3].store_timestamp
    with pytest.raises((TopicNotExist, RemoteError)):
        await peers.admin.max_offset(queue._replace(topic="Unknown"))


async def check_progress(peers: Peers) -> None:
    [queue] = await peers.admin.queues("O")
    await peers.admin.create_group("CG")
    # A young queue may count as consumed up to 0.
    assert await peers.admin.committed_offset("CG", queue) in (None, 0)
    await peers.admin.commit_offset("CG", queue, 3)
    assert await peers.admin.committed_offset("CG", queue) == 3
    assert await peers.admin.committed_offsets("CG", "O") == {queue: 3}
    assert await peers.admin.reset_offsets("CG", "O", EARLIEST_MS) == {queue: 0}
    assert await peers.admin.committed_offset("CG", queue) == 0
    assert await peers.admin.reset_offsets("CG", "O", LATEST_MS) == {queue: 5}
    assert await peers.admin.committed_offset("CG", queue) == 5
    with pytest.raises(InvalidArgument):
        await peers.admin.commit_offset("CG", queue, -1)


async def check_groups(peers: Peers) -> None:
    await peers.admin.create_group(GroupConfig("Limited", retry_times_max=3))
    command = RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    answer = await peers.client.ask_broker(peers.cluster.broker_name, command)
    table = parse_json(answer.body)["subscriptionGroupTable"]
    assert table["Limited"]["retryMaxTimes"] == 3
    await peers.admin.delete_group("Limited")
    command = RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    answer = await peers.client.ask_broker(peers.cluster.broker_name, command)
    assert "Limited" not in parse_json(answer.body)["subscriptionGroupTable"]
    with pytest.raises(InvalidArgument):
        await peers.admin.create_group("bad group")


async def check_deletion(peers: Peers) -> None:
    await peers.admin.delete_topic("O")
    with pytest.raises(TopicNotExist):
        await peers.admin.route("O")
    assert "O" not in await peers.admin.topics()


async def check_the_sync_faces(peers: Peers) -> None:
    sent = 501

    def work(name_server: str) -> None:
        config = patient_config(name_server)
        with SyncAdmin(config) as admin, SyncProducer(config, "PG") as producer:
            admin.create_topic("S", queue_count=2)
            result = producer.send("S", b"x", tags="A")
            assert admin.view_message(result.offset_msg_id).body == b"x"
            assert len(producer.send_many(M("S", b"%d" % n) for n in range(sent - 1))) == sent - 1
            assert len(admin.topic_offsets("S")) == 2
            with pytest.raises(RmqError):
                producer.send("SCHEDULE_TOPIC_XXXX", b"x")

    await asyncio.to_thread(work, peers.cluster.name_server)
    await peers.until_count("S", sent)


@each_kind
def test_topics_are_not_made_where_that_is_off(
    run_async: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    async def check(peers: Peers) -> None:
        with pytest.raises(TopicNotExist, match="Never"):
            await peers.producer.send("Never", b"x")
        await peers.admin.create_topic("Never", queue_count=1)
        assert (await peers.producer.send("Never", b"x")).queue_offset == 0

    options = {"properties": {**ROOMY, "autoCreateTopicEnable": "false"}}
    run_or_skip(run_async, with_peers(kind, tmp_path, check, cluster_options=options))


@each_kind
def test_sends_survive_the_loss_of_a_broker(
    run_async: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    async def check(peers: Peers) -> None:
        await peers.admin.create_topic("T", queue_count=4)
        send = peers.producer.send
        results = await asyncio.gather(*(send("T", b"x") for _ in range(20)))
        assert {one.queue.broker_name for one in results} == {"broker-a", "broker-b"}
        # Sends go on while one broker dies: none fails, since the other takes them.
        killing = asyncio.ensure_future(peers.cluster.kill(0))
        while not killing.done():
            results.append(await send("T", b"x"))
        await killing
        results += [await send("T", b"x") for _ in range(20)]
        assert {one.queue.broker_name for one in results[-20:]} == {"broker-b"}
        await peers.cluster.restart(0)

        async def is_used_again() -> bool:
            results.append(await send("T", b"x"))
            return results[-1].queue.broker_name == "broker-a"

        await peers.cluster.until(is_used_again, 60)
        # What was acknowledged is there, on both.
        for result in random.Random(3).sample(results, min(60, len(results))):
            assert (await peers.stored(result)).body == b"x"

    options = {"broker_names": ("broker-a", "broker-b")}
    scenario = with_peers(
        kind, tmp_path, check, cluster_options=options, route_poll_interval_ms=1_000
    )
    run_or_skip(run_async, scenario)


@pytest.mark.parametrize("kind", APACHE_KINDS)
def test_with_apaches_name_server_and_consumer(
    run_async: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    """Nothing of ours but the client; Apache's tool reads what it sent."""

    async def check(peers: Peers) -> None:
        await peers.admin.create_topic("T", queue_count=1)
        await peers.producer.send("T", b"plain-text", tags="A")
        await peers.producer.send("T", b"compressed-text " * 1_000, tags="B")
        await peers.producer.send_batch([M("T", b"batch-0", "C"), M("T", b"batch-1", "C")])
        await peers.until_count("T", 4)
        output = await peers.cluster.broker.mqadmin("consumeMessage", "-t", "T", "-c", "4")
        assert "plain-text" in output
        assert "compressed-text compressed-text" in output
        assert "batch-0" in output
        assert "batch-1" in output

    options = {"apache_name_server": True}
    run_or_skip(run_async, with_peers(kind, tmp_path, check, cluster_options=options))
