"""What a store lets replication do: read and append its log, hold puts back, say how far it is."""

from __future__ import annotations

from collections.abc import Collection

from broker_core.flush.replicated_ack import ReplicaGate
from broker_core.store.replica_log import ReplicaLog, next_offsets_at
from broker_core.store.running_flags import Running
from broker_core.store.store_parts import StoreParts


class StoreReplication:
    """Owner thread only; `MessageStore.replication` gives it out."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts

    @property
    def log(self) -> ReplicaLog:
        """The log as bytes."""
        return self._parts.replica_log

    def require_replicas(self, gate: ReplicaGate, timeout_ms: int) -> None:
        """Have puts wait for slaves, too (SYNC_MASTER), and readers see what these have."""
        self._parts.require_replicas(gate, timeout_ms)

    def hold_back(self, position: int, shown_topics: Collection[str] = ()) -> None:
        """Hide the log behind `position` from readers until the slaves have all there is now.

        Queues of `shown_topics`, which belong to the broker, stay as they are.
        """
        self._parts.hold_back(position, shown_topics)

    def hold_nothing_back(self) -> None:
        """Show readers all that there is."""
        self._parts.hold_nothing_back()

    @property
    def visible_position(self) -> int:
        """Readers see no record that ends behind this."""
        self._parts.catch_up()
        held = self._parts.reader.held_back
        return self._parts.dispatcher.position if held is None else held.position

    @property
    def waits_to_show(self) -> bool:
        """Whether the log has records that readers see once the slaves have them, too.

        Who read at a slave may know them already.
        """
        parts = self._parts
        waits = parts.upkeep.confirmed is not None
        return parts.reader.held_back is not None or (
            waits and self.visible_position < parts.log.position
        )

    @property
    def message_count(self) -> int:
        """Messages in the queues."""
        return sum(queue.max_offset - queue.min_offset for queue in self._parts.queues)

    @property
    def appended(self) -> tuple[int, int]:
        """The end of the log, and how many messages were appended since it was opened."""
        return self._parts.log.position, self._parts.stats.put_messages

    def queue_end(self, topic: str, queue_id: int) -> int:
        """The end of a queue, with what is held back from readers."""
        self._parts.catch_up()
        queue = self._parts.queues.find(topic.encode("utf-8", "surrogatepass"), queue_id)
        return 0 if queue is None else queue.max_offset

    def confirmed_moved(self) -> None:
        """The gate's position has grown."""
        self._parts.confirmed_moved()

    def set_running(self, flag: Running, on: bool) -> None:
        """Refuse puts for a reason that only the broker knows, or end that."""
        self._parts.flags.set(flag, on)

    def next_offsets_at(self, position: int) -> tuple[tuple[bytes, int, int], ...]:
        """How the queues would be numbered if the log ended at `position`."""
        return tuple(next_offsets_at(self._parts.queues, position))
