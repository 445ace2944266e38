"""The body of a batch send, pure Python: split into columns, and the ids of what it became.

    size i32 | magic i32 | crc i32 | flag i32 | body length i32, body | text length i16, text

The twin of the native functions of the same names.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

from broker_core.codec import record_reasons as reasons
from broker_core.codec.column_batch import Buffer
from broker_core.codec.record_layout import FIXED_SIZE
from broker_core.errors import MalformedBatch

_HEAD: Final = struct.Struct(">iiiii")
_TEXT_SIZE: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")
_ITEM_SIZE_MIN: Final = _HEAD.size + _TEXT_SIZE.size

ClientBatch = tuple[int, bytes, bytes, bytes, bytes, bytes]


def split_client_batch(data: Buffer, suffix: Buffer) -> ClientBatch:
    """Count, flags (int32 each), bodies, their offsets (int64), property texts, their offsets.

    Every text gets `suffix` at its end. Raises `MalformedBatch` for the first bad item.
    """
    view, tail = memoryview(data).cast("B"), bytes(suffix)
    flags, body_offsets, text_offsets = array("i"), array("q", (0,)), array("q", (0,))
    bodies, texts = bytearray(), bytearray()
    start = 0
    while start < len(view):
        size, flag, body_size = _open_item(view, start, len(flags))
        body_at = start + _HEAD.size
        text = view[body_at + body_size + _TEXT_SIZE.size : start + size]
        bodies += view[body_at : body_at + body_size]
        texts += text
        if tail:
            texts += b"\x02" + tail if len(text) and text[-1] != 2 else tail
        flags.append(flag)
        body_offsets.append(len(bodies))
        text_offsets.append(len(texts))
        start += size
    return (
        len(flags),
        flags.tobytes(),
        bytes(bodies),
        body_offsets.tobytes(),
        bytes(texts),
        text_offsets.tobytes(),
    )


def _open_item(view: memoryview, start: int, row: int) -> tuple[int, int, int]:
    left = len(view) - start
    if left < 8:
        raise MalformedBatch(row, reasons.HEADER_CUT)
    (size,) = _SIZE.unpack_from(view, start)
    if size < _ITEM_SIZE_MIN:
        raise MalformedBatch(row, reasons.SIZE_TOO_SMALL)
    if size > left:
        raise MalformedBatch(row, reasons.SIZE_PAST_LIMIT)
    _, _, _, flag, body_size = _HEAD.unpack_from(view, start)
    if body_size < 0:
        raise MalformedBatch(row, reasons.NEGATIVE_BODY)
    if body_size > size - _ITEM_SIZE_MIN:
        raise MalformedBatch(row, reasons.LENGTHS_DISAGREE)
    (text_size,) = _TEXT_SIZE.unpack_from(view, start + _HEAD.size + body_size)
    if text_size < 0:
        raise MalformedBatch(row, reasons.NEGATIVE_PROPERTIES)
    if size != _ITEM_SIZE_MIN + body_size + text_size:
        raise MalformedBatch(row, reasons.LENGTHS_DISAGREE)
    return size, flag, body_size


def list_message_ids(data: Buffer, start: int, count: int, host: Buffer, position: int) -> str:
    """Offset ids, separated by commas, of `count` records that begin at `data[start]`."""
    view, address = memoryview(data).cast("B"), bytes(host)
    if len(address) not in (8, 20):
        raise ValueError(reasons.BAD_HOST)
    if not 0 <= start <= len(view) or not 1 <= count <= len(view):
        raise ValueError(reasons.BAD_RANGE)
    prefix = address.hex().upper()
    ids = []
    for _ in range(count):
        size = _SIZE.unpack_from(view, start)[0] if start + 4 <= len(view) else 0
        if size < FIXED_SIZE or size > len(view) - start:
            raise ValueError(reasons.BAD_RANGE)
        ids.append(f"{prefix}{position & 0xFFFFFFFFFFFFFFFF:016X}")
        start += size
        position += size
    return ",".join(ids)
