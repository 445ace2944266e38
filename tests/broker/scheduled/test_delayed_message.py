"""What is stored while a message waits, and what is delivered; see storage spec 10.4."""

from __future__ import annotations

import pytest

from broker_core.broker.scheduled.delayed_message import (
    delay_level,
    delayed,
    delayed_form,
    delivered,
    shortened,
    waiting_position,
)
from broker_core.codec.records.message_properties import decode_properties, encode_properties
from broker_core.codec.records.message_record import MessageRecord
from broker_core.errors import InvalidArgument, MalformedRecord
from broker_core.store.writes.message import Message


def test_a_delayed_message_names_its_topic_and_queue() -> None:
    message = Message("T", b"x", 3, tags="A", keys="k", properties={"DELAY": "2", "own": "1"})
    found = delayed(message, 2, 18)
    assert (found.topic, found.queue_id, found.body) == ("SCHEDULE_TOPIC_XXXX", 1, b"x")
    assert (found.tags, found.keys) == ("A", "k")
    assert dict(found.properties) == {
        "DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "3", "own": "1",
    }  # fmt: skip


def test_text_and_mapping_give_the_same_delayed_record() -> None:
    properties = {"own": "1", "DELAY": "4", "TIMER_DELAY_SEC": "9", "TIMER_DELIVER_MS": "1"}
    message = delayed(Message("T", b"", 3, properties=properties), 4, 18)
    topic, queue_id, text = delayed_form("T", 3, encode_properties(properties), 4, 18)
    assert (topic, queue_id) == (message.topic, message.queue_id)
    assert decode_properties(text) == dict(message.properties)
    assert "TIMER_DELAY_SEC" not in message.properties


@pytest.mark.parametrize(("level", "stored"), [(1, 1), (18, 18), (19, 18), (2_000_000_000, 18)])
def test_levels_above_the_last_are_the_last(level: int, stored: int) -> None:
    _, queue_id, text = delayed_form("T", 0, b"", level, 18)
    assert queue_id == stored - 1
    assert decode_properties(text)["DELAY"] == str(stored)


@pytest.mark.parametrize(("level", "level_max"), [(0, 18), (-1, 18), (1, 0)])
def test_there_is_no_such_level(level: int, level_max: int) -> None:
    with pytest.raises(InvalidArgument, match="messageDelayLevel"):
        delayed_form("T", 0, b"", level, level_max)


@pytest.mark.parametrize(("text", "level"), [("3", 3), ("+3", 3), ("0", 0), ("-1", -1), ("99", 99)])
def test_delay_property(text: str, level: int) -> None:
    assert delay_level(text) == level


@pytest.mark.parametrize("text", ["", "1s", "٣", "1" * 5_000, "0x1", " 1"])
def test_delay_property_that_is_no_level(text: str) -> None:
    with pytest.raises(InvalidArgument, match="DELAY"):
        delay_level(text)


def _record(text: bytes, **fields: object) -> MessageRecord:
    known = {"queue_offset": 7, "physical_offset": 0, "store_timestamp": 5, **fields}
    return MessageRecord("SCHEDULE_TOPIC_XXXX", 2, b"body", text, **known)  # type: ignore[arg-type]


def test_the_copy_is_the_message_under_its_own_name() -> None:
    text = b"TAGS\x01A\x02odd\x01a\x01b\xff\x02DELAY\x013\x02REAL_TOPIC\x01T\x02REAL_QID\x014\x02"
    record = _record(
        text, flag=9, sys_flag=0x101, born_timestamp=1, born_host=("10.0.0.2", 4), reconsume_times=2
    )
    copy = delivered(record)
    assert (copy.topic, copy.queue_id) == ("T", 4)
    # Byte for byte: even text that cannot be encoded stays.
    assert copy.property_text == text
    for field in ("body", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times"):
        assert getattr(copy, field) == getattr(record, field)


@pytest.mark.parametrize("position", [0, 1, 1 << 62])
def test_the_copy_names_the_waiting_record(position: int) -> None:
    copy = delivered(_record(b"REAL_TOPIC\x01T\x02", physical_offset=position))
    assert waiting_position(copy.prepared_transaction_offset) == position


@pytest.mark.parametrize("prepared", [0, 1, 1 << 62])
def test_other_records_name_none(prepared: int) -> None:
    assert waiting_position(prepared) is None


@pytest.mark.parametrize(
    "topic",
    [
        b"", b"../etc", b"a b", b"\xff", b"SCHEDULE_TOPIC_XXXX", b"RMQ_SYS_TRANS_HALF_TOPIC",
        b"rmq_sys_append_group", b"x" * 300,
    ],
)  # fmt: skip
def test_a_record_without_a_topic_to_go_to(topic: bytes) -> None:
    with pytest.raises(MalformedRecord, match="REAL_TOPIC"):
        delivered(_record(b"REAL_TOPIC\x01%b\x02REAL_QID\x010\x02" % topic, physical_offset=77))


@pytest.mark.parametrize("queue", [b"", b"-1", b"x", b"1" * 12])
def test_a_record_without_a_queue_still_goes_to_its_topic(queue: bytes) -> None:
    copy = delivered(_record(b"REAL_TOPIC\x01T\x02REAL_QID\x01%b\x02" % queue))
    assert (copy.topic, copy.queue_id) == ("T", 0)


def test_shortened_makes_room_for_the_checksum() -> None:
    text = b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02own\x01x\x02"
    copy = shortened(delivered(_record(text)))
    assert copy.property_text == b"own\x01x\x02"
    assert len(text) - len(copy.property_text) >= 20
