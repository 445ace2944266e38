"""The open half messages, as offsets of their queue. In memory, compact, pure.

Every half below `low` has ended. From there to `high` the open ones are kept in blocks; a block
without an open half is dropped. A million open halves take 11 bytes each, and a single old one does
not keep the blocks after it.
"""

from __future__ import annotations

from array import array
from typing import Final

BLOCK_SIZE: Final = 128
CHECKS_MAX: Final = (1 << 16) - 1
# Arrived before this broker started.
BEFORE_START: Final = -(1 << 62)

_NO_FLAGS: Final = bytes(BLOCK_SIZE)
_NO_CHECKS: Final = array("H", bytes(2 * BLOCK_SIZE))
_NO_TIMES: Final = array("q", bytes(8 * BLOCK_SIZE))


class _Block:
    __slots__ = ("arrived_ms", "checks", "flags", "open_count")

    def __init__(self) -> None:
        self.flags = bytearray(_NO_FLAGS)
        self.checks = array("H", _NO_CHECKS)
        self.arrived_ms = array("q", _NO_TIMES)
        self.open_count = 0


class OpenTransactions:
    """Offsets `[low, high)`. Opened in order, closed in any."""

    def __init__(self, start: int) -> None:
        self.high = start
        self.open_count = 0
        # In order of their numbers, because they are created in that order.
        self._blocks: dict[int, _Block] = {}

    @property
    def low(self) -> int:
        """The first open half, or `high`."""
        for number, block in self._blocks.items():
            return number * BLOCK_SIZE + block.flags.find(1)
        return self.high

    def extend(self, high: int, arrived_ms: int) -> None:
        """Open the halves up to `high`."""
        while self.high < high:
            number, at = divmod(self.high, BLOCK_SIZE)
            until = min(BLOCK_SIZE, high - number * BLOCK_SIZE)
            block = self._blocks.get(number)
            if block is None:
                block = self._blocks[number] = _Block()
            count = until - at
            block.flags[at:until] = b"\1" * count
            block.arrived_ms[at:until] = array("q", (arrived_ms,)) * count
            block.open_count += count
            self.open_count += count
            self.high += count

    def is_open(self, offset: int) -> bool:
        """Whether this half exists and has not ended."""
        block = self._blocks.get(offset // BLOCK_SIZE)
        return block is not None and block.flags[offset % BLOCK_SIZE] == 1

    def close(self, offset: int) -> bool:
        """End a half; False when it was not open."""
        if not self.is_open(offset):
            return False
        number, at = divmod(offset, BLOCK_SIZE)
        block = self._blocks[number]
        block.flags[at] = 0
        block.open_count -= 1
        self.open_count -= 1
        if not block.open_count:
            del self._blocks[number]
        return True

    def close_below(self, offset: int) -> int:
        """End all halves below; returns how many were open."""
        before = self.open_count
        for number in list(self._blocks):
            if (number + 1) * BLOCK_SIZE <= offset:
                self.open_count -= self._blocks.pop(number).open_count
                continue
            for at in self.open_in(number):
                if at < offset:
                    self.close(at)
            break
        return before - self.open_count

    def blocks(self) -> list[int]:
        """Numbers of the blocks with open halves, ascending."""
        return list(self._blocks)

    def open_in(self, number: int) -> list[int]:
        """Offsets of the open halves of a block, ascending."""
        block = self._blocks.get(number)
        if block is None:
            return []
        base = number * BLOCK_SIZE
        return [base + at for at, flag in enumerate(block.flags) if flag]

    def arrived_ms(self, offset: int) -> int:
        """When an open half arrived, or `BEFORE_START`."""
        return self._blocks[offset // BLOCK_SIZE].arrived_ms[offset % BLOCK_SIZE]

    def checks(self, offset: int) -> int:
        """Number of checks of an open half."""
        return self._blocks[offset // BLOCK_SIZE].checks[offset % BLOCK_SIZE]

    def set_checks(self, offset: int, count: int) -> None:
        """Set the number of checks of an open half."""
        self._blocks[offset // BLOCK_SIZE].checks[offset % BLOCK_SIZE] = min(count, CHECKS_MAX)
