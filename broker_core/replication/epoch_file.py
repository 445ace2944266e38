"""The epochs of a store on disk: file `replication_state`, replaced as a whole.

0   4   magic "RMQE"
4   4   CRC-32 of the rest
8       msgpack map: version, epochs (number, owner, start), seen, role, confirmed, slave_id
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import msgpack  # type: ignore[import-untyped]

from broker_core.errors import StoreUnusable
from broker_core.replication.log_epochs import Epoch, EpochHistory, LastRole
from broker_core.storage.files.atomic_file import read_file, replace_file
from broker_core.storage.files.file_system import FileSystem

EPOCH_FILE: Final = "replication_state"
FORMAT_VERSION: Final = 1

_HEAD: Final = struct.Struct(">4sI")
_MAGIC: Final = b"RMQE"


def encode_history(history: EpochHistory) -> bytes:
    """The file's bytes."""
    body = msgpack.packb(
        {
            "version": FORMAT_VERSION,
            "epochs": [tuple(epoch) for epoch in history.epochs],
            "seen": history.seen,
            "role": history.role.value,
            "confirmed": history.confirmed,
            "slave_id": history.slave_id,
        }
    )
    return _HEAD.pack(_MAGIC, zlib.crc32(body)) + bytes(body)


def decode_history(data: bytes) -> EpochHistory:
    """Raises `StoreUnusable` for bytes that are damaged or of a newer version."""
    body = data[_HEAD.size :]
    if len(data) < _HEAD.size or _HEAD.unpack_from(data) != (_MAGIC, zlib.crc32(body)):
        raise StoreUnusable(
            f"{EPOCH_FILE} is damaged. Restore it from a backup; or, when no other broker has a "
            "copy of this log, remove it"
        )
    fields = msgpack.unpackb(body, use_list=False)
    if fields["version"] > FORMAT_VERSION:
        raise StoreUnusable(f"{EPOCH_FILE} was written by a newer release; use that one")
    epochs = tuple(Epoch(*entry) for entry in fields["epochs"])
    role = LastRole(fields["role"])
    # Older releases did not write these.
    confirmed, slave_id = fields.get("confirmed", -1), fields.get("slave_id", 0)
    return EpochHistory(epochs, fields["seen"], role, confirmed, slave_id)


def load_history(file_system: FileSystem) -> EpochHistory:
    """The history that the last run wrote; empty when there is none."""
    data = read_file(file_system, EPOCH_FILE)
    return EpochHistory() if data is None else decode_history(data)


def save_history(file_system: FileSystem, history: EpochHistory) -> None:
    """Durable when this returns."""
    replace_file(file_system, EPOCH_FILE, encode_history(history))
