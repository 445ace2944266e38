"""Slaves of a master, their positions, and the position that they confirm. Pure.

Owns the `confirmed` watermark of a SYNC_MASTER. A slave of ours is identified by its store and
counts once; each connection of an Apache slave counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker_core.errors import ReplicationRefused
from broker_core.replication.handshake import Identity
from broker_core.runtime.watermark import Watermark

DUPLICATE_ID: Final = "duplicate id"
"""Kind of the refusal of a slave whose id another one has."""


class ReplicaSettings(NamedTuple):
    """Required number of copies of a put, the master's own included."""

    in_sync_replicas: int = 2
    min_in_sync_replicas: int = 1
    fall_behind_max: int = 256 << 20
    slaves_max: int = 16


class Replica:
    """One connected slave."""

    __slots__ = ("address", "identity", "position", "sent")

    def __init__(self, address: str, identity: Identity | None, position: int) -> None:
        self.address = address
        self.identity = identity
        self.position = position
        self.sent = position


class ReplicaSet:
    """Implements the store's `ReplicaGate`. Owner thread only."""

    def __init__(
        self,
        settings: ReplicaSettings,
        end: Callable[[], int],
        confirmed: int | None = None,
        *,
        on_confirmed: Callable[[], object] = lambda: None,
        on_enough: Callable[[bool], object] = lambda enough: None,
    ) -> None:
        """`confirmed`: position of the slaves in the last run; None: the end of the log.

        `on_confirmed()` is called when `confirmed` has moved, `on_enough(enough)` when there begin
        or cease to be enough slaves in sync.
        """
        self._settings = settings
        self._end = end
        self._on_confirmed = on_confirmed
        self._on_enough = on_enough
        self._replicas: list[Replica] = []
        self.confirmed = Watermark(end() if confirmed is None else confirmed)
        self._had_enough = True

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The connected slaves."""
        return tuple(self._replicas)

    @property
    def are_waited_for(self) -> bool:
        """Whether puts wait until slaves have them."""
        return self._settings.in_sync_replicas > 1

    def refuse(self, identity: Identity) -> ReplicationRefused | None:
        """Why a slave of ours may not join now: another slave has its id. None if it may."""
        others = [r.identity for r in self._replicas if r.identity is not None]
        for other in others:
            if other.broker_id == identity.broker_id and other.store_id != identity.store_id:
                return ReplicationRefused(
                    DUPLICATE_ID,
                    f"another slave with brokerId={identity.broker_id} is connected; give each "
                    "slave its own id",
                )
        return None

    @property
    def is_full(self) -> bool:
        """Whether no more slaves may connect."""
        return len(self._replicas) >= self._settings.slaves_max

    def same_store(self, identity: Identity) -> Replica | None:
        """The older connection of a slave that connects again."""
        for replica in self._replicas:
            if replica.identity is not None and replica.identity.store_id == identity.store_id:
                return replica
        return None

    def join(self, replica: Replica) -> None:
        """Add a slave that is copying; its position counts from now on."""
        self._replicas.append(replica)
        self._moved()

    def leave(self, replica: Replica) -> None:
        """Remove a slave whose connection has ended."""
        if replica in self._replicas:
            self._replicas.remove(replica)
            self._report_enough()

    def reached(self, replica: Replica, position: int) -> None:
        """A slave reported a position, which the session has checked."""
        replica.position = position
        self._moved()

    def available(self, position: int) -> bool:
        """The rule of RocketMQ 4: enough slaves are connected and within the allowed gap."""
        return self._near(position) + 1 >= self._settings.in_sync_replicas

    def in_sync_count(self) -> int:
        """Slaves within the gap, and the master."""
        return self._near(self._end()) + 1

    def refresh(self) -> None:
        """Check again whether enough slaves are in sync; they may have fallen behind."""
        self._report_enough()

    def _near(self, position: int) -> int:
        gap = self._settings.fall_behind_max
        return sum(1 for replica in self._replicas if position - replica.position < gap)

    def _moved(self) -> None:
        needed = self._settings.in_sync_replicas - 1
        if needed > 0:
            positions = sorted((r.position for r in self._replicas), reverse=True)
            if len(positions) >= needed and positions[needed - 1] > self.confirmed.position:
                self.confirmed.advance(min(positions[needed - 1], self._end()))
                self._on_confirmed()
        self._report_enough()

    def _report_enough(self) -> None:
        enough = self.in_sync_count() >= self._settings.min_in_sync_replicas
        if enough is not self._had_enough:
            self._had_enough = enough
            self._on_enough(enough)
