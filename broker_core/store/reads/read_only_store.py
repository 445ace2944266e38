"""Reads the files of a store that another process on this host owns.

Takes no lock, writes nothing and follows no link. The identity in the state file must be the one
that the owner sent, and every record is verified against its place in the log, its queue entry and
its checksums, as the owner does. A mismatch is a `StoreUnusable`; the caller then falls back to the
network. `CorruptRecord` is proven damage: a record that fails its checks a second time, after its
files were opened and its queue entries read again, in a store whose identity is still correct.

Log files are mapped, up to `SEGMENTS_MAX` of them, and stay mapped until `forget_below` or `close`:
bytes below the owner's bound do not change during an epoch, even after the owner has removed the
file. A call never evicts a file that it uses, and runs are cut so that one call does not need more
files than that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from broker_core.codec.native import decode_columns
from broker_core.codec.records.record_layout import DAMAGE_ONLY, UNIT_SIZE
from broker_core.codec.wire.bodies.local_range import LocalRange, StoreLayout
from broker_core.errors import CorruptRecord, StoreUnusable
from broker_core.storage.derived.consume_queue import QUEUE_DIR
from broker_core.storage.files.file_system import StoreFile
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.storage.log.segment_file import segment_name
from broker_core.storage.log.segment_sequence import log_file_path
from broker_core.storage.state.store_state import STATE_FILE, STATE_SIZE, newest_slot
from broker_core.store.reads.log_spans import unit_bounds

SEGMENTS_MAX: Final = 64
# Queue entries that are read at once, as a multiple of the largest batch.
_BATCHES_AT_ONCE: Final = 2
# A queue entry with a larger record size is invalid.
_RECORD_SIZE_MAX: Final = 1 << 30
# Approximate overhead of a record beside its body, to turn a limit on bodies into one on records.
_RECORD_OVERHEAD: Final = 100


class UnitRun(NamedTuple):
    """Consecutive entries of a queue that make one batch."""

    first_offset: int
    units: memoryview
    low: int
    """Where the first of their records in the log begins."""
    high: int
    """Where the last one ends."""

    @property
    def count(self) -> int:  # type: ignore[override]  # hides tuple.count, which is not used
        """Number of entries."""
        return len(self.units) // UNIT_SIZE


class ReadOnlyStore:
    """One thread at a time. Raises `StoreUnusable` for a directory that is not that store."""

    def __init__(self, layout: StoreLayout) -> None:
        self.directory = layout.directory
        self.layout = layout
        self._segments: OrderedDict[int, StoreFile] = OrderedDict()
        self._files = PosixFileSystem(layout.directory, create=False)
        try:
            self.check_identity()
        except BaseException:
            self.close()
            raise

    def check_identity(self) -> None:
        """Raise `StoreUnusable` unless store id and epoch are those that the owner sent."""
        if self._files.boot_id() != self.layout.boot_id:
            raise StoreUnusable(f"{self.directory}: its broker runs on another machine")
        # Opened every time: a recreated store has a new file under the old name.
        file = self._open(STATE_FILE)
        try:
            newest = newest_slot(_read(file, 0, STATE_SIZE))
        finally:
            file.close()
        if newest is None:
            raise StoreUnusable(f"{self.directory}: {STATE_FILE} cannot be read")
        _, state = newest
        if (state.store_id, state.epoch) != (self.layout.store_id, self.layout.epoch):
            raise StoreUnusable(
                f"{self.directory}: store {state.store_id} of epoch {state.epoch}, not"
                f" {self.layout.store_id} of epoch {self.layout.epoch}"
            )

    def runs(
        self,
        place: LocalRange,
        topic: str,
        queue_id: int,
        start: int,
        until: int,
        *,
        size_max: int,
        count_max: int,
    ) -> Iterator[UnitRun]:
        """The entries `[start, until)`, cut by rows and by about the bytes of their bodies."""
        if not place.min_offset <= start <= until <= place.max_offset:
            raise StoreUnusable(
                f"offsets {start} to {until} of queue {queue_id} of {topic} are not all readable:"
                f" it has {place.min_offset} to {place.max_offset}"
            )
        while start < until:
            count = min(until - start, _BATCHES_AT_ONCE * count_max)
            units = self._units(topic, queue_id, start, count)
            for run in _cut(start, units, size_max, count_max, self.layout.segment_size):
                if run is None:
                    raise StoreUnusable(f"queue {queue_id} of {topic} has invalid entries")
                yield run
            start += len(units) // UNIT_SIZE

    def columns(self, topic: str, queue_id: int, run: UnitRun, wanted: int) -> dict[str, Any]:
        """The records of a run as columns, see `column_names`; bodies stay compressed."""
        try:
            return self._decoded(topic, queue_id, run, wanted)
        except CorruptRecord:
            return self._decoded_anew(topic, queue_id, run, wanted)

    def _decoded(self, topic: str, queue_id: int, run: UnitRun, wanted: int) -> dict[str, Any]:
        bases = self._bases(run)
        self._make_room(bases)
        spans = [(base, self._segment(base)) for base in bases]
        return decode_columns(
            spans,
            run.units,
            run.first_offset,
            queue_id,
            topic.encode(),
            wanted,
            self.layout.check_level | DAMAGE_ONLY,
        )

    def _decoded_anew(self, topic: str, queue_id: int, run: UnitRun, wanted: int) -> dict[str, Any]:
        """Open and read again, to tell damage from files or entries that were replaced."""
        for base in self._bases(run):
            if base in self._segments:
                self._segments.pop(base).close()
        if self._units(topic, queue_id, run.first_offset, run.count) != run.units:
            raise StoreUnusable(f"the entries of queue {queue_id} of {topic} have changed")
        try:
            return self._decoded(topic, queue_id, run, wanted)
        except CorruptRecord as error:
            self.check_identity()
            base = error.position - error.position % self.layout.segment_size
            path = f"{self.directory}/{log_file_path(base)}"
            raise CorruptRecord(path, error.position, error.reason) from None

    def _bases(self, run: UnitRun) -> list[int]:
        """Start positions of the log files that have records of the run."""
        size = self.layout.segment_size
        first, last = run.low // size, (run.high - 1) // size
        touched = [first, last]
        if last - first > 1:
            touched = np.unique(unit_bounds(run.units)[0] // size).tolist()
        return [number * size for number in sorted({*touched})]

    def forget_below(self, log_start: int) -> None:
        """Release files that the owner has removed, so that their space becomes free."""
        for base in [b for b in self._segments if b + self.layout.segment_size <= log_start]:
            self._segments.pop(base).close()

    def close(self) -> None:
        """Unmap and close everything. Safe to call twice."""
        while self._segments:
            self._segments.popitem()[1].close()
        self._files.close()

    def _units(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        parts = []
        start, end = offset * UNIT_SIZE, (offset + count) * UNIT_SIZE
        while start < end:
            base = start - start % self.layout.queue_file_size
            until = min(end, base + self.layout.queue_file_size)
            # Not kept open: an entry is read once, and a queue may be rebuilt under its name.
            file = self._open(f"{QUEUE_DIR}/{topic}/{queue_id}/{segment_name(base)}")
            try:
                parts.append(_read(file, start - base, until - start))
            finally:
                file.close()
            start = until
        return b"".join(parts)

    def _make_room(self, bases: list[int]) -> None:
        """Evict the least recently used files, except those that this call needs."""
        kept = {*bases}
        spare = [base for base in self._segments if base not in kept]
        for base in spare[: max(0, len(spare) + len(kept) - SEGMENTS_MAX)]:
            self._segments.pop(base).close()

    def _segment(self, base: int) -> memoryview:
        file = self._segments.get(base)
        if file is None:
            file = self._segments[base] = self._open(log_file_path(base))
        # Each time: reading a mapped page past the end of its file would kill the process.
        if file.size != self.layout.segment_size:
            self._segments.pop(base).close()
            raise StoreUnusable(f"{file.path} has another size than the files of its store")
        self._segments.move_to_end(base)
        return file.buffer()

    def _open(self, path: str) -> StoreFile:
        try:
            return self._files.open(path, writable=False)
        except OSError as error:
            raise StoreUnusable(f"{self.directory}: {error}") from error


def _cut(
    first_offset: int, units: bytes, size_max: int, count_max: int, segment_size: int
) -> Iterator[UnitRun | None]:
    """Runs of neighbouring units; a single None if the units are invalid.

    A run has records of at most `SEGMENTS_MAX` log files.
    """
    starts, ends = unit_bounds(units)
    sizes = ends - starts
    if starts.min() < 0 or sizes.min() <= 0 or sizes.max() > _RECORD_SIZE_MAX:
        yield None
        return
    bodies = np.maximum(sizes - _RECORD_OVERHEAD, 1).cumsum()
    # Number of file changes up to each record.
    changes = (np.diff(starts // segment_size, prepend=starts[0] // segment_size) != 0).cumsum()
    view = memoryview(units)
    at, before, end = 0, 0, len(sizes)
    while at < end:
        until = int(np.searchsorted(bodies, before + size_max, side="right"))
        files = int(np.searchsorted(changes, changes[at] + SEGMENTS_MAX, side="left"))
        until = min(max(at + 1, until), at + count_max, files, end)
        low, high = int(starts[at:until].min()), int(ends[at:until].max())
        yield UnitRun(first_offset + at, view[at * UNIT_SIZE : until * UNIT_SIZE], low, high)
        at, before = until, int(bodies[until - 1])


def _read(file: StoreFile, start: int, size: int) -> bytes:
    try:
        data = file.read(start, size)
    except OSError as error:
        raise StoreUnusable(f"{file.path}: {error}") from error
    if len(data) != size:
        raise StoreUnusable(f"{file.path} is too short")
    return data
