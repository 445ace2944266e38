"""Sends of every kind by real producers, checked byte for byte as they are pulled again."""

from __future__ import annotations

import random
import zlib

import pytest

from tests.interop.client_ground import (
    GO,
    JAVA,
    NODE,
    Ground,
    ObservedQueue,
    PullConsumer,
    scenario,
    texts,
)
from tests.interop.driven_client import ANSWER_TIMEOUT_S, ClientError, Row
from tests.interop.server_processes import BROKER_NAME, OURS, wait_until

MIB = 1 << 20
# Response codes as the clients report them.
MESSAGE_ILLEGAL = 13
SYSTEM_ERROR = 1
NO_MESSAGE = 208
NO_ROUTE = 10005
COMPRESSED_FLAG = 1

_WITHOUT = "this library has no look-ups"
NO_LOOK_UPS = {GO: _WITHOUT, NODE: _WITHOUT}
EVERY_BYTE = bytes(range(256))
PROPERTIES = {"colour": "blue", "größe": "クラスタ", "spaces in": "a=b; c", "e-mail": "a@b"}


def as_arguments(properties: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in properties.items()]


def pulled(
    consumer: PullConsumer | ObservedQueue, count: int, queue: int = 0, start: int = 0
) -> list[Row]:
    """`count` messages of a queue from `start`, with as many pulls as it takes."""
    messages: list[Row] = []

    def complete() -> bool:
        result = consumer.call("pull", queue, offset=start + len(messages), count=32)
        # Brokers put a message into its queue shortly after they have answered: until then the
        # queue ends before it.
        if result["max"] > start + len(messages):
            assert result["status"] == "FOUND", result
            messages.extend(result["messages"])
        return len(messages) >= count

    wait_until(complete, 60, f"{count} messages from {start}")
    assert [message["offset"] for message in messages] == list(range(start, start + count))
    return messages


def same_message(sent: Row, stored: Row) -> None:
    """What the producer was told is what a consumer finds."""
    assert sent["status"] == "SEND_OK"
    assert (sent["topic"], sent["queue"]) == (stored["topic"], stored["queue"])
    assert sent["broker"] == stored["broker"] == BROKER_NAME
    assert sent["queue_offset"] == stored["offset"]
    if "msg_id" in sent:
        # Node's messages carry no unique id.
        assert sent["msg_id"] == stored["msg_id"] == stored["properties"]["UNIQ_KEY"]
    assert sent["offset_msg_id"] == stored["offset_msg_id"]
    if "body_crc" in stored:
        assert stored["body_crc"] == zlib.crc32(stored["body"]) & 0x7FFFFFFF
    assert stored["born_timestamp"] <= stored["store_timestamp"]


@scenario("synchronous sends: offsets, ids, properties and bodies", also_binary=True)
def sync_sends(ground: Ground) -> None:
    # Node's library cannot be told a queue.
    queues = 1 if ground.language == NODE else 2
    topic, producer = ground.topic(queues), ground.producer()
    sent = []
    for number in range(6):
        sent.append(
            producer.send(
                topic,
                EVERY_BYTE + bytes([number]),
                queue=number % queues,
                tags=f"tag{number}",
                keys=f"key{number} other",
                flag=number,
                property=as_arguments(PROPERTIES),
            )
        )
    assert [result["queue_offset"] for result in sent] == [n // queues for n in range(6)]
    if ground.language in (JAVA, GO):
        assert {(result["region"], result["trace_on"]) for result in sent} == {
            ("DefaultRegion", True)
        }
    consumer = ground.stored(topic)
    for queue in range(queues):
        for step, stored in enumerate(pulled(consumer, 6 // queues, queue)):
            number = step * queues + queue
            same_message(sent[number], stored)
            assert stored["body"] == EVERY_BYTE + bytes([number])
            assert (stored["tags"], stored["flag"]) == (f"tag{number}", number)
            assert stored["keys"] == f"key{number} other"
            assert PROPERTIES.items() <= stored["properties"].items()
            assert stored["sys_flag"] == 0
            assert stored["reconsume_times"] == 0
            assert stored["store_host"] == ground.cluster.address


@scenario(
    "a topic that is created by its first send, spread over its queues",
    lacking={NODE: "this library sends only to topics that have a route already"},
)
def first_send_creates(ground: Ground) -> None:
    topic, producer = ground.unknown_topic(), ground.producer()
    sent = [producer.send(topic, b"%d" % number) for number in range(20)]
    # The client's default: 4 queues for a topic that it lets the broker create.
    reached: dict[int, list[int]] = {}
    for result in sent:
        reached.setdefault(result["queue"], []).append(result["queue_offset"])
    assert reached.keys() <= {0, 1, 2, 3}
    assert len(reached) > 1
    assert all(offsets == list(range(len(offsets))) for offsets in reached.values())
    wait_until(lambda: ground.routes(topic), 60, f"a route to {topic}")
    assert ground.queue_ids(topic) == [0, 1, 2, 3]


@scenario("asynchronous sends", also_binary=True)
def async_sends(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    waiting = [
        ground.client.begin(
            "producer.async", producer=producer.name, topic=topic, broker=BROKER_NAME, queue=0,
            body=b"async %d" % number,
        )
        for number in range(40)
    ]  # fmt: skip
    sent = sorted(
        (answer.result(ANSWER_TIMEOUT_S) for answer in waiting), key=lambda one: one["queue_offset"]
    )
    assert [result["queue_offset"] for result in sent] == list(range(40))
    stored = pulled(ground.stored(topic), 40)
    for result, message in zip(sent, stored, strict=True):
        same_message(result, message)
    assert {message["text"] for message in stored} == {f"async {n}" for n in range(40)}


@scenario("oneway sends", also_binary=True, lacking={NODE: "this library has no oneway send"})
def oneway_sends(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    for number in range(10):
        producer.send_oneway(topic, b"oneway %d" % number, queue=0, tags="quiet")
    wait_until(lambda: producer.offsets(topic)["max"] == 10, 60, "ten messages")
    stored = pulled(ground.stored(topic), 10)
    # Oneway requests of one connection may be handled side by side: no order is promised.
    assert sorted(message["text"] for message in stored) == [f"oneway {n}" for n in range(10)]
    assert {message["tags"] for message in stored} == {"quiet"}


@scenario(
    "batches: one answer, consecutive offsets, an id per message",
    also_binary=True,
    lacking={NODE: "this library has no batches"},
)
def batches(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    before = producer.send(topic, b"single", queue=0)
    bodies = [b"batch %d" % number + EVERY_BYTE for number in range(50)]
    sent = producer.send_batch(
        topic, bodies, queue=0, tags="many", property=as_arguments(PROPERTIES)
    )
    after = producer.send(topic, b"single", queue=0)
    offsets = [result["queue_offset"] for result in (before, sent, after)]
    assert offsets == [0, 1, 51]
    stored = pulled(ground.stored(topic), 52)
    assert [message["body"] for message in stored[1:51]] == bodies
    ids, offset_ids = sent["msg_id"].split(","), sent["offset_msg_id"].split(",")
    assert offset_ids == [message["offset_msg_id"] for message in stored[1:51]]
    if ground.language != GO:
        # Go gives the messages of a batch no ids of their own.
        assert len(set(ids)) == 50
    if ground.language != GO and ground.cluster.kind != "4.9.7":
        # 4.9.7 gives the messages of a batch other ids than it reports.
        assert ids == [message["msg_id"] for message in stored[1:51]]
    for message in stored[1:51]:
        assert message["tags"] == "many"
        assert PROPERTIES.items() <= message["properties"].items()


@scenario("bodies of 1 MiB, uncompressed")
def large_bodies(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer(compress_over=1 << 30)
    body = random.Random(1).randbytes(MIB)
    sent = [producer.send(topic, body, queue=0), producer.send_async(topic, body, queue=0)]
    consumer = ground.stored(topic)
    for offset, result in enumerate(sent):
        [stored] = pulled(consumer, 1, start=offset)
        same_message(result, stored)
        assert stored["body"] == body
        assert stored["sys_flag"] & COMPRESSED_FLAG == 0
    received = ground.push(topic).wait(2)
    assert [message["body"] == body for message in received] == [True, True]


@scenario("messages over the limit are refused and take no offset")
def too_large(ground: Ground) -> None:
    topic = ground.topic()
    producer = ground.producer("big", compress_over=1 << 30, size_max=64 * MIB, retries=0)
    assert producer.send(topic, b"before", queue=0)["queue_offset"] == 0
    body = bytes(4 * MIB + 1)
    for attempt in (producer.send, producer.send_async):
        with pytest.raises(ClientError) as refused:
            attempt(topic, body, queue=0)
        assert MESSAGE_ILLEGAL in codes(refused.value)
    if ground.language != NODE:
        with pytest.raises(ClientError) as refused:
            producer.send_batch(topic, [bytes(MIB)] * 5, queue=0)
        # Apache reports a batch that is too large as an error of its own.
        apache = {MESSAGE_ILLEGAL, SYSTEM_ERROR}
        allowed = {MESSAGE_ILLEGAL} if ground.cluster.kind == OURS else apache
        assert allowed & codes(refused.value)
    assert producer.send(topic, b"after", queue=0)["queue_offset"] == 1


def codes(error: ClientError) -> set[int]:
    """Response codes anywhere in what the client raised: it wraps some of them."""
    found = {error.code}
    cause = error.cause
    while cause is not None:
        found.add(cause.get("code"))
        cause = cause.get("cause")
    return {code for code in found if code is not None}


@scenario("compressed bodies stay as they are and arrive unpacked")
def compressed_bodies(ground: Ground) -> None:
    topic = ground.topic()
    body = b"compress me, please. " * 20_000
    kinds: list[str | None] = [None]
    if ground.client.name == "Java 5.5.0":
        # The older client can unpack all three but offers no setter; the others have zlib only.
        kinds += ["LZ4", "ZSTD"]
    for kind in kinds:
        producer = ground.producer(f"-{kind}", compress_type=kind)
        producer.send(topic, body, queue=0)
    consumer = ground.push(topic)
    received = sorted(consumer.wait(len(kinds)), key=lambda message: message["offset"])
    for message in received:
        assert message["body"] == body
        assert message["store_size"] < len(body) // 2
    # The type bits tell the packing: 0 is the zlib of old clients, which set no bits.
    packed = [message["sys_flag"] for message in received]
    expected = [{0x301, 0x001}, {0x101}, {0x201}][: len(kinds)]
    for flag, wanted in zip(packed, expected, strict=True):
        assert flag & ~COMPRESSED_FLAG in {one & ~COMPRESSED_FLAG for one in wanted}


@scenario(
    "a topic created through the client's administration",
    lacking={NODE: "this library has no administration"},
)
def create_topic(ground: Ground) -> None:
    for queues in (1, 5):
        topic, producer = ground.topic(queues, f"-{queues}"), ground.producer()
        assert ground.queue_ids(topic) == list(range(queues))
        sent = [producer.send(topic, b"x", queue=queue) for queue in range(queues)]
        assert [result["queue_offset"] for result in sent] == [0] * queues
    if ground.language == GO:
        # This library does not look at the answer: the broker must have refused all the same.
        ground.admin("create_topic", topic="no such/name", queues=1)
        assert not ground.routes("no such/name")
        return
    with pytest.raises(ClientError) as refused:
        producer.call("admin.create_topic", key=BROKER_NAME, topic="no such/name", queues=1)
    if ground.language == JAVA:
        assert "illegal" in refused.value.text


@scenario("an unknown topic with automatic creation off", strict=True)
def unknown_topic(ground: Ground) -> None:
    topic, producer = ground.unknown_topic(), ground.producer()
    with pytest.raises(ClientError) as refused:
        producer.send(topic, b"lost")
    if ground.language == JAVA:
        assert refused.value.code == NO_ROUTE
    # A client that believes to know a queue sends there: the broker itself must refuse.
    assert not ground.routes(topic)
    created = ground.topic(mark="-created")
    assert producer.send(created, b"kept", queue=0)["queue_offset"] == 0


@scenario("look-ups: offsets, by time and by offset id", lacking=NO_LOOK_UPS)
def look_ups(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    empty = producer.offsets(topic)
    assert (empty["min"], empty["max"]) == (0, 0)
    if ground.language == JAVA:
        assert empty["earliest_store_time"] == -1
    sent = [producer.send(topic, b"%d" % n, queue=0, keys=f"k{n}", tags="t") for n in range(5)]
    stored = pulled(ground.stored(topic), 5)
    offsets = producer.offsets(topic)
    assert (offsets["min"], offsets["max"]) == (0, 5)
    if ground.language == JAVA:
        assert offsets["earliest_store_time"] == stored[0]["store_timestamp"]
    for result, message in zip(sent, stored, strict=True):
        at = message["store_timestamp"]
        found = producer.call("admin.at_time", topic=topic, queue=0, timestamp=at)
        assert stored[found]["store_timestamp"] == at
        viewed = producer.call("admin.view", topic=topic, msg_id=result["offset_msg_id"])
        assert (viewed["text"], viewed["keys"]) == (message["text"], message["keys"])


@scenario("look-ups: by key and by unique id", lacking=NO_LOOK_UPS)
def look_ups_by_key(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    sent = [producer.send(topic, b"%d" % n, queue=0, keys=f"k{n} all") for n in range(5)]
    wait_until(lambda: len(by_key(ground, topic, "all")) == 5, 60, "five messages with one key")
    assert texts(by_key(ground, topic, "k3")) == ["3"]
    for number, result in enumerate(sent):
        viewed = producer.call("admin.view", topic=topic, msg_id=result["msg_id"])
        assert (viewed["text"], viewed["keys"]) == (str(number), f"k{number} all")
    if ground.language == JAVA:
        with pytest.raises(ClientError) as refused:
            producer.call("admin.query", topic=topic, key="absent", begin=0, end=1 << 60)
        assert refused.value.code == NO_MESSAGE
    else:
        assert by_key(ground, topic, "absent") == []


def by_key(ground: Ground, topic: str, key: str) -> list[Row]:
    """What a query finds; the client raises when that is nothing."""
    query = {"topic": topic, "key": key, "begin": 0, "end": 1 << 60}
    try:
        found: list[Row] = ground.producer().call("admin.query", **query)
    except ClientError as error:
        if error.code == NO_MESSAGE:
            return []
        raise
    return found
