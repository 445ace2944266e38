"""Waiters for bytes that enough slaves have, in addition to the disk.

Waits for the disk and the slaves at the same time, and answers when both are done. The status of
the slaves is the answer, unless the disk failed.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from broker_core.flush.durable_ack import DurableAcks, StatusCallback, StatusFuture, as_future
from broker_core.protocol_codes import PutStatus
from broker_core.runtime.clock import Clock
from broker_core.runtime.watermark import Watermark

_PUT_OK = PutStatus.PUT_OK


class ReplicaGate(Protocol):
    """How far slaves have copied the log."""

    @property
    def confirmed(self) -> Watermark:
        """Enough slaves have reported every position below."""

    def available(self, position: int) -> bool:
        """Whether enough slaves are connected and close enough to `position` to wait for them."""


class ReplicatedAcks:
    """Same interface as `DurableAcks`; waits for the disk and slaves. Owner thread only."""

    def __init__(
        self,
        disk: DurableAcks | None,
        gate: ReplicaGate,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self._disk = disk
        self._gate = gate
        self._slaves = DurableAcks(
            gate.confirmed, clock, timeout_ms, late=PutStatus.FLUSH_SLAVE_TIMEOUT
        )

    def when(self, position: int, callback: StatusCallback) -> None:
        """Call `callback(status)` once the disk (if it is waited for) and the slaves have it."""
        if self._disk is None:
            self._when_copied(position, callback)
            return
        both = _Both(callback)
        self._disk.when(position, both.disk)
        self._when_copied(position, both.slaves)

    def wait(self, position: int) -> StatusFuture:
        """`when` as a future."""
        return as_future(partial(self.when, position))

    def tick(self) -> None:
        """Answer waiters whose deadline has passed."""
        if self._disk is not None:
            self._disk.tick()
        self._slaves.tick()

    def _when_copied(self, position: int, callback: StatusCallback) -> None:
        if self._gate.confirmed.position >= position or self._gate.available(position):
            self._slaves.when(position, callback)
        else:
            callback(PutStatus.SLAVE_NOT_AVAILABLE)


class _Both:
    """Settles when both statuses have arrived."""

    __slots__ = ("_callback", "_disk", "_slaves")

    def __init__(self, callback: StatusCallback) -> None:
        self._callback = callback
        self._disk: PutStatus | None = None
        self._slaves: PutStatus | None = None

    def disk(self, status: PutStatus) -> None:
        """The disk is done."""
        self._disk = status
        self._settle()

    def slaves(self, status: PutStatus) -> None:
        """The slaves are done."""
        self._slaves = status
        self._settle()

    def _settle(self) -> None:
        if self._disk is None or self._slaves is None:
            return
        # After a failed sync it is unknown whether the message is stored, which is worse.
        disk_wins = self._slaves is _PUT_OK or not self._disk.stored
        self._callback(self._disk if disk_wins else self._slaves)
