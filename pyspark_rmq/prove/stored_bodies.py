"""Reads the messages of a topic from files, without any code of the broker.

Follows `docs/formats.md`: units of a consume queue point to records in the log. Only for a store
whose broker is stopped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_UNIT: Final = struct.Struct(">qiq")
# Size, magic, body CRC, queue id, flag, queue offset, position, system flag, born time
_HEAD: Final = struct.Struct(">IIIiiqqiq")
_MAGIC: Final = 0xDAA320A7
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20
_COMPRESSED: Final = 0x01


class _Log:
    """Files of the commit log by the position of their first byte."""

    def __init__(self, folder: Path) -> None:
        self._files = {int(path.name): path for path in folder.glob("[0-9]*")}

    def at(self, position: int, size: int) -> bytes:
        first = max((first for first in self._files if first <= position), default=None)
        if first is None:
            return b""
        with self._files[first].open("rb") as file:
            file.seek(position - first)
            return file.read(size)


def stored_bodies(store: Path, topic: str) -> list[str]:
    """Bodies of all units; a text with the reason for a unit without a valid record."""
    log = _Log(store / "commitlog")
    found = []
    for queue in sorted((store / "consumequeue" / topic).glob("[0-9]*")):
        for number, (position, size) in _units(queue):
            record = log.at(position, size)
            try:
                found.append(_body(record, topic, int(queue.name), number, position))
            except (ValueError, struct.error, IndexError) as error:
                found.append(f"unreadable {topic}/{queue.name}/{number}: {error}")
    return found


def _units(queue: Path) -> Iterator[tuple[int, tuple[int, int]]]:
    for path in sorted(queue.glob("[0-9]*")):
        first, content = int(path.name), path.read_bytes()
        for at in range(0, len(content) - _UNIT.size + 1, _UNIT.size):
            position, size, _ = _UNIT.unpack_from(content, at)
            # Files are of a fixed size and end in zeros; a queue that begins late is filled up with
            # units of size 2^31 - 1.
            if 0 < size < 0x7FFFFFFF:
                yield (first + at) // _UNIT.size, (position, size)


def _body(record: bytes, topic: str, queue: int, number: int, position: int) -> str:
    size, magic, checksum, queue_id, _, offset, own, flags, _ = _HEAD.unpack_from(record)
    found = (size, magic, queue_id, offset, own)
    wanted = (len(record), _MAGIC, queue, number, position)
    if found != wanted:
        raise ValueError(f"record says {found} instead of {wanted}")
    if flags & _COMPRESSED:
        raise ValueError("compressed")
    # Born host, store time, store host, reconsume times, prepared transaction
    at = _HEAD.size + (20 if flags & _BORN_V6 else 8) + 8 + (20 if flags & _STORE_V6 else 8) + 12
    (length,) = struct.unpack_from(">i", record, at)
    body = record[at + 4 : at + 4 + length]
    name_at = at + 4 + length
    name = record[name_at + 1 : name_at + 1 + record[name_at]]
    if name != topic.encode() or zlib.crc32(body) & 0x7FFFFFFF != checksum:
        raise ValueError(f"topic {name!r:.80} or checksum does not match")
    return body.decode(errors="replace")
