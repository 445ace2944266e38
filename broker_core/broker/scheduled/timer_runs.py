"""The waiting timer messages, sorted by time: a few in memory, the others in files.

An entry is one number of 16 bytes, big endian, so that entries sort like the bytes of a file:

    wake time   8   when to handle it, epoch milliseconds
    kind        1 bit: 0 recalls the record at the position, 1 wakes it; a recall sorts first
    position    63 bits: where the record starts in the log

New entries collect in memory. A spill sorts them into a run, an immutable file; a run is read from
its start, with a cursor. Several small runs are merged. Memory holds at most the new entries and
one buffer per run.

Runs are useful only with `timerProgress.json`, which names them and their cursors. All of it can be
rebuilt from the log.
"""

from __future__ import annotations

import heapq
import re
import zlib
from typing import Final, NamedTuple

from broker_core.errors import CorruptStore
from broker_core.storage.files.file_system import FileSystem, StoreFile

RUNS_DIR: Final = "timerruns"
ENTRY_SIZE: Final = 16
# New entries before a spill; 50 bytes each in memory.
FRESH_MAX: Final = 32_768
# Runs with fewer entries left than this are merged, that many at a time.
MERGED_BELOW: Final = 65_536
MERGED_COUNT: Final = 8

_WAKES: Final = 1 << 63
_POSITION: Final = _WAKES - 1
_BUFFER_COUNT: Final = 1_024
_WRITE_SIZE: Final = 1 << 20
_NAME: Final = re.compile(r"[0-9]{20}")


def wake_entry(wake_ms: int, position: int) -> int:
    """Entry that wakes the record at `position`."""
    return wake_ms << 64 | _WAKES | position


def recall_entry(wake_ms: int, position: int) -> int:
    """Entry that cancels the record at `position`, which wakes then."""
    return wake_ms << 64 | position


def entry_wake_ms(entry: int) -> int:
    return entry >> 64


def entry_position(entry: int) -> int:
    return entry & _POSITION


def is_recall_entry(entry: int) -> bool:
    """Whether this entry cancels a record instead of waking it."""
    return not entry & _WAKES


class RunState(NamedTuple):
    """A run as `timerProgress.json` knows it."""

    number: int
    entry_count: int
    cursor: int
    checksum: int


class TimerRun:
    """Sorted entries. In memory until `write` has put them into their file."""

    def __init__(self, file_system: FileSystem, state: RunState, data: bytes | None = None) -> None:
        self._file_system = file_system
        self.number = state.number
        self.count = state.entry_count
        self.checksum = state.checksum
        self.cursor = state.cursor
        self._data = data
        self._file: StoreFile | None = None
        self._buffer = b""
        self._buffer_from = 0

    @property
    def path(self) -> str:
        return f"{RUNS_DIR}/{self.number:020d}"

    @property
    def left(self) -> int:
        """Number of entries left."""
        return self.count - self.cursor

    @property
    def is_written(self) -> bool:
        return self._data is None

    @property
    def state(self) -> RunState:
        return RunState(self.number, self.count, self.cursor, self.checksum)

    def entry(self, index: int) -> int | None:
        """One entry; None after the last. Raises `OSError`, or `CorruptStore` for a short file."""
        if index >= self.count:
            return None
        at = index - self._buffer_from
        if not 0 <= at < len(self._buffer) // ENTRY_SIZE:
            self._buffer = self.read(index, min(_BUFFER_COUNT, self.count - index))
            self._buffer_from, at = index, 0
        return int.from_bytes(self._buffer[at * ENTRY_SIZE : (at + 1) * ENTRY_SIZE], "big")

    def read(self, index: int, count: int) -> bytes:
        """Entries as they are stored."""
        start, size = index * ENTRY_SIZE, count * ENTRY_SIZE
        if self._data is not None:
            return self._data[start : start + size]
        if self._file is None:
            self._file = self._file_system.open(self.path, writable=False)
        found = self._file.read(start, size)
        if len(found) != size:
            raise CorruptStore(self.path, start, "the file is too short", "Remove it and restart")
        return found

    def write(self) -> None:
        """Make the file durable; on any thread, as the entries never change."""
        data = self._data
        if data is None:
            return
        if self._file_system.make_dir(RUNS_DIR):
            self._file_system.sync_dir("")
        if self._file_system.exists(self.path):
            # Left by a failed attempt.
            self._file_system.unlink(self.path)
        file = self._file_system.create(self.path)
        try:
            for start in range(0, len(data), _WRITE_SIZE):
                file.write(start, data[start : start + _WRITE_SIZE])
            file.sync()
        finally:
            file.close()
        self._file_system.sync_dir(RUNS_DIR)

    def written(self) -> None:
        """`write` has succeeded: read from the file from now on."""
        self._data = None

    def is_intact(self) -> bool:
        """Whether the file is the one that was written. Raises `OSError`."""
        if not self._file_system.exists(self.path):
            return False
        checksum = 0
        for index in range(0, self.count, _WRITE_SIZE // ENTRY_SIZE):
            try:
                data = self.read(index, min(_WRITE_SIZE // ENTRY_SIZE, self.count - index))
            except CorruptStore:
                return False
            checksum = zlib.crc32(data, checksum)
        return checksum == self.checksum

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class PendingTimers:
    """All waiting entries, smallest first. Owner thread only, except `TimerRun.write`."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._fresh: list[int] = []
        self._runs: dict[int, TimerRun] = {}
        self._heads: list[tuple[int, int]] = []
        self._next_number = 1

    def __len__(self) -> int:
        return len(self._fresh) + sum(run.left for run in self._runs.values())

    @property
    def fresh_count(self) -> int:
        """Number of entries that are in memory only."""
        return len(self._fresh)

    @property
    def runs(self) -> list[TimerRun]:
        """Runs with entries left."""
        return list(self._runs.values())

    def add(self, entry: int) -> None:
        heapq.heappush(self._fresh, entry)

    def head(self) -> int | None:
        """The smallest entry."""
        fresh, heads = self._fresh, self._heads
        if not heads:
            return fresh[0] if fresh else None
        return fresh[0] if fresh and fresh[0] < heads[0][0] else heads[0][0]

    def take(self) -> int:
        """Remove the smallest entry; `add` it again if it could not be handled.

        Raises `OSError` or `CorruptStore`; nothing is removed then.
        """
        fresh, heads = self._fresh, self._heads
        if not heads or (fresh and fresh[0] < heads[0][0]):
            return heapq.heappop(fresh)
        entry, number = heads[0]
        run = self._runs[number]
        following = run.entry(run.cursor + 1)
        run.cursor += 1
        if following is None:
            heapq.heappop(heads)
            self._drop(run)
        else:
            heapq.heapreplace(heads, (following, number))
        return entry

    # Runs

    def take_over(self, states: list[RunState]) -> bool:
        """Continue with these runs; False, with none of them, if one is damaged."""
        runs = [TimerRun(self._file_system, state) for state in states]
        is_intact = all(run.is_intact() for run in runs)
        for run in runs:
            if is_intact and run.left:
                self._enter(run)
            else:
                run.close()
        return is_intact

    def spill(self) -> None:
        """Turn the entries in memory into a run, which is not written yet."""
        if not self._fresh:
            return
        self._fresh.sort()
        data = b"".join([entry.to_bytes(ENTRY_SIZE, "big") for entry in self._fresh])
        self._fresh = []
        self._enter(_new_run(self._file_system, self.new_number(), data))

    def new_number(self) -> int:
        """The number of a new run."""
        self._next_number += 1
        return self._next_number - 1

    def small_runs(self) -> list[TimerRun]:
        """Written runs to merge; empty while there are few."""
        found = [run for run in self.runs if run.is_written and run.left < MERGED_BELOW]
        found.sort(key=lambda run: run.left)
        return found[:MERGED_COUNT] if len(found) >= MERGED_COUNT else []

    def replace(self, states: list[RunState], merged: TimerRun) -> None:
        """Replace the runs that were merged, as of `states`, by `merged`.

        Entries are taken in order, so those taken meanwhile are the first of the merged ones.
        """
        for before in states:
            run = self._runs.get(before.number)
            cursor = before.entry_count if run is None else run.cursor
            merged.cursor += cursor - before.cursor
            if run is not None:
                self._drop(run)
        kept = [(entry, number) for entry, number in self._heads if number in self._runs]
        heapq.heapify(kept)
        self._heads = kept
        if merged.left:
            self._enter(merged)
        else:
            merged.close()

    def close(self) -> None:
        for run in self._runs.values():
            run.close()

    def _enter(self, run: TimerRun) -> None:
        head = run.entry(run.cursor)
        assert head is not None, "an empty run is never entered"
        self._runs[run.number] = run
        self._next_number = max(self._next_number, run.number + 1)
        heapq.heappush(self._heads, (head, run.number))

    def _drop(self, run: TimerRun) -> None:
        run.close()
        del self._runs[run.number]


def merged_run(file_system: FileSystem, number: int, states: list[RunState]) -> TimerRun:
    """Merge the rest of several runs into a written run. On any thread: opens its own files."""
    parts = []
    for state in states:
        run = TimerRun(file_system, state)
        try:
            parts.append(run.read(state.cursor, state.entry_count - state.cursor))
        finally:
            run.close()
    # Imported here: a broker with few timers does not need it, and it takes 15 MB.
    import numpy as np

    words = np.frombuffer(b"".join(parts), dtype=">u8").reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))
    merged = _new_run(file_system, number, words[order].tobytes())
    merged.write()
    merged.written()
    return merged


def remove_run_files(file_system: FileSystem, keep: frozenset[int]) -> None:
    """Unlink the files of all other runs. On any thread."""
    for name in file_system.list(RUNS_DIR):
        if _NAME.fullmatch(name) is None or int(name) not in keep:
            file_system.unlink(f"{RUNS_DIR}/{name}")


def _new_run(file_system: FileSystem, number: int, data: bytes) -> TimerRun:
    state = RunState(number, len(data) // ENTRY_SIZE, 0, zlib.crc32(data))
    return TimerRun(file_system, state, data)
