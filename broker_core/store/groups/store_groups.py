"""Append groups: append, publish staged parts, wait until they are durable, read their ranges."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker_core.codec.records.record_layout import BLANK_RESERVE, UNIT_SIZE
from broker_core.codec.records.staged_block import StagedPart
from broker_core.config import StoreConfig
from broker_core.errors import InvalidArgument
from broker_core.flush.flush_service import FlushService
from broker_core.protocol_codes import PutStatus
from broker_core.storage.log.append_group import GROUP_QUEUE, Inspected, checked_runs
from broker_core.storage.log.commit_log import CommitLog, RecordRun
from broker_core.storage.log.log_walk import NO_DELAYS, walk_step
from broker_core.storage.staging.staging_area import StagingArea
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.running_flags import RunningFlags
from broker_core.store.scheduler import StoreScheduler
from broker_core.store.writes.acknowledgements import Acknowledgements
from broker_core.store.writes.appender import Appender
from broker_core.store.writes.argument_checks import check_numbers
from broker_core.store.writes.put_result import PutResult

# Upper bound of the overhead of a header record beside the note, or of a record beside its body.
_BESIDE_NOTE: Final = 1 << 10
_BESIDE_BODY: Final = 64 << 10

Ranges = dict[tuple[str, int], tuple[int, int]]


class GroupRoom(NamedTuple):
    """Size of a group in the log, in bytes."""

    size_most: int
    """Maximum size of this group."""
    size_max: int
    """Limit for any group."""


class StoreGroups:
    """`MessageStore.groups`. Owner thread only, but for `inspect_runs`."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        flush: FlushService,
        acks: Acknowledgements,
        scheduler: StoreScheduler,
        writes: Appender,
        staging: StagingArea,
        flags: RunningFlags,
    ) -> None:
        self._config = config
        self._log = log
        self._flush = flush
        self._acks = acks
        self._scheduler = scheduler
        self._writes = writes
        self._staging = staging
        self._flags = flags

    @property
    def staging(self) -> StagingArea:
        """Parts of batches that are not published yet; on any thread."""
        self._flags.require_open()
        return self._staging

    def append(
        self, runs: Sequence[RecordRun], note: bytes = b"", inspected: Inspected = ()
    ) -> PutResult:
        """Append the records of all runs as one unit (see `storage/log/append_group.py`).

        `inspected` is what `inspect_runs` returned for them, if they were verified before.
        """
        if self._flags.closed:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        if inspected and len(inspected) != len(runs):
            raise InvalidArgument(f"{len(inspected)} runs are inspected, {len(runs)} given")
        return self._writes.append_group(checked_runs(runs), note, inspected)

    def inspect_runs(self, runs: Sequence[RecordRun]) -> Inspected:
        """Verify runs ahead of `append`; on any thread. Raises `MalformedRecord`."""
        self._flags.require_open()
        return self._writes.inspect_runs(checked_runs(runs))

    async def prepare_room(self, size: int) -> None:
        """Create the files that a group of `size` bytes needs, without blocking the event loop."""
        self._flags.require_open()
        await self._scheduler.prepare_room(size)

    def room(self, runs: Sequence[RecordRun], note: bytes) -> GroupRoom:
        """Maximum size of a group in the log, independent of the position at which it is appended.

        Checked before a broker promises to append the group later.
        """
        segment_size = self._log.segments.size
        size = _BESIDE_NOTE + len(note) + sum(run.size for run in runs)
        largest = min(size, segment_size, self._config.message_size_max + _BESIDE_BODY)
        # After the first one, any two files in a row hold more than one file's worth of records:
        # the first record of the second did not fit into the first. The blank rest is shorter.
        file_ends = 2 * math.ceil(size / (segment_size - BLANK_RESERVE)) - 1
        return GroupRoom(size + file_ends * (largest + BLANK_RESERVE), self._config.group_size_max)

    # Publication of staged parts

    async def publish(self, parts: Sequence[StagedPart], note: bytes = b"") -> PutResult:
        """Append sealed staged parts as one group and release their files once it is durable."""
        staging = self.staging
        with staging.open_runs(parts) as runs:
            result = self.append(runs, note)
        if result.ok:
            staging.claim(parts)
        result = await self.acknowledged(result)
        if result.ok:
            for part in parts:
                staging.recycle(part.staging_id)
        return result

    @names_disk_errors
    def publish_now(self, parts: Sequence[StagedPart], note: bytes = b"") -> PutResult:
        """`publish` without an event loop."""
        staging = self.staging
        with staging.open_runs(parts) as runs:
            result = self.append(runs, note)
        if result.ok:
            self._scheduler.flush()
            for part in parts:
                staging.drop(part.staging_id)
        return result

    async def acknowledged(self, result: PutResult) -> PutResult:
        """Wait until an appended group is durable and therefore visible."""
        acks = self._acks
        if not result.ok:
            return result
        if acks.groups_skip_disk and acks.puts_at_once:
            # The group is acknowledged now, so it must be visible now.
            self._scheduler.dispatch()
            return result
        # A group waits for the disk in every flush mode.
        self._flush.flush_soon()
        status = await acks.groups.wait(result.end_position)
        return result if status is PutStatus.PUT_OK else result._replace(status=status)

    async def on_disk(self, result: PutResult) -> None:
        """Wait until a group is synced, in modes where `acknowledged` does not."""
        if not self._acks.groups_skip_disk:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: BaseException | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        self._flush.flushed.when(result.end_position, settle)
        self._flush.flush_soon()
        await done

    @names_disk_errors
    def group_ranges(self, start: int, end: int) -> Ranges:
        """(topic, queue id) -> (first, next offset) of the append group at `[start, end)`.

        Empty when the log has lost the group. Raises `CorruptRecord` for a damaged record.
        """
        check_numbers(start=start, end=end)
        self._flags.require_open()
        log = self._log
        ranges: Ranges = {}
        position = start
        if start < log.start or end > log.position:
            return ranges
        while position < end:
            step = walk_step(log.segments, position, end, check_crc=0, delays=NO_DELAYS)
            if step.scan is None or step.end == position:
                raise log.corrupt_record(position, step.reason)
            for queue, (first, units) in step.scan.queues.items():
                if queue == GROUP_QUEUE:
                    continue
                key = (queue[0].decode("ascii"), queue[1])
                begin = ranges[key][0] if key in ranges else first
                ranges[key] = (begin, first + len(units) // UNIT_SIZE)
            position = step.end
        return ranges
