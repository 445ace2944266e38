"""RocketMQ's running flags of a store (not writable, not readable, …), and `closed`."""

from __future__ import annotations

import enum

from broker_core.errors import StoreClosed


class Running(enum.IntEnum):
    """Bits of RocketMQ's running flags."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    LOGIC_QUEUE_ERROR = 4
    INDEX_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    # Ours: a newer master was found; fewer slaves are in sync than puts require.
    STEPPED_DOWN = 1 << 16
    REPLICAS_MISSING = 1 << 17


class RunningFlags:
    """The current bits. Owner thread only; every put reads `writeable`."""

    def __init__(self) -> None:
        self.bits = 0
        self.writeable = True
        self.closed = False

    def set(self, bit: Running, on: bool) -> None:
        """Set or clear one bit."""
        self.bits = self.bits | bit if on else self.bits & ~bit
        self.writeable = not self.closed and self.bits & ~Running.NOT_READABLE == 0

    def close(self) -> None:
        """Refuse puts and reads from now on."""
        self.closed, self.writeable = True, False

    def require_open(self) -> None:
        """Raise `StoreClosed` after `close`; on any thread."""
        if self.closed:
            raise StoreClosed("the store is closed; open it again")

    @property
    def readable(self) -> bool:
        """Whether reads are allowed."""
        return not self.bits & Running.NOT_READABLE

    def describe(self) -> str:
        """Names of the set bits, for a remark."""
        return ", ".join(bit.name for bit in Running if bit & self.bits)
