"""Identity, epoch and durable watermark of a store, in two alternating 512-byte slots.

    slot (512 bytes, big-endian)
    0    4   magic "RMQS"
    4    4   format version
    8    8   generation; the valid slot with the higher one counts
    16   16  store id
    32   8   epoch
    40   8   durable position: every byte below it was synced
    48   8   log start: files below it may be gone
    56   4   flags: 1 readers may have seen bytes that were not durable, 2 a sync failed,
             4 every record of the log has a whole-record checksum, 8 a sync of bytes that
             readers may have seen was begun
    60   36  boot id, ASCII
    96   4   CRC-32 of bytes 0..95

One slot is one sector, so a torn write leaves the other slot. A slot is written after each flush,
unsynced (a kill loses little of it), and synced periodically, see docs/decisions/003.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from typing import NamedTuple

from broker_core.errors import StoreFormatUnsupported
from broker_core.storage.files.file_system import FileSystem, StoreFile

STATE_FILE = "store_state"
FORMAT_VERSION = 1
SLOT_SIZE = 512
STATE_SIZE = 2 * SLOT_SIZE
FLAG_VISIBLE_BEFORE_DURABLE = 1
FLAG_SYNC_FAILED = 2
FLAG_RECORDS_CHECKSUMMED = 4
FLAG_SYNC_BEGUN = 8

_SLOT = struct.Struct(">4sIQ16sQqqI36s")
_CRC = struct.Struct(">I")
_MAGIC = b"RMQS"


class StoreState(NamedTuple):
    """State of a log, read before the log itself."""

    store_id: str
    epoch: int
    durable_position: int
    log_start: int
    flags: int
    boot_id: str


def new_state(flags: int, boot_id: str) -> StoreState:
    """State of an empty store."""
    return StoreState(uuid.uuid4().hex, 1, 0, 0, flags, boot_id)


def encode_slot(state: StoreState, generation: int) -> bytes:
    """The bytes of one slot."""
    head = _SLOT.pack(
        _MAGIC,
        FORMAT_VERSION,
        generation,
        bytes.fromhex(state.store_id),
        state.epoch,
        state.durable_position,
        state.log_start,
        state.flags,
        state.boot_id.encode("ascii")[:36],
    )
    return (head + _CRC.pack(zlib.crc32(head))).ljust(SLOT_SIZE, b"\0")


def decode_slot(slot: bytes) -> tuple[int, StoreState] | None:
    """Generation and state, or None when the slot is empty or damaged."""
    if len(slot) < _SLOT.size + _CRC.size:
        return None
    head = slot[: _SLOT.size]
    if _CRC.unpack_from(slot, _SLOT.size)[0] != zlib.crc32(head):
        return None
    magic, version, generation, store_id, epoch, durable, start, flags, boot = _SLOT.unpack(head)
    if magic != _MAGIC:
        return None
    if version > FORMAT_VERSION:
        raise StoreFormatUnsupported(
            f"{STATE_FILE} has format version {version}; this software knows up to "
            f"{FORMAT_VERSION}. Use a newer release to open this store"
        )
    boot_id = boot.rstrip(b"\0").decode("ascii", "replace")
    return generation, StoreState(store_id.hex(), epoch, durable, start, flags, boot_id)


def newest_slot(data: bytes) -> tuple[int, StoreState] | None:
    """Generation and state of the newer valid slot of a state file."""
    slots = (decode_slot(data[:SLOT_SIZE]), decode_slot(data[SLOT_SIZE:STATE_SIZE]))
    found = [slot for slot in slots if slot is not None]
    return max(found, key=lambda slot: slot[0]) if found else None


def stored_id(file_system: FileSystem) -> str | None:
    """The id of the store in a directory that another process owns; None when it has none."""
    state = _read_state(file_system)
    return None if state is None else state.store_id


def stored_state(file_system: FileSystem) -> StoreState | None:
    """The newest state, read without opening the file for writing; None when there is none."""
    return _read_state(file_system) if file_system.exists(STATE_FILE) else None


def _read_state(file_system: FileSystem) -> StoreState | None:
    file = file_system.open(STATE_FILE, writable=False)
    try:
        newest = newest_slot(file.read(0, STATE_SIZE))
    finally:
        file.close()
    return None if newest is None else newest[1]


class StoreStateFile:
    """Reads and writes the slots. Used by one thread at a time (the flush worker's)."""

    def __init__(
        self, file: StoreFile, generation: int, state: StoreState, *, synced: bool
    ) -> None:
        self._file = file
        self._generation = generation
        self._state = state
        self._synced = state if synced else None

    @classmethod
    def load(cls, file_system: FileSystem) -> StoreStateFile | None:
        """None when the file is missing or has no valid slot."""
        if not file_system.exists(STATE_FILE):
            return None
        file = file_system.open(STATE_FILE)
        newest = newest_slot(file.read(0, STATE_SIZE))
        if newest is None:
            file.close()
            return None
        generation, state = newest
        # A killed process may have left it in the page cache only.
        return cls(file, generation, state, synced=False)

    @classmethod
    def create(cls, file_system: FileSystem, state: StoreState) -> StoreStateFile:
        """Create or replace the file, with `state` in both slots, durably."""
        if file_system.exists(STATE_FILE):
            file_system.unlink(STATE_FILE)
        file = file_system.create(STATE_FILE)
        file.write(0, encode_slot(state, 1) + encode_slot(state, 2))
        file.sync()
        file_system.sync_dir("")
        return cls(file, 2, state, synced=True)

    @property
    def state(self) -> StoreState:
        """The newest state written."""
        return self._state

    def write(self, state: StoreState, *, sync: bool) -> None:
        """Store into the slot that does not hold the newest state."""
        _, start, slot = self.note(state)
        self._file.write(start, slot)
        if sync:
            self.sync()

    def note(self, state: StoreState) -> tuple[int, int, bytes]:
        """Descriptor, position and bytes of the write that stores `state`; the caller does it."""
        self._generation += 1
        self._state = state
        slot = self._generation % 2
        data = encode_slot(state, self._generation)
        return self._file.sync_descriptor, slot * SLOT_SIZE, data

    def sync(self) -> None:
        """Make the newest state durable; does nothing if it is."""
        if self._synced != self._state:
            self._file.sync()
            self._synced = self._state

    def close(self) -> None:
        """Close the file."""
        self._file.close()
