"""Bytes of the format specification: worked examples and test vectors that concern the codec."""

from __future__ import annotations

import struct
from types import ModuleType

import numpy as np
import pytest

from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.message_properties import encode_properties
from broker_core.codec.records.message_record import (
    MessageRecord,
    decode_record,
    encode_record,
)
from broker_core.codec.records.record_layout import (
    KEY_ENTRY,
    MAGIC_BLANK,
    PRE_BLANK_UNIT,
    SIZE_AND_MAGIC,
    UNIT,
    crc_tail,
    crc_tail_value,
)
from broker_core.codec.wire.message_id import decode_message_id, encode_message_id
from tests.codec.codec_backends import PURE_PYTHON, batch_of, column

BORN_MS = 1700000000000
STORE_MS = 1700000000123

WORKED_RECORD = bytes.fromhex(
    """
    00 00 00 87 da a3 20 a7 36 10 a6 86 00 00 00 03
    00 00 00 00 00 00 00 00 00 00 00 07 00 00 00 00
    00 00 10 00 00 00 00 00 00 00 01 8b cf e5 68 00
    c0 a8 01 0a 00 00 d4 31 00 00 01 8b cf e5 68 7b
    7f 00 00 01 00 00 2a 9f 00 00 00 00 00 00 00 00
    00 00 00 00 00 00 00 05 68 65 6c 6c 6f 09 54 6f
    70 69 63 54 65 73 74 00 1e 54 41 47 53 01 54 61
    67 41 02 4b 45 59 53 01 6b 31 02 55 4e 49 51 5f
    4b 45 59 01 55 31 02
    """
)
WORKED_MESSAGE = MessageRecord(
    topic="TopicTest",
    queue_id=3,
    body=b"hello",
    property_text=encode_properties({"TAGS": "TagA", "KEYS": "k1", "UNIQ_KEY": "U1"}),
    queue_offset=7,
    physical_offset=4096,
    born_timestamp=BORN_MS,
    born_host=("192.168.1.10", 54321),
    store_timestamp=STORE_MS,
    store_host=("127.0.0.1", 10911),
)
IPV6_MESSAGE = WORKED_MESSAGE._replace(
    property_text=b"", born_host=("::1", 54321), store_host=("fe80::1", 10911)
)


def worked_batch() -> ColumnBatch:
    return ColumnBatch(
        1,
        ((b"TopicTest", 3),),
        None,
        column(b"hello"),
        column(b"TagA"),
        column(b"k1"),
        column(b"UNIQ_KEY\x01U1\x02"),
        born_timestamp=BORN_MS,
        born_host=encode_host(("192.168.1.10", 54321)),
        store_host=encode_host(("127.0.0.1", 10911)),
        append_crc=False,
    )


def test_worked_record_encodes_to_its_bytes() -> None:
    assert encode_record(WORKED_MESSAGE, append_crc=False) == WORKED_RECORD
    assert len(WORKED_RECORD) == 135


def test_worked_record_decodes_to_its_fields() -> None:
    assert decode_record(WORKED_RECORD, position=4096) == WORKED_MESSAGE
    assert WORKED_MESSAGE.properties == {"TAGS": "TagA", "KEYS": "k1", "UNIQ_KEY": "U1"}


def test_worked_record_from_columns(codec: ModuleType) -> None:
    batch = worked_batch()
    out = bytearray(135 + 8)
    next_offsets = np.array([7], np.int64)
    assert codec.measure_batch(batch) == (135, 135)
    assert codec.encode_batch(batch, 0, next_offsets, STORE_MS, out, 0, len(out), 4096) == (1, 135)
    assert out == WORKED_RECORD + bytes(8)
    assert next_offsets[0] == 8


def test_worked_record_scans_to_its_unit_and_keys(codec: ModuleType) -> None:
    delays = np.array([1000, 5000, 10000], np.int64)
    scan = codec.scan_records(WORKED_RECORD, 0, 135, 4096, True, delays, b"")
    unit = bytes.fromhex("00 00 00 00 00 00 10 00  00 00 00 87  00 00 00 00 00 27 a8 07")
    assert scan.queues == {(b"TopicTest", 3): (7, unit)}
    assert scan.keys == struct.pack(">iqq", 2745342, 4096, STORE_MS) + struct.pack(
        ">iqq", 2746024, 4096, STORE_MS
    )
    assert UNIT.unpack(unit) == (4096, 135, 2598919)


def test_ipv6_record() -> None:
    record = encode_record(IPV6_MESSAGE, append_crc=False)
    assert len(record) == 129
    assert record[0x20:] == bytes.fromhex(
        """
        00 00 10 00 00 00 00 30 00 00 01 8b cf e5 68 00
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01
        00 00 d4 31 00 00 01 8b cf e5 68 7b fe 80 00 00
        00 00 00 00 00 00 00 00 00 00 00 01 00 00 2a 9f
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 05
        68 65 6c 6c 6f 09 54 6f 70 69 63 54 65 73 74 00
        00
        """
    )
    assert decode_record(record) == IPV6_MESSAGE._replace(sys_flag=0x30)


def test_v2_record_of_a_long_topic() -> None:
    topic = "%RETRY%" + "g" * 125
    record = encode_record(MessageRecord(topic, 0, b"x"), append_crc=False)
    assert record[:8] == bytes.fromhex("00 00 00 e1 da a3 20 ab")
    assert record[84:93] == bytes.fromhex("00 00 00 01 78 00 84 25 52")
    assert decode_record(record).topic == topic


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "7F00000100002A9F0000000000001000"),
        ("fe80::1", "FE80000000000000000000000000000100002A9F0000000000001000"),
    ],
)
def test_message_id(host: str, text: str) -> None:
    assert encode_message_id((host, 10911), 4096) == text
    assert decode_message_id(text) == ((host, 10911), 4096)
    assert decode_message_id(text.lower()) == ((host, 10911), 4096)


def test_blank_record() -> None:
    blank = SIZE_AND_MAGIC.pack(217, MAGIC_BLANK)
    assert blank == bytes.fromhex("00 00 00 d9 cb d4 31 94")


def test_checksum_property() -> None:
    tail = bytes.fromhex("5f 5f 43 52 43 33 32 23 01 34 33 38 33 35 30 32 34 37 30 02")
    assert crc_tail(742053834) == tail
    assert crc_tail_value(tail) == 742053834


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("*", 42),
        ("中文", 646394),
        ("polygenelubricants", -2147483648),
        ("", 0),
    ],
)
def test_java_hash(codec: ModuleType, text: str, value: int) -> None:
    assert codec.java_hash(text.encode()) == value


def test_smallest_hash_is_sign_extended_in_the_unit(codec: ModuleType) -> None:
    record = encode_record(MessageRecord("T", 0, b"x", b"TAGS\x01polygenelubricants\x02"))
    scan = codec.scan_records(record, 0, len(record), 0, True, b"", b"")
    assert scan.queues[b"T", 0][1][12:] == bytes.fromhex("ff ff ff ff 80 00 00 00")


def test_index_hash_of_the_smallest_integer_is_zero(codec: ModuleType) -> None:
    # 'T#' + key hashes to -2147483648 for this key.
    key = _key_with_hash_minimum(b"T#")
    assert codec.java_hash(b"T#" + key) == -2147483648
    record = encode_record(MessageRecord("T", 0, b"x", b"KEYS\x01" + key + b"\x02"))
    scan = codec.scan_records(record, 0, len(record), 0, True, b"", b"")
    assert KEY_ENTRY.unpack(scan.keys)[0] == 0


def _key_with_hash_minimum(prefix: bytes) -> bytes:
    """Seven characters 'A'..'_' after `prefix` whose Java hash is -2**31: digits of base 31."""
    low = ord("A")
    state = PURE_PYTHON.java_hash(prefix + bytes([low]) * 7)
    missing = (-(1 << 31) - state) % (1 << 32)
    digits = []
    for _ in range(7):
        missing, digit = divmod(missing, 31)
        digits.append(low + digit)
    return bytes(reversed(digits))


def test_deliver_time_of_a_delayed_message(codec: ModuleType) -> None:
    message = MessageRecord(
        "SCHEDULE_TOPIC_XXXX", 2, b"x", b"DELAY\x013\x02", store_timestamp=STORE_MS
    )
    record = encode_record(message)
    delays = np.array([1000, 5000, 10000], np.int64)
    scan = codec.scan_records(record, 0, len(record), 0, True, delays, b"")
    unit = scan.queues[b"SCHEDULE_TOPIC_XXXX", 2][1]
    assert unit[12:] == bytes.fromhex("00 00 01 8b cf e5 8f 8b")


def test_body_checksums(codec: ModuleType) -> None:
    assert codec.body_crc(b"hello") == 0x3610A686
    assert codec.body_crc(b"a") == 0x68B7BE43
    assert codec.body_crc(b"") == 0


@pytest.mark.parametrize("body_size", [0, 1, 77])
@pytest.mark.parametrize("property_text", [b"", b"A\x01b\x02"])
def test_v1_record_length(body_size: int, property_text: bytes) -> None:
    message = MessageRecord("Topic", 0, b"x" * body_size, property_text)
    expected = 91 + body_size + 5 + len(property_text)
    assert len(encode_record(message, append_crc=False)) == expected
    assert len(encode_record(message)) == expected + 20


def test_pre_blank_unit() -> None:
    unit = bytes.fromhex("00" * 8 + "7f ff ff ff" + "00" * 8)
    assert unit == PRE_BLANK_UNIT


@pytest.mark.parametrize(("record_size", "fits"), [(188, True), (189, False)])
def test_record_fits_only_with_room_for_a_blank(
    codec: ModuleType, record_size: int, fits: bool
) -> None:
    body = b"x" * (record_size - 92 - 20)
    batch = batch_of(body, queues=((b"T", 0),))
    assert codec.measure_batch(batch) == (record_size, record_size)
    segment = bytearray(4096)
    encoded = codec.encode_batch(batch, 0, np.zeros(1, np.int64), 0, segment, 3900, 4096, 3900)
    assert encoded == ((1, 3900 + record_size) if fits else (0, 3900))
    assert any(segment) == fits
