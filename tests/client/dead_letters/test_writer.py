"""Messages that a reader could not use, written to a dead-letter topic of a real broker."""

from __future__ import annotations

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
    MessageQueue,
    OutgoingMessage,
    ReceivedMessage,
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
