"""Statistics: totals, and counts per topic and group over a minute, an hour and a day.

Counting happens for every message: it only adds and reads no clock. `sample` runs every ten seconds
and keeps the counts of that moment. A window is the difference between now and its oldest sample.
Owned by the event loop.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker_core.runtime.clock import Clock

SAMPLE_INTERVAL_MS: Final = 10_000
# Entries of one kind; further ones count in the totals only.
ENTRIES_MAX: Final = 10_000

KIB: Final = 1024
MIB: Final = 1024 * KIB
# Bucket bounds of the metrics' histograms, those of Apache's broker: bytes, then seconds.
SIZE_BOUNDS: Final = (KIB, 4 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB)
FINISH_BOUNDS: Final = (5, 60, 600, 3_600, 43_200, 86_400)
DELAY_BOUNDS: Final = (60, 600, 3_600, 43_200, 86_400, 259_200)
# Queues of groups whose pulled offset is kept for the metrics; further ones are left out.
PULLED_MAX: Final = 20_000

_Counts = tuple[int, int, int]
_NOTHING: Final[_Counts] = (0, 0, 0)
# A window shorter than this would turn its first message into a rate of thousands.
_WINDOW_MIN_S: Final = 1.0
# The ten-minute rate of the broker needs this many samples.
_TOTALS_KEPT: Final = 61
_MINUTE, _HOUR, _DAY = range(3)
# Per window: samples between two of its marks, and how many marks it keeps.
_WINDOWS: Final = ((1, 7), (60, 7), (360, 25))


class WindowStats(NamedTuple):
    """Counts of one window: total, per second, per call."""

    total: int = 0
    per_second: float = 0.0
    per_call: float = 0.0


class StoreTotals(NamedTuple):
    """Counters of the store that only grow."""

    put_messages: int = 0
    get_messages: int = 0
    gets_found: int = 0
    gets_missed: int = 0


class StoreRates(NamedTuple):
    """`StoreTotals` per second."""

    put_messages: float
    get_messages: float
    gets_found: float
    gets_missed: float


class DayTotals(NamedTuple):
    """A counter at the last two midnights and now."""

    yesterday_morning: int
    today_morning: int
    now: int


class _Entry:
    """Counts of one topic or group, and the marks of its windows, newest last."""

    __slots__ = ("calls", "count", "marks", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.calls = 0
        # All counts were 0 at the newest mark.
        self.marks: tuple[list[_Counts], ...] = tuple([_NOTHING] for _ in _WINDOWS)

    def add(self, count: int, size: int) -> None:
        self.count += count
        self.size += size
        self.calls += 1

    def add_each(self, count: int, size: int) -> None:
        self.count += count
        self.size += size
        self.calls += count

    def mark(self, window: int, kept: int) -> None:
        marks = self.marks[window]
        counts = (self.count, self.size, self.calls)
        # Most entries are quiet; their marks share one object.
        marks.append(marks[-1] if marks[-1] == counts else counts)
        if len(marks) > kept:
            del marks[0]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was counted for a whole day."""
        marks = self.marks[_DAY]
        return len(marks) == _WINDOWS[_DAY][1] and marks[0] is marks[-1]


class Histogram:
    """Counts per bucket, and the sum."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Add the same value `count` times."""
        self.buckets[bisect_left(self.bounds, value)] += count
        self.total += value * count


class MetricTallies:
    """Counters that only a broker with metrics keeps. Event loop only."""

    def __init__(self) -> None:
        self.message_sizes = Histogram(SIZE_BOUNDS)
        self.finish_s = Histogram(FINISH_BOUNDS)
        self.delays_s = Histogram(DELAY_BOUNDS)
        self._pulled: dict[tuple[str, str, int], int] = {}

    def put(self, count: int, size: int) -> None:
        """`count` messages of together `size` bytes were stored."""
        if count > 0:
            self.message_sizes.add(size / count, count)

    def pulled(self, group: str, topic: str, queue_id: int, until: int) -> None:
        """Everything before the offset `until` was delivered to a group."""
        key = (group, topic, queue_id)
        if key in self._pulled or len(self._pulled) < PULLED_MAX:
            self._pulled[key] = until

    def pulled_until(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset for the group; 0 when it has not pulled since the start."""
        return self._pulled.get((group, topic, queue_id), 0)


class BrokerStats:
    """Counters of one broker. `store_stats` has the form of `MessageStore.stats`."""

    def __init__(
        self,
        clock: Clock,
        store_stats: Callable[[], Mapping[str, Any]] | None = None,
        *,
        tallies: MetricTallies | None = None,
    ) -> None:
        self._clock = clock
        self._store_stats = store_stats
        self._topic_put: dict[str, _Entry] = {}
        self._group_get: dict[str, _Entry] = {}
        self._send_back: dict[str, _Entry] = {}
        self._dlq: dict[str, _Entry] = {}
        self._broker_put = _Entry()
        self._broker_get = _Entry()
        now_s = clock.monotonic()
        self._times: tuple[deque[float], ...] = tuple(
            deque([now_s], maxlen=kept) for _, kept in _WINDOWS
        )
        self._samples = 0
        self._totals: deque[tuple[float, StoreTotals]] = deque(
            [(now_s, self._store_totals())], maxlen=_TOTALS_KEPT
        )
        self._day = self._local_day()
        self._mornings = ((0, 0), (0, 0))
        self.started_ms = clock.wall_ms()
        self.tallies = tallies
        """None on a broker without metrics."""

    # Counting

    def put(self, topic: str, count: int, size: int) -> None:
        """`count` messages of together `size` bytes were stored for a topic."""
        if self.tallies is not None:
            self.tallies.put(count, size)
        self._broker_put.add(count, size)
        entry = self._topic_put.get(topic) or _entry(self._topic_put, topic)
        entry.add(count, size)

    def put_each(self, topic: str, count: int, size: int) -> None:
        """`put` for `count` requests of one message each."""
        if self.tallies is not None:
            self.tallies.put(count, size)
        self._broker_put.add_each(count, size)
        entry = self._topic_put.get(topic) or _entry(self._topic_put, topic)
        entry.add_each(count, size)

    def got(self, group: str, topic: str, count: int, size: int) -> None:
        """Messages of a topic were delivered to a group."""
        self._broker_get.add(count, size)
        key = f"{topic}@{group}"
        entry = self._group_get.get(key) or _entry(self._group_get, key)
        entry.add(count, size)

    def send_back(self, group: str, topic: str = "") -> None:
        """A group sent a message back for a retry."""
        _entry(self._send_back, f"{topic}@{group}" if topic else group).add(1, 0)

    def dlq(self, group: str, topic: str = "") -> None:
        """A message went to the dead letters of a group."""
        _entry(self._dlq, f"{topic}@{group}" if topic else group).add(1, 0)

    def remove_topic(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        self._topic_put.pop(topic, None)
        self._remove(lambda key: key.rpartition("@")[0] == topic)

    def remove_group(self, group: str) -> None:
        """Forget a group that was deleted."""
        self._remove(lambda key: key.rpartition("@")[2] == group)

    def _remove(self, is_gone: Callable[[str], bool]) -> None:
        for entries in (self._group_get, self._send_back, self._dlq):
            for key in [key for key in entries if is_gone(key)]:
                del entries[key]

    # Sampling

    def sample(self) -> None:
        """Record the current counts; call this every `SAMPLE_INTERVAL_MS`."""
        now_s = self._clock.monotonic()
        self._samples += 1
        self._totals.append((now_s, self._store_totals()))
        for window, (step, kept) in enumerate(_WINDOWS):
            if self._samples % step == 0:
                self._times[window].append(now_s)
                for entry in self._all_entries():
                    entry.mark(window, kept)
                if window == _DAY:
                    self._drop_quiet()
        today = self._local_day()
        if today != self._day:
            self._day = today
            self._mornings = (self._mornings[1], (self._broker_put.count, self._broker_get.count))

    def _all_entries(self) -> Iterable[_Entry]:
        yield self._broker_put
        yield self._broker_get
        for entries in self._keyed():
            yield from entries.values()

    def _keyed(self) -> tuple[dict[str, _Entry], ...]:
        return self._topic_put, self._group_get, self._send_back, self._dlq

    def _drop_quiet(self) -> None:
        for entries in self._keyed():
            for key in [key for key, entry in entries.items() if entry.is_quiet]:
                del entries[key]

    def _store_totals(self) -> StoreTotals:
        if self._store_stats is None:
            return StoreTotals()
        found = self._store_stats()
        statuses = found["get_statuses"]
        hits = statuses.get("FOUND", 0)
        return StoreTotals(
            found["put_messages"], found["get_messages"], hits, sum(statuses.values()) - hits
        )

    def _local_day(self) -> int:
        return time.localtime(self._clock.wall_ms() / 1000).tm_yday

    # Queries

    def topic_put_tps(self, topic: str) -> float:
        """Messages per second put to a topic in the last minute."""
        return self._rate(self._topic_put.get(topic))

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages per second of a topic delivered to a group in the last minute."""
        return self._rate(self._group_get.get(f"{topic}@{group}"))

    def window_stats(self, name: str, key: str) -> tuple[WindowStats, ...] | None:
        """Minute, hour and day of one of RocketMQ's statistics; None for one that is not kept.

        `key` is a topic, `topic@group`, or anything for those of the whole broker.
        """
        found = self._named(name).get(key)
        if found is None and name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            found = self._broker_put if name == "BROKER_PUT_NUMS" else self._broker_get
        if found is None:
            return None
        column = 1 if name.endswith("_SIZE") else 0
        return tuple(self._window(found, window, column) for window in range(len(_WINDOWS)))

    def store_rates(self, window_s: float) -> StoreRates:
        """Rates of the store over about the last `window_s` seconds."""
        now_s = self._clock.monotonic()
        newest = self._store_totals()
        since_s, oldest = self._totals[0]
        for sampled_s, totals in reversed(self._totals):
            if now_s - sampled_s >= window_s:
                since_s, oldest = sampled_s, totals
                break
        elapsed_s = max(now_s - since_s, _WINDOW_MIN_S)
        return StoreRates(
            *((new - old) / elapsed_s for new, old in zip(newest, oldest, strict=True))
        )

    def put_days(self) -> DayTotals:
        """Messages put up to the last two midnights and up to now."""
        return self._days(0, self._broker_put.count)

    def get_days(self) -> DayTotals:
        """Messages delivered up to the last two midnights and up to now."""
        return self._days(1, self._broker_get.count)

    def stats(self) -> dict[str, Any]:
        """All counts since the broker started, as plain values."""
        return {
            "put_messages": self._broker_put.count,
            "put_bytes": self._broker_put.size,
            "get_messages": self._broker_get.count,
            "get_bytes": self._broker_get.size,
            "topic_put": _plain(self._topic_put),
            "group_get": _plain(self._group_get),
            "send_back": {key: entry.count for key, entry in self._send_back.items()},
            "dlq": {key: entry.count for key, entry in self._dlq.items()},
        }

    def _named(self, name: str) -> Mapping[str, _Entry]:
        return {
            "TOPIC_PUT_NUMS": self._topic_put,
            "TOPIC_PUT_SIZE": self._topic_put,
            "GROUP_GET_NUMS": self._group_get,
            "GROUP_GET_SIZE": self._group_get,
            "SNDBCK_PUT_NUMS": self._send_back,
            "DLQ_PUT_NUMS": self._dlq,
        }.get(name, {})

    def _rate(self, entry: _Entry | None) -> float:
        return 0.0 if entry is None else self._window(entry, _MINUTE, 0).per_second

    def _window(self, entry: _Entry, window: int, column: int) -> WindowStats:
        marks = entry.marks[window]
        # A young entry has fewer marks than there are times; both end with the newest.
        since_s = self._times[window][-len(marks)]
        elapsed_s = max(self._clock.monotonic() - since_s, _WINDOW_MIN_S)
        total = (entry.count, entry.size)[column] - marks[0][column]
        calls = entry.calls - marks[0][2]
        return WindowStats(total, total / elapsed_s, total / calls if calls else 0.0)

    def _days(self, column: int, now: int) -> DayTotals:
        yesterday, today = self._mornings
        return DayTotals(yesterday[column], today[column], now)


def _entry(entries: dict[str, _Entry], key: str) -> _Entry:
    entry = entries.get(key)
    if entry is None:
        entry = _Entry()
        if len(entries) < ENTRIES_MAX:
            entries[key] = entry
    return entry


def _plain(entries: Mapping[str, _Entry]) -> dict[str, dict[str, int]]:
    return {
        key: {"messages": entry.count, "bytes": entry.size, "calls": entry.calls}
        for key, entry in entries.items()
    }
