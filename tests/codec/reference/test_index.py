"""Key entries of a scan into an index file: full files, repeats, limits."""

from __future__ import annotations

from types import ModuleType

import pytest

from broker_core.codec.records.index_record import (
    ENTRY,
    decode_index_header,
    entry_start,
)
from broker_core.codec.records.index_record import index_file_size as file_size
from broker_core.codec.records.record_layout import KEY_ENTRY


def test_full_index_file_stops_and_the_next_continues(codec: ModuleType) -> None:
    entries = b"".join(KEY_ENTRY.pack(7 + n % 2 * 4, 100 + n, 1000 * n) for n in range(6))
    first = bytearray(file_size(4, 5))
    assert codec.append_index_entries(first, 4, 5, entries, 0) == 80
    assert codec.append_index_entries(first, 4, 5, entries, 80) == 80
    header = decode_index_header(first)
    assert (header.next_entry, header.slots_used, header.end_position) == (5, 1, 103)
    assert ENTRY.unpack_from(first, entry_start(4, 4))[3] == 3
    second = bytearray(file_size(4, 5))
    assert codec.append_index_entries(second, 4, 5, entries, 80) == 120


def test_covered_positions_are_skipped(codec: ModuleType) -> None:
    entries = b"".join(KEY_ENTRY.pack(n, 100 + n, 5) for n in range(3))
    buf = bytearray(file_size(4, 20))
    codec.append_index_entries(buf, 4, 20, entries, 0)
    before = bytes(buf)
    assert codec.append_index_entries(buf, 4, 20, entries[:40], 0) == 40
    assert bytes(buf) == before
    # The record at the end position is put again, as RocketMQ does.
    codec.append_index_entries(buf, 4, 20, entries, 0)
    assert decode_index_header(buf).next_entry == 5


def test_seconds_are_clamped(codec: ModuleType) -> None:
    times = [10_000, 9_000, 12_999, 10_000 + (1 << 42)]
    entries = b"".join(KEY_ENTRY.pack(n, n, time) for n, time in enumerate(times))
    buf = bytearray(file_size(4, 20))
    codec.append_index_entries(buf, 4, 20, entries, 0)
    seconds = [ENTRY.unpack_from(buf, entry_start(4, n))[2] for n in range(1, 5)]
    assert seconds == [0, 0, 2, 0x7FFFFFFF]


def test_wrong_index_arguments(codec: ModuleType) -> None:
    for arguments in [
        (bytearray(file_size(4, 5) - 1), 4, 5, b"", 0),
        (bytearray(200), 0, 5, b"", 0),
        (bytearray(200), 4, 5, bytes(19), 0),
        (bytearray(200), 4, 5, bytes(20), 40),
        (bytearray(200), 4, 5, bytes(20), 1),
    ]:
        with pytest.raises(ValueError):
            codec.append_index_entries(*arguments)
