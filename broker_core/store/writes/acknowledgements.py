"""When a put or a group is acknowledged: after the sync, after the slaves, or at once."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.config import StoreConfig
from broker_core.flush.durable_ack import DurableAcks
from broker_core.flush.flush_service import FlushService
from broker_core.flush.replicated_ack import ReplicaGate, ReplicatedAcks
from broker_core.protocol_codes import FlushDiskType
from broker_core.runtime.clock import Clock
from broker_core.runtime.watermark import Waiter
from broker_core.store.visibility import Visibility

# Syncing hundreds of megabytes takes long, and the answer for a group must be final.
GROUP_TIMEOUT_MS = 600_000

Acks = DurableAcks | ReplicatedAcks


class Acknowledgements:
    """Owner thread only."""

    def __init__(
        self, config: StoreConfig, clock: Clock, flush: FlushService, visibility: Visibility
    ) -> None:
        self._clock = clock
        self._flush = flush
        self._visibility = visibility
        self._is_async = config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        self.puts: Acks = DurableAcks(flush.flushed, clock, config.sync_flush_timeout_ms)
        """Waiters of ordinary puts."""
        self.groups: Acks = DurableAcks(flush.flushed, clock, GROUP_TIMEOUT_MS)
        """Waiters of append groups."""
        self.puts_at_once = self._is_async
        """Whether a put is answered without waiting."""
        self.groups_skip_disk = self._is_async and not config.group_waits_for_disk
        """Whether a group is answered without waiting for the disk."""
        # The watermark itself where only this disk decides what is durable.
        self.when_durable: Callable[[int, Waiter], None] = flush.flushed.when
        if self.groups_skip_disk:
            self.when_durable = self._when_safe

    def require_replicas(self, gate: ReplicaGate, timeout_ms: int) -> None:
        """Make puts and groups also wait for slaves."""
        disk = None if self._is_async else self.puts
        assert not isinstance(disk, ReplicatedAcks)
        self.puts = ReplicatedAcks(disk, gate, self._clock, timeout_ms)
        group_disk = None
        if not self.groups_skip_disk:
            group_disk = DurableAcks(self._flush.flushed, self._clock, GROUP_TIMEOUT_MS)
        self.groups = ReplicatedAcks(group_disk, gate, self._clock, timeout_ms)
        self.puts_at_once = False
        self.when_durable = self._when_safe

    def when_on_disk(self, position: int, callback: Waiter) -> None:
        """Call `callback(None)` once `position` is synced, in every flush mode, or with the error.

        With ASYNC_FLUSH a sync starts now and not after its interval.
        """
        flushed = self._flush.flushed
        if flushed.position < position:
            self._flush.flush_soon()
        flushed.when(position, callback)

    def tick(self) -> None:
        """Answer waiters that have timed out."""
        self.puts.tick()
        self.groups.tick()

    def _when_safe(self, position: int, callback: Waiter) -> None:
        """Call back once `position` is durable, and confirmed by slaves if puts wait for them."""
        confirmed, flushed = self._visibility.confirmed, self._flush.flushed
        if self.groups_skip_disk and self._flush.failure is None:
            if confirmed is None:
                callback(None)
            else:
                confirmed.when(position, callback)
            return
        if confirmed is None:
            flushed.when(position, callback)
            return

        def on_disk(failure: BaseException | None) -> None:
            if failure is None:
                confirmed.when(position, callback)
            else:
                callback(failure)

        flushed.when(position, on_disk)
