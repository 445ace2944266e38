"""Counters of one store: puts, gets, times and sizes. Owner thread only."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

from broker_core.protocol_codes import GetStatus, PutStatus

# Upper bounds of the put-time classes in milliseconds, as in RocketMQ's distribution.
PUT_TIME_BOUNDS_MS = (0.1, 1, 10, 50, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000)
TOPICS_MAX = 10_000


class StoreStats:
    """Numbers since the store was opened."""

    def __init__(self) -> None:
        self.put_statuses: Counter[PutStatus] = Counter()
        self.get_statuses: Counter[GetStatus] = Counter()
        # Counted by `put_one` and `put_rows`; not in a dict, because enum members hash slowly.
        self._put_one_count = 0
        # Messages since `_begin_run`, all of one topic and none slower than `_run_ms`.
        self._run_topic = b""
        self._run_count = self._run_bytes = 0
        self._run_ms = 0.0
        self._put_messages = 0
        self._put_bytes = 0
        self._put_times = [0] * (len(PUT_TIME_BOUNDS_MS) + 1)
        self.put_time_max_ms = 0.0
        self.get_messages = 0
        self.get_bytes = 0
        self.get_time_max_ms = 0.0
        self.dispatched_messages = 0
        self._topic_messages: Counter[bytes] = Counter()

    def put(self, topics: tuple[tuple[bytes, int], ...], count: int, size: int, ms: float) -> None:
        """One append of `count` messages."""
        self._put_messages += count
        self._put_bytes += size
        self._put_times[bisect_left(PUT_TIME_BOUNDS_MS, ms)] += 1
        self.put_time_max_ms = max(self.put_time_max_ms, ms)
        if len(topics) == 1:
            self._count_topic(topics[0][0], count)

    def put_one(self, topic: bytes, size: int, ms: float) -> None:
        """`put` for a single accepted message."""
        # Called for every message. Nearly all are fast and have the same topic as the last one.
        if topic is not self._run_topic or ms > self._run_ms:
            self._begin_run(topic, ms)
        self._run_count += 1
        self._run_bytes += size

    def _begin_run(self, topic: bytes, ms: float) -> None:
        self._end_run()
        self._run_topic = topic
        self.put_time_max_ms = max(self.put_time_max_ms, ms)
        self._run_ms = min(self.put_time_max_ms, PUT_TIME_BOUNDS_MS[0])
        if ms > PUT_TIME_BOUNDS_MS[0]:
            # `_end_run` will count it as fast.
            self._put_times[0] -= 1
            self._put_times[bisect_left(PUT_TIME_BOUNDS_MS, ms)] += 1

    def _end_run(self) -> None:
        count, size = self._run_count, self._run_bytes
        self._run_count = self._run_bytes = 0
        if count:
            self._put_one_count += count
            self._put_messages += count
            self._put_bytes += size
            self._put_times[0] += count
            self._count_topic(self._run_topic, count)

    def _count_topic(self, topic: bytes, count: int) -> None:
        if count and (topic in self._topic_messages or len(self._topic_messages) < TOPICS_MAX):
            self._topic_messages[topic] += count

    @property
    def put_messages(self) -> int:
        """Messages that were appended."""
        return self._put_messages + self._run_count

    def put_rows(
        self, queues: Sequence[tuple[bytes, int]], counts: Sequence[int], size: int, ms: float
    ) -> None:
        """`put_one` for messages that were accepted together, in `ms` altogether.

        `counts` has the number of messages of each queue.
        """
        count = sum(counts)
        self._put_one_count += count
        self._put_messages += count
        self._put_bytes += size
        self._put_times[bisect_left(PUT_TIME_BOUNDS_MS, ms)] += count
        if ms > self.put_time_max_ms:
            self.put_time_max_ms = ms
        for (topic, _), taken in zip(queues, counts, strict=True):
            self._count_topic(topic, taken)

    def get(self, status: GetStatus, count: int, size: int, ms: float = 0.0) -> None:
        """One read by queue offset."""
        if ms > self.get_time_max_ms:
            self.get_time_max_ms = ms
        self.get_statuses[status] += 1
        self.get_messages += count
        self.get_bytes += size

    def _status_counts(self) -> dict[str, int]:
        counts = Counter({status.name: n for status, n in self.put_statuses.items()})
        if self._put_one_count:
            counts[PutStatus.PUT_OK.name] += self._put_one_count
        return dict(counts)

    def snapshot(self) -> dict[str, Any]:
        """Plain values, for runtime info and tests."""
        self._end_run()
        return {
            "put_messages": self._put_messages,
            "put_bytes": self._put_bytes,
            "put_statuses": self._status_counts(),
            "put_time_max_ms": self.put_time_max_ms,
            "put_time_distribution": dict(
                zip(
                    (*(f"<={ms}ms" for ms in PUT_TIME_BOUNDS_MS), ">10000ms"),
                    self._put_times,
                    strict=True,
                )
            ),
            "get_messages": self.get_messages,
            "get_bytes": self.get_bytes,
            "get_time_max_ms": self.get_time_max_ms,
            "get_statuses": {status.name: n for status, n in self.get_statuses.items()},
            "dispatched_messages": self.dispatched_messages,
            "topic_messages": {
                topic.decode("ascii"): n for topic, n in self._topic_messages.items()
            },
        }
