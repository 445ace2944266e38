"""Replication interface of a store: raw log, puts that wait for slaves, positions."""

from __future__ import annotations

from collections.abc import Collection

from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.flush.replicated_ack import ReplicaGate
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.log.commit_log import CommitLog
from broker_core.store.replication.replica_log import ReplicaLog, next_offsets_at
from broker_core.store.replication.unreplicated_tail import find_tail
from broker_core.store.running_flags import Running, RunningFlags
from broker_core.store.scheduler import StoreScheduler
from broker_core.store.store_stats import StoreStats
from broker_core.store.upkeep import Upkeep
from broker_core.store.visibility import Visibility
from broker_core.store.writes.acknowledgements import Acknowledgements
from broker_core.store.writes.argument_checks import encoded_text


class StoreReplication:
    """`MessageStore.replication`. Owner thread only."""

    def __init__(
        self,
        replica_log: ReplicaLog,
        log: CommitLog,
        queues: ConsumeQueueSet,
        dispatcher: LogDispatcher,
        upkeep: Upkeep,
        visibility: Visibility,
        acks: Acknowledgements,
        scheduler: StoreScheduler,
        flags: RunningFlags,
        stats: StoreStats,
    ) -> None:
        self.log = replica_log
        """The log as bytes."""
        self._commit_log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._upkeep = upkeep
        self._visibility = visibility
        self._acks = acks
        self._scheduler = scheduler
        self._flags = flags
        self._stats = stats

    def require_replicas(self, gate: ReplicaGate, timeout_ms: int) -> None:
        """Make puts also wait for slaves (SYNC_MASTER), and limit readers to what slaves have."""
        self._acks.require_replicas(gate, timeout_ms)
        self._visibility.wait_for_slaves(gate.confirmed)
        self._dispatcher.accept_cut_limit()

    def hide_tail(self, position: int, shown_topics: Collection[str] = ()) -> None:
        """Hide the log after `position` from readers until the slaves have all of the current log.

        Queues of `shown_topics`, which belong to the broker, stay visible.
        """
        self._scheduler.dispatch_if_due()
        until = self._dispatcher.position
        if position < until:
            heal = self._upkeep.heal_queue
            log, queues = self._commit_log, self._queues
            self._visibility.hide(find_tail(log, queues, heal, position, until, shown_topics))

    def show_tail(self) -> None:
        """Make the whole log visible to readers."""
        tail = self._visibility.release()
        if tail is not None:
            self._dispatcher.announce(tail.ends)

    def confirmed_moved(self) -> None:
        """The confirmed position has grown: make more visible to readers."""
        tail, confirmed = self._visibility.unreplicated_tail, self._visibility.confirmed
        if tail is not None and confirmed is not None and confirmed.position >= tail.until:
            self.show_tail()
        self._scheduler.dispatch_soon()

    def visible_position(self) -> int:
        """Readers see no record that ends after this position."""
        self._scheduler.dispatch_if_due()
        tail = self._visibility.unreplicated_tail
        return self._dispatcher.position if tail is None else tail.position

    def waits_to_show(self) -> bool:
        """Whether the log has records that readers see only once the slaves have them.

        A consumer that read at a slave may know them already.
        """
        if self._visibility.unreplicated_tail is not None:
            return True
        waits = self._visibility.confirmed is not None
        return waits and self.visible_position() < self._commit_log.position

    @property
    def message_count(self) -> int:
        """Messages in the queues, as far as they are dispatched."""
        return sum(queue.max_offset - queue.min_offset for queue in self._queues)

    @property
    def appended(self) -> tuple[int, int]:
        """The end of the log, and how many messages were appended since it was opened."""
        return self._commit_log.position, self._stats.put_messages

    def queue_end(self, topic: str, queue_id: int) -> int:
        """The end of a queue, entries hidden from readers included."""
        self._scheduler.dispatch_if_due()
        queue = self._queues.find(encoded_text("topic", topic), queue_id)
        return 0 if queue is None else queue.max_offset

    def set_running(self, flag: Running, on: bool) -> None:
        """Set or clear a flag of the broker that refuses puts."""
        self._flags.set(flag, on)

    def message_count_from(self, position: int) -> int:
        """Messages in the queues whose records are at `position` or after it."""
        self._scheduler.dispatch_if_due()
        return sum(queue.max_offset - queue.first_kept(position) for queue in self._queues)

    def next_offsets_at(self, position: int) -> tuple[tuple[bytes, int, int], ...]:
        """The next offset of each queue if the log ended at `position`."""
        self._scheduler.dispatch_if_due()
        return tuple(next_offsets_at(self._queues, position))
