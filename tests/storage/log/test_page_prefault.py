"""Pages ahead of the log: pre-faulted in time, once, on the worker, within the file."""

from __future__ import annotations

from array import array
from typing import Any

from broker_core.runtime.worker import InlineWorker
from broker_core.storage.log.commit_log import WRITTEN_SIZE_MIN, CommitLog
from broker_core.storage.log.page_prefault import AHEAD_SIZE, GROWTH_MAX, STEP_SIZE, PagePrefault
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR, SegmentSequence
from broker_core.storage.log.write_buffer_pool import WriteBufferPool
from tests.codec.codec_backends import batch_of
from tests.fakes.manual_worker import ManualWorker
from tests.storage.log.test_commit_log import append
from tests.store.small_store import new_disk

FILE_SIZE = 12 << 20


class Reads:
    """A log whose reads are noted as (file, start, end)."""

    def __init__(self, *, pool: WriteBufferPool | None = None, file_size: int = FILE_SIZE) -> None:
        disk = new_disk()
        disk.make_dir(COMMIT_LOG_DIR)
        self.log = CommitLog(SegmentSequence(disk, file_size, [], 0, InlineWorker(), pool=pool), 0)
        self.worker = ManualWorker()
        self.pages = PagePrefault(self.log, self.worker, singly=True)
        self.taken: list[tuple[int, int, int]] = []
        self.singly: list[bool] = []
        self._spied: set[int] = set()

    def grow(self, *sizes: int) -> None:
        append(self.log, *sizes)
        segment = self.log.segments.last
        assert segment is not None
        if segment.base not in self._spied:
            self._spied.add(segment.base)
            segment.file = Spy(segment.file, segment.base, self)  # type: ignore[assignment]
        self.pages.follow()


class Spy:
    def __init__(self, file: Any, base: int, reads: Reads) -> None:
        self._file, self._base, self._reads = file, base, reads

    def load(self, start: int, end: int, *, singly: bool) -> None:
        self._reads.taken.append((self._base, start, end))
        self._reads.singly.append(singly)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def spans(taken: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """As positions in the log."""
    return [(base + start, base + end) for base, start, end in taken]


def test_more_pages_are_made_when_half_are_used() -> None:
    reads = Reads()
    reads.grow(1_000)
    assert (reads.worker.waiting, reads.taken) == (1, [])
    reads.grow(1_000)
    assert reads.worker.waiting == 1
    reads.worker.run_all()
    assert spans(reads.taken) == [(1_000, 1_000 + AHEAD_SIZE)]
    reads.taken.clear()
    reads.grow(1_000)
    assert reads.worker.waiting == 0
    while reads.worker.waiting == 0:
        reads.grow(GROWTH_MAX)
    assert AHEAD_SIZE // 2 < reads.log.position < AHEAD_SIZE // 2 + 2 * GROWTH_MAX
    reads.worker.run_all()
    assert all(reads.singly)
    # To the end of the file and not beyond.
    assert spans(reads.taken) == [(1_000 + AHEAD_SIZE, FILE_SIZE)]
    reads.grow(1_000)
    assert reads.worker.waiting == 0


def test_prefaulting_begins_again_in_the_next_file() -> None:
    reads = Reads()
    reads.grow(1_000)
    reads.grow(11 << 20)
    reads.worker.run_all()
    reads.taken.clear()
    reads.grow(2 << 20)
    reads.grow(1_000)
    reads.worker.run_all()
    start = FILE_SIZE + (2 << 20) + 1_000
    assert spans(reads.taken) == [(start, start + AHEAD_SIZE)]


def test_large_appends_need_none() -> None:
    reads = Reads()
    for _ in range(4):
        reads.grow(GROWTH_MAX + 1)
    assert reads.worker.waiting == 0
    reads.grow(GROWTH_MAX)
    assert reads.worker.waiting == 1


def test_rows_that_are_written_need_none() -> None:
    """Pages that are written as a whole need no zeros; those in between that are not, do."""
    reads = Reads()
    rows = batch_of(*[bytes(300)] * (2 * WRITTEN_SIZE_MIN // 300))
    reads.grow(1_000)
    reads.worker.run_all()
    numbers = memoryview(array("q", [0]))
    while reads.log.position < AHEAD_SIZE:
        count, _ = reads.log.append_rows(rows, numbers, 5)
        assert count == rows.count
        reads.pages.follow()
    assert reads.worker.waiting == 0
    reads.log.append_copy(memoryview(bytes(5_000)))
    reads.pages.follow()
    assert reads.worker.waiting == 0
    reads.grow(1_000)
    assert reads.worker.waiting == 1


def test_write_buffers_need_none() -> None:
    reads = Reads(pool=WriteBufferPool(2, FILE_SIZE))
    reads.grow(1_000)
    assert reads.worker.waiting == 0


def test_what_is_staged_finds_its_pages() -> None:
    reads = Reads(file_size=64 << 20)
    reads.grow(1_000)
    reads.worker.run_all()
    reads.taken.clear()
    expected, made = 40 << 20, []
    reads.pages.expect(expected)
    assert reads.pages.make(expected, lambda: made.append(1))
    while reads.worker.waiting:
        assert not made
        reads.worker.run_next()
    assert made == [1]
    # What is near the end is there already; the rest in steps, each page once, as large ones.
    starts = [1_000 + AHEAD_SIZE, 1_000 + AHEAD_SIZE + STEP_SIZE]
    assert spans(reads.taken) == [(start, start + STEP_SIZE) for start in starts]
    assert not any(reads.singly[1:])
    assert not reads.pages.make(expected, lambda: made.append(1))


def test_pages_near_the_end_stay_single() -> None:
    reads = Reads(file_size=64 << 20)
    reads.grow(GROWTH_MAX + 1)
    start = reads.log.position
    reads.pages.expect(AHEAD_SIZE + 1_000)
    reads.worker.run_all()
    near = start + AHEAD_SIZE
    assert spans(reads.taken) == [(start, near), (near, near + 1_000)]
    assert reads.singly == [True, False]


def test_pages_are_made_to_the_end_of_the_file_only() -> None:
    reads, made = Reads(), []
    reads.grow(1_000)
    assert reads.pages.make(1 << 30, lambda: made.append(1))
    reads.worker.run_all()
    assert made == [1]
    assert max(end for _, end in spans(reads.taken)) == FILE_SIZE
