"""The commit log's segments, addressed by one growing position.

Owns the list of segments and the spares prepared ahead of need by the allocation worker, so that a
roll finds a file that is already allocated, synced and named on disk.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from broker_core.errors import DiskFull
from broker_core.runtime.worker import Worker
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.log.segment_file import Segment, create_segment, segment_name
from broker_core.storage.log.write_buffer_pool import WriteBufferPool

COMMIT_LOG_DIR = "commitlog"


def log_file_path(base: int) -> str:
    """Path of the log file that starts at position `base`."""
    return f"{COMMIT_LOG_DIR}/{segment_name(base)}"


class SegmentSequence:
    """Contiguous segments of one size; the last one takes appends."""

    def __init__(
        self,
        file_system: FileSystem,
        size: int,
        segments: list[Segment],
        start: int,
        worker: Worker,
        *,
        pool: WriteBufferPool | None = None,
        pool_fail_fast: bool = False,
        warm: bool = False,
    ) -> None:
        self._file_system = file_system
        self._segments = segments
        self.last = segments[-1] if segments else None
        """The segment that takes appends; set by this class only. Read by every put."""
        self._bases = [segment.base for segment in segments]
        self._start = start
        self._worker = worker
        self._pool = pool
        self._pool_fail_fast = pool_fail_fast
        self._warm = warm
        self._spares: deque[Segment] = deque()
        # Files created by the worker, taken when it reports or by a waiting owner.
        self._made: deque[Segment] = deque()
        # Number of files requested from the worker and not taken yet
        self._preparing = 0
        self.size = size

    @property
    def all(self) -> list[Segment]:
        """Oldest first."""
        return self._segments

    @property
    def start(self) -> int:
        """Position of the first byte that retention has not removed."""
        return self._segments[0].base if self._segments else self._start

    @property
    def next_base(self) -> int:
        """Where the file after the last one will start."""
        return self._segments[-1].base + self.size if self._segments else self._start

    @property
    def free_buffers(self) -> int | None:
        """Unused write buffers; None without a pool."""
        return None if self._pool is None else self._pool.available

    def find(self, position: int) -> Segment | None:
        """The segment that holds `position`."""
        index = bisect_right(self._bases, position) - 1
        if index < 0 or position >= self._bases[index] + self.size:
            return None
        return self._segments[index]

    def reserve(self, count: int) -> None:
        """Prepare at least `count` spares; raises `DiskFull` and changes nothing if that fails."""
        if self._pool is not None and self._pool_fail_fast and not self._pool.available:
            raise DiskFull("no write buffer is free and transient_pool_fail_fast is set")
        self._drop_vanished()
        if len(self._spares) >= count:
            return
        self._await_preparation()
        had = len(self._spares)
        while len(self._spares) < count:
            base = self.next_base + len(self._spares) * self.size
            try:
                self._spares.append(self._worker.run(functools.partial(self._create, base)))
            except OSError as error:
                self._give_up(had)
                path = log_file_path(base)
                raise DiskFull(f"cannot create {path}: {error}") from error

    def roll(self) -> Segment:
        """Make a reserved spare the last segment; without a free buffer it is mapped directly."""
        if not self._spares:
            self.reserve(1)
        buffer = self._pool.borrow() if self._pool is not None else None
        segment = self._spares.popleft()
        if buffer is not None:
            segment.use_buffer(buffer)
        self._segments.append(segment)
        self._bases.append(segment.base)
        self.last = segment
        return segment

    def unroll(self, position: int) -> None:
        """Files that start after `position` become spares again; they hold zeros only.

        A file that starts at `position` stays if it was in use.
        """
        while self._segments and self._segments[-1].base > position:
            segment = self._segments.pop()
            self._bases.pop()
            segment.give_buffer_back()
            self._spares.appendleft(segment)
        self.last = self._segments[-1] if self._segments else None

    def begin_at(self, position: int) -> None:
        """Set the start of the first segment; there must be none yet."""
        self.remove_spares()
        self._start = position

    def prepare_ahead(self) -> None:
        """Request the next spare from the worker, unless one exists or is being created."""
        if not self._preparing and not self._spares:
            self.prepare(1, lambda: None)

    def prepare(self, count: int, done: Callable[[], object]) -> bool:
        """Request spares from the worker until there are `count`; calls `done` after the attempt.

        False when nothing is missing, or when the start of the log is not known yet.
        """
        known = len(self._spares) + self._preparing
        missing = count - known
        if missing <= 0 or not self._segments:
            return False
        first = self.next_base + known * self.size

        made: list[int] = []

        def make() -> None:
            for base in range(first, first + missing * self.size, self.size):
                self._made.append(self._create(base))
                made.append(base)

        def tried(_: object, error: BaseException | None) -> None:
            # A failure is not fatal: the roll that needs the file tries again and reports it.
            self._preparing -= missing - len(made)
            self._take_made()
            done()

        self._preparing += missing
        self._worker.submit(make, tried)
        return True

    def start_after_drop(self, position: int) -> int:
        """What `start` will be when `drop_before(position)` is done."""
        start = self.start
        while start < self.next_base - self.size and start + self.size <= position:
            start += self.size
        return start

    def drop_before(self, position: int) -> list[Segment]:
        """Forget whole segments below `position`; the caller retires and unlinks them."""
        dropped = []
        while len(self._segments) > 1 and self._bases[0] + self.size <= position:
            dropped.append(self._segments.pop(0))
            self._bases.pop(0)
        return dropped

    def remove_spares(self) -> None:
        """Delete unused spares; a clean stop leaves none."""
        self._await_preparation()
        while self._spares:
            spare = self._spares.pop()
            spare.retire()
            path = log_file_path(spare.base)
            if self._file_system.exists(path):
                self._file_system.unlink(path)
            # One by one, newest first: a crash in between must not leave a gap.
            self._file_system.sync_dir(COMMIT_LOG_DIR)

    def release(self) -> None:
        """Close every file; changes nothing on disk."""
        for segment in (*self._segments, *self._spares, *self._made):
            segment.retire()
        self._segments, self._bases, self.last = [], [], None
        self._spares.clear()
        self._made.clear()

    def _drop_vanished(self) -> None:
        """Forget spares whose files were removed.

        A Java broker that is started on this directory by mistake removes files after the end of
        the log before it tries to take the lock.
        """
        for number, spare in enumerate(self._spares):
            path = log_file_path(spare.base)
            try:
                there = self._file_system.exists(path)
            except OSError:
                # If the directory cannot be read, keep the spare: it existed when it was created.
                return
            if not there:
                while len(self._spares) > number:
                    self._spares.pop().retire()
                return

    def _give_up(self, kept: int) -> None:
        """Remove the spares of a failed reservation to free space on a full disk."""
        while len(self._spares) > kept:
            spare = self._spares.pop()
            spare.retire()
            try:
                self._file_system.unlink(log_file_path(spare.base))
                # One by one, newest first: a crash in between must not leave a gap.
                self._file_system.sync_dir(COMMIT_LOG_DIR)
            except OSError:
                # A file that stays is replaced when its turn comes.
                return

    def _create(self, base: int) -> Segment:
        return create_segment(self._file_system, COMMIT_LOG_DIR, base, self.size, warm=self._warm)

    def _await_preparation(self) -> None:
        """Wait for a preparation under way (the worker runs jobs in order) and take its file."""
        self._worker.run(lambda: None)
        self._take_made()

    def _take_made(self) -> None:
        while self._made:
            segment = self._made.popleft()
            self._preparing -= 1
            if segment.base == self.next_base + len(self._spares) * self.size:
                self._spares.append(segment)
            else:
                segment.retire()
