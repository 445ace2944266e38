"""Pre-faults pages ahead of the append position.

The first touch of a page of an allocated file makes the kernel zero it and all that its read-ahead
covers: megabytes, and milliseconds during which the owner serves no request. Reading ahead of the
log on another thread costs the same without blocking the owner. Nothing becomes dirty. Where every
put is synced, pages are created singly: the sync of a put of a few hundred bytes would write a
whole large page, 256 KiB and more.

A staged group is appended in one step, during which no other request is served: its pages are
pre-faulted while it is staged. They are written as a whole, so they may be large, except right
after the end of the log, where other puts go meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.runtime.worker import Worker
from broker_core.storage.log.commit_log import LARGE_SIZE, CommitLog

# Pages are read when less than half of this is ready: one core appends it in a tenth of a second.
AHEAD_SIZE: Final = 8 << 20
# Large appends and bursts of rows are written instead of stored through the map, and pages that are
# written as a whole need no zeros.
GROWTH_MAX: Final = LARGE_SIZE
# Maximum pre-faulted for staged groups, and per step, because the worker has other work.
EXPECTED_MAX: Final = 512 << 20
STEP_SIZE: Final = 16 << 20


class PagePrefault:
    """Follows the end of the log. Owner thread only, except for the reads."""

    def __init__(self, log: CommitLog, worker: Worker, *, singly: bool) -> None:
        self._log = log
        self._worker = worker
        self._singly = singly
        # Log position up to which pages are ready, and the bytes stored through maps at the last
        # check.
        self._ready = 0
        self._seen = log.position - log.written_total
        self._reading = False
        # End of the log once the groups being staged are appended.
        self._expected = 0
        # Requests of `make`: pages up to this position, and the callback.
        self._waiting: list[tuple[int, Callable[[], object]]] = []
        last = log.segments.last
        if last is not None and not last.buffered:
            last.file.expect_appends()

    def follow(self) -> None:
        """Call after the log may have grown; reads ahead when few pages are ready."""
        position = self._log.position
        stored = position - self._log.written_total
        grown, self._seen = stored - self._seen, stored
        if (
            self._reading
            or not 0 < grown <= GROWTH_MAX
            or position + AHEAD_SIZE // 2 <= self._ready
        ):
            return
        self._read(max(position, self._ready), position + AHEAD_SIZE, singly=self._singly)

    def expect(self, size: int) -> None:
        """Set the number of staged bytes that will be appended as groups."""
        self._expected = self._log.position + min(size, EXPECTED_MAX)
        self._read_expected()

    def make(self, size: int, done: Callable[[], object]) -> bool:
        """Pre-fault pages for this many bytes; False when there is nothing to wait for."""
        self.expect(size)
        if not self._reading:
            return False
        self._waiting.append((self._expected, done))
        return True

    def _read_expected(self) -> None:
        position = self._log.position
        start, near = max(position, self._ready), position + AHEAD_SIZE
        if self._reading or start >= self._expected:
            return
        if self._singly and start < near:
            self._read(start, near, singly=True)
        else:
            self._read(start, min(start + STEP_SIZE, self._expected), singly=False)

    def _read(self, start: int, end: int, *, singly: bool) -> None:
        segment = self._log.segments.last
        if segment is None or segment.buffered:
            return
        start, end = max(start, segment.base), min(end, segment.base + segment.size)
        if start >= end:
            return
        self._ready = end
        self._reading = True
        segment.hold()

        def done(_: object, _error: BaseException | None) -> None:
            # The append that needs the page will report the error.
            self._reading = False
            segment.leave()
            self._read_expected()
            waiting, self._waiting = self._waiting, []
            for until, made in waiting:
                if self._reading and end < until:
                    self._waiting.append((until, made))
                else:
                    made()

        def load() -> None:
            segment.file.load(start - segment.base, end - segment.base, singly=singly)

        self._worker.submit(load, done)
