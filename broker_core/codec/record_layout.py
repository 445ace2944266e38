"""Where the fields of a commit-log record are (big-endian), and its whole-record checksum property.

     0  TOTALSIZE       4        48  BORNHOST        8 or 20 (IPv6)
     4  MAGIC           4        ..  STORETIMESTAMP  8
     8  BODYCRC         4        ..  STOREHOST       8 or 20 (IPv6)
    12  QUEUEID         4        ..  RECONSUMETIMES  4
    16  FLAG            4        ..  PREPAREDOFFSET  8
    20  QUEUEOFFSET     8        ..  BODYLEN         4, then BODY
    28  PHYSICALOFFSET  8        ..  TOPICLEN        1 (V1) or 2 (V2), then TOPIC
    36  SYSFLAG         4        ..  PROPLEN         2, then PROPERTIES
    40  BORNTIMESTAMP   8

Constants only; `record_checks` reads records, `record_encode_loops` writes them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_HOST_AT: Final = 48
FIXED_SIZE: Final = 91
"""Size of a V1 record with IPv4 hosts without its body, topic and properties."""
BLANK_RESERVE: Final = 8
"""Bytes every append leaves free, so that a blank record always fits."""
IPV6_EXTRA: Final = 12
SIZE_MAX: Final = 0x7FFFFFFF
PROPERTY_TEXT_MAX: Final = 32767
TOPIC_V1_MAX: Final = 127
TOPIC_MAX: Final = 255

SKIP_CHECKSUMS: Final = 0
"""Level of a check: the form of a record only."""
CHECK_CHECKSUMS: Final = 1
"""Level of a check: body checksum, and the whole-record checksum where a record has one."""
REQUIRE_CHECKSUM: Final = 2
"""The same, and a record without a whole-record checksum is damaged: its log has none such."""

ELSEWHERE: Final = 4
"""To add to a level: units say where records are now, not where their log has them."""

DAMAGE_ONLY: Final = 8
"""To add to a level: a right whole-record checksum will do. It covers the body, so that damage does
not pass; a body checksum that never was right does."""

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
CRC_TAIL_MATCH_MIN: Final = 8
"""Of the 10 constant bytes of the tail; with this many the last 20 bytes were meant as one."""
NAME_SEPARATOR: Final = b"\x01"
PAIR_SEPARATOR: Final = b"\x02"

# Header up to and including BODYLEN, by the two IPv6 bits of SYSFLAG.
HEADERS: Final = tuple(
    Struct(f">iIiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
SIZE_AND_MAGIC: Final = Struct(">iI")
BLANK: Final = Struct(">iI")
I16: Final = Struct(">h")
I32: Final = Struct(">i")
I64: Final = Struct(">q")
OFFSET_PAIR: Final = Struct(">qq")
UNIT: Final = Struct(">qiq")
KEY_ENTRY: Final = Struct(">iqq")


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

    A sector that a crash lost reads as zeros, which property text has no use for.
    """
    if len(tail) != CRC_TAIL_SIZE:
        return False
    if 0 in tail:
        return True
    matches = sum(a == b for a, b in zip(tail, CRC_TAIL_HEAD, strict=False)) + (tail[19] == 2)
    return matches >= CRC_TAIL_MATCH_MIN
