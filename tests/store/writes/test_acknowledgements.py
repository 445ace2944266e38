"""When puts and groups are acknowledged: by flush mode, with slaves and without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.config import StoreConfig
from broker_core.errors import StoreFenced
from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.runtime.watermark import Watermark
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.acknowledgements import Acknowledgements
from broker_core.store.writes.message import Message
from tests.store.small_store import new_disk, open_small

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH


class Slaves:
    """A `ReplicaGate` whose slaves are always near."""

    def __init__(self) -> None:
        self.confirmed = Watermark(0)

    def available(self, position: int) -> bool:
        return True


def opened(flush: FlushDiskType, **settings: Any) -> tuple[MessageStore, Acknowledgements, int]:
    """A store with one message, which ASYNC_FLUSH has not flushed, and its end."""
    store = open_small(new_disk(), flush_disk_type=flush, **settings)
    end = store.append(Message("T", b"x")).end_position
    return store, store.writes.acks, end


@pytest.mark.parametrize(
    ("settings", "puts_at_once", "groups_skip_disk"),
    [
        ({"flush_disk_type": SYNC}, False, False),
        ({"flush_disk_type": ASYNC}, True, False),
        ({"flush_disk_type": ASYNC, "group_waits_for_disk": False}, True, True),
    ],
)
def test_what_is_answered_without_waiting(
    settings: dict[str, Any], puts_at_once: bool, groups_skip_disk: bool
) -> None:
    acks = open_small(new_disk(), **settings).writes.acks
    assert (acks.puts_at_once, acks.groups_skip_disk) == (puts_at_once, groups_skip_disk)
    assert StoreConfig().group_waits_for_disk


def test_a_group_waits_for_this_disk() -> None:
    store, acks, end = opened(ASYNC)
    calls: list[BaseException | None] = []
    acks.when_durable(end, calls.append)
    assert calls == []
    store.flush()
    assert calls == [None]


def test_a_group_that_skips_the_disk_waits_for_nothing() -> None:
    _, acks, end = opened(ASYNC, group_waits_for_disk=False)
    calls: list[BaseException | None] = []
    acks.when_durable(end, calls.append)
    assert calls == [None]


@pytest.mark.parametrize("disk_first", [True, False])
def test_with_slaves_a_group_waits_for_both(disk_first: bool) -> None:
    store, acks, end = opened(ASYNC)
    slaves = Slaves()
    store.replication.require_replicas(slaves, 5_000)
    calls: list[BaseException | None] = []
    acks.when_durable(end, calls.append)
    steps = [store.flush, lambda: slaves.confirmed.advance(end)]
    first, second = steps if disk_first else reversed(steps)
    first()
    assert calls == []
    second()
    assert calls == [None]


def test_with_slaves_and_without_the_disk_only_slaves_are_waited_for(
    run_async: Callable[..., Any],
) -> None:
    async def scenario() -> None:
        store, acks, end = opened(ASYNC, group_waits_for_disk=False)
        slaves = Slaves()
        store.replication.require_replicas(slaves, 5_000)
        assert not acks.puts_at_once
        waiting = [acks.puts.wait(end), acks.groups.wait(end)]
        calls: list[BaseException | None] = []
        acks.when_durable(end, calls.append)
        await asyncio.sleep(0)
        assert not any(future.done() for future in waiting)
        assert calls == []
        slaves.confirmed.advance(end)
        assert [await future for future in waiting] == [PutStatus.PUT_OK] * 2
        assert calls == [None]

    run_async(scenario())


def test_silent_slaves_time_out(
    run_async: Callable[..., Any],
) -> None:
    async def scenario() -> None:
        store, acks, end = opened(SYNC)
        store.replication.require_replicas(Slaves(), 5_000)
        put, group = acks.puts.wait(end), acks.groups.wait(end)
        store.flush()
        clock = store.writes._clock
        clock.advance(5_000)  # type: ignore[attr-defined]
        acks.tick()
        assert await put is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert await group is PutStatus.FLUSH_SLAVE_TIMEOUT

    run_async(scenario())


@pytest.mark.parametrize("settings", [{}, {"group_waits_for_disk": False}])
def test_a_fenced_store_acknowledges_nothing(settings: dict[str, Any]) -> None:
    store, acks, end = opened(ASYNC, **settings)
    store._flush.fence(OSError("the log cannot be written"))
    calls: list[BaseException | None] = []
    acks.when_durable(end, calls.append)
    (failure,) = calls
    assert isinstance(failure, StoreFenced)
