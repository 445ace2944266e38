"""The property text of a record that was verified before."""

from __future__ import annotations

import struct
from typing import Final

from broker_core.codec.record_layout import IPV6_EXTRA, MAGIC_V2, SYS_FLAG_AT

_SIZE: Final = struct.Struct(">i")
# Body length of a record by its host bits: none, born, store, both of IPv6.
_BODY_LENGTH_AT: Final = (84, 84 + IPV6_EXTRA, 84 + IPV6_EXTRA, 84 + 2 * IPV6_EXTRA)
_MAGIC_V2_END: Final = MAGIC_V2 & 0xFF


def property_text(records: bytes, start: int, end: int) -> bytes:
    """Properties of the record at `records[start:end]`, whose structure is not checked again."""
    at = start + _BODY_LENGTH_AT[records[start + SYS_FLAG_AT + 3] >> 4 & 3]
    at += 4 + int(_SIZE.unpack_from(records, at)[0])
    if records[start + 7] == _MAGIC_V2_END:
        return records[at + 4 + (records[at] << 8 | records[at + 1]) : end]
    return records[at + 3 + records[at] : end]
