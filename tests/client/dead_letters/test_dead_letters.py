"""Dead letters at a real broker: list, read, replay, and replay again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker_core import (
    BadMessage,
    ClientConfig,
    ClientInstance,
    DeadLetters,
    DeadLetterWriter,
    EmbeddedBroker,
    MessageQueue,
    OutgoingMessage,
    ReceivedMessage,
    SyncAdmin,
    SyncDeadLetters,
    SyncProducer,
    SyncPullConsumer,
)
from broker_core.client.dead_letters.dead_letters import REPLAY_GROUP
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, NoPermission, TopicNotExist
from broker_core.protocol_codes import RequestCode
from tests.access.access_files import ADMIN, BROKER, write_access_file, write_secret_file
from tests.cli.rmq_process import running
from tests.client.dead_letters.dead_messages import make_dead
from tests.client.scripted_brokers import scripted_cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as found:
        yield found


@pytest.fixture
def letters(broker: EmbeddedBroker) -> Iterator[SyncDeadLetters]:
    with SyncDeadLetters(broker.name_server) as found:
        yield found


def topic_of(broker: EmbeddedBroker, name: str, queues: int = 1) -> str:
    with SyncAdmin(broker.name_server) as admin:
        admin.create_topic(name, queue_count=queues)
    return name


def dead(broker: EmbeddedBroker, group: str, topic: str, *bodies: bytes, **fields: Any) -> str:
    """Messages of `topic` that `group` has given up; returns the topic of its dead letters."""
    messages = [OutgoingMessage(topic, body, **fields) for body in bodies]
    asyncio.run(make_dead(ClientConfig((broker.name_server,)), group, messages))
    return f"%DLQ%{group}"


def read_all(name_server: str, topic: str) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    with SyncAdmin(name_server) as admin, SyncPullConsumer(name_server) as consumer:
        for queue, (first, end) in admin.topic_offsets(topic).items():
            if first < end:
                found += consumer.pull(queue, first, max_count=end - first).messages
    return found


def bodies(name_server: str, topic: str) -> list[bytes]:
    return [message.body for message in read_all(name_server, topic)]


def test_a_replay_sends_each_message_once_to_the_topic_that_it_was_for(
    broker: EmbeddedBroker, letters: SyncDeadLetters
) -> None:
    topic = topic_of(broker, "orders")
    dlq = dead(broker, "billing", topic, b"a", b"b", b"c", tags="T", keys="k")
    [found] = [each for each in letters.topics() if each.topic == dlq]
    assert found == (dlq, "billing", 1, 3, 3, "")
    first, *_ = letters.read(dlq)
    assert (first.message.body, first.origin_topic, first.reconsume_times) == (b"a", topic, 1)

    planned = letters.replay(dlq, dry_run=True)
    assert [(each.place, each.target, each.result) for each in planned] == [
        (f"{dlq}:broker-a:0:{offset}", topic, None) for offset in range(3)
    ]
    assert bodies(broker.name_server, topic) == [b"a", b"b", b"c"], "a dry run sends nothing"

    assert [each.place for each in letters.replay(dlq, max_count=1)] == [f"{dlq}:broker-a:0:0"]
    assert letters.topics(dlq)[0].waiting == 2
    assert [each.message.body for each in letters.read(dlq)] == [b"b", b"c"]
    assert len(letters.read(dlq, replayed=True)) == 3
    sent = letters.replay(dlq)
    assert [each.place[-1] for each in sent] == ["1", "2"]
    assert letters.replay(dlq) == [], "a second run sends nothing again"
    messages = read_all(broker.name_server, topic)
    assert [message.body for message in messages] == [b"a", b"b", b"c"] * 2
    again = messages[3]
    assert (again.tags, again.keys, again.message_id) == ("T", "k", first.replay_id)
    properties = {
        "ORIGIN_MESSAGE_ID": messages[0].offset_message_id,
        "RETRY_TOPIC": topic,
        "RECONSUME_TIME": "1",
        "REPLAY_OF": first.place,
        "REPLAY_OF_ID": messages[0].message_id,
    }
    assert properties.items() <= again.properties.items()

    # A letter that arrives later is replayed by the next run.
    dead(broker, "billing", topic, b"d")
    assert [each.place for each in letters.replay(dlq)] == [f"{dlq}:broker-a:0:3"]


def test_a_replay_that_ended_before_it_was_recorded_sends_the_same_id_again(
    broker: EmbeddedBroker, letters: SyncDeadLetters
) -> None:
    topic = topic_of(broker, "unrecorded")
    dlq = dead(broker, "unrecorded-group", topic, b"a")
    [letter] = letters.read(dlq)
    with SyncProducer(broker.name_server) as producer:
        producer.send_copy(letter.message, topic, letter.replay_changes(topic))
    letters.replay(dlq)
    first, *copies = read_all(broker.name_server, topic)
    assert len(copies) == 2
    assert {(copy.message_id, copy.properties["REPLAY_OF"]) for copy in copies} == {
        (letter.replay_id, letter.place)
    }
    assert first.message_id != letter.replay_id


class Stopped(Exception):
    pass


def test_a_stopped_replay_continues_after_the_last_one(
    broker: EmbeddedBroker, letters: SyncDeadLetters
) -> None:
    topic = topic_of(broker, "stopped")
    dlq = dead(broker, "stopped-group", topic, b"a", b"b", b"c")

    def stop_at_the_second(replayed: Any) -> None:
        if replayed.place.endswith(":1"):
            raise Stopped

    with pytest.raises(Stopped):
        letters.replay(dlq, on_sent=stop_at_the_second)
    assert [each.place[-1] for each in letters.replay(dlq)] == ["2"]
    assert bodies(broker.name_server, topic) == [b"a", b"b", b"c"] * 2


def test_bodies_flags_and_keys_of_order_survive(
    broker: EmbeddedBroker, letters: SyncDeadLetters
) -> None:
    topic = topic_of(broker, "shapes", 8)
    large = b"compressed " * 10_000
    dlq = dead(broker, "shapes-group", topic, large, b"", b"\xff\x00", flag=5, sharding_key="key")
    letters.replay(dlq)
    copies = [m for m in read_all(broker.name_server, topic) if "REPLAY_OF" in m.properties]
    assert [(copy.body, copy.flag) for copy in copies] == [(large, 5), (b"", 5), (b"\xff\x00", 5)]
    with SyncProducer(broker.name_server) as producer:
        ordered = producer.send_ordered(OutgoingMessage(topic, b"x"), "key")
    assert {copy.queue for copy in copies} == {ordered.queue}


def test_a_dead_letter_topic_of_an_application(
    broker: EmbeddedBroker, letters: SyncDeadLetters
) -> None:
    source, target = topic_of(broker, "app-bad", 2), topic_of(broker, "app")
    with SyncProducer(broker.name_server) as producer:
        origin = {"ORIGIN_TOPIC": target, "DEAD_LETTER_REASON": "not JSON"}
        for queue in producer.publish_queues(source):
            producer.send(OutgoingMessage(source, b"named", properties=origin), queue=queue)
            producer.send(OutgoingMessage(source, b"unnamed"), queue=queue)
    assert letters.topics(source) == [(source, "", 2, 4, 4, "")]
    with pytest.raises(
        InvalidArgument, match="app-bad:broker-a:0:1 does not name its original topic"
    ):
        letters.replay(source)
    assert letters.topics(source)[0].waiting == 3, "the one before was sent"
    with pytest.raises(InvalidArgument, match="cannot be replayed to app-bad"):
        letters.replay(source, to=source)
    with pytest.raises(TopicNotExist, match="mistyped"):
        letters.replay(source, to="mistyped")
    with pytest.raises(InvalidArgument, match="max_count 0"):
        letters.replay(source, max_count=0)
    assert len(letters.replay(source, to=target)) == 3
    assert sorted(bodies(broker.name_server, target)) == [b"named"] * 2 + [b"unnamed"] * 2
    with SyncAdmin(broker.name_server) as admin:
        assert "mistyped" not in admin.topics()


def test_a_record_that_cannot_be_of_the_topic_is_an_error(run_async: Callable[..., Any]) -> None:
    """Apache's brokers have it after a topic was made again, or after a loss of messages."""

    async def scenario() -> None:
        async with scripted_cluster() as cluster, DeadLetters(cluster.config()) as letters:
            offsets = {
                RequestCode.GET_MIN_OFFSET: "0",
                RequestCode.GET_MAX_OFFSET: "1",
                RequestCode.QUERY_CONSUMER_OFFSET: "5",
            }
            for code, offset in offsets.items():
                ext = {"offset": offset}
                cluster.broker.answers[code] = partial(RemotingCommand.reply, ext=ext)
            cluster.broker.answers[RequestCode.HEART_BEAT] = RemotingCommand.reply
            [found] = await letters.topics("T")
            assert (found.messages, found.waiting) == (4, 0)
            assert await letters.read("T") == []
            with pytest.raises(InvalidArgument, match=r"ends at offset 1, and replays .* up to 5"):
                await letters.replay("T", to="Other")

    run_async(scenario())


def test_no_dead_letters(broker: EmbeddedBroker, letters: SyncDeadLetters) -> None:
    for attempt in (letters.topics, letters.read, letters.replay):
        with pytest.raises(TopicNotExist):
            attempt("%DLQ%nobody")


# Access control

MAY: dict[str, Any] = {
    "accessKey": "may",
    "secretKey": "canary-may",
    "topicPerms": ["orders=PUB|SUB", "bad-orders=PUB|SUB"],
    "groupPerms": ["billing=SUB", f"{REPLAY_GROUP}=SUB"],
}
# Reads the dead letters, and may not send.
MAY_NOT: dict[str, Any] = {
    "accessKey": "may-not",
    "secretKey": "canary-may-not",
    "topicPerms": ["orders=SUB", "readable=SUB", "bad-orders=PUB"],
    "groupPerms": ["billing=SUB", f"{REPLAY_GROUP}=SUB"],
}
STRANGER: dict[str, Any] = {
    "accessKey": "stranger",
    "secretKey": "canary-stranger",
    "topicPerms": ["orders=PUB|SUB"],
    "groupPerms": [f"{REPLAY_GROUP}=SUB"],
}


def config_of(name_server: str, account: dict[str, Any]) -> ClientConfig:
    return ClientConfig(
        (name_server,), access_key=account["accessKey"], secret_key=account["secretKey"]
    )


def test_a_replay_needs_the_rights_of_its_parts(tmp_path: Path) -> None:
    accounts = write_access_file(tmp_path / "access", MAY, MAY_NOT, STRANGER, BROKER, ADMIN)
    properties = {
        "aclEnable": "true",
        "accessFile": str(accounts),
        "innerAccessKey": BROKER["accessKey"],
        "innerSecretKeyFile": str(write_secret_file(tmp_path / "inner", BROKER)),
    }
    given = [word for key, value in properties.items() for word in ("-p", f"{key}={value}")]
    ports = ("--port", "0", "--broker-port", "0")
    topics = ("-t", "orders:1", "-t", "bad-orders:1", "-t", "readable:1")
    with running(tmp_path, "standalone", *ports, *topics, *given) as server:
        may = config_of(server.address, MAY)
        asyncio.run(make_dead(may, "billing", [OutgoingMessage("orders", b"a")]))
        with SyncDeadLetters(config_of(server.address, STRANGER)) as letters:
            [hidden] = letters.topics()
            assert (hidden.topic, hidden.messages) == ("%DLQ%billing", 0)
            assert "billing" in hidden.problem
            for attempt in (letters.topics, letters.read, letters.replay):
                with pytest.raises(NoPermission, match="billing"):
                    attempt("%DLQ%billing")
        with SyncDeadLetters(config_of(server.address, MAY_NOT)) as letters:
            assert [letter.message.body for letter in letters.read("%DLQ%billing")] == [b"a"]
            with pytest.raises(NoPermission, match="no PUB permission on topic 'orders'"):
                letters.replay("%DLQ%billing")
            assert letters.topics("%DLQ%billing")[0].waiting == 1
        with SyncDeadLetters(may) as letters:
            [sent] = letters.replay("%DLQ%billing")
            assert sent.target == "orders"
            assert letters.replay("%DLQ%billing") == []
        asyncio.run(_write_bad_messages(server.address))


async def _write_bad_messages(name_server: str) -> None:
    """As the Spark source does with badRecords=deadLetter."""
    bad = [BadMessage(MessageQueue("orders", "broker-a", 0), 0, b"a", "why")]
    async with ClientInstance(config_of(name_server, MAY)) as client:
        writer = DeadLetterWriter(client, "bad-orders", "billing")
        assert await writer.write(bad) == 1
        assert await writer.write(bad) == 0
    async with ClientInstance(config_of(name_server, MAY_NOT)) as client:
        with pytest.raises(NoPermission, match="no PUB permission on topic 'readable'"):
            await DeadLetterWriter(client, "readable", "billing").write(bad)
        # Its only broker finds out by itself whether the dead letter is there.
        assert await DeadLetterWriter(client, "bad-orders", "billing").write(bad) == 0
