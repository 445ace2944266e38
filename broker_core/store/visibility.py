"""What readers may see: the limit of dispatch, and the part of the queues that is held back."""

from __future__ import annotations

from broker_core.flush.flush_service import FlushService
from broker_core.runtime.watermark import Watermark
from broker_core.storage.derived.consume_queue import ConsumeQueue
from broker_core.store.replication.unreplicated_tail import HeldBack


class Visibility:
    """Owner thread only. `StoreReplication` changes it; reads, dispatch and waiters ask it."""

    def __init__(self, flush: FlushService, *, is_async: bool) -> None:
        self._flush = flush
        self._is_async = is_async
        self.confirmed: Watermark | None = None
        """What the slaves have, when puts wait for them."""
        self.held_back: HeldBack | None = None
        """What the queues have and readers may not see yet."""

    def limit(self) -> int:
        """The position up to which records may be dispatched under the configured flush mode."""
        flush, confirmed = self._flush, self.confirmed
        limit = flush.committed_position if self._is_async else flush.flushed.position
        # Readers of a master with sync slaves see nothing that the slaves do not have.
        return limit if confirmed is None else min(limit, confirmed.position)

    def end_of(self, queue: ConsumeQueue) -> int:
        """The end of a queue for readers."""
        held = self.held_back
        if held is None:
            return queue.max_offset
        return min(held.ends.get(queue.key, queue.max_offset), queue.max_offset)

    def wait_for_slaves(self, confirmed: Watermark | None) -> None:
        """Limit readers to `confirmed`; None ends that."""
        self.confirmed = confirmed

    def hold_back(self, held: HeldBack) -> None:
        """Hide `held` from readers."""
        self.held_back = held

    def release(self) -> HeldBack | None:
        """Show all queue entries to readers; returns what was held back."""
        held, self.held_back = self.held_back, None
        return held
