"""Key entries of a scan -> an index file: the twin of `index.c`."""

from __future__ import annotations

from broker_core.codec.json.fields import I32_MAX
from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.index_record import (
    ENTRY,
    HEADER,
    SLOT,
    decode_index_header,
    entry_start,
    index_file_size,
    slot_start,
)
from broker_core.codec.records.record_layout import KEY_ENTRY, KEY_ENTRY_SIZE
from broker_core.codec.records.record_parse import as_view, as_writable_view

__all__ = ["append_index_entries"]


def append_index_entries(
    buf: Buffer, hash_slots: int, entry_max: int, entries: Buffer, start: int
) -> int:
    """Append the key entries of a `Scan` from byte `start` on to the index file `buf`.

    Returns the byte index of the first entry not taken, because the file is full. Entries of
    records that the file already covers are skipped.
    """
    target, source = as_writable_view(buf), as_view(entries)
    if hash_slots <= 0 or entry_max < 0 or len(target) < index_file_size(hash_slots, entry_max):
        raise ValueError(reasons.BAD_INDEX_FILE)
    if len(source) % KEY_ENTRY_SIZE or not 0 <= start <= len(source) or start % KEY_ENTRY_SIZE:
        raise ValueError(reasons.BAD_ENTRIES)
    begin, end, begin_position, end_position, slots_used, number = decode_index_header(target)
    first_number = number
    while start < len(source) and number < entry_max:
        hash_value, position, timestamp = KEY_ENTRY.unpack_from(source, start)
        start += KEY_ENTRY_SIZE
        if position < end_position:
            continue
        slot_at = slot_start((hash_value & I32_MAX) % hash_slots)
        (previous,) = SLOT.unpack_from(target, slot_at)
        if not 0 < previous <= number:
            previous = 0
        seconds = 0
        if begin > 0 and timestamp > begin:
            seconds = min((timestamp - begin) // 1000, I32_MAX)
        ENTRY.pack_into(
            target, entry_start(hash_slots, number), hash_value, position, seconds, previous
        )
        SLOT.pack_into(target, slot_at, number)
        if number <= 1:
            begin, begin_position = timestamp, position
        slots_used += previous == 0
        number += 1
        end, end_position = timestamp, position
    if number != first_number:
        HEADER.pack_into(target, 0, begin, end, begin_position, end_position, slots_used, number)
    return start
