"""Persists the position that the slaves of a SYNC_MASTER confirmed, for its next start.

File `replication_confirmed`, one sector that is overwritten in place:

    0    4   magic "RMQC"
    4    4   CRC-32 of the rest
    8    8   number of the epoch that this belongs to
    16   8   enough slaves have reported every position below

Written before readers see confirmed records, so that a killed master shows exactly the same records
after its restart. Synced periodically: after a power cut the position may be older, which hides
more records for a short time, never fewer.
"""

from __future__ import annotations

import logging
import struct
import zlib
from typing import Final

from broker_core.replication.log_epochs import EpochHistory
from broker_core.storage.files.file_system import FileSystem, StoreFile

_log = logging.getLogger(__name__)

CONFIRMED_FILE: Final = "replication_confirmed"

_HEAD: Final = struct.Struct(">4sI")
_BODY: Final = struct.Struct(">qq")
_MAGIC: Final = b"RMQC"


def encode_confirmed(epoch: int, position: int) -> bytes:
    """The file's bytes."""
    body = _BODY.pack(epoch, position)
    return _HEAD.pack(_MAGIC, zlib.crc32(body)) + body


def decode_confirmed(data: bytes) -> tuple[int, int] | None:
    """(epoch, position); None for damaged or incomplete bytes."""
    if len(data) < _HEAD.size + _BODY.size:
        return None
    body = data[_HEAD.size : _HEAD.size + _BODY.size]
    if _HEAD.unpack_from(data) != (_MAGIC, zlib.crc32(body)):
        return None
    epoch, position = _BODY.unpack(body)
    return epoch, position


def load_confirmed(file_system: FileSystem) -> tuple[int, int] | None:
    """(epoch, position) of the last run; None without a valid file."""
    if not file_system.exists(CONFIRMED_FILE):
        return None
    file = file_system.open(CONFIRMED_FILE)
    try:
        return decode_confirmed(file.read(0, _HEAD.size + _BODY.size))
    finally:
        file.close()


def confirmed_at_start(history: EpochHistory, noted: tuple[int, int] | None, end: int) -> int:
    """End of the visible log when a SYNC_MASTER or slave starts; its log ends at `end`. Pure.

    `history` is that of the last run. A broker that was not a SYNC_MASTER then has shown all of its
    log. One that became a slave hides its end until it has agreed with its master about the log.
    """
    current = history.current
    if history.confirmed < 0 or current is None:
        return end
    confirmed = history.confirmed
    if noted is not None and noted[0] == current.number:
        confirmed = max(confirmed, noted[1])
    return min(confirmed, end)


class ConfirmedNote:
    """The note of one run. `write` on the owner's thread, `sync` on any."""

    def __init__(self, file_system: FileSystem, epoch: int, position: int) -> None:
        self._epoch = epoch
        self._file: StoreFile | None = None
        self._synced = self._position = position
        if file_system.exists(CONFIRMED_FILE):
            file = file_system.open(CONFIRMED_FILE)
        else:
            file = file_system.create(CONFIRMED_FILE)
        file.write(0, encode_confirmed(epoch, position))
        file.sync()
        file_system.sync_dir("")
        self._file = file

    @property
    def is_unsynced(self) -> bool:
        """Whether the last write is not synced yet."""
        return self._file is not None and self._synced != self._position

    def write(self, position: int) -> None:
        """The slaves have everything below `position`.

        A failure is only logged; after a restart readers then see less at first.
        """
        if self._file is None:
            return
        self._position = position
        try:
            self._file.write(0, encode_confirmed(self._epoch, position))
        except OSError as error:
            _log.warning("%s cannot be written any more: %s", CONFIRMED_FILE, error)
            self.close()

    def sync(self) -> None:
        """Make the last note durable."""
        file, position = self._file, self._position
        if file is None:
            return
        try:
            file.sync()
        except OSError as error:
            _log.warning("%s cannot be synced: %s", CONFIRMED_FILE, error)
        self._synced = position

    def close(self) -> None:
        """Close the file; later writes are ignored."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
