"""Batches written ahead of their publication: template records under an unguessable id.

    staging/{id}   block after block, see `codec/staged_block.py`, and behind them whatever an
                   earlier batch left in the file (`spare_files.py`)

Invisible to readers. The bytes are not synced: they survive a kill of the process, and after a
power cut the checks below refuse them, so that a published batch costs one disk write, not two.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.record_columns import encode_batch, measure_batch
from broker_core.codec.staged_block import HEAD_SIZE, encode_head, encode_table, join_heads
from broker_core.errors import DiskFailed, DiskFull, InvalidArgument, StagingRefused, StoreClosed
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import InlineWorker, Worker
from broker_core.storage.append_group import checked_runs
from broker_core.storage.commit_log import RecordRun, TemplateRun
from broker_core.storage.file_system import FileSystem, StoreFile
from broker_core.storage.spare_files import SpareFiles
from broker_core.storage.staged_run import NOTHING_READ, ReadSoFar, StagedRun, staged_runs

STAGING_DIR = "staging"
TEMPLATE = -1
# To remove a file takes a while for every megabyte of it.
UNLINK_INLINE_MAX = 256 << 10
ID_BYTES = 16
# Of the room for staged batches, what files that wait for their next writer may take.
SPARE_SHARE = 8
# Batches up to this size are read into memory at once when they are published.
READ_SIZE_MAX = 2 << 20
# A block is read in one piece; one that a writer on this machine wrote may be that long.
BLOCK_SIZE_MAX = 64 << 20

_ID = re.compile(r"[0-9a-f]{32}")


class StagedBatch(NamedTuple):
    """What a writer hands over; the three numbers must match the file when it is published."""

    staging_id: str
    record_count: int
    size: int
    checksum: int


def encode_template(batch: ColumnBatch) -> TemplateRun:
    """The batch as records whose positions, queue offsets and store time are still open."""
    size, _ = measure_batch(batch)
    records = bytearray(size + 8)
    ordinals = memoryview(array("q", bytes(8 * len(batch.queues))))
    encode_batch(batch, 0, ordinals, 0, records, 0, len(records), TEMPLATE)
    return TemplateRun(batch.queues, memoryview(records)[:size])


class _Draft:
    """A batch that is still being written."""

    __slots__ = ("checksum", "count", "file", "file_size", "size", "touched")

    def __init__(self, file: StoreFile, touched: float) -> None:
        self.file = file
        # What the file had from the start.
        self.file_size = file.size
        self.touched = touched
        self.size = self.count = self.checksum = 0

    @property
    def room(self) -> int:
        """Bytes on disk."""
        return max(self.size, self.file_size)


class StagingArea:
    """Owner thread only."""

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        size_max: int,
        expiry_ms: int,
        worker: Worker | None = None,
        block_size_max: int = BLOCK_SIZE_MAX,
    ) -> None:
        """`worker` removes large files, which takes its time."""
        self._block_size_max = block_size_max
        self._worker = worker or InlineWorker()
        self._file_system = file_system
        self._clock = clock
        self._size_max = size_max
        self._expiry_ms = expiry_ms
        self._drafts: dict[str, _Draft] = {}
        self._sealed: dict[str, tuple[int, float]] = {}
        self._claimed: dict[str, tuple[int, float]] = {}
        # Promised to somebody: they do not expire.
        self._kept: set[str] = set()
        self._closed = False
        self.on_growth: Callable[[int], object] | None = None
        """Called with the bytes that are staged in all when they become more."""
        self._spares = SpareFiles(
            file_system, STAGING_DIR, clock, self._worker, size_max // SPARE_SHARE
        )
        for name in file_system.list(STAGING_DIR):
            if not _ID.fullmatch(name):
                # Not ours: neither counted nor removed.
                continue
            file = file_system.open(f"{STAGING_DIR}/{name}", writable=False)
            self._sealed[name] = (file.size, clock.monotonic())
            file.close()

    @property
    def size(self) -> int:
        """Bytes on disk, without those that wait for a writer."""
        drafts = sum(draft.room for draft in self._drafts.values())
        kept = (*self._sealed.values(), *self._claimed.values())
        return drafts + sum(size for size, _ in kept)

    @property
    def size_max(self) -> int:
        """What all of them may take."""
        return self._size_max

    def size_of(self, staging_id: str) -> int:
        """Bytes on disk of one batch; 0 when there is none."""
        draft = self._drafts.get(staging_id)
        if draft is not None:
            return draft.room
        return self._sealed.get(staging_id, (0, 0.0))[0]

    def growth_of(self, staging_id: str, run: TemplateRun) -> int:
        """How many bytes more an `append` takes on disk."""
        draft = self._draft(staging_id)
        size = HEAD_SIZE + len(encode_table(run.queues)) + run.size
        return max(draft.size + size - draft.room, 0)

    def growth_until(self, staging_id: str, size: int) -> int:
        """How many bytes more it takes on disk with this size."""
        return max(size - self._draft(staging_id).room, 0)

    def begin(self) -> str:
        """A fresh id; nobody can guess another writer's."""
        if self._closed:
            raise StoreClosed("the store is closed; open it again to stage batches")
        staging_id = secrets.token_hex(ID_BYTES)
        path = f"{STAGING_DIR}/{staging_id}"
        try:
            file = self._spares.take(path)
            if file is None:
                self._file_system.make_dir(STAGING_DIR)
                file = self._file_system.create(path)
        except OSError as error:
            raise DiskFull(f"cannot begin a staged batch: {error}") from error
        self._drafts[staging_id] = _Draft(file, self._clock.monotonic())
        return staging_id

    def append(self, staging_id: str, run: TemplateRun, count: int) -> None:
        """Add records; raises `StagingRefused` over the limit and `DiskFull` when out of space."""
        draft = self._draft(staging_id)
        checked_runs((run,))
        if type(count) is not int or count < 0:
            raise InvalidArgument(f"count must be a number of records, not {count!r:.80}")
        table = encode_table(run.queues)
        head = encode_head(table, run.records, count)
        size = len(head) + len(table) + len(run.records)
        self._check_room(draft, size)
        try:
            draft.file.write(draft.size, head + table)
            draft.file.write(draft.size + len(head) + len(table), run.records)
        except OSError as error:
            raise DiskFull(f"cannot stage {size} bytes: {error}") from error
        draft.size += size
        draft.count += count
        draft.checksum = join_heads(head, draft.checksum)
        draft.touched = self._clock.monotonic()
        self._grown()

    def seal(self, staging_id: str) -> StagedBatch:
        """No more records come; returns what the publisher must present."""
        draft = self._draft(staging_id)
        draft.file.close()
        del self._drafts[staging_id]
        self._sealed[staging_id] = (draft.room, self._clock.monotonic())
        return StagedBatch(staging_id, draft.count, draft.size, draft.checksum)

    def grow(self, staging_id: str, size: int) -> int:
        """A writer that has the file itself is about to let it have this size; the one before."""
        draft = self._draft(staging_id)
        before = draft.size
        if size > draft.size:
            self._check_room(draft, size - draft.size)
            draft.size = size
            self._grown()
        draft.touched = self._clock.monotonic()
        return before

    def seal_written(self, batch: StagedBatch) -> set[tuple[bytes, int]]:
        """`seal` for a file that its writer wrote itself; the queues that its records are for.

        The heads of its blocks must say what the writer says. The records are proven when they
        are published.
        """
        draft = self._draft(batch.staging_id)
        self.grow(batch.staging_id, batch.size)
        try:
            queues = self._written_queues(draft, batch)
        except OSError as error:
            raise DiskFailed(f"cannot read {batch.staging_id}: {error}") from error
        draft.file.close()
        del self._drafts[batch.staging_id]
        # It may have been granted more than it took.
        room = max(batch.size, draft.file_size)
        self._sealed[batch.staging_id] = (room, self._clock.monotonic())
        return queues

    def _written_queues(self, draft: _Draft, batch: StagedBatch) -> set[tuple[bytes, int]]:
        file, staging_id = draft.file, batch.staging_id
        if file.size != max(batch.size, draft.file_size):
            raise StagingRefused(f"{staging_id}: {file.size} bytes, not {batch.size}")
        queues: set[tuple[bytes, int]] = set()
        read = NOTHING_READ
        found = staged_runs(staging_id, file, batch.size, block_size_max=self._block_size_max)
        for run, after in found:
            queues.update(run.queues)
            read = after
        if read != (batch.size, batch.record_count, batch.checksum):
            raise StagingRefused(f"{staging_id}: count or checksum does not match")
        return queues

    def _grown(self) -> None:
        if self.on_growth is not None:
            drafts = sum(draft.size for draft in self._drafts.values())
            self.on_growth(drafts + sum(size for size, _ in self._sealed.values()))

    def _check_room(self, draft: _Draft, more: int) -> None:
        size = max(draft.size + more - draft.room, 0)
        if self.size + self._spares.size + size > self._size_max:
            self._spares.clear()
        if self.size + size > self._size_max:
            raise StagingRefused(
                f"staging is full: {self.size + size} bytes would exceed "
                f"staging_size_max={self._size_max}; publish or abort batches first"
            )

    @contextlib.contextmanager
    def open_runs(self, batches: Sequence[StagedBatch]) -> Iterator[tuple[RecordRun, ...]]:
        """The records of sealed batches, for the time of the `with` block.

        Short batches are read at once. Of others only the heads are: each of their runs is read
        and its checksum compared whenever its records are asked for.
        """
        if not isinstance(batches, (list, tuple)) or not all(map(_is_staged, batches)):
            raise InvalidArgument("batches must be a list of StagedBatch, as `seal` returned them")
        if len({batch.staging_id for batch in batches}) != len(batches):
            raise StagingRefused("a staging id is named twice")
        is_short = sum(batch.size for batch in batches) <= READ_SIZE_MAX
        runs: list[RecordRun] = []
        with contextlib.ExitStack() as files:
            for batch in batches:
                try:
                    found = self._open(batch, files)
                except OSError as error:
                    raise DiskFailed(f"cannot read {batch.staging_id}: {error}") from error
                runs += [TemplateRun(r.queues, r.load()) for r in found] if is_short else found
            yield tuple(runs)

    @contextlib.contextmanager
    def open_blocks(
        self, staging_id: str, before: ReadSoFar, until: int
    ) -> Iterator[Iterator[tuple[StagedRun, ReadSoFar]]]:
        """Blocks of a file that may still grow, from `before` on, as far as `until`.

        For the time of the `with` block; on any thread.
        """
        try:
            file = self._file_system.open(f"{STAGING_DIR}/{staging_id}", writable=False)
        except OSError as error:
            raise StagingRefused(f"{staging_id} cannot be read: {error}") from error
        try:
            size = min(until, file.size)
            yield staged_runs(staging_id, file, size, before, may_end_early=True)
        except OSError as error:
            raise StagingRefused(f"{staging_id} cannot be read: {error}") from error
        finally:
            file.close()

    def has_sealed(self, batches: Iterable[StagedBatch]) -> bool:
        """Whether all of these are still here to be published."""
        return all(batch.staging_id in self._sealed for batch in batches)

    def is_known(self, staging_id: str) -> bool:
        """Whether it is being written or waits to be published."""
        return staging_id in self._sealed or staging_id in self._drafts

    def fingerprint(self, staging_id: str) -> tuple[int, ...]:
        """Another one when its file was touched; on any thread."""
        try:
            file = self._file_system.open(f"{STAGING_DIR}/{staging_id}", writable=False)
            try:
                return file.fingerprint()
            finally:
                file.close()
        except OSError as error:
            raise StagingRefused(
                f"staging id {staging_id!r:.80} cannot be read: {error}"
            ) from error

    def keep(self, staging_ids: Iterable[str]) -> None:
        """These do not expire until they are dropped."""
        self._kept.update(staging_ids)

    def is_kept(self, staging_id: str) -> bool:
        """Whether it does not expire."""
        return staging_id in self._kept

    def keep_no_more(self, staging_ids: Iterable[str]) -> None:
        """These may expire again."""
        self._kept.difference_update(staging_ids)

    def touch(self, staging_ids: Iterable[str]) -> None:
        """Somebody still works on what these belong to: their time begins anew."""
        now = self._clock.monotonic()
        for staging_id in staging_ids:
            if staging_id in self._sealed:
                self._sealed[staging_id] = self._sealed[staging_id][0], now
            elif staging_id in self._drafts:
                self._drafts[staging_id].touched = now

    def make_durable(self, staging_ids: Iterable[str]) -> None:
        """Let sealed batches survive a power cut; waits for the disk, on any thread."""
        try:
            for staging_id in staging_ids:
                file = self._file_system.open(f"{STAGING_DIR}/{staging_id}")
                try:
                    file.sync()
                finally:
                    file.close()
            self._file_system.sync_dir(STAGING_DIR)
            self._file_system.sync_dir("")
        except OSError as error:
            raise DiskFailed(f"staged batches cannot be made durable: {error}") from error

    def claim(self, batches: Sequence[StagedBatch]) -> None:
        """The records are in the log now: nobody can publish these batches a second time."""
        for batch in batches:
            self._claimed[batch.staging_id] = self._sealed.pop(batch.staging_id)

    def recycle(self, staging_id: str) -> None:
        """A claimed batch is safe in the log: the next writer may have its file.

        Its own writer has closed the file before it was sealed.
        """
        known = self._claimed.get(staging_id)
        if known is not None and self._spares.put(f"{STAGING_DIR}/{staging_id}", known[0]):
            del self._claimed[staging_id]
            self._kept.discard(staging_id)
        else:
            self.drop(staging_id)

    def drop(self, staging_id: str) -> bool:
        """Forget a batch; False when there is none with this id."""
        if not isinstance(staging_id, str):
            raise InvalidArgument(f"staging id must be text, not {staging_id!r:.80}")
        self._kept.discard(staging_id)
        draft = self._drafts.pop(staging_id, None)
        known = self._sealed.pop(staging_id, None) or self._claimed.pop(staging_id, None)
        if draft is not None:
            draft.file.close()
            known = draft.room, draft.touched
        if known is None:
            return False
        # Nobody can publish it any more; if the file cannot go now, it does when it expires.
        self._claimed[staging_id] = known[0], self._clock.monotonic()
        path = f"{STAGING_DIR}/{staging_id}"

        def removed(_: object, error: BaseException | None) -> None:
            if error is None:
                self._claimed.pop(staging_id, None)

        if known[0] > UNLINK_INLINE_MAX:
            self._worker.submit(lambda: self._file_system.unlink(path), removed)
        else:
            with contextlib.suppress(OSError):
                self._file_system.unlink(path)
                removed(None, None)
        return True

    def expire(self) -> list[str]:
        """Drop batches that nobody touched for the expiry time."""
        limit = self._clock.monotonic() - self._expiry_ms / 1000
        old = [name for name, draft in self._drafts.items() if draft.touched < limit]
        kept = (*self._sealed.items(), *self._claimed.items())
        old += [name for name, (_, at) in kept if at < limit and name not in self._kept]
        for name in old:
            self.drop(name)
        self._spares.expire()
        return old

    def close(self) -> None:
        """Close open drafts; their files stay until they expire, spare ones go."""
        for draft in self._drafts.values():
            draft.file.close()
        self._drafts.clear()
        self._sealed.clear()
        self._claimed.clear()
        self._spares.close()
        self._grown()
        self._closed = True

    def _draft(self, staging_id: str) -> _Draft:
        wanted: object = staging_id
        draft = self._drafts.get(wanted) if isinstance(wanted, str) else None
        if draft is None:
            raise StagingRefused(f"no batch is being staged under {staging_id!r:.80}")
        return draft

    def _open(self, batch: StagedBatch, files: contextlib.ExitStack) -> list[StagedRun]:
        if batch.staging_id not in self._sealed:
            raise StagingRefused(f"staging id {batch.staging_id!r:.80} is unknown, open or expired")
        file = self._file_system.open(f"{STAGING_DIR}/{batch.staging_id}", writable=False)
        files.callback(file.close)
        if file.size < batch.size or file.size != self._sealed[batch.staging_id][0]:
            raise StagingRefused(
                f"{batch.staging_id}: {file.size} bytes are staged, {batch.size} were promised"
            )
        runs, read = [], NOTHING_READ
        for run, after in staged_runs(batch.staging_id, file, batch.size):
            runs.append(run)
            read = after
        if read != (batch.size, batch.record_count, batch.checksum):
            raise StagingRefused(f"{batch.staging_id}: count or checksum does not match")
        return runs


def _is_staged(batch: object) -> bool:
    if not isinstance(batch, StagedBatch) or not isinstance(batch.staging_id, str):
        return False
    return all(type(number) is int for number in batch[1:])
