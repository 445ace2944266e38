"""The worked example of an index file."""

from __future__ import annotations

from types import ModuleType

from broker_core.codec.records.index_record import (
    IndexHeader,
    decode_index_header,
    entry_start,
    index_file_size,
    slot_start,
)
from broker_core.codec.records.record_layout import (
    KEY_ENTRY,
)
from broker_core.config import StoreConfig
from broker_core.storage.derived.message_index import key_hash

STORE_MS = 1700000000123


HASH_SLOTS = StoreConfig().index_hash_slots


def test_index_file_layout() -> None:
    assert index_file_size(HASH_SLOTS, StoreConfig().index_entries_max) == 420_000_040
    assert entry_start(HASH_SLOTS, 1) == 20_000_060
    assert key_hash(b"TopicTest", b"U1") == 2745342
    assert key_hash(b"TopicTest", b"k1") == 2746024
    assert slot_start(2745342) == 10981408
    assert slot_start(2746024) == 10984136


def test_index_worked_example(codec: ModuleType) -> None:
    entry_max = 8
    buf = bytearray(index_file_size(HASH_SLOTS, entry_max))
    puts = [
        (key_hash(b"TopicTest", b"U1"), 4096, STORE_MS),
        (key_hash(b"TopicTest", b"k1"), 4096, STORE_MS),
        (key_hash(b"TopicTest", b"k1"), 4300, STORE_MS + 5500),
    ]
    entries = b"".join(KEY_ENTRY.pack(*put) for put in puts)
    assert codec.append_index_entries(buf, HASH_SLOTS, entry_max, entries, 0) == 60
    assert buf[20_000_060:20_000_120] == bytes.fromhex(
        """
        00 29 e3 fe  00 00 00 00 00 00 10 00  00 00 00 00  00 00 00 00
        00 29 e6 a8  00 00 00 00 00 00 10 00  00 00 00 00  00 00 00 00
        00 29 e6 a8  00 00 00 00 00 00 10 cc  00 00 00 05  00 00 00 02
        """
    )
    assert buf[:40] == bytes.fromhex(
        "00 00 01 8b cf e5 68 7b 00 00 01 8b cf e5 7d f7 00 00 00 00 00 00 10 00"
        "00 00 00 00 00 00 10 cc 00 00 00 02 00 00 00 04"
    )
    assert buf[10981408:10981412] == b"\0\0\0\x01"
    assert buf[10984136:10984140] == b"\0\0\0\x03"
    assert decode_index_header(buf) == IndexHeader(STORE_MS, STORE_MS + 5500, 4096, 4300, 2, 4)
