"""When to sync and when to commit: pure decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.config import StoreConfig
from broker_core.flush.flush_policy import (
    CommitRealTime,
    FlushView,
    GroupCommit,
    RealTimeFlush,
    commit_policy,
    enough_pages,
    sync_policy,
)
from broker_core.protocol_codes import FlushDiskType

PAGE = 4096


def view(target: int, reached: int = 0, now_ms: int = 0, moved_ms: int = 0, thorough_ms: int = 0,
         asked: bool = False) -> FlushView:  # fmt: skip
    return FlushView(target, reached, now_ms, moved_ms, thorough_ms, asked)


@pytest.mark.parametrize(
    ("target", "reached", "pages", "enough"),
    [
        (0, 0, 0, False),
        (1, 0, 0, True),
        (PAGE - 1, 0, 1, False),
        (PAGE, 0, 1, True),
        (PAGE, PAGE - 1, 1, True),
        (2 * PAGE - 1, PAGE, 1, False),
        (4 * PAGE, 1, 4, True),
        (4 * PAGE - 1, 0, 4, False),
        (5 * PAGE, 4 * PAGE, 2, False),
    ],
)
def test_pages_are_counted_by_their_boundaries(
    target: int, reached: int, pages: int, enough: bool
) -> None:
    assert enough_pages(target, reached, pages) is enough


def test_group_commit_is_due_when_someone_waits() -> None:
    policy = GroupCommit()
    assert policy.due(view(1, asked=True))
    assert not policy.due(view(1))
    assert not policy.due(view(1, reached=1, asked=True))


class TestRealTimeFlush:
    def test_waits_for_interval_and_pages(self) -> None:
        policy = RealTimeFlush(500, 4, 10_000, timed=True)
        assert not policy.due(view(4 * PAGE, now_ms=499))
        assert policy.due(view(4 * PAGE, now_ms=500))
        assert not policy.due(view(4 * PAGE - 1, now_ms=500))

    def test_the_thorough_interval_needs_no_pages(self) -> None:
        policy = RealTimeFlush(500, 4, 10_000, timed=True)
        assert not policy.due(view(1, now_ms=9_999))
        assert policy.due(view(1, now_ms=10_000))
        assert not policy.due(view(1, now_ms=10_000, thorough_ms=1))
        assert not policy.due(view(1, reached=1, now_ms=10_000))

    def test_a_wake_up_counts_only_when_it_is_not_timed(self) -> None:
        asked = view(4 * PAGE, now_ms=1, asked=True)
        assert RealTimeFlush(500, 4, 10_000, timed=False).due(asked)
        assert not RealTimeFlush(500, 4, 10_000, timed=True).due(asked)
        few = view(1, now_ms=1, asked=True)
        assert not RealTimeFlush(500, 4, 10_000, timed=False).due(few)


class TestCommitRealTime:
    def test_waits_for_interval_or_wake_up(self) -> None:
        policy = CommitRealTime(200, 4, 200)
        assert not policy.due(view(8 * PAGE, now_ms=199))
        assert policy.due(view(8 * PAGE, now_ms=199, asked=True))
        assert policy.due(view(8 * PAGE, now_ms=200))

    def test_few_pages_wait_for_the_thorough_interval(self) -> None:
        policy = CommitRealTime(200, 4, 1_000)
        assert not policy.due(view(1, now_ms=999, asked=True))
        assert not policy.due(view(1, now_ms=999))
        assert policy.due(view(1, now_ms=1_000))
        assert not policy.due(view(1, reached=1, now_ms=1_000, asked=True))


def test_policies_follow_the_configuration() -> None:
    assert isinstance(sync_policy(StoreConfig()), GroupCommit)
    asynchronous = StoreConfig(flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    assert isinstance(sync_policy(asynchronous), RealTimeFlush)
    assert commit_policy(StoreConfig()) is None
    pooled = StoreConfig(transient_pool_enable=True)
    assert isinstance(commit_policy(pooled), CommitRealTime)


POSITIONS, TIMES = st.integers(0, 1 << 20), st.integers(0, 20_000)


@given(st.builds(view, POSITIONS, POSITIONS, TIMES, TIMES, TIMES, st.booleans()))
def test_nothing_is_due_when_everything_is_reached(seen: FlushView) -> None:
    policies = (GroupCommit(), RealTimeFlush(500, 4, 10_000, timed=True), CommitRealTime(1, 0, 1))
    done = seen._replace(reached=max(seen.target, seen.reached))
    assert not any(policy.due(done) for policy in policies)
