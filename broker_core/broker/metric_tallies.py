"""What only a broker with metrics counts as it goes; a broker without them has none of this.

Histograms with the bounds of Apache's broker, and how far each group has been given its queues,
which a broker need not know otherwise.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
SIZE_BOUNDS: Final = (KIB, 4 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB)
# Seconds
FINISH_BOUNDS: Final = (5, 60, 600, 3_600, 43_200, 86_400)
DELAY_BOUNDS: Final = (60, 600, 3_600, 43_200, 86_400, 259_200)
# Queues of groups that are remembered; those that come on top are left out.
PULLED_MAX: Final = 20_000


class Histogram:
    """Counts per bucket, and the sum."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """`count` times the same value."""
        self.buckets[bisect_left(self.bounds, value)] += count
        self.total += value * count


class MetricTallies:
    """Of one broker. Event loop only."""

    def __init__(self) -> None:
        self.message_sizes = Histogram(SIZE_BOUNDS)
        self.finish_s = Histogram(FINISH_BOUNDS)
        self.delays_s = Histogram(DELAY_BOUNDS)
        self._pulled: dict[tuple[str, str, int], int] = {}

    def put(self, count: int, size: int) -> None:
        """Messages that came together, with the size of all of them."""
        if count > 0:
            self.message_sizes.add(size / count, count)

    def pulled(self, group: str, topic: str, queue_id: int, until: int) -> None:
        """A group was given everything before an offset."""
        key = (group, topic, queue_id)
        if key in self._pulled or len(self._pulled) < PULLED_MAX:
            self._pulled[key] = until

    def pulled_until(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group goes on; 0 when it has not pulled since the start."""
        return self._pulled.get((group, topic, queue_id), 0)
