"""The 20-byte units of one queue: offset → position, size and tag hash of a record.

A pure function of the log. New units wait in memory (`_tail`) until `write_out` stores them with
plain writes, never through a map: sparse files are harmless then, and thousands of queues need no
maps. Every file carries a checksum of its used part in the dispatch checkpoint; it is
checked when the file is first read, and a queue that fails is rebuilt from the log.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from broker_core.codec.records.record_layout import PRE_BLANK_UNIT, UNIT, UNIT_SIZE
from broker_core.errors import CorruptStore
from broker_core.storage.derived.queue_files import QueueFiles
from broker_core.storage.log.segment_file import segment_name

QUEUE_DIR = "consumequeue"
# Blocks are allocated this far ahead, so that a full disk is found before a unit is half written.
ALLOCATION_STEP = 64 << 10


def queue_directory(topic: bytes, queue_id: int) -> str:
    """Directory with the files of one queue."""
    return f"{QUEUE_DIR}/{topic.decode('ascii')}/{queue_id}"


class QueueDamaged(CorruptStore):
    """The files of a queue disagree with their checksums or with the log; rebuild it."""


class QueueFileEntry(NamedTuple):
    """One file in the dispatch checkpoint; `crc` covers the first `used` bytes."""

    base: int
    used: int
    crc: int


class QueueEntry(NamedTuple):
    """One queue in the dispatch checkpoint."""

    topic: bytes
    queue_id: int
    min_offset: int
    max_offset: int
    files: tuple[QueueFileEntry, ...]


class ConsumeQueue:
    """Offsets `[min_offset, max_offset)` are readable. Owner thread only."""

    def __init__(self, files: QueueFiles, file_size: int, topic: bytes, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.max_offset = 0
        self._opener = files
        self._file_size = file_size
        self._directory = queue_directory(topic, queue_id)
        self._files: list[QueueFileEntry] = []
        self._verified: set[int] = set()
        self._tail = bytearray()
        self._allocated = 0
        self._unsynced: set[str] = set()
        self._new_names = False
        self._last_position = -1

    @property
    def key(self) -> tuple[bytes, int]:
        """(topic, queue id)."""
        return self.topic, self.queue_id

    @property
    def directory(self) -> str:
        """Directory with the files."""
        return self._directory

    @property
    def tail_size(self) -> int:
        """Bytes that wait for `write_out`."""
        return len(self._tail)

    @property
    def files(self) -> tuple[QueueFileEntry, ...]:
        """The written files, oldest first."""
        return tuple(self._files)

    def entry(self) -> QueueEntry:
        """Entry of the dispatch checkpoint. Everything must have been written out."""
        return QueueEntry(
            self.topic, self.queue_id, self.min_offset, self.max_offset, tuple(self._files)
        )

    def restore(self, entry: QueueEntry) -> None:
        """Set the state to that of an entry of the dispatch checkpoint."""
        self.min_offset = entry.min_offset
        self.max_offset = entry.max_offset
        self._files = list(entry.files)
        self._last_position = -1
        self._tail.clear()
        self._allocated = 0
        self._verified.clear()

    def append(self, first_offset: int, units: bytes) -> None:
        """Add the units of the next records; known ones are skipped, a gap is an error.

        A later record with an earlier offset means that another broker deleted the topic and then
        counted from the start again; the earlier entries are dropped here too.
        """
        if units and first_offset < self.max_offset and self._is_later(units):
            self.clear()
        if units:
            last = UNIT.unpack_from(units, len(units) - UNIT_SIZE)[0]
            self._last_position = max(self._last_position, last)
        known = self.max_offset - first_offset
        if known < 0:
            if self.max_offset or self._files:
                raise QueueDamaged(
                    self._directory,
                    self.max_offset,
                    f"the log continues at queue offset {first_offset}",
                )
            self.min_offset = self.max_offset = first_offset
        elif known:
            units = units[known * UNIT_SIZE :]
        if units and not self._files and not self._tail:
            self._fill_front()
        self._tail += units
        self.max_offset += len(units) // UNIT_SIZE

    def continue_at(self, offset: int, log_start: int) -> None:
        """Start an empty queue at `offset`: its earlier records are removed, numbering continues.

        Apache takes the end of the last unit as its dispatch position. So the filler units point to
        a removed byte: the end of the usual filler is far above the log and would stop Apache's
        dispatch.
        """
        self.min_offset = self.max_offset = offset
        removed = UNIT.pack(max(log_start - 1, 0), 1, 0)
        self._tail += removed * (offset * UNIT_SIZE % self._file_size // UNIT_SIZE)

    def read(self, offset: int, count: int) -> bytes:
        """Units of `[offset, offset + count)`, cut to what is readable."""
        offset = max(offset, self.min_offset)
        start = offset * UNIT_SIZE
        end = min(offset + count, self.max_offset) * UNIT_SIZE
        written = self.max_offset * UNIT_SIZE - len(self._tail)
        parts = []
        while start < min(end, written):
            base = start - start % self._file_size
            until = min(end, written, base + self._file_size)
            parts.append(self._read_file(base, start - base, until - start))
            start = until
        if end > start:
            parts.append(bytes(self._tail[start - written : end - written]))
        return b"".join(parts)

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Position, size and tag code of one entry."""
        data = self.read(offset, 1) if self.min_offset <= offset < self.max_offset else b""
        return UNIT.unpack(data) if data else None

    def write_out(self) -> None:
        """Store the waiting units into their files (not synced)."""
        while self._tail:
            start = self.max_offset * UNIT_SIZE - len(self._tail)
            base = start - start % self._file_size
            if not self._files or self._files[-1].base != base:
                self._add_file(base)
            last = self._files[-1]
            data = bytes(self._tail[: base + self._file_size - start])
            self._store(last, start - base, data)
            used = start - base + len(data)
            self._files[-1] = QueueFileEntry(base, used, zlib.crc32(data, last.crc))
            del self._tail[: len(data)]

    def take_unsynced(self) -> tuple[list[str], bool]:
        """Paths written since the last call, and whether names were added."""
        paths, names = sorted(self._unsynced), self._new_names
        self._unsynced = set()
        self._new_names = False
        return paths, names

    def raise_min(self, log_start: int) -> None:
        """Hide entries whose records are removed."""
        self.min_offset = self.first_kept(log_start)

    def first_kept(self, log_start: int) -> int:
        """Offset of the first entry at or after a log position (binary search)."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and unit[0] < log_start:
                low = middle + 1
            else:
                high = middle
        return low

    def drop_old_files(self) -> list[str]:
        """Drop files entirely below `min_offset`, never the last; the caller unlinks them."""
        dropped = []
        floor = self.min_offset * UNIT_SIZE
        while len(self._files) > 1 and self._files[0].base + self._file_size <= floor:
            path = self._path(self._files.pop(0).base)
            self._opener.forget(path)
            self._unsynced.discard(path)
            dropped.append(path)
        return dropped

    def forget_entries(self) -> None:
        """Remove every entry and file, keep the numbering: no offset is used for two messages."""
        end = self.max_offset
        self.clear()
        self.min_offset = self.max_offset = end

    def clear(self) -> None:
        """Remove every file, for a rebuild."""
        file_system = self._opener.file_system
        for name in file_system.list(self._directory):
            path = f"{self._directory}/{name}"
            self._opener.forget(path)
            file_system.unlink(path)
        if file_system.exists(self._directory):
            file_system.sync_dir(self._directory)
        self._files = []
        self._tail.clear()
        self._unsynced.clear()
        self._verified.clear()
        self._allocated = 0
        self._last_position = -1
        self.min_offset = self.max_offset = 0

    def _is_later(self, units: bytes) -> bool:
        """Whether the record of the first unit is after all records of the queue.

        Entries of a checkpoint always precede what is dispatched after it.
        """
        return self._last_position < int(UNIT.unpack_from(units)[0])

    def _fill_front(self) -> None:
        """Fill the file before its first entry, as RocketMQ does."""
        self._tail += PRE_BLANK_UNIT * (self.max_offset * UNIT_SIZE % self._file_size // UNIT_SIZE)

    def _read_file(self, base: int, start: int, size: int) -> bytes:
        if base not in self._verified:
            self._verify(base)
        data = self._opener.get(self._path(base)).read(start, size)
        if len(data) != size:
            raise QueueDamaged(self._path(base), start, "the file is too short")
        return data

    def _verify(self, base: int) -> None:
        path = self._path(base)
        entry = next((file for file in self._files if file.base == base), None)
        if entry is None:
            raise QueueDamaged(path, 0, "the file is missing")
        try:
            data = self._opener.get(path).read(0, entry.used)
        except FileNotFoundError:
            raise QueueDamaged(path, 0, "the file is missing") from None
        if len(data) != entry.used or zlib.crc32(data) != entry.crc:
            raise QueueDamaged(path, 0, "the checksum does not match")
        self._verified.add(base)

    def _add_file(self, base: int) -> None:
        file_system = self._opener.file_system
        topic_directory = self._directory.rpartition("/")[0]
        for directory in (QUEUE_DIR, topic_directory, self._directory):
            file_system.make_dir(directory)
        self._opener.create(self._path(base), self._file_size)
        self._files.append(QueueFileEntry(base, 0, 0))
        self._verified.add(base)
        self._allocated = 0
        self._new_names = True

    def _store(self, entry: QueueFileEntry, start: int, data: bytes) -> None:
        path = self._path(entry.base)
        file = self._opener.get(path)
        end = start + len(data)
        if end > self._allocated:
            until = min(end + ALLOCATION_STEP, self._file_size)
            file.allocate(start, until - start)
            self._allocated = until
        file.write(start, data)
        self._unsynced.add(path)

    def _path(self, base: int) -> str:
        return f"{self._directory}/{segment_name(base)}"
