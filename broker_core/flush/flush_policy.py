"""Flush policies: when to commit or sync, and up to where. Pure. One per flush service of RocketMQ.

GroupCommit     GroupCommitService     one sync for all requests that are waiting
RealTimeFlush   FlushRealTimeService   syncs on an interval, when enough pages are dirty or a
                                       thorough interval has passed
CommitRealTime  CommitRealTimeService  when buffered bytes are copied to the file
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker_core.config import PAGE_SIZE, StoreConfig
from broker_core.protocol_codes import FlushDiskType


class FlushView(NamedTuple):
    """Input of a policy. `moved_ms`: when this action last ran; `asked`: something waits."""

    target: int
    reached: int
    now_ms: int
    moved_ms: int
    thorough_ms: int
    asked: bool


class Policy(Protocol):
    """Decides about one action."""

    def due(self, view: FlushView) -> bool:
        """Whether to move `reached` up to `target` now."""


def enough_pages(target: int, reached: int, least_pages: int) -> bool:
    """RocketMQ's `isAbleToFlush`: at least this many whole pages, or any byte for 0 pages."""
    if least_pages == 0:
        return target > reached
    return target // PAGE_SIZE - reached // PAGE_SIZE >= least_pages


class GroupCommit:
    """Sync flush: syncs at once when a put waits."""

    def due(self, view: FlushView) -> bool:
        """One sync covers all requests made before it starts."""
        return view.asked and view.target > view.reached


class RealTimeFlush:
    """Async flush: every interval, if enough pages are dirty or the thorough one has passed."""

    def __init__(
        self, interval_ms: int, least_pages: int, thorough_ms: int, *, timed: bool
    ) -> None:
        self._interval_ms = interval_ms
        self._least_pages = least_pages
        self._thorough_ms = thorough_ms
        self._timed = timed

    def due(self, view: FlushView) -> bool:
        """A waiting put shortens the interval only when the flush is not timed."""
        if view.target <= view.reached:
            return False
        waited = view.now_ms - view.moved_ms >= self._interval_ms
        if not waited and (self._timed or not view.asked):
            return False
        if view.now_ms - view.thorough_ms >= self._thorough_ms:
            return True
        return enough_pages(view.target, view.reached, self._least_pages)


class CommitRealTime:
    """Write-buffer pool: copy to the file every interval, or when asked."""

    def __init__(self, interval_ms: int, least_pages: int, thorough_ms: int) -> None:
        self._interval_ms = interval_ms
        self._least_pages = least_pages
        self._thorough_ms = thorough_ms

    def due(self, view: FlushView) -> bool:
        """A waiting put replaces the interval, but not the number of pages."""
        if view.target <= view.reached:
            return False
        if not view.asked and view.now_ms - view.moved_ms < self._interval_ms:
            return False
        if view.now_ms - view.thorough_ms >= self._thorough_ms:
            return True
        return enough_pages(view.target, view.reached, self._least_pages)


def sync_policy(config: StoreConfig) -> Policy:
    """The policy for `flushDiskType`."""
    if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        return GroupCommit()
    return RealTimeFlush(
        config.flush_interval_ms,
        config.flush_least_pages,
        config.flush_thorough_interval_ms,
        timed=config.flush_timed,
    )


def commit_policy(config: StoreConfig) -> Policy | None:
    """The policy for the write-buffer pool, None when it is off."""
    if not config.transient_pool_enable:
        return None
    return CommitRealTime(
        config.commit_interval_ms,
        config.commit_least_pages,
        config.commit_thorough_interval_ms,
    )
