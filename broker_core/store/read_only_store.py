"""The files of a store that another process of this host owns, read without asking it for bytes.

Takes no lock, writes nothing, follows no link, and trusts nothing: the identity in the state file
must be the one that the owner named, and every record is verified against its place in the log, its
queue entry and its checksums, as the owner would do. Whatever is odd is a `StoreUnusable` or a
`CorruptRecord`; the caller then asks the owner over the network.

Log files are mapped and stay mapped until `forget_below` or `close`: bytes below the bound that the
owner gave do not change for as long as its epoch lasts, also when it has removed the file's name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from broker_core.codec.local_range import LocalRange, StoreLayout
from broker_core.codec.record_columns import decode_columns
from broker_core.codec.record_layout import DAMAGE_ONLY
from broker_core.errors import StoreUnusable
from broker_core.storage.consume_queue import QUEUE_DIR, UNIT_SIZE
from broker_core.storage.file_system import StoreFile
from broker_core.storage.posix_file_system import PosixFileSystem
from broker_core.storage.segment_file import segment_name
from broker_core.storage.segment_sequence import COMMIT_LOG_DIR
from broker_core.storage.store_state import SLOT_SIZE, STATE_FILE, decode_slot
from broker_core.store.log_spans import unit_bounds

SEGMENTS_MAX: Final = 64
# Queue entries that are looked at in one piece, in batches of the most rows: mostly they make more.
_BATCHES_AT_ONCE: Final = 2
# Records of a megabyte are read in one piece; what queue entries say is not believed beyond this.
_RECORD_SIZE_MAX: Final = 1 << 30
# About what a record has beside its body: a limit on bodies is a larger one on records.
_RECORD_OVERHEAD: Final = 100


class UnitRun(NamedTuple):
    """Consecutive entries of a queue, as many as make one batch."""

    first_offset: int
    units: memoryview
    low: int
    """Where the first of their records in the log begins."""
    high: int
    """Where the last one ends."""

    @property
    def count(self) -> int:  # type: ignore[override]  # hides tuple.count, which nobody needs here
        """How many."""
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
        """The store must still be the one, in the epoch, that the owner named."""
        if self._files.boot_id() != self.layout.boot_id:
            raise StoreUnusable(f"{self.directory}: its broker runs on another machine")
        # Opened every time: a store that was made anew has a new file under the old name.
        file = self._open(STATE_FILE)
        try:
            data = _read(file, 0, 2 * SLOT_SIZE)
        finally:
            file.close()
        slots = [decode_slot(data[:SLOT_SIZE]), decode_slot(data[SLOT_SIZE:])]
        found = [slot for slot in slots if slot is not None]
        if not found:
            raise StoreUnusable(f"{self.directory}: {STATE_FILE} cannot be read")
        _, state = max(found, key=lambda slot: slot[0])
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
                f"offsets {start} to {until} of queue {queue_id} of {topic} are not all there:"
                f" it has {place.min_offset} to {place.max_offset}"
            )
        while start < until:
            count = min(until - start, _BATCHES_AT_ONCE * count_max)
            units = self._units(topic, queue_id, start, count)
            for run in _cut(start, units, size_max, count_max):
                if run is None:
                    raise StoreUnusable(f"queue {queue_id} of {topic} has entries that are none")
                yield run
            start += len(units) // UNIT_SIZE

    def columns(self, topic: str, queue_id: int, run: UnitRun, wanted: int) -> dict[str, Any]:
        """The records of a run as columns, see `codec.column_names`; bodies stay compressed."""
        size = self.layout.segment_size
        first, last = run.low // size, (run.high - 1) // size
        touched = [first, last]
        if last - first > 1:
            touched = np.unique(unit_bounds(run.units)[0] // size).tolist()
        spans = [(base, self._segment(base)) for base in (n * size for n in sorted({*touched}))]
        return decode_columns(
            spans, run.units, run.first_offset, queue_id, topic.encode(), wanted,
            self.layout.check_level | DAMAGE_ONLY,
        )  # fmt: skip

    def forget_below(self, log_start: int) -> None:
        """Let go of files that the owner has removed, so that their space becomes free."""
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

    def _segment(self, base: int) -> memoryview:
        file = self._segments.get(base)
        if file is None:
            file = self._open(f"{COMMIT_LOG_DIR}/{segment_name(base)}")
            if file.size != self.layout.segment_size:
                file.close()
                raise StoreUnusable(f"{file.path} has another size than the files of its store")
            self._segments[base] = file
            if len(self._segments) > SEGMENTS_MAX:
                self._segments.popitem(last=False)[1].close()
        self._segments.move_to_end(base)
        return file.buffer()

    def _open(self, path: str) -> StoreFile:
        try:
            return self._files.open(path, writable=False)
        except OSError as error:
            raise StoreUnusable(f"{self.directory}: {error}") from error


def _cut(
    first_offset: int, units: bytes, size_max: int, count_max: int
) -> Iterator[UnitRun | None]:
    """Runs of neighbouring units; None instead when they cannot be units."""
    starts, ends = unit_bounds(units)
    sizes = ends - starts
    if starts.min() < 0 or sizes.min() <= 0 or sizes.max() > _RECORD_SIZE_MAX:
        yield None
        return
    bodies = np.maximum(sizes - _RECORD_OVERHEAD, 1).cumsum()
    view = memoryview(units)
    at, before, end = 0, 0, len(sizes)
    while at < end:
        until = int(np.searchsorted(bodies, before + size_max, side="right"))
        until = min(max(at + 1, until), at + count_max, end)
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
