"""Byte layout of a commit-log record (big-endian) and of what is derived from it.

     0  TOTALSIZE       4        48  BORNHOST        8 or 20 (IPv6)
     4  MAGIC           4        ..  STORETIMESTAMP  8
     8  BODYCRC         4        ..  STOREHOST       8 or 20 (IPv6)
    12  QUEUEID         4        ..  RECONSUMETIMES  4
    16  FLAG            4        ..  PREPAREDOFFSET  8
    20  QUEUEOFFSET     8        ..  BODYLEN         4, then BODY
    28  PHYSICALOFFSET  8        ..  TOPICLEN        1 (V1) or 2 (V2), then TOPIC
    36  SYSFLAG         4        ..  PROPLEN         2, then PROPERTIES
    40  BORNTIMESTAMP   8

The only place for these numbers in Python; `native/include/layout.h` has the same constants under
the same names for C, and a test compares the two. `record_parse` reads records.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

SIZE_AT: Final = 0
MAGIC_AT: Final = 4
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_TIMESTAMP_AT: Final = 40
BORN_HOST_AT: Final = 48
STORE_TIMESTAMP_AT: Final = 56
"""When the born host is IPv4; an IPv6 host adds `IPV6_EXTRA`."""
PREPARED_OFFSET_AT: Final = 76
"""When both hosts are IPv4; see `hosts_extra`."""
BODY_LENGTH_AT: Final = 84
"""When both hosts are IPv4; see `hosts_extra`."""

IPV4_HOST_SIZE: Final = 8
IPV6_HOST_SIZE: Final = 20
IPV6_EXTRA: Final = IPV6_HOST_SIZE - IPV4_HOST_SIZE
HEADER_SIZE_MAX: Final = 112
"""Everything before BODY when both hosts are IPv6."""
RECORD_SIZE_MIN: Final = 91
"""Size of a V1 record with IPv4 hosts without its body, topic and properties."""
BLANK_RESERVE: Final = 8
"""Bytes every append leaves free, so that a blank record always fits."""
SIZE_MAX: Final = 0x7FFFFFFF
PROPERTY_TEXT_MAX: Final = 32767
TOPIC_V1_MAX: Final = 127
TOPIC_MAX: Final = 255

SKIP_CHECKSUMS: Final = 0
"""Level of a check: the structure of a record only."""
CHECK_CHECKSUMS: Final = 1
"""Level of a check: body checksum, and the whole-record checksum where a record has one."""
REQUIRE_CHECKSUM: Final = 2
"""Like `CHECK_CHECKSUMS`; a record without a whole-record checksum is damaged, too."""

ELSEWHERE: Final = 4
"""Added to a level: queue units do not give log positions."""

DAMAGE_ONLY: Final = 8
"""Added to a level: a correct whole-record checksum suffices. It covers the body, so damage is
found; a body checksum that was wrong from the start is not."""

BORN_HOST_IPV6: Final = 0x10
STORE_HOST_IPV6: Final = 0x20
HOST_BITS: Final = 0x30
TRANSACTION_BITS: Final = 0x0C
TRANSACTION_PREPARED: Final = 0x04
TRANSACTION_COMMIT: Final = 0x08
TRANSACTION_ROLLBACK: Final = 0x0C

CRC_MASK: Final = 0x7FFFFFFF
"""Checksums are stored as non-negative 32-bit integers: the top bit is cleared."""
CRC_PROPERTY: Final = b"__CRC32#"
CRC_TAIL_HEAD: Final = CRC_PROPERTY + b"\x01"
CRC_TAIL_SIZE: Final = 20
CRC_DIGITS_AT: Final = 9
"""Inside the tail."""
CRC_DIGIT_COUNT: Final = 10
CRC_TAIL_MATCH_MIN: Final = 8
"""Of the 10 constant bytes of the tail; with this many the last 20 bytes were meant as one."""
NAME_SEPARATOR: Final = b"\x01"
PAIR_SEPARATOR: Final = b"\x02"

# Header up to and including BODYLEN, by the two IPv6 bits of SYSFLAG.
HEADERS: Final = tuple(
    Struct(f">iIiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
SIZE_AND_MAGIC: Final = Struct(">iI")
"""Also the whole of a blank record, whose size is what is left of its segment."""
I16: Final = Struct(">h")
I32: Final = Struct(">i")
I64: Final = Struct(">q")
OFFSET_PAIR: Final = Struct(">qq")

UNIT: Final = Struct(">qiq")
"""Unit of a consume queue: log position, record size, tags code. Unit k is at byte 20 * k."""
UNIT_SIZE: Final = UNIT.size
UNIT_RECORD_SIZE_AT: Final = 8
UNIT_TAGS_CODE_AT: Final = 12
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
"""Record size of the filler before the first unit of a queue that starts within a file."""
PRE_BLANK_UNIT: Final = UNIT.pack(0, PRE_BLANK_SIZE, 0)

KEY_ENTRY: Final = Struct(">iqq")
"""Key of a scanned record: hash, log position, store timestamp."""
KEY_ENTRY_SIZE: Final = KEY_ENTRY.size
KEY_ENTRY_POSITION_AT: Final = 4
KEY_ENTRY_TIMESTAMP_AT: Final = 12

BATCH_ITEM: Final = Struct(">iiiii")
"""Message in the body of a batch send: size, magic, CRC, flag, body length; the body follows, then
the length of the property text (`I16`) and the text."""
BATCH_ITEM_MAGIC_AT: Final = 4
BATCH_ITEM_FLAG_AT: Final = 12
BATCH_ITEM_BODY_LENGTH_AT: Final = 16
BATCH_ITEM_BODY_AT: Final = BATCH_ITEM.size
BATCH_ITEM_SIZE_MIN: Final = BATCH_ITEM.size + I16.size

WIRE_PLACE_SHIFT: Final = 24
"""No record of a pull response is as large as 1 << 24 bytes."""
WIRE_PLACE_BITS: Final = 38


def takes_queue_offset(sys_flag: int) -> bool:
    """False for prepared and rollback messages, which are in no queue."""
    return sys_flag & TRANSACTION_BITS not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def hosts_extra(sys_flag: int) -> int:
    """How far the fields behind both hosts are moved by IPv6 hosts."""
    return IPV6_EXTRA * ((sys_flag >> 4 & 1) + (sys_flag >> 5 & 1))


def wire_place(first_offset: int) -> int:
    """Position of the first record of a run of a pull response that begins at this queue offset.

    Positions of neighbouring runs of one queue never overlap.
    """
    return (first_offset & (1 << WIRE_PLACE_BITS) - 1) << WIRE_PLACE_SHIFT


def crc_tail(checksum: int) -> bytes:
    """The 20-byte checksum property; digits are written least significant first."""
    return b"__CRC32#\x01%b\x02" % (b"%010d" % checksum)[::-1]


def crc_tail_value(tail: bytes) -> int | None:
    """Checksum of a well-formed 20-byte tail, else None."""
    if tail[:9] == CRC_TAIL_HEAD and tail[19] == 2:
        digits = tail[18:8:-1]
        if digits.isdigit():
            return int(digits)
    return None


def looks_like_crc_tail(tail: bytes) -> bool:
    """True for a well-formed tail, for one with a few damaged bytes, and for a torn one.

    A sector lost in a crash reads as zeros, which property text never contains.
    """
    if len(tail) != CRC_TAIL_SIZE:
        return False
    if 0 in tail:
        return True
    matches = sum(a == b for a, b in zip(tail, CRC_TAIL_HEAD, strict=False)) + (tail[19] == 2)
    return matches >= CRC_TAIL_MATCH_MIN
