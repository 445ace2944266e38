"""Key → log positions: RocketMQ's hash-index files, mapped and appended to in log order.

A pure function of the log, except for the file names (the local time of creation). A file that is
full is sealed and checksummed; the open one is rebuilt after a crash. Blocks are allocated ahead of
use although the file has its full length from the start: a store into an unallocated page of a full
disk would kill the process.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from broker_core.codec.native import append_index_entries, java_hash
from broker_core.codec.records.index_record import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT,
    IndexHeader,
    decode_index_header,
    encode_index_header,
    entry_start,
    index_file_size,
    slot_start,
)
from broker_core.codec.records.record_layout import I64, KEY_ENTRY_POSITION_AT, KEY_ENTRY_SIZE
from broker_core.errors import CorruptStore, RmqError
from broker_core.storage.files.file_system import FileSystem, StoreFile

INDEX_DIR = "index"
ALLOCATION_STEP = 1 << 20
NAME_DIGITS = 17

_HASH_UNUSABLE = -(1 << 31)


def key_hash(topic: bytes, key: bytes) -> int:
    """Non-negative hash under which `key` of `topic` is indexed."""
    value = java_hash(topic + b"#" + key)
    # RocketMQ uses 0 for the one hash whose absolute value is no 32-bit integer.
    return 0 if value == _HASH_UNUSABLE else abs(value)


class IndexDamaged(CorruptStore):
    """An index file is missing or disagrees with its checksum; rebuild from `position` on."""


class IndexEntry(NamedTuple):
    """One file in the dispatch checkpoint; `crc` is None while it is open."""

    name: str
    first_position: int
    used: int
    crc: int | None


def first_unusable(
    file_system: FileSystem, entries: Iterable[IndexEntry], *, clean: bool
) -> int | None:
    """Log position from which the index must be rebuilt, by names and lengths; None: nowhere.

    Checksums are compared when the index is opened. Without a clean stop, a file that is not full
    has grown since the checkpoint.
    """
    for entry in entries:
        path = f"{INDEX_DIR}/{entry.name}"
        if entry.crc is None or not file_system.exists(path):
            return entry.first_position
        if not clean:
            file = file_system.open(path, writable=False)
            is_full = file.size == entry.used
            file.close()
            if not is_full:
                return entry.first_position
    return None


class IndexFile:
    """One open index file."""

    __slots__ = ("allocated", "crc", "file", "first_position", "name", "verified", "view")

    def __init__(self, name: str, file: StoreFile, first_position: int, crc: int | None) -> None:
        self.name = name
        self.file = file
        self.view = file.buffer()
        self.first_position = first_position
        self.crc = crc
        self.allocated = 0
        self.verified = crc is None

    @property
    def header(self) -> IndexHeader:
        """Decoded at each call: the file is the only copy."""
        return decode_index_header(self.view[:HEADER_SIZE])

    def close(self) -> None:
        """Unmap and close."""
        self.view.release()
        self.file.close()


class MessageIndex:
    """All index files, oldest first; the last one takes entries. Owner thread only."""

    def __init__(
        self, file_system: FileSystem, hash_slots: int, entries_max: int, *, with_tags: bool = False
    ) -> None:
        self._file_system = file_system
        self._slots = hash_slots
        self._entries_max = entries_max
        self.with_tags = with_tags
        self._entries_at = entry_start(hash_slots, 0)
        self._file_size = index_file_size(hash_slots, entries_max)
        self._files: list[IndexFile] = []
        self._unsynced_names = False
        # Why entries are missing, until they are rebuilt; queries raise it.
        self.problem: RmqError | None = None

    @property
    def files(self) -> list[IndexFile]:
        """Oldest first."""
        return self._files

    def used_size(self, file: IndexFile) -> int:
        """Bytes of a file that are in use."""
        return self._entries_at + file.header.next_entry * ENTRY_SIZE

    def append(self, keys: bytes, wall_ms: int, start: int = 0) -> None:
        """Append the keys of one scan, from byte `start` of `keys` on."""
        while start < len(keys):
            if not self._files or self._is_full(self._files[-1]):
                self._add_file(I64.unpack_from(keys, start + KEY_ENTRY_POSITION_AT)[0], wall_ms)
            last = self._files[-1]
            self._allocate(last, (len(keys) - start) // KEY_ENTRY_SIZE)
            start = append_index_entries(last.view, self._slots, self._entries_max, keys, start)
            last.file.wrote(0, min(last.allocated, self._file_size))

    def query(self, topic: bytes, key: bytes, count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Positions of records whose key has the same hash, newest first; callers re-check them."""
        return self.query_some(topic, key, count, begin_ms, end_ms, 1 << 62)[0]

    def query_some(
        self, topic: bytes, key: bytes, count: int, begin_ms: int, end_ms: int, steps: int
    ) -> tuple[list[int], bool]:
        """`query` that looks at no more than `steps` entries, and whether these were enough."""
        if self.problem is not None:
            raise self.problem.with_traceback(None)
        wanted = key_hash(topic, key)
        found: dict[int, None] = {}
        for file in reversed(self._files):
            self._verify(file)
            header = file.header
            if header.next_entry > 1 and header.end_timestamp >= begin_ms:
                if header.begin_timestamp <= end_ms:
                    times = (begin_ms, end_ms)
                    steps = self._follow(file, header, wanted, count, times, found, steps)
                if header.begin_timestamp < begin_ms:
                    break
            if len(found) >= count or steps <= 0:
                break
        return list(found), steps > 0

    def entries(self) -> list[IndexEntry]:
        """Entries of the dispatch checkpoint."""
        return [
            IndexEntry(file.name, file.first_position, self.used_size(file), file.crc)
            for file in self._files
        ]

    def seal(self, file: IndexFile) -> None:
        """Sync the file and remember the checksum of its used part."""
        file.file.sync()
        file.crc = zlib.crc32(file.view[: self.used_size(file)])

    def unsealed(self) -> list[IndexFile]:
        """Files that a checkpoint may seal: all but the open one."""
        return [file for file in self._files[:-1] if file.crc is None]

    def take_new_names(self) -> bool:
        """Whether files were created since the last call."""
        names, self._unsynced_names = self._unsynced_names, False
        return names

    def restore(self, entries: list[IndexEntry], *, clean: bool) -> int | None:
        """Open the files of a checkpoint; drop the rest.

        Returns the log position from which the index must be rebuilt, None when it is complete.
        """
        rebuild_from = None
        for entry in entries:
            # Without a clean stop, a file with room has grown since its checksum was taken.
            sealed = entry.crc is not None and (clean or entry.used == self._file_size)
            if not (sealed and self._open(entry)):
                rebuild_from = entry.first_position
                break
        damaged_from = self._drop_damaged_end()
        if damaged_from is not None:
            rebuild_from = damaged_from
        if rebuild_from is None and self._files and not self._is_full(self._files[-1]):
            # The last file grows again: the checksum of the clean stop ends here.
            self._files[-1].crc = None
        self._drop_unknown()
        return rebuild_from

    def _drop_damaged_end(self) -> int | None:
        """Drop damaged files from the end: new entries continue from the header of the last."""
        damaged_from = None
        while self._files:
            last = self._files[-1]
            try:
                self._verify(last)
            except IndexDamaged:
                damaged_from = last.first_position
                self._files.pop().close()
            else:
                break
        return damaged_from

    def known_prefix(self, keys: bytes) -> int:
        """Bytes of `keys` that the last, full file holds already.

        The keys of one record may lie in two files; a rebuild that starts with this record must
        not put the first ones again. Raises `IndexDamaged` when that file is damaged.
        """
        if not self._files:
            return 0
        last = self._files[-1]
        self._verify(last)
        number = last.header.next_entry - 1
        known = 0
        while number - known > 0:
            entry_at = self._entries_at + (number - known) * ENTRY_SIZE
            position = ENTRY.unpack_from(last.view, entry_at)[1]
            start = known * KEY_ENTRY_SIZE
            position_at = start + KEY_ENTRY_POSITION_AT
            if start >= len(keys) or position != I64.unpack_from(keys, position_at)[0]:
                break
            known += 1
        return known * KEY_ENTRY_SIZE

    def drop_from(self, position: int) -> None:
        """Remove files that start at or after `position`, to rebuild them."""
        dropped = []
        while self._files and self._files[-1].first_position >= position:
            dropped.append(self._files.pop())
        self.unlink(dropped)

    def drop_before(self, position: int) -> list[IndexFile]:
        """Forget files whose newest record is below `position`, never the last."""
        dropped = []
        # By the start of the next file, as in the checkpoint: headers may be damaged, and a file
        # that is needed must not be removed.
        while len(self._files) > 1 and self._files[1].first_position < position:
            dropped.append(self._files.pop(0))
        return dropped

    def unlink(self, files: list[IndexFile]) -> None:
        """Remove files that `drop_before` returned."""
        for file in files:
            self._remove(file)
        if files:
            self._file_system.sync_dir(INDEX_DIR)

    def close(self) -> None:
        """Close every file."""
        for file in self._files:
            file.close()
        self._files = []

    def _is_full(self, file: IndexFile) -> bool:
        return file.header.next_entry >= self._entries_max

    def _add_file(self, position: int, wall_ms: int) -> None:
        if self._file_system.make_dir(INDEX_DIR):
            self._file_system.sync_dir("")
        name = self._free_name(wall_ms)
        path = f"{INDEX_DIR}/{name}"
        file = self._file_system.create(path)
        try:
            file.resize(self._file_size)
            file.allocate(0, self._entries_at)
            added = IndexFile(name, file, position, None)
        except OSError:
            # The next attempt uses another name: failed attempts must not fill the disk.
            file.close()
            self._file_system.unlink(path)
            raise
        previous = self._files[-1].header if self._files else None
        added.allocated = self._entries_at
        if previous is not None:
            header = IndexHeader(
                begin_timestamp=previous.end_timestamp,
                end_timestamp=previous.end_timestamp,
                begin_position=previous.end_position,
                end_position=previous.end_position,
                slots_used=0,
                next_entry=1,
            )
            added.view[:HEADER_SIZE] = encode_index_header(header)
            file.wrote(0, HEADER_SIZE)
        self._files.append(added)
        self._unsynced_names = True

    def _free_name(self, wall_ms: int) -> str:
        local = time.strftime("%Y%m%d%H%M%S", time.localtime(wall_ms // 1000))
        number = int(f"{local}{wall_ms % 1000:03d}")
        if self._files:
            # A clock that stands still or is set back must not reuse a name or break the order.
            number = max(number, int(self._files[-1].name) + 1)
        while self._file_system.exists(f"{INDEX_DIR}/{number:0{NAME_DIGITS}d}"):
            number += 1
        return f"{number:0{NAME_DIGITS}d}"

    def _allocate(self, file: IndexFile, entries: int) -> None:
        count = file.header.next_entry
        needed = self._entries_at + (count + entries + 1) * ENTRY_SIZE
        needed = min(needed, self._file_size)
        if needed > file.allocated:
            until = min(needed + ALLOCATION_STEP, self._file_size)
            file.file.allocate(file.allocated, until - file.allocated)
            file.allocated = until

    def _open(self, entry: IndexEntry) -> bool:
        path = f"{INDEX_DIR}/{entry.name}"
        if not self._file_system.exists(path):
            return False
        file = self._file_system.open(path)
        if file.size != self._file_size or entry.used > self._file_size:
            file.close()
            return False
        opened = IndexFile(entry.name, file, entry.first_position, entry.crc)
        opened.allocated = entry.used
        self._files.append(opened)
        return True

    def _verify(self, file: IndexFile) -> None:
        if file.verified or file.crc is None:
            return
        used = min(self.used_size(file), self._file_size)
        if zlib.crc32(file.view[:used]) != file.crc:
            raise IndexDamaged(
                f"{INDEX_DIR}/{file.name}", file.first_position, "the checksum does not match"
            )
        file.verified = True

    def _drop_unknown(self) -> None:
        known = {file.name for file in self._files}
        unknown = [name for name in self._file_system.list(INDEX_DIR) if name not in known]
        for name in unknown:
            self._file_system.unlink(f"{INDEX_DIR}/{name}")
        if unknown:
            self._file_system.sync_dir(INDEX_DIR)

    def _remove(self, file: IndexFile) -> None:
        file.close()
        self._file_system.unlink(f"{INDEX_DIR}/{file.name}")

    def _follow(
        self,
        file: IndexFile,
        header: IndexHeader,
        wanted: int,
        count: int,
        times: tuple[int, int],
        found: dict[int, None],
        steps: int,
    ) -> int:
        """Walk one slot's chain, newest entry first; returns how many steps are left."""
        number = SLOT.unpack_from(file.view, slot_start(wanted % self._slots))[0]
        while 0 < number < header.next_entry and len(found) < count and steps > 0:
            steps -= 1
            entry_at = self._entries_at + number * ENTRY_SIZE
            entry_hash, position, seconds, previous = ENTRY.unpack_from(file.view, entry_at)
            stored_ms = header.begin_timestamp + seconds * 1000
            if stored_ms + 1000 < times[0]:
                break
            if entry_hash == wanted and times[0] - 1000 < stored_ms <= times[1]:
                found[position] = None
            if previous >= number:
                break
            number = previous
        return steps
