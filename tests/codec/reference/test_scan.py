"""Log bytes to queue units and index entries, and every way a scan can stop."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from broker_core.codec.native import java_hash
from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.message_properties import encode_properties
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.records.record_layout import KEY_ENTRY, MAGIC_BLANK, SIZE_AND_MAGIC, UNIT
from broker_core.codec.records.record_scan import (
    STOP_BLANK,
    STOP_EMPTY,
    STOP_GROUP,
    STOP_INVALID,
    STOP_LIMIT,
    Scan,
)
from broker_core.errors import CorruptRecord
from broker_core.storage.derived.message_index import key_hash

STORE_MS = 1700000000123
DELAYS = np.array([1000, 5000, 10000], np.int64)


def lay_out(*messages: MessageRecord, position: int = 0) -> bytes:
    """The messages as a log that starts at `position`."""
    log = b""
    for message in messages:
        log += encode_record(message._replace(physical_offset=position + len(log)))
    return log


def message(topic: str = "T", queue_offset: int = 0, **fields: object) -> MessageRecord:
    base = MessageRecord(topic, 0, b"body", queue_offset=queue_offset, store_timestamp=STORE_MS)
    return base._replace(**fields)


def scan(codec: ModuleType, log: bytes, position: int = 0, group: bytes = b"G") -> Scan:
    result: Scan = codec.scan_records(log, 0, len(log), position, True, DELAYS, group)
    return result


def test_walks_to_the_limit(codec: ModuleType) -> None:
    log = lay_out(message(queue_offset=4), message("U"), message(queue_offset=5), position=4096)
    found = scan(codec, log, 4096)
    size = len(log) // 3
    assert found[:5] == (len(log), STOP_LIMIT, "", 3, STORE_MS)
    assert list(found.queues) == [(b"T", 0), (b"U", 0)]
    first_offset, units = found.queues[b"T", 0]
    assert first_offset == 4
    assert list(UNIT.iter_unpack(units)) == [(4096, size, 0), (4096 + 2 * size, size, 0)]
    assert found.keys == b""


def test_start_and_limit_bound_the_walk(codec: ModuleType) -> None:
    log = lay_out(message(), message(queue_offset=1), message(queue_offset=2))
    size = len(log) // 3
    found = codec.scan_records(log, size, 2 * size, size, True, DELAYS, b"")
    assert (found.end, found.stop, found.count) == (2 * size, STOP_LIMIT, 1)
    cut = codec.scan_records(log, 0, 2 * size - 1, 0, True, DELAYS, b"")
    assert (cut.end, cut.stop, cut.reason) == (size, STOP_INVALID, reasons.SIZE_PAST_LIMIT)
    with pytest.raises(ValueError, match=reasons.BAD_RANGE):
        codec.scan_records(log, 0, len(log) + 1, 0, True, DELAYS, b"")


@pytest.mark.parametrize(
    ("rest", "stop"),
    [
        (b"", STOP_LIMIT),
        (bytes(7), STOP_EMPTY),
        (b"\x01" * 7, STOP_EMPTY),
        (bytes(100), STOP_EMPTY),
        (SIZE_AND_MAGIC.pack(100, MAGIC_BLANK), STOP_BLANK),
        (b"\0\0\0\0\0\0\0\x01", STOP_INVALID),
        (b"\0\0\0\x01\0\0\0\0", STOP_INVALID),
    ],
)
def test_ends_of_data(codec: ModuleType, rest: bytes, stop: int) -> None:
    log = lay_out(message())
    found = scan(codec, log + rest)
    assert (found.end, found.stop, found.count) == (len(log), stop, 1)
    assert bool(found.reason) == (stop == STOP_INVALID)
    alone = scan(codec, rest)
    assert (alone.end, alone.stop, alone.store_timestamp) == (0, stop, 0)


def test_damage_stops_before_the_record(codec: ModuleType) -> None:
    log = bytearray(lay_out(message(), message(queue_offset=1)))
    log[-1] ^= 0x40
    found = scan(codec, bytes(log))
    assert (found.end, found.stop) == (len(log) // 2, STOP_INVALID)
    assert found.reason == reasons.CRC_TAIL_DAMAGED
    unchecked = codec.scan_records(log, 0, len(log), 0, False, DELAYS, b"")
    assert unchecked.count == 2


def test_wrong_position_stops(codec: ModuleType) -> None:
    found = scan(codec, lay_out(message()), position=1)
    assert (found.end, found.reason) == (0, reasons.BAD_POSITION)


def test_queue_gap_stops(codec: ModuleType) -> None:
    log = lay_out(message(), message(queue_offset=2))
    found = scan(codec, log)
    assert (found.end, found.count, found.reason) == (len(log) // 2, 1, reasons.QUEUE_GAP)


def test_group_header_is_only_accepted_first(codec: ModuleType) -> None:
    log = lay_out(message("G"), message(), message("G", queue_offset=1), message(queue_offset=1))
    first = scan(codec, log)
    assert (first.count, first.stop, first.reason) == (2, STOP_GROUP, "")
    second = codec.scan_records(log, first.end, len(log), first.end, True, DELAYS, b"G")
    assert (second.count, second.stop) == (2, STOP_LIMIT)
    assert second.queues[b"G", 0][0] == 1


@pytest.mark.parametrize(
    ("sys_flag", "has_unit", "has_keys"),
    [(0, True, True), (0x04, False, True), (0x08, True, True), (0x0C, False, False)],
)
def test_transaction_types(
    codec: ModuleType, sys_flag: int, has_unit: bool, has_keys: bool
) -> None:
    found = scan(codec, lay_out(message(sys_flag=sys_flag, property_text=b"KEYS\x01k\x02")))
    assert found.count == 1
    assert bool(found.queues) == has_unit
    assert bool(found.keys) == has_keys


def test_keys_are_indexed_in_order(codec: ModuleType) -> None:
    text = encode_properties({"KEYS": " a  中 ", "UNIQ_KEY": "u v", "TAGS": "é"})
    found = scan(codec, lay_out(message(property_text=text)))
    hashes = [entry[0] for entry in KEY_ENTRY.iter_unpack(found.keys)]
    assert hashes == [key_hash(b"T", key.encode()) for key in ("u v", "a", "中")]
    assert UNIT.unpack(found.queues[b"T", 0][1])[2] == java_hash("é".encode())


@pytest.mark.parametrize(
    ("level", "tags"),
    [
        ("1", STORE_MS + 1000),
        ("3", STORE_MS + 10000),
        ("99", STORE_MS + 10000),
        ("+2", STORE_MS + 5000),
        ("0", 2598919),
        ("-1", 2598919),
        ("x", STORE_MS + 1000),
        ("2147483648", STORE_MS + 1000),
        ("9" * 5000, STORE_MS + 1000),
        (" 1", STORE_MS + 1000),
        ("1_0", STORE_MS + 1000),
    ],
)
def test_delay_levels(codec: ModuleType, level: str, tags: int) -> None:
    text = encode_properties({"TAGS": "TagA", "DELAY": level})
    found = scan(codec, lay_out(message("SCHEDULE_TOPIC_XXXX", property_text=text)))
    assert UNIT.unpack(found.queues[b"SCHEDULE_TOPIC_XXXX", 0][1])[2] == tags
    elsewhere = scan(codec, lay_out(message("T", property_text=text)))
    assert UNIT.unpack(elsewhere.queues[b"T", 0][1])[2] == 2598919


def test_check_record(codec: ModuleType) -> None:
    record = lay_out(message(), position=77)
    assert codec.check_record(record, 0, len(record), 77, True) == len(record)
    with pytest.raises(CorruptRecord) as caught:
        codec.check_record(record, 0, len(record), 78, True)
    assert (caught.value.path, caught.value.position) == ("", 78)
    damaged = bytearray(record)
    damaged[88] ^= 1
    with pytest.raises(CorruptRecord, match=reasons.RECORD_CRC):
        codec.check_record(damaged, 0, len(record), 77, True)
    assert codec.check_record(damaged, 0, len(record), 77, False) == len(record)
    plain = bytearray(encode_record(message(), append_crc=False))
    plain[88] ^= 1
    with pytest.raises(CorruptRecord, match=reasons.BODY_CRC):
        codec.check_record(plain, 0, len(plain), 0, True)
