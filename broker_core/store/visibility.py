"""The records that readers may see: the limit of dispatch and the unreplicated tail."""

from __future__ import annotations

from broker_core.flush.flush_service import FlushService
from broker_core.runtime.watermark import Watermark
from broker_core.storage.derived.consume_queue import ConsumeQueue
from broker_core.store.replication.unreplicated_tail import UnreplicatedTail


class Visibility:
    """Owner thread only. `StoreReplication` changes it; reads, dispatch and waiters use it."""

    def __init__(self, flush: FlushService, *, is_async: bool) -> None:
        self._flush = flush
        self._is_async = is_async
        self.confirmed: Watermark | None = None
        """The position that the slaves have confirmed; None unless puts wait for slaves."""
        self.unreplicated_tail: UnreplicatedTail | None = None
        """Queue entries that are hidden from readers until slaves have them."""

    def limit(self) -> int:
        """The position up to which records may be dispatched under the configured flush mode."""
        flush, confirmed = self._flush, self.confirmed
        limit = flush.committed_position if self._is_async else flush.flushed.position
        # Readers of a SYNC_MASTER see only records that its slaves have.
        return limit if confirmed is None else min(limit, confirmed.position)

    def end_of(self, queue: ConsumeQueue) -> int:
        """The end of a queue for readers."""
        tail = self.unreplicated_tail
        if tail is None:
            return queue.max_offset
        return min(tail.ends.get(queue.key, queue.max_offset), queue.max_offset)

    def wait_for_slaves(self, confirmed: Watermark | None) -> None:
        """Limit readers to `confirmed`; None removes the limit."""
        self.confirmed = confirmed

    def hide(self, tail: UnreplicatedTail) -> None:
        """Hide the tail from readers."""
        self.unreplicated_tail = tail

    def release(self) -> UnreplicatedTail | None:
        """Make all queue entries visible; returns the tail that was hidden."""
        tail, self.unreplicated_tail = self.unreplicated_tail, None
        return tail
