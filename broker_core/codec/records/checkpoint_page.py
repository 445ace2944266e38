"""The `checkpoint` file: one 4096-byte page of five big-endian i64 fields, the rest zeros."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from broker_core.codec.records.column_batch import Buffer
from broker_core.errors import MalformedRecord

PAGE_SIZE: Final = 4096
_FIELDS = Struct(">5q")


class CheckpointPage(NamedTuple):
    """Store times (epoch ms) of the newest data known to be on disk; 0 = unknown."""

    physic_msg_timestamp: int = 0
    """Newest commit-log message that is flushed."""
    logics_msg_timestamp: int = 0
    """Newest consume-queue entry that is flushed."""
    index_msg_timestamp: int = 0
    """End of the newest full and flushed index file."""
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0


def encode_checkpoint(page: CheckpointPage) -> bytes:
    """The whole page."""
    return _FIELDS.pack(*page).ljust(PAGE_SIZE, b"\0")


def decode_checkpoint(buf: Buffer) -> CheckpointPage:
    """Fields of a page; a buffer shorter than the fields is `MalformedRecord`."""
    size = memoryview(buf).nbytes
    if size < _FIELDS.size:
        raise MalformedRecord(size, "checkpoint page is cut short")
    return CheckpointPage._make(_FIELDS.unpack_from(buf, 0))
