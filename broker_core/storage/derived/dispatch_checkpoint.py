"""How far the consume queues and the index are durable, and what their files must look like.

File `dispatch_checkpoint`: magic "RMQD", CRC-32 of the rest, then a msgpack map. Replaced as a
whole, after every file it describes was synced. After a crash the queues are reset to it and the
log is dispatched again from `position`; it also proves that the log was durable up to there.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import msgpack  # type: ignore[import-untyped]

from broker_core.storage.derived.consume_queue import QueueEntry, QueueFileEntry
from broker_core.storage.derived.message_index import IndexEntry
from broker_core.storage.files.atomic_file import read_file, replace_file
from broker_core.storage.files.file_system import FileSystem

DISPATCH_CHECKPOINT_FILE = "dispatch_checkpoint"
FORMAT_VERSION = 1

_HEAD = struct.Struct(">4sI")
_MAGIC = b"RMQD"


class DispatchCheckpoint(NamedTuple):
    """Everything below `position` is in the queues and the index, durably."""

    store_id: str
    position: int
    log_start: int
    store_timestamp: int
    queues: tuple[QueueEntry, ...] = ()
    index_files: tuple[IndexEntry, ...] = ()
    numbering: tuple[tuple[bytes, int, int], ...] = ()
    """(topic, queue id, offset) of queues that must not start below `offset` when rebuilt."""
    is_indexed: bool = True
    """Whether there was an index; otherwise records below `position` are not indexed."""


def encode_checkpoint(checkpoint: DispatchCheckpoint) -> bytes:
    """The file's bytes."""
    body = msgpack.packb(
        {
            "version": FORMAT_VERSION,
            "store": checkpoint.store_id,
            "position": checkpoint.position,
            "log_start": checkpoint.log_start,
            "timestamp": checkpoint.store_timestamp,
            "queues": checkpoint.queues,
            "index": checkpoint.index_files,
            "numbering": checkpoint.numbering,
            "indexed": checkpoint.is_indexed,
        }
    )
    return _HEAD.pack(_MAGIC, zlib.crc32(body)) + bytes(body)


def decode_checkpoint(data: bytes) -> DispatchCheckpoint | None:
    """None when the bytes are damaged or of another version: rebuild from the log."""
    if len(data) < _HEAD.size:
        return None
    magic, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC or crc != zlib.crc32(body):
        return None
    fields = msgpack.unpackb(body, use_list=False)
    if fields.get("version") != FORMAT_VERSION:
        return None
    queues = tuple(
        QueueEntry(topic, queue_id, low, high, tuple(QueueFileEntry(*file) for file in files))
        for topic, queue_id, low, high, files in fields["queues"]
    )
    index = tuple(IndexEntry(*entry) for entry in fields["index"])
    return DispatchCheckpoint(
        fields["store"],
        fields["position"],
        fields["log_start"],
        fields["timestamp"],
        queues,
        index,
        fields["numbering"],
        fields.get("indexed", True),
    )


def load_checkpoint(file_system: FileSystem) -> DispatchCheckpoint | None:
    """The last complete checkpoint, if there is one."""
    data = read_file(file_system, DISPATCH_CHECKPOINT_FILE)
    return None if data is None else decode_checkpoint(data)


def save_checkpoint(file_system: FileSystem, checkpoint: DispatchCheckpoint) -> None:
    """Replace the file durably."""
    replace_file(file_system, DISPATCH_CHECKPOINT_FILE, encode_checkpoint(checkpoint))
