"""A served store on real files: group commit between tasks, closing while puts wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.config import StoreConfig
from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.runtime import lane_worker
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.store.small_store import bodies, new_disk, open_small, rows, run_of

SIZES = {
    "commit_log_file_size": 64 << 10,
    "consume_queue_file_size": 2_000,
    "index_hash_slots": 64,
    "index_entries_max": 512,
    # A disk that is busy with other things may take longer than the default of 5 s for a sync, and
    # a machine that pauses in the middle of a put is not one that has no memory left.
    "sync_flush_timeout_ms": 120_000,
    "page_cache_busy_timeout_ms": 120_000,
}
MODES = {
    "sync": {},
    "sync with pool": {"transient_pool_enable": True},
    "async": {"flush_disk_type": FlushDiskType.ASYNC_FLUSH},
    "async with pool": {
        "flush_disk_type": FlushDiskType.ASYNC_FLUSH,
        "transient_pool_enable": True,
    },
}


@pytest.mark.parametrize("lane", ["as built", "none"])
@pytest.mark.parametrize("mode", MODES)
def test_256_producers(
    mode: str,
    lane: str,
    run_async: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if lane == "none":
        monkeypatch.setattr(lane_worker, "_lanes", None)

    async def producer(store: MessageStore, number: int) -> list[int]:
        offsets = []
        for turn in range(4):
            message = Message("T", b"%d-%d" % (number, turn), queue_id=number % 4)
            result = await store.put(message)
            assert result.ok
            if mode.startswith("sync"):
                assert store.flushed_position >= result.end_position
            offsets.append(result.queue_offset)
        return offsets

    async def scenario() -> None:
        store = MessageStore.open(tmp_path, StoreConfig(**SIZES, **MODES[mode]))
        await store.start()
        offsets = await asyncio.gather(*(producer(store, number) for number in range(256)))
        for queue_id in range(4):
            taken = sorted(n for i in range(queue_id, 256, 4) for n in offsets[i])
            assert taken == list(range(256))
        store.flush()
        assert store.offsets("T", 3) == (0, 256)
        store.close()

    run_async(scenario())
    with MessageStore.open(tmp_path, StoreConfig(**SIZES)) as store:
        assert store.recovery.clean
        assert [len(bodies(store, "T", queue_id)) for queue_id in range(4)] == [256] * 4


def test_waiters_share_their_syncs(run_async: Callable[..., Any]) -> None:
    disk = new_disk()

    def log_syncs() -> int:
        return sum(op.method == "sync" and "commitlog" in op.path for op in disk.operations())

    async def scenario() -> None:
        store = open_small(disk, commit_log_file_size=1 << 20)
        await store.start()
        await store.put(Message("T", b"first"))
        before = log_syncs()
        results = await asyncio.gather(*(store.put(Message("T", b"x")) for _ in range(500)))
        assert all(result.ok for result in results)
        assert log_syncs() - before <= 10, "500 waiters, a handful of syncs"
        store.close()

    run_async(scenario())


@pytest.mark.parametrize("mode", MODES)
def test_closing_while_puts_wait(mode: str, run_async: Callable[..., Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        store = MessageStore.open(tmp_path, StoreConfig(**SIZES, **MODES[mode]))
        await store.start()
        puts = [asyncio.create_task(store.put(Message("T", b"x" * 500))) for _ in range(300)]
        group = asyncio.create_task(store.put_group([run_of(b"g", topic=b"G")]))
        await asyncio.sleep(0)
        store.close()
        results = await asyncio.gather(*puts, group)
        assert {result.status for result in results} == {PutStatus.PUT_OK}
        assert (await store.put(Message("T", b"y"))).status is PutStatus.SERVICE_NOT_AVAILABLE
        # Reports of the threads may still come; they must find nothing to do.
        for _ in range(5):
            await asyncio.sleep(0)

    run_async(scenario())
    logs = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    with MessageStore.open(tmp_path, StoreConfig(**SIZES)) as store:
        assert store.recovery.clean
        assert len(bodies(store, "T")) == 300
        assert bodies(store, "G") == [b"g"]
        end = store.log_range[1]
    assert logs == [f"{base:020d}" for base in range(0, end, 64 << 10)], "no spare is left"


def test_a_file_in_preparation_at_the_close_is_removed(run_async: Callable[..., Any]) -> None:
    disk = new_disk()

    async def scenario() -> None:
        store = open_small(disk)
        await store.start()
        store.append_batch(rows(b"x"))
        # No turn of the loop: the report of the prepared file is still on its way.
        store.close()
        for _ in range(5):
            await asyncio.sleep(0)

    run_async(scenario())
    assert [path for path in disk.files() if path.startswith("commitlog/")] == [
        "commitlog/00000000000000000000"
    ]
    assert not disk.mapped, "every file is closed"


def test_closing_after_the_loop_has_ended(run_async: Callable[..., Any], tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, StoreConfig(**SIZES))

    async def scenario() -> None:
        await store.start()
        await store.put(Message("T", b"a"))
        store.append(Message("T", b"b"))

    run_async(scenario())
    store.close()
    with MessageStore.open(tmp_path, StoreConfig(**SIZES)) as again:
        assert again.recovery.clean
        assert bodies(again, "T") == [b"a", b"b"]


def test_two_publishers_of_one_staged_batch(run_async: Callable[..., Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        store = MessageStore.open(tmp_path, StoreConfig(**SIZES))
        await store.start()
        staging_id = store.staging.begin()
        store.staging.append(staging_id, run_of(b"once"), 1)
        batch = store.staging.seal(staging_id)
        outcomes = await asyncio.gather(
            store.publish([batch]), store.publish([batch]), return_exceptions=True
        )
        published = [o for o in outcomes if not isinstance(o, BaseException)]
        assert len(published) == 1
        assert published[0].ok
        assert bodies(store, "T") == [b"once"]
        assert store.staging.size == 0
        store.close()

    run_async(scenario())


def test_start_twice_and_close_twice(run_async: Callable[..., Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        store = MessageStore.open(tmp_path, StoreConfig(**SIZES))
        await store.start()
        await store.start()
        assert (await store.put(Message("T", b"a"))).ok
        store.close()
        store.close()

    run_async(scenario())


def test_periodic_work_makes_asynchronous_puts_durable(
    run_async: Callable[..., Any], tmp_path: Path
) -> None:
    async def scenario() -> None:
        config = StoreConfig(
            **SIZES, **MODES["async with pool"], flush_interval_ms=10, flush_least_pages=0,
            commit_interval_ms=10, commit_least_pages=0,
        )  # fmt: skip
        store = MessageStore.open(tmp_path, config)
        await store.start()
        arrivals: asyncio.Queue[tuple[bytes, int, int]] = asyncio.Queue()
        store.on_arrival(lambda *arrival: arrivals.put_nowait(arrival))
        result = await store.put(Message("T", b"a"))
        assert await arrivals.get() == (b"T", 0, 1)
        durable = asyncio.get_running_loop().create_future()
        store.when_durable(result, durable.set_result)
        assert await durable is None
        assert store.durable_offset("T", 0) == 1
        store.close()

    run_async(scenario())
