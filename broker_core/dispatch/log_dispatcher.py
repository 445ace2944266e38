"""Tails the log: builds consume queues and index, and announces arrivals.

Owns the dispatched position. Only this module adds to the queues, so that they are a pure function
of the log. Never goes past the given limit (the visible position), and begins no append group that
is not durable as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_core.errors import MalformedRecord
from broker_core.runtime.clock import Clock
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet, QueueKey
from broker_core.storage.derived.message_index import MessageIndex
from broker_core.storage.log.append_scan_cache import AppendScanCache
from broker_core.storage.log.commit_log import CommitLog
from broker_core.storage.log.log_walk import (
    KeptSteps,
    Step,
    group_header_at,
    is_cut_short,
    walk_step,
)

Arrival = Callable[[bytes, int, int], None]


class LogDispatcher:
    """Everything below `position` is in the queues and the index. Owner thread only."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueSet,
        index: MessageIndex | None,
        position: int,
        *,
        clock: Clock,
        delays: memoryview,
        slice_size: int,
        written: AppendScanCache | None = None,
    ) -> None:
        """`written` caches the scans that appends have made."""
        self._log = log
        self._queues = queues
        self._index = index
        self._clock = clock
        self._delays = delays
        self._slice_size = slice_size
        self._listeners: list[Arrival] = []
        if written is None:
            written = AppendScanCache(delays, index_tags=index is not None and index.with_tags)
        self.written = written
        self.position = position
        self.store_timestamp = 0
        self._index_paused = False
        self._limit_cuts = False
        self._check_crc = False

    def on_arrival(self, listener: Arrival) -> None:
        """Call `listener(topic, queue_id, max_offset)` when a queue has grown."""
        self._listeners.append(listener)

    def accept_cut_limit(self) -> None:
        """Accept limits in the middle of a record, as replication sets them."""
        self._limit_cuts = True

    def follow_copied_log(self) -> None:
        """Also verify checksums: the records of a copied log were not checked here before."""
        self._limit_cuts = self._check_crc = True

    def pause_index(self) -> None:
        """Stop writing the index; it will be rebuilt."""
        self._index_paused = True

    def resume_index(self) -> None:
        """The index has been rebuilt up to `position`."""
        self._index_paused = False

    def dispatch(
        self, limit: int, durable: int, after_step: Callable[[], object] | None = None
    ) -> int:
        """Dispatch up to `limit`; returns the number of records.

        A group that ends above `durable` is not begun. A begun group is finished in this call, so
        that no reader can see a part of it. `after_step` must not raise.
        """
        arrived: dict[QueueKey, None] = {}
        try:
            return self._dispatch(limit, durable, arrived, after_step)
        finally:
            # At the end and all at once: a listener must not see a part of a group, and an error of
            # a listener must not cause records to be dispatched twice.
            self.announce(arrived)

    def dispatch_kept(self, kept: KeptSteps, limit: int) -> None:
        """Add the steps that recovery has cached up to `limit`; no group is cut."""
        while (step := kept.take(self.position, limit)) is not None:
            self._take_step(step, {})

    def _dispatch(
        self,
        limit: int,
        durable: int,
        arrived: dict[QueueKey, None],
        after_step: Callable[[], object] | None,
    ) -> int:
        taken = 0
        segments = self._log.segments
        while self.position < limit:
            known = self.written.take(self.position, limit)
            if known is not None:
                taken += self._take_step(known, arrived)
                if after_step is not None:
                    after_step()
                continue
            try:
                header = group_header_at(segments, self.position)
            except MalformedRecord as error:
                raise self._log.corrupt_record(self.position, error.reason) from error
            if header is not None and header.end > durable:
                break
            step = walk_step(
                segments,
                self.position,
                self.written.bound(self.position, limit),
                check_crc=self._check_crc,
                delays=self._delays,
                index_tags=self._index is not None and self._index.with_tags,
                slice_size=self._slice_size,
            )
            if step.scan is None or step.end == self.position:
                if step.reason and not (
                    self._limit_cuts and is_cut_short(segments, self.position, limit)
                ):
                    raise self._log.corrupt_record(self.position, step.reason)
                break
            taken += self._take_step(step, arrived)
            if after_step is not None:
                after_step()
        return taken

    def _take_step(self, step: Step, arrived: dict[QueueKey, None]) -> int:
        """Add a step to queues and index; returns its number of records."""
        assert step.scan is not None
        _, _, _, count, store_timestamp, units, keys = step.scan
        self._queues.append(units)
        if self._index is not None and keys and not self._index_paused:
            self._index.append(keys, self._clock.wall_ms())
        self.position = step.end
        if count:
            self.store_timestamp = store_timestamp
        arrived.update(dict.fromkeys(units))
        return count

    def announce(self, queues: Iterable[tuple[bytes, int]]) -> None:
        """Notify the listeners that readers can see more of these queues."""
        if not self._listeners:
            return
        for topic, queue_id in queues:
            queue = self._queues.queue((topic, queue_id))
            for listener in self._listeners:
                # A listener may read, which dispatches and announces more: offsets never fall.
                listener(topic, queue_id, queue.max_offset)
