"""Counts of one push consumer by topic, for `GET_CONSUMER_RUNNING_INFO`."""

from __future__ import annotations

from typing import Any

from broker_core.runtime.clock import Clock


class _TopicCounts:
    __slots__ = ("consume_s", "done", "failed", "pull_s", "pulled", "pulls")

    def __init__(self) -> None:
        self.done = self.failed = self.pulled = self.pulls = 0
        self.consume_s = self.pull_s = 0.0


class ConsumeStats:
    """Counts since the consumer started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self.started_ms = clock.wall_ms()
        self._topics: dict[str, _TopicCounts] = {}

    def consumed(self, topic: str, done: int, failed: int, seconds: float) -> None:
        """Count a listener call."""
        counts = self._of(topic)
        counts.done += done
        counts.failed += failed
        counts.consume_s += seconds

    def pulled(self, topic: str, count: int, seconds: float) -> None:
        counts = self._of(topic)
        counts.pulls += 1
        counts.pulled += count
        counts.pull_s += seconds

    def table(self) -> dict[str, dict[str, Any]]:
        """By topic, with Java's names; times in milliseconds, rates per second."""
        elapsed_s = max(self._clock.monotonic() - self._started, 0.001)
        return {
            topic: {
                "consumeFailedMsgs": counts.failed,
                "consumeFailedTPS": counts.failed / elapsed_s,
                "consumeOKTPS": counts.done / elapsed_s,
                "consumeRT": counts.consume_s * 1000 / max(counts.done + counts.failed, 1),
                "pullRT": counts.pull_s * 1000 / max(counts.pulls, 1),
                "pullTPS": counts.pulled / elapsed_s,
            }
            for topic, counts in self._topics.items()
        }

    def _of(self, topic: str) -> _TopicCounts:
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = _TopicCounts()
        return counts
