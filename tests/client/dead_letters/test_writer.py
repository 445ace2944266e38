"""Messages that a reader could not use, written to a dead-letter topic of a real broker."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_core import (
    BadMessage,
    ClientConfig,
    ClientInstance,
    DeadLetterWriter,
    EmbeddedBroker,
    EmbeddedCluster,
    MessageQueue,
    OutgoingMessage,
    ReceivedMessage,
    SyncAdmin,
    SyncDeadLetters,
    SyncProducer,
)
from broker_core.codec.records.message_record import COMPRESSED, MessageRecord
from broker_core.errors import InvalidArgument, TopicNotExist


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 1, "bad": 1}) as found:
        yield found


def test_the_original_is_kept_and_written_once(
    broker: EmbeddedBroker, run_async: Callable[..., Any]
) -> None:
    large = b"not JSON " * 10_000
    with SyncProducer(broker.name_server) as producer:
        original = OutgoingMessage(
            "orders", large, tags="T", keys="k", flag=7, properties={"own": "1"}
        )
        sent = producer.send(original)
    message = BadMessage(sent.queue, sent.queue_offset, large, "why\x01 \x02not \ud800" * 200)
    gone = BadMessage(sent.queue, sent.queue_offset + 9, b"gone", "why")

    async def scenario() -> None:
        async with ClientInstance(ClientConfig((broker.name_server,))) as client:
            writer = DeadLetterWriter(client, "bad", "readers")
            await writer.check()
            assert await writer.write([message]) == 1
            assert await writer.write([message]) == 0, "it is there"
            # Expired since it was read: its body and its origin are left.
            assert await writer.write([message, gone]) == 1
            with pytest.raises(InvalidArgument, match="the dead-letter topic orders itself"):
                await DeadLetterWriter(client, "orders", "readers").write([message])
            with pytest.raises(TopicNotExist):
                await DeadLetterWriter(client, "missing", "readers").check()

    run_async(scenario())
    with SyncDeadLetters(broker.name_server) as letters:
        first, second = (letter.message for letter in letters.read("bad"))
    assert (first.body, first.tags, first.keys, first.flag) == (large, "T", "k", 7)
    origin = {
        "ORIGIN_TOPIC": "orders",
        "ORIGIN_BROKER": "broker-a",
        "ORIGIN_QUEUE": "0",
        "ORIGIN_OFFSET": "0",
        "own": "1",
    }
    assert origin.items() <= first.properties.items()
    assert first.properties["DEAD_LETTER_REASON"].startswith("why? ?not ?why?")
    assert first.message_id != sent.msg_id
    assert (second.body, second.properties["ORIGIN_OFFSET"]) == (b"gone", "9")


def test_another_message_at_the_same_offset_is_another_dead_letter() -> None:
    """Offsets can begin again on another log; an id must not hide a new message."""
    one = BadMessage(MessageQueue("orders", "broker-a", 0), 3, b"one", "why")

    def stored(position: int) -> ReceivedMessage:
        return ReceivedMessage(MessageRecord("orders", 0, b"", physical_offset=position), one.queue)

    assert one.unique_id(stored(64)) == one._replace(reason="other").unique_id(stored(64))
    others = [
        one.unique_id(stored(64)),
        one.unique_id(stored(128)),
        one.unique_id(None),
        one._replace(body=b"two").unique_id(None),
        one._replace(offset=4).unique_id(None),
    ]
    assert len(set(others)) == len(others)


def test_row_names_are_numbered_within_parts() -> None:
    queue = MessageQueue("orders", "broker-a", 5)
    names = [
        BadMessage(queue, offset, b"", "why").properties()["SPARK_SINK_ROW"].split(":", 1)
        for offset in (0, 65_535, 65_536)
    ]
    assert [name for _, name in names] == ["0:5:0", "0:5:65535", "1:5:0"]
    assert len({writer for writer, _ in names}) == 1


def test_a_body_that_cannot_be_decompressed_is_readable_as_a_dead_letter(
    run_async: Callable[..., Any],
) -> None:
    """Its stored bytes, without the flag; the replay of it is the original again."""
    with EmbeddedBroker(topics={"packed": 1, "damaged": 1}) as broker:
        origin = MessageQueue("packed", "broker-a", 0)
        record = MessageRecord("packed", 0, b"not zlib", sys_flag=COMPRESSED)
        with SyncProducer(broker.name_server) as producer:
            changes = {"UNIQ_KEY": "first", "ORIGIN_COMPRESSION": "x"}
            producer.send_copy(ReceivedMessage(record, origin), "packed", changes)
            # An older property of the original says nothing about the dead letter.
            fine = record._replace(body=zlib.compress(b"fine"))
            again = {"UNIQ_KEY": "second", "ORIGIN_COMPRESSION": "1"}
            producer.send_copy(ReceivedMessage(fine, origin), "packed", again)

        async def scenario() -> None:
            async with ClientInstance(ClientConfig((broker.name_server,))) as client:
                writer = DeadLetterWriter(client, "damaged", "readers")
                bad = [BadMessage(origin, offset, b"any", "why") for offset in (0, 1)]
                assert await writer.write(bad) == 2
                assert await writer.write(bad) == 0, "they are there"

        run_async(scenario())
        with SyncDeadLetters(broker.name_server) as letters:
            found = {letter.message.body: letter.message for letter in letters.read("damaged")}
            assert set(found) == {b"not zlib", b"fine"}
            assert found[b"not zlib"].properties["ORIGIN_COMPRESSION"] == str(COMPRESSED)
            assert "ORIGIN_COMPRESSION" not in found[b"fine"].properties
            assert len(letters.replay("damaged")) == 2
            copies = [letter.message for letter in letters.read("packed")][2:]
            assert {copy.record.body for copy in copies} == {b"not zlib", fine.body}
            assert {copy.record.sys_flag & COMPRESSED for copy in copies} == {COMPRESSED}
            assert not any("ORIGIN_COMPRESSION" in copy.properties for copy in copies)


def bad_orders(broker: EmbeddedBroker, topic: str, count: int) -> list[BadMessage]:
    with SyncProducer(broker.name_server) as producer:
        sent = [producer.send(OutgoingMessage(topic, b"bad %d" % n)) for n in range(count)]
    return [
        BadMessage(one.queue, one.queue_offset, b"bad %d" % n, "why", "", one.offset_msg_id)
        for n, one in enumerate(sent)
    ]


def test_writers_at_the_same_moment_write_once(run_async: Callable[..., Any]) -> None:
    """Attempts of one task, each with its own connection, that wait for each other nowhere."""
    with EmbeddedBroker(topics={"orders": 3, "dead": 2}) as broker:
        bad = bad_orders(broker, "orders", 40)

        async def attempt(start: asyncio.Event) -> int:
            async with ClientInstance(ClientConfig((broker.name_server,))) as client:
                writer = DeadLetterWriter(client, "dead", "readers")
                await writer.check()
                await start.wait()
                return await writer.write(bad)

        async def scenario() -> list[int]:
            start = asyncio.Event()
            attempts = [asyncio.ensure_future(attempt(start)) for _ in range(6)]
            await asyncio.sleep(0)
            start.set()
            return await asyncio.gather(*attempts)

        assert sum(run_async(scenario())) == 40
        with SyncDeadLetters(broker.name_server) as letters:
            found = [letter.message.body for letter in letters.read("dead", max_count=1_000)]
        assert sorted(found) == sorted(one.body for one in bad)


def test_an_original_that_has_expired_has_the_same_id() -> None:
    """An attempt that read it before, and one that wrote it when it was still there."""
    record = MessageRecord("orders", 0, b"one", physical_offset=640)
    original = ReceivedMessage(record, MessageQueue("orders", "broker-a", 0))
    message = BadMessage(original.queue, 3, b"one", "why", "", original.offset_message_id)
    assert message.unique_id(None) == message.unique_id(original)
    assert message.unique_id(None) != message._replace(message_id="").unique_id(None)


def test_a_dead_letter_is_stored_by_the_broker_of_its_original(
    run_async: Callable[..., Any],
) -> None:
    """Or by one that depends on its id alone; what another broker has is not written again."""
    every = ("broker-a", "broker-b", "broker-c")
    with EmbeddedCluster(masters=3, topics={"orders": 1, "dead": 1}) as cluster:

        def make(topic: str, *brokers: str) -> None:
            with SyncAdmin(ClientConfig((cluster.name_server,))) as admin:
                admin.create_topic(topic, queue_count=1, broker_names=brokers)

        def written(topic: str, origin: str, reason: str, offset: int) -> tuple[list[str], int]:
            """Which brokers have it after two attempts at once and one later."""
            bad = [BadMessage(MessageQueue("orders", origin, 0), offset, b"x", reason, "", "id")]

            async def scenario() -> int:
                async with (
                    ClientInstance(ClientConfig((cluster.name_server,))) as one,
                    ClientInstance(ClientConfig((cluster.name_server,))) as two,
                ):
                    writers = [DeadLetterWriter(client, topic, "g") for client in (one, two)]
                    counts = await asyncio.gather(*(writer.write(bad) for writer in writers))
                    return sum(counts) + await writers[0].write(bad)

            count = run_async(scenario())
            with SyncDeadLetters(cluster.name_server) as letters:
                found = letters.read(topic, max_count=1_000)
            return [one.queue.broker_name for one in found if one.reason == reason], count

        for origin in every:
            assert written("dead", origin, f"of {origin}", 99) == ([origin], 1)
        make("others", *every[1:])
        chosen = [written("others", "broker-a", f"number {n}", n) for n in range(12)]
        assert {count for _, count in chosen} == {1}
        assert {tuple(places) for places, _ in chosen} == {("broker-b",), ("broker-c",)}
        # The broker of the original has got the topic since.
        make("others", "broker-a")
        assert written("others", "broker-a", "number 3", 3) == (chosen[3][0], 0)
        assert written("others", "broker-a", "number 77", 77) == (["broker-a"], 1)


def test_without_an_index_it_is_sent_as_to_other_brokers(run_async: Callable[..., Any]) -> None:
    with EmbeddedBroker(
        topics={"orders": 1, "dead": 1}, properties={"messageIndexEnable": "false"}
    ) as broker:
        bad = bad_orders(broker, "orders", 2)

        async def scenario() -> int:
            async with ClientInstance(ClientConfig((broker.name_server,))) as client:
                return await DeadLetterWriter(client, "dead", "readers").write(bad)

        assert run_async(scenario()) == 2


def test_an_answer_that_was_lost_is_asked_for_again(run_async: Callable[..., Any]) -> None:
    """The broker stores it and is killed; the writer continues with the restarted broker."""
    with EmbeddedBroker(topics={"orders": 1, "dead": 1}) as broker:
        bad = bad_orders(broker, "orders", 3)

        async def scenario() -> int:
            async with ClientInstance(ClientConfig((broker.name_server,))) as client:
                writer = DeadLetterWriter(client, "dead", "readers")
                with broker.faults.kill_at("send-done", occurrence=2) as killed:
                    writing = asyncio.ensure_future(writer.write(bad))
                    await asyncio.to_thread(killed.wait)
                    await asyncio.to_thread(broker.start)
                    await writing
                return await writer.write(bad)

        assert run_async(scenario()) == 0
        with SyncDeadLetters(broker.name_server) as letters:
            found = [letter.message.body for letter in letters.read("dead")]
        assert sorted(found) == [b"bad 0", b"bad 1", b"bad 2"]


def test_a_promoted_slave_has_what_was_written(run_async: Callable[..., Any]) -> None:
    with EmbeddedCluster(
        slaves_per_master=1, replication="sync", topics={"orders": 1, "dead": 1}
    ) as cluster:
        with SyncProducer(cluster.name_server) as producer:
            sent = [producer.send(OutgoingMessage("orders", b"bad %d" % n)) for n in range(8)]
        bad = [
            BadMessage(one.queue, one.queue_offset, b"x", "why", "", one.offset_msg_id)
            for one in sent
        ]

        async def write(some: list[BadMessage]) -> int:
            async with ClientInstance(ClientConfig((cluster.name_server,))) as client:
                return await DeadLetterWriter(client, "dead", "readers").write(some)

        assert run_async(write(bad[:5])) == 5
        cluster.kill("broker-a:0")
        cluster.promote("broker-a:1")
        # As the slave of the new master, without which no message is safe.
        cluster.restart("broker-a:0")
        # Requests that came before the slave was there are repeated, and their messages known then.
        assert run_async(write(bad)) <= 3
        with SyncDeadLetters(cluster.name_server) as letters:
            assert len(letters.read("dead", max_count=100)) == 8
