"""When a store on an event loop syncs, dispatches and works periodically."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.config import StoreConfig
from broker_core.errors import CorruptStore, StoreClosed
from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.store.message_store import MessageStore
from broker_core.store.running_flags import Running
from broker_core.store.writes.message import Message
from tests.store.small_store import rows

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH
LIMIT_S = 120

Run = Callable[..., Any]


def opened(path: Path, flush: FlushDiskType, **settings: Any) -> MessageStore:
    config = StoreConfig(flush_disk_type=flush, commit_log_file_size=1 << 20, **settings)
    return MessageStore.open(path / "store", config)


def test_appends_of_one_turn_share_a_dispatch(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        store = opened(tmp_path, ASYNC)
        await store.start()
        arrivals: list[int] = []
        arrived = asyncio.Event()

        def listener(_topic: bytes, _queue_id: int, end: int) -> None:
            arrivals.append(end)
            arrived.set()

        store.on_arrival(listener)
        for number in range(5):
            store.append(Message("T", b"%d" % number))
        assert arrivals == [], "not inside the appends"
        await asyncio.wait_for(arrived.wait(), LIMIT_S)
        assert arrivals == [5]
        store.close()

    run_async(scenario())


def test_a_read_dispatches_what_is_due(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        store = opened(tmp_path, ASYNC)
        await store.start()
        end = store.append(Message("T", b"x")).end_position
        assert store.dispatched_position < end
        assert store.offsets("T", 0) == (0, 1)
        assert store.dispatched_position == end
        store.close()
        # A closed store has nothing to dispatch, and refuses reads.
        store.scheduler.dispatch_if_due()
        with pytest.raises(StoreClosed):
            store.scheduler.catch_up()

    run_async(scenario())


@pytest.mark.parametrize("is_awaited", [True, False])
def test_messages_that_no_consumer_waits_for_may_arrive_later(
    tmp_path: Path, run_async: Run, is_awaited: bool
) -> None:
    async def scenario() -> None:
        store = opened(tmp_path, ASYNC)
        await store.start()
        store.scheduler.delay_arrivals_unless(lambda: is_awaited)
        arrived = asyncio.Event()
        store.on_arrival(lambda *_: arrived.set())
        # Other messages are dispatched in the next turn in any case: the broker acts on them.
        store.append(Message("other", b"x"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert arrived.is_set()
        arrived.clear()
        store.writes.append_rows(rows(b"a", b"b", topic=b"other"))
        assert (store.scheduler._dispatch_timer is None) is is_awaited
        await asyncio.wait_for(arrived.wait(), LIMIT_S)
        assert store.offsets("other", 0) == (0, 3)
        store.close()

    run_async(scenario())


def test_puts_of_one_turn_share_a_sync(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        store = opened(tmp_path, SYNC)
        await store.start()
        flushed: list[int] = []
        store._flush.flushed.subscribe(lambda: flushed.append(store.flushed_position))
        results = await asyncio.gather(*(store.put(Message("T", b"x")) for _ in range(50)))
        assert {result.status for result in results} == {PutStatus.PUT_OK}
        assert len(set(flushed)) <= 2
        assert flushed[-1] == store.log_range[1]
        store.close()

    run_async(scenario())


def test_damage_that_dispatch_finds_stops_puts_and_not_reads(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        store = opened(tmp_path, ASYNC)
        await store.start()
        assert (await store.put(Message("T", b"good"))).ok
        assert store.offsets("T", 0) == (0, 1)
        bad = store.append(Message("T", b"bad"))
        segment = store._opened.log.segments.last
        assert segment is not None
        segment.view[bad.position + 4] ^= 0xFF
        assert store.offsets("T", 0) == (0, 1)
        assert isinstance(store.scheduler.log_problem, CorruptStore)
        assert store._flags.bits & Running.NOT_WRITEABLE
        refused = store.append(Message("T", b"next"))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert [message.body for message in store.get("T", 0, 0).messages()] == [b"good"]
        segment.view[bad.position + 4] ^= 0xFF
        store.close()

    run_async(scenario())


def test_starting_twice_keeps_the_threads(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        store = opened(tmp_path, ASYNC)
        await store.start()
        worker = store.scheduler._flush_worker._worker
        await store.start()
        assert store.scheduler._flush_worker._worker is worker
        store.close()

    run_async(scenario())
