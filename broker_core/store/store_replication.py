"""What a store lets replication do: read and append its log, hold puts back, say how far it is."""

from __future__ import annotations

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

    def confirmed_moved(self) -> None:
        """The gate's position has grown."""
        self._parts.confirmed_moved()

    def set_running(self, flag: Running, on: bool) -> None:
        """Refuse puts for a reason that only the broker knows, or end that."""
        self._parts.flags.set(flag, on)

    def next_offsets_at(self, position: int) -> tuple[tuple[bytes, int, int], ...]:
        """How the queues would be numbered if the log ended at `position`."""
        return tuple(next_offsets_at(self._parts.queues, position))
