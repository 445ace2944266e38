"""Why a store cannot be written to or read from at the moment; RocketMQ's bits."""

from __future__ import annotations

import enum


class Running(enum.IntFlag):
    """Bits of RocketMQ's running flags."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    LOGIC_QUEUE_ERROR = 4
    INDEX_ERROR = 8
    DISK_FULL = 16
    FENCED = 32


UNWRITEABLE = (
    Running.NOT_WRITEABLE
    | Running.LOGIC_QUEUE_ERROR
    | Running.INDEX_ERROR
    | Running.DISK_FULL
    | Running.FENCED
)


class RunningFlags:
    """The current bits. Owner thread only."""

    def __init__(self) -> None:
        self.bits = Running(0)

    def set(self, bit: Running, on: bool) -> None:
        """Raise or lower one bit."""
        self.bits = self.bits | bit if on else self.bits & ~bit

    @property
    def writeable(self) -> bool:
        """No bit stands against a put."""
        return not self.bits & UNWRITEABLE

    @property
    def readable(self) -> bool:
        """Reads are allowed."""
        return not self.bits & Running.NOT_READABLE

    def describe(self) -> str:
        """The bits by name, for a remark."""
        return ", ".join(bit.name or "" for bit in Running if bit & self.bits)
