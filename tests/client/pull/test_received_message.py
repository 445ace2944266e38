"""Messages as consumers get them: plain bodies, bombs, retried ones, damage."""

from __future__ import annotations

import zlib

import pytest

from broker_core.client.pull.received_message import ReceivedMessage, decode_messages
from broker_core.codec.records.message_record import COMPRESSED, MessageRecord, encode_record
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import DecompressionFailed, MalformedRecord

QUEUE = MessageQueue("T", "broker-a", 0)


def message(**fields: object) -> ReceivedMessage:
    record = MessageRecord("T", 0, b"plain")._replace(**fields)
    return decode_messages(encode_record(record, append_crc=False), QUEUE)[0]


def test_fields_and_properties() -> None:
    text = b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x010A00\x02own\x01x\x02"
    found = message(property_text=text, queue_offset=9, physical_offset=77, flag=5)
    assert (found.tags, found.keys, found.message_id) == ("A", "k1 k2", "0A00")
    assert found.properties["own"] == "x"
    assert (found.queue_offset, found.physical_offset, found.flag) == (9, 77, 5)
    assert found.offset_message_id.endswith("000000000000004D")
    assert (found.body, found.topic) == (b"plain", "T")


def test_without_properties() -> None:
    found = message()
    assert (found.tags, found.keys) == ("", "")
    assert found.message_id == found.offset_message_id


def test_a_retried_message_has_its_first_topic() -> None:
    text = b"RETRY_TOPIC\x01Orders\x02"
    assert message(topic="%RETRY%group", property_text=text).topic == "Orders"
    assert message(topic="%RETRY%group").topic == "%RETRY%group"
    assert message(topic="T", property_text=text).topic == "T", "only retry topics are renamed"


def test_compressed_bodies() -> None:
    plain = b"x" * 10_000
    found = message(body=zlib.compress(plain), sys_flag=COMPRESSED)
    assert found.body == plain
    assert found.body is found.body, "decompressed once"


def test_another_system_flag() -> None:
    found = message(body=b"stored", sys_flag=COMPRESSED, queue_offset=9)
    plain = found.with_sys_flag(0)
    assert (plain.body, plain.queue_offset, plain.queue) == (b"stored", 9, QUEUE)
    with pytest.raises(DecompressionFailed):
        _ = plain.with_sys_flag(COMPRESSED).body


def test_a_bomb_is_an_error_of_its_message_alone() -> None:
    bomb = MessageRecord("T", 0, zlib.compress(bytes(1 << 20)), sys_flag=COMPRESSED)
    body = encode_record(bomb, False) + encode_record(MessageRecord("T", 0, b"fine"), False)
    first, second = decode_messages(body, QUEUE, decompressed_size_max=1 << 16)
    with pytest.raises(DecompressionFailed):
        _ = first.body
    assert second.body == b"fine"


@pytest.mark.parametrize("cut", [1, 50, 90])
def test_damage(cut: int) -> None:
    body = encode_record(MessageRecord("T", 0, b"plain"), False)
    with pytest.raises(MalformedRecord):
        decode_messages(body + body[:-cut], QUEUE)
    with pytest.raises(MalformedRecord):
        decode_messages(bytes(cut), QUEUE)
    flipped = bytearray(body)
    flipped[88] ^= 1
    with pytest.raises(MalformedRecord, match="checksum"):
        decode_messages(bytes(flipped), QUEUE)
