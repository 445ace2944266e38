"""Moves the committed and the flushed position: asks the policies, gives jobs to the flush worker.

The owner thread owns both positions. Only the worker waits for the disk and writes the store state.
One job runs at a time; bytes appended meanwhile go into the next one, which is what makes group
commit scale. A failed job fences the store: no sync is repeated, nothing more is acknowledged
(I13).

Progress and failure are reported through one watermark, `flushed`. Its waiters are woken first,
then the next job is submitted, then its subscribers are notified.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker_core.config import StoreConfig
from broker_core.errors import StoreFenced
from broker_core.flush.flush_policy import FlushView, commit_policy, sync_policy
from broker_core.protocol_codes import FlushDiskType
from broker_core.runtime.clock import Clock
from broker_core.runtime.watermark import Watermark
from broker_core.runtime.worker import SyncCall, Worker
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.segment_file import Segment
from broker_core.storage.state.store_state import (
    FLAG_SYNC_BEGUN,
    FLAG_SYNC_FAILED,
    StoreState,
    StoreStateFile,
)

# A job with more files runs in Python.
SYNC_CALL_FILES_MAX = 8
# Two groups of at least this many waiters can take turns: one is synced while the other is woken.
# That is faster when waking both takes longer than a sync by this factor; otherwise one sync for
# all is better.
OVERLAP_WAITERS_MIN = 64
OVERLAP_FACTOR = 1.25
# For at most this many waiters the owner polls for the end of the sync.
AWAKE_WAITERS_MAX = 4


class FlushJob(NamedTuple):
    """The steps of a job, in order: copies, syncs, then the store state."""

    copies: tuple[tuple[Segment, int, int], ...]
    syncs: tuple[Segment, ...]
    commit_target: int
    sync_target: int
    state: StoreState | None


class FlushService:
    """`committed_position >= flushed`; both only grow."""

    def __init__(
        self,
        log: CommitLog,
        state_file: StoreStateFile,
        config: StoreConfig,
        clock: Clock,
        worker: Worker,
        *,
        note_limit: Callable[[], int] | None = None,
    ) -> None:
        """`note_limit` returns the highest position that may be noted as durable.

        A copied log may end in the middle of a record. The noted position must not, because the
        next open would treat the rest of that record as damage.
        """
        self._log = log
        self._state_file = state_file
        self._state = state_file.state
        self._clock = clock
        self._worker = worker
        self._sync = sync_policy(config)
        self._commit = commit_policy(config)
        self._group_commit = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._state_interval_ms = config.watermark_sync_interval_ms
        self._state_synced_ms = self._now_ms()
        self._asked = False
        self._forced_until = 0
        self._busy = False
        # Whether the next job began while waiters of the last one are woken, and how many of them
        # are not woken yet.
        self._overlapping = False
        self._not_woken = 0
        # When the last job was submitted, how long it took, and a waiter's share of a wake-up.
        self._submitted_s = self._sync_s = self._wake_s = 0.0
        # Used by the worker only: set while a job runs and left set when it raises; and the state
        # after the last sync, if it is not written yet.
        self._broken = False
        self._unnoted: StoreState | None = None
        self._state_is_old = self._note_owed = False
        # Set by the owner, cleared by the worker.
        self._writing_back = False
        self._failure: StoreFenced | None = None
        self._moved_ms = dict.fromkeys(("commit", "sync"), self._now_ms())
        self._thorough_ms = dict(self._moved_ms)
        self._note_limit = note_limit
        self.flushed = Watermark(log.position)
        self._committed = log.position

    @property
    def failure(self) -> StoreFenced | None:
        """Set for good by the first failed job."""
        return self._failure

    @property
    def committed_position(self) -> int:
        """End of the bytes in the files, which are readable; with buffers, less than appended."""
        return self._log.position if self._commit is None else self._committed

    @property
    def state(self) -> StoreState:
        """The newest state; the one on disk may be older."""
        return self._state

    def note_appended(self) -> bool:
        """Note that the log has grown; returns whether the caller should `pump`.

        Not needed while a job is under way, because its end pumps.
        """
        self._asked = True
        return not self._busy

    def flush_soon(self) -> None:
        """Sync what is appended now, independent of the policy; does not wait."""
        self._forced_until = self._log.position
        self.pump()

    def tick(self) -> None:
        """Let the policies look at the clock."""
        self.pump()
        self._sync_state_when_due()

    def note_when_idle(self) -> None:
        """Write the watermark of the last flush to the state, unless the next job will."""
        if self._note_owed and not self._busy and self._failure is None:
            self._note_owed = False
            self._worker.submit(self._perform_note, self._worked)

    def start_writeback(self) -> None:
        """Start to sync the bytes of a long append; moves no position."""
        last = self._log.segments.last
        if self._writing_back or self._failure is not None or last is None or last.buffered:
            return
        job = FlushJob((), self._job(0, self._log.position).syncs, 0, 0, None)
        descriptors = tuple(segment.file.sync_descriptor for segment in job.syncs)
        if (
            self._group_commit
            and self._worker.syncs_natively
            and len(descriptors) <= SYNC_CALL_FILES_MAX
            and min(descriptors, default=-1) >= 0
        ):
            # A job in Python could not run while the owner holds the interpreter lock. Each sync
            # covers the bytes that are stored when it starts.
            self._worker.submit_sync((descriptors, -1, 0, b""), self._worked)
            return
        self._writing_back = True

        def write_back() -> None:
            # The owner is busy with the append: it sees this flag before it gets the report.
            try:
                self._perform(job)
            finally:
                self._writing_back = False

        self._worker.submit(write_back, self._worked)

    def flush_all(self) -> None:
        """Commit and sync everything appended and wait for it. Raises `StoreFenced`."""
        self._worker.run(lambda: None)
        if self._failure is not None:
            raise self._failure
        job = self._job(self._log.position, self._log.position)
        try:
            self._worker.run(lambda: self._perform(job))
            self._worker.run(lambda: self._perform_state(job.state))
        except OSError as error:
            raise self._fenced(error) from error
        self._reached(job)
        self.flushed.announce()

    def fence(self, error: BaseException) -> None:
        """The log could not be written: acknowledge nothing more."""
        if self._failure is None:
            self._failed(error)

    def begin_at(self, position: int) -> None:
        """Let a copied log begin at `position`; this store never had earlier bytes."""
        self._state = self._state._replace(durable_position=position)
        self.raise_log_start(position)
        self._committed = max(self._committed, position)
        self.flushed.advance(position)

    def raise_log_start(self, position: int) -> None:
        """Note durably that files below `position` may be gone. Raises `StoreFenced`."""
        self._state = self._state._replace(log_start=position)
        state = self._state
        try:
            self._worker.run(lambda: self._perform_state(state))
        except OSError as error:
            raise self._fenced(error) from error

    def pump(self) -> None:
        """Start a job if one is due and none is under way."""
        if self._busy or self._failure is not None:
            return
        appended = self._log.position
        asked, self._asked = self._asked, False
        if self._group_commit and self._commit is None:
            # The common case, decided as `GroupCommit` does, for every sync of every producer.
            if (
                (asked or self._forced_until > self.flushed.position)
                and (appended > self.flushed.position)
                and not self._submit_last(appended)
            ):
                self._submit(self._job(appended, appended))
            return
        commit_target = self.committed_position
        if self._commit is not None and (
            (self._group_commit and asked)
            or self._commit.due(self._view("commit", appended, commit_target, asked))
        ):
            commit_target = appended
        sync_target = self.flushed.position
        if self._sync.due(self._view("sync", commit_target, sync_target, asked)):
            sync_target = commit_target
        if self._forced_until > self.flushed.position:
            commit_target = sync_target = appended
        if commit_target > self.committed_position or sync_target > self.flushed.position:
            self._submit(self._job(commit_target, sync_target))

    def _view(self, action: str, target: int, reached: int, asked: bool) -> FlushView:
        return FlushView(
            target,
            reached,
            self._now_ms(),
            self._moved_ms[action],
            self._thorough_ms[action],
            asked,
        )

    def _job(self, commit_target: int, sync_target: int) -> FlushJob:
        copies: tuple[tuple[Segment, int, int], ...] = ()
        if self._commit is not None:
            copies = tuple(
                (segment, segment.committed, min(commit_target - segment.base, segment.wrote))
                for segment in self._log.segments.all
                if segment.buffered and segment.base < commit_target
            )
        flushed = self.flushed.position
        syncs = []
        # From the end: there may be thousands of files, and only the last ones matter.
        for segment in reversed(self._log.segments.all):
            if segment.base + segment.size <= flushed:
                break
            if segment.base < sync_target:
                syncs.append(segment)
        syncs.reverse()
        state = None
        if sync_target > flushed:
            state = self._durable_at(self._noted(sync_target))
        return FlushJob(copies, tuple(syncs), commit_target, sync_target, state)

    def _noted(self, position: int) -> int:
        if self._note_limit is None:
            return position
        return max(min(position, self._note_limit()), self._state.durable_position)

    def _submit(self, job: FlushJob) -> None:
        self._busy = True
        now_ms = self._now_ms()
        if job.commit_target > self.committed_position:
            self._moved_ms["commit"] = self._thorough_ms["commit"] = now_ms
        if job.sync_target > self.flushed.position:
            self._moved_ms["sync"] = self._thorough_ms["sync"] = now_ms

        def done(_: object, error: BaseException | None) -> None:
            self._sync_s = self._clock.monotonic() - self._submitted_s
            if error is not None:
                self._busy = False
                self._failed(error)
                return
            self._note_reached(job, noted=call is not None)
            self._wake(job.sync_target, waiters)

        waiters = self.flushed.waiting - self._not_woken
        self._submitted_s = self._clock.monotonic()
        call = self._sync_call(job) if self._worker.ready_to_sync else None
        if call is None:
            self._worker.submit(lambda: self._perform(job), done)
        else:
            self._worker.submit_sync(call, done)

    def _submit_last(self, target: int) -> bool:
        """Submit the most common job, one sync of the last file; False if another job is needed.

        A fast path, because a single producer waits for everything between two syncs.
        """
        segment = self._log.segments.last
        if (
            segment is None
            or segment.base > self.flushed.position
            or not self._worker.ready_to_sync
            or (descriptor := segment.file.sync_descriptor) < 0
        ):
            return False
        durable = self._noted(target)
        self._busy = True
        # The state after this sync covers more than the one not written yet.
        self._unnoted = None
        waiters = self.flushed.waiting - self._not_woken
        call = ((descriptor,), *self._state_file.note(self._durable_at(durable)))
        self._submitted_s = self._clock.monotonic()
        done = partial(self._synced_last, target, durable, waiters)
        self._worker.submit_sync(call, done, soon=waiters <= AWAKE_WAITERS_MAX)
        return True

    def _synced_last(
        self, target: int, durable: int, waiters: int, _: object, error: BaseException | None
    ) -> None:
        self._sync_s = self._clock.monotonic() - self._submitted_s
        if error is not None:
            self._busy = False
            self._failed(error)
            return
        self._state_is_old, self._note_owed = True, False
        if durable > self._state.durable_position:
            self._state = self._durable_at(durable)
        self._wake(target, waiters)

    def _wake(self, target: int, waiters: int) -> None:
        """Wake the waiters of a job, then submit the next job, then notify subscribers.

        Waiters may append at once; all of that goes into one job.
        """
        started = self._clock.monotonic()
        try:
            self._begin_among_many(target, waiters)
        finally:
            try:
                self.flushed.advance(target)
            finally:
                # A waiter that raises must not keep the others waiting.
                self._busy, self._overlapping = self._overlapping, False
                if waiters >= OVERLAP_WAITERS_MIN:
                    self._wake_s = (self._clock.monotonic() - started) / waiters
                self._asked = self._asked or self._log.position > self.flushed.position
                self.pump()
                # The next sync has started; now subscribers may dispatch.
                self.flushed.announce()

    def _begin_among_many(self, target: int, waiters: int) -> None:
        """With many waiters: start the next job before all of them are woken.

        It covers the bytes that were appended meanwhile, if enough waiters are waiting for them, or
        else those that the first half of the waiters append.
        """
        waiting = self.flushed.waiting
        if (
            not self._group_commit
            or waiting < 2 * OVERLAP_WAITERS_MIN
            or waiting * self._wake_s < OVERLAP_FACTOR * self._sync_s
        ):
            return
        if waiting - waiters < OVERLAP_WAITERS_MIN:
            first = waiters // 2
            self.flushed.advance_to_waiter(first, target)
            waiters -= first
        self._busy, self._asked, self._not_woken = False, True, waiters
        self.pump()
        self._busy, self._overlapping, self._not_woken = True, self._busy, 0

    def _sync_call(self, job: FlushJob) -> SyncCall | None:
        """The whole job as system calls, if it only syncs a few files.

        The worker is idle: until the call is submitted, its fields may be used here.
        """
        if not self._group_commit or job.copies or job.state is None:
            return None
        descriptors = tuple(segment.file.sync_descriptor for segment in job.syncs)
        if len(descriptors) > SYNC_CALL_FILES_MAX or min(descriptors) < 0:
            return None
        # The state after this sync covers more than the one not written yet.
        self._unnoted = None
        return (descriptors, *self._state_file.note(job.state))

    def _perform(self, job: FlushJob) -> None:
        """On the worker: copy and sync the data."""
        if self._broken or self._worker.sync_failed:
            # The owner may not know of the failure yet; a later sync could succeed wrongly.
            raise OSError("an earlier write or sync failed")
        self._broken = True
        if self._unnoted is not None:
            self._state_file.write(self._unnoted, sync=False)
            self._unnoted = None
        for segment, start, until in job.copies:
            segment.commit_bytes(start, until)
        if job.syncs and not self._group_commit:
            # If this sync fails and the failure cannot be written either, the next open must know
            # that the page cache may show bytes which the disk does not have.
            before = self._state_file.state
            begun = before._replace(flags=before.flags | FLAG_SYNC_BEGUN)
            self._state_file.write(begun, sync=False)
        for segment in job.syncs:
            segment.file.sync()
        if self._group_commit:
            # Producers wait for the answer, not for the state, which is written with the next job
            # or when idle. Writing it now would also contend for the interpreter lock.
            self._unnoted = job.state or self._unnoted
        elif job.state is not None:
            self._state_file.write(job.state, sync=False)
        self._broken = False

    def _perform_note(self) -> None:
        """On the worker: write the state after the last sync."""
        if self._unnoted is not None and not self._broken and not self._worker.sync_failed:
            self._broken = True
            self._state_file.write(self._unnoted, sync=False)
            self._unnoted = None
            self._broken = False

    def _perform_state(self, state: StoreState | None) -> None:
        """On the worker: write and sync the state; a failure counts as one of the log."""
        if self._broken or self._worker.sync_failed:
            raise OSError("an earlier write or sync failed")
        self._broken = True
        state = state or self._unnoted
        if state is not None:
            self._state_file.write(state, sync=False)
            self._unnoted = None
        self._state_file.sync()
        self._broken = False

    def _reached(self, job: FlushJob) -> None:
        self._note_reached(job)
        self.flushed.advance(job.sync_target)

    def _note_reached(self, job: FlushJob, *, noted: bool = False) -> None:
        for segment, _, until in job.copies:
            segment.committed_to(until)
        if job.state is not None:
            self._state_is_old = True
            self._note_owed = not noted
            self._state = self._durable_at(
                max(job.state.durable_position, self._state.durable_position)
            )
        self._committed = max(self._committed, job.commit_target)

    def _durable_at(self, position: int) -> StoreState:
        """The state with this durable position; `_replace` takes five times as long."""
        store_id, epoch, _, log_start, flags, boot_id = self._state
        return StoreState(store_id, epoch, position, log_start, flags, boot_id)

    def _fenced(self, error: BaseException) -> StoreFenced:
        self._failed(error)
        return self._failure or StoreFenced(str(error))

    def _failed(self, error: BaseException) -> None:
        """Fence: fail every waiter, and note the failure in the state for the next open."""
        failure = StoreFenced(f"a write or sync failed ({error}); reopen the store to recover it")
        failure.__cause__ = error
        self._failure = failure
        state = self._state._replace(
            durable_position=self._noted(self.flushed.position),
            flags=self._state.flags | FLAG_SYNC_FAILED,
        )
        self._worker.submit(
            lambda: self._state_file.write(state, sync=True), lambda _result, _error: None
        )
        try:
            self.flushed.fail(failure)
        finally:
            self.flushed.announce()

    def _sync_state_when_due(self) -> None:
        """After a power cut, damage above the last synced state looks like a torn tail."""
        now_ms = self._now_ms()
        if now_ms - self._state_synced_ms < self._state_interval_ms:
            return
        self._state_synced_ms = now_ms
        if self._failure is None and self._state_is_old:
            self._state_is_old = False
            self._worker.submit(lambda: self._perform_state(None), self._worked)

    def _worked(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._failed(error)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
