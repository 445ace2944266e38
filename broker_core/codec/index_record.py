"""Index file: 40-byte header, hash slots, 20-byte entries; big-endian.

    header   0 beginTimestamp 8, 8 endTimestamp 8, 16 beginPhyOffset 8, 24 endPhyOffset 8,
             32 hashSlotCount 4, 36 indexCount 4 (the next free entry number, starts at 1)
    slot     40 + 4 * slot: newest entry number of the slot, 0 = none
    entry n  40 + 4 * slots + 20 * n: key hash 4, phyOffset 8, seconds after begin 4, previous 4

`append_index_entries` is the pure twin of the native function of that name.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from broker_core.codec import record_reasons as reasons
from broker_core.codec.column_batch import Buffer
from broker_core.codec.java_hash import hash_state, index_key_hash
from broker_core.codec.record_checks import as_view, as_writable_view
from broker_core.codec.record_layout import I32, KEY_ENTRY

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20
HASH_SLOTS_DEFAULT: Final = 5_000_000
ENTRY_MAX_DEFAULT: Final = 20_000_000
_HEADER = Struct(">qqqqii")
_ENTRY = Struct(">iqii")
_SECONDS_MAX = 0x7FFFFFFF


class IndexHeader(NamedTuple):
    """State of one index file."""

    begin_timestamp: int
    end_timestamp: int
    begin_position: int
    end_position: int
    slots_used: int
    next_entry: int
    """Number the next entry gets; `next_entry - 1` entries exist."""


class IndexEntry(NamedTuple):
    """One key occurrence; `previous` is the next older entry of the same slot, 0 = none."""

    key_hash: int
    position: int
    seconds_after_begin: int
    previous: int


def index_file_size(hash_slots: int, entry_max: int) -> int:
    """Bytes of a whole index file."""
    return HEADER_SIZE + hash_slots * SLOT_SIZE + entry_max * ENTRY_SIZE


def slot_start(slot: int) -> int:
    """Byte index of a slot in its file."""
    return HEADER_SIZE + slot * SLOT_SIZE


def entry_start(hash_slots: int, number: int) -> int:
    """Byte index of an entry in its file."""
    return HEADER_SIZE + hash_slots * SLOT_SIZE + number * ENTRY_SIZE


def key_hash(topic: bytes, key: bytes) -> int:
    """Non-negative hash under which `key` of `topic` is indexed."""
    return index_key_hash(hash_state(topic + b"#"), key)


def decode_index_header(buf: Buffer) -> IndexHeader:
    """Header of an index file; an unset entry number reads as 1."""
    header = IndexHeader._make(_HEADER.unpack_from(buf, 0))
    return header if header.next_entry > 0 else header._replace(next_entry=1)


def encode_index_header(header: IndexHeader) -> bytes:
    """The 40 header bytes."""
    return _HEADER.pack(*header)


def decode_index_entry(buf: Buffer, start: int) -> IndexEntry:
    """Entry at byte index `start`."""
    return IndexEntry._make(_ENTRY.unpack_from(buf, start))


def append_index_entries(
    buf: Buffer, hash_slots: int, entry_max: int, entries: Buffer, start: int
) -> int:
    """Put the key entries of a `Scan` from byte `start` on into the index file `buf`.

    Returns the byte index of the first entry not taken, because the file is full. Entries of
    records that the file already covers are skipped.
    """
    target, source = as_writable_view(buf), as_view(entries)
    if hash_slots <= 0 or entry_max < 0 or len(target) < index_file_size(hash_slots, entry_max):
        raise ValueError(reasons.BAD_INDEX_FILE)
    if len(source) % ENTRY_SIZE or not 0 <= start <= len(source) or start % ENTRY_SIZE:
        raise ValueError(reasons.BAD_ENTRIES)
    begin, end, begin_position, end_position, slots_used, number = decode_index_header(target)
    first_number = number
    while start < len(source) and number < entry_max:
        hash_value, position, timestamp = KEY_ENTRY.unpack_from(source, start)
        start += ENTRY_SIZE
        if position < end_position:
            continue
        slot_at = slot_start((hash_value & 0x7FFFFFFF) % hash_slots)
        (previous,) = I32.unpack_from(target, slot_at)
        if not 0 < previous <= number:
            previous = 0
        seconds = 0
        if begin > 0 and timestamp > begin:
            seconds = min((timestamp - begin) // 1000, _SECONDS_MAX)
        _ENTRY.pack_into(
            target, entry_start(hash_slots, number), hash_value, position, seconds, previous
        )
        I32.pack_into(target, slot_at, number)
        if number <= 1:
            begin, begin_position = timestamp, position
        slots_used += previous == 0
        number += 1
        end, end_position = timestamp, position
    if number != first_number:
        _HEADER.pack_into(target, 0, begin, end, begin_position, end_position, slots_used, number)
    return start
