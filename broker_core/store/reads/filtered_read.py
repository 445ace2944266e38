"""Reads with a property filter, which must read each record; the work per call is bounded.

Unlike tags, properties are in the log only. Every record is verified before it is filtered, so that
damage is reported and never mistaken for a message that does not match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker_core.codec.native import choose_units
from broker_core.codec.records.record_layout import UNIT, UNIT_SIZE
from broker_core.codec.records.record_parse import property_text

# Entries per read of the log: an early match does not wait for later records.
CHUNK_COUNT: Final = 32
# In steps: evaluating one operator, reading half a KiB, or about 1/16 of splitting a property text.
WORK_MAX: Final = 32_000
_WORK_PER_MESSAGE: Final = 16


class RecordFilter(Protocol):
    """Selects messages by their properties."""

    @property
    def cost(self) -> int:
        """Maximum number of steps per message."""

    def accepts(self, property_text: bytes, /) -> bool:
        """Whether a message with this property text is wanted."""


class Limits(NamedTuple):
    """Maximum result of one read; one message is always returned if there is any."""

    count_max: int
    size_max: int


class FilteredRead:
    """One pass over `units`, the queue entries from `offset` on; `gather` reads their records."""

    def __init__(
        self, units: bytes, offset: int, log_start: int, gather: Callable[[bytes, int], bytes]
    ) -> None:
        self._units = units
        self._offset = offset
        self._log_start = log_start
        self._gather = gather
        self._work = 0
        self._size = 0
        self._parts: list[bytes] = []
        self.visited = 0
        """Entries that were examined, removed ones included."""
        self.filtered = False
        """Whether the filter rejected a message."""
        self.last_position = -1

    @property
    def count(self) -> int:
        """Messages found."""
        return len(self._parts)

    @property
    def records(self) -> bytes:
        """The accepted records, back to back."""
        return b"".join(self._parts)

    def run(self, record_filter: RecordFilter, limits: Limits) -> None:
        """Read until the units, the limits or the work of one read are used up."""
        while self.visited * UNIT_SIZE < len(self._units) and self._work < WORK_MAX:
            begin = self.visited
            left = self._units[begin * UNIT_SIZE :]
            runs, chunk, _, _ = choose_units(
                left, self._log_start, CHUNK_COUNT, limits.size_max, None
            )
            for start, end in runs:
                if not self._run_of(begin + start, begin + end, record_filter, limits):
                    return
            self.visited = begin + chunk

    def _run_of(self, start: int, end: int, record_filter: RecordFilter, limits: Limits) -> bool:
        """Filter the records of consecutive units; returns whether to continue after them."""
        units = self._units[start * UNIT_SIZE : end * UNIT_SIZE]
        records = self._gather(units, self._offset + start)
        at = 0
        for number, (position, size, _) in enumerate(UNIT.iter_unpack(units), start):
            self.visited = number
            if self.count >= max(limits.count_max, 1) or self._work >= WORK_MAX:
                return False
            text = property_text(records, at, at + size)
            self._work += (size >> 9) + _WORK_PER_MESSAGE
            self._work += record_filter.cost * (1 + (len(text) >> 10))
            if not record_filter.accepts(text):
                self.filtered = True
            elif self.count and self._size + size > limits.size_max:
                return False
            else:
                self._parts.append(records[at : at + size])
                self._size += size
                self.last_position = position
            at += size
            self.visited = number + 1
        return True
