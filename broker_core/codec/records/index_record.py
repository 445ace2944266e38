"""Index file: 40-byte header, hash slots, 20-byte entries; big-endian.

header   0 beginTimestamp 8, 8 endTimestamp 8, 16 beginPhyOffset 8, 24 endPhyOffset 8,
         32 hashSlotCount 4, 36 indexCount 4 (the next free entry number, starts at 1)
slot     40 + 4 * slot: newest entry number of the slot, 0 = none
entry n  40 + 4 * slots + 20 * n: key hash 4, phyOffset 8, seconds after begin 4,
         previous 4 (the next older entry of the same slot, 0 = none)
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from broker_core.codec.records.column_batch import Buffer

HEADER: Final = Struct(">qqqqii")
SLOT: Final = Struct(">i")
ENTRY: Final = Struct(">iqii")
HEADER_SIZE: Final = HEADER.size
SLOT_SIZE: Final = SLOT.size
ENTRY_SIZE: Final = ENTRY.size


class IndexHeader(NamedTuple):
    """State of one index file."""

    begin_timestamp: int
    end_timestamp: int
    begin_position: int
    end_position: int
    slots_used: int
    next_entry: int
    """Number the next entry gets; `next_entry - 1` entries exist."""


def index_file_size(hash_slots: int, entry_max: int) -> int:
    """Bytes of a whole index file."""
    return HEADER_SIZE + hash_slots * SLOT_SIZE + entry_max * ENTRY_SIZE


def slot_start(slot: int) -> int:
    """Byte index of a slot in its file."""
    return HEADER_SIZE + slot * SLOT_SIZE


def entry_start(hash_slots: int, number: int) -> int:
    """Byte index of an entry in its file."""
    return HEADER_SIZE + hash_slots * SLOT_SIZE + number * ENTRY_SIZE


def decode_index_header(buf: Buffer) -> IndexHeader:
    """Header of an index file; an unset entry number reads as 1."""
    header = IndexHeader._make(HEADER.unpack_from(buf, 0))
    return header if header.next_entry > 0 else header._replace(next_entry=1)


def encode_index_header(header: IndexHeader) -> bytes:
    """The 40 header bytes."""
    return HEADER.pack(*header)
