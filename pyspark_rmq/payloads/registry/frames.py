"""The frame of a registry's producers: a zero byte and the schema's id, 4 bytes, before a body.

Protobuf has the path of the message in its file after the id.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FRAME_SIZE: Final = 5
_FRAME: Final = struct.Struct(">bI")


def frame_ids(bodies: Any) -> Any:
    """The id of each body of a binary array, as numpy array; -1 for bodies without a frame."""
    if not len(bodies):
        return np.zeros(0, np.int64)
    bounds = np.frombuffer(bodies.buffers()[1], np.int32)
    bounds = bounds[bodies.offset : bodies.offset + len(bodies) + 1].astype(np.int64)
    data = bodies.buffers()[2]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    found = np.full(len(bodies), -1, np.int64)
    long = np.flatnonzero(np.diff(bounds) >= FRAME_SIZE)
    starts = bounds[long]
    numbers = np.zeros(len(long), np.int64)
    for place in range(1, FRAME_SIZE):
        numbers = numbers << 8 | raw[starts + place]
    found[long] = np.where(raw[starts] == 0, numbers, -1)
    return found


def framed(values: Any, schema_id: int, path: Sequence[int] | None = None) -> Any:
    """Encoded values with a frame; `path` is that of a Protobuf message."""
    head = _FRAME.pack(0, schema_id) + (b"" if path is None else packed_path(path))
    heads = pa.scalar(head, pa.binary())
    return pc.binary_join_element_wise(heads, values, pa.scalar(b"", pa.binary()))


def packed_path(path: Sequence[int]) -> bytes:
    """The path of a message; that of the first message of a file is one zero byte."""
    if list(path) == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(path), *path))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def path_size(body: bytes, start: int) -> int | None:
    """The number of bytes of a path; None if it is invalid."""
    at = start
    count, at = _read(body, at)
    if count is None or count & 1 or count > 2 * len(body):
        return None
    for _ in range(count >> 1):
        number, at = _read(body, at)
        if number is None:
            return None
    return at - start


def _read(body: bytes, at: int) -> tuple[int | None, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(body):
            return None, at
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    return None, at
