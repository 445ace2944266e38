"""One message to bytes and back; every damage is noticed."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.message_properties import encode_properties
from broker_core.codec.records.message_record import (
    MessageRecord,
    decode_record,
    encode_record,
)
from broker_core.codec.records.record_layout import CRC_TAIL_SIZE, looks_like_crc_tail
from broker_core.codec.wire.message_id import decode_message_id
from broker_core.errors import CorruptRecord, InvalidArgument

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.tuples(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535)
)
PROPERTY_TEXT = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)
PROPERTIES = st.dictionaries(PROPERTY_TEXT, PROPERTY_TEXT, max_size=4)
TOPICS = st.text("%|abzABZ019_-", min_size=1, max_size=255)
MESSAGES = st.builds(
    MessageRecord,
    topic=TOPICS,
    queue_id=st.integers(0, (1 << 31) - 1),
    body=st.binary(max_size=300),
    property_text=PROPERTIES.map(encode_properties),
    flag=INT32,
    sys_flag=INT32,
    queue_offset=st.integers(0, (1 << 63) - 1),
    physical_offset=st.integers(0, (1 << 63) - 1),
    born_timestamp=INT64,
    born_host=HOSTS,
    store_timestamp=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)


def with_host_bits(message: MessageRecord) -> MessageRecord:
    bits = 0x10 * (":" in message.born_host[0]) + 0x20 * (":" in message.store_host[0])
    return message._replace(sys_flag=message.sys_flag & ~0x30 | bits)


@given(MESSAGES, st.booleans())
def test_round_trip(message: MessageRecord, append_crc: bool) -> None:
    stored = message.property_text.removesuffix(b"\x02") + b"\x02"
    assume(append_crc or not looks_like_crc_tail(stored[-CRC_TAIL_SIZE:]))
    record = encode_record(message, append_crc)
    assert len(record) == int.from_bytes(record[:4], "big")
    assert decode_record(record, position=message.physical_offset) == with_host_bits(message)
    assert decode_record(b"junk" + record + b"junk", 4) == with_host_bits(message)


@given(MESSAGES, st.data())
def test_any_flipped_bit_is_noticed(message: MessageRecord, data: st.DataObject) -> None:
    record = bytearray(encode_record(message))
    bit = data.draw(st.integers(0, len(record) * 8 - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptRecord):
        decode_record(record)


def test_every_flipped_bit_of_one_record_is_noticed() -> None:
    text = encode_properties({"TAGS": "TagA", "KEYS": "k1 k2"})
    record = encode_record(MessageRecord("TopicTest", 3, b"hello", text))
    for bit in range(len(record) * 8):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord):
            decode_record(damaged)


def test_every_zeroed_tail_of_one_record_is_noticed() -> None:
    """A sector that was never written reads as zeros."""
    text = encode_properties({"TAGS": "TagA", "KEYS": "k1 k2"})
    record = encode_record(MessageRecord("TopicTest", 3, b"hello", text))
    for cut in range(len(record)):
        with pytest.raises(CorruptRecord):
            decode_record(record[:cut] + bytes(len(record) - cut))
        with pytest.raises(CorruptRecord):
            decode_record(record[:cut])


@given(st.binary(max_size=400))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_record(data)


@given(MESSAGES, st.integers(0, 400), st.binary(min_size=1, max_size=30))
def test_overwritten_bytes_decode_or_are_refused(
    message: MessageRecord, start: int, junk: bytes
) -> None:
    # Text with a zero byte at its end is refused without a checksum: it reads like a torn record.
    assume(0 not in message.property_text[-CRC_TAIL_SIZE:])
    record = bytearray(encode_record(message, append_crc=False))
    record[start : start + len(junk)] = junk
    try:
        decode_record(record, check_crc=False)
    except CorruptRecord as error:
        assert error.reason in vars(reasons).values()


def test_position_must_agree() -> None:
    record = encode_record(MessageRecord("T", 0, b"x", physical_offset=100))
    with pytest.raises(CorruptRecord) as caught:
        decode_record(record, position=101)
    assert caught.value.position == 101
    assert caught.value.reason == reasons.BAD_POSITION


def test_missing_separator_is_added() -> None:
    record = encode_record(MessageRecord("T", 0, b"x", b"A\x01b"))
    assert decode_record(record).property_text == b"A\x01b\x02"


@pytest.mark.parametrize(
    "message",
    [
        MessageRecord("", 0, b""),
        MessageRecord("t" * 256, 0, b""),
        MessageRecord("../x", 0, b""),
        MessageRecord("ｔopic", 0, b""),
        MessageRecord("T", -1, b""),
        MessageRecord("T", 1 << 31, b""),
        MessageRecord("T", 0, b"", queue_offset=-1),
        MessageRecord("T", 0, b"", physical_offset=-1),
        MessageRecord("T", 0, b"", flag=1 << 31),
        MessageRecord("T", 0, b"", b"a\x01" + b"b" * 32767),
        MessageRecord("T", 0, b"", born_host=("localhost", 1)),
        MessageRecord("T", 0, b"", store_host=("1.2.3.4", 1 << 31)),
    ],
)
def test_limits_are_refused(message: MessageRecord) -> None:
    with pytest.raises(InvalidArgument):
        encode_record(message)


def test_longest_property_text() -> None:
    text = b"a\x01" + b"b" * (32767 - 20 - 3) + b"\x02"
    assert decode_record(encode_record(MessageRecord("T", 0, b"", text))).property_text == text
    with pytest.raises(InvalidArgument, match="32767"):
        encode_record(MessageRecord("T", 0, b"", text + b"c\x01d\x02"))


def test_own_text_must_not_pass_for_a_checksum() -> None:
    forged = b"__CRC32#\x010123456789\x02"
    with pytest.raises(InvalidArgument):
        encode_record(MessageRecord("T", 0, b"", forged), append_crc=False)
    assert decode_record(encode_record(MessageRecord("T", 0, b"", forged))).property_text == forged


@pytest.mark.parametrize("text", ["", "7F", "g" * 32, "0" * 31, "0" * 33, "F" * 32, "０" * 32])
def test_bad_message_ids_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        decode_message_id(text)
