"""Dispatch: order, limits, groups, arrivals, healing and rebuilding of queues and index."""

from __future__ import annotations

import errno

import pytest

from broker_core.errors import CorruptRecord, DiskFull
from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import bodies, new_disk, numbered, open_small, put_all, rows, run_of

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}


def queue_paths(disk: SimulatedDisk, topic: str = "T") -> list[str]:
    return [path for path in disk.files() if path.startswith(f"consumequeue/{topic}/")]


class TestOrder:
    def test_arrivals_are_announced_with_the_new_end(self) -> None:
        store = open_small(new_disk())
        seen: list[tuple[bytes, int, int]] = []
        store.on_arrival(lambda *arrival: seen.append(arrival))
        store.put_now(Message("A", b"1"))
        store.put_now(Message("A", b"2", queue_id=3))
        store.put_now(Message("A", b"3"))
        store.append_batch(rows(b"4", b"5", topic=b"A"))
        store.flush()
        assert seen == [(b"A", 0, 1), (b"A", 3, 1), (b"A", 0, 2), (b"A", 0, 4)]

    def test_a_listener_can_read_what_was_announced(self) -> None:
        store = open_small(new_disk())
        found: list[bytes] = []

        def read(topic: bytes, queue_id: int, end: int) -> None:
            found.extend(
                message.body for message in store.get(topic.decode(), queue_id, end - 1).messages()
            )

        store.on_arrival(read)
        for body in numbered(20, 1_000):
            store.put_now(Message("T", body))
        assert found == numbered(20, 1_000)

    def test_a_listener_that_dispatches_more_moves_no_end_back(self) -> None:
        store = open_small(new_disk())
        ends: list[int] = []

        def answer(_topic: bytes, _queue_id: int, end: int) -> None:
            if end < 3:
                store.put_now(Message("T", b"answer"))

        store.on_arrival(answer)
        store.on_arrival(lambda _topic, _queue_id, end: ends.append(end))
        store.put_now(Message("T", b"question"))
        assert ends == sorted(ends)
        assert ends[-1] == 3

    def test_prepared_and_rollback_messages_are_in_no_queue(self) -> None:
        store = open_small(new_disk())
        for sys_flag in (0x04, 0x0C):
            store.append(Message("T", b"hidden", sys_flag=sys_flag, keys="hidden"))
        for sys_flag in (0x00, 0x08):
            store.append(Message("T", b"shown", sys_flag=sys_flag, keys="shown"))
        store.flush()
        assert bodies(store, "T") == [b"shown", b"shown"]
        assert [message.sys_flag for message in store.query("T", "shown")] == [0, 8]
        assert [message.sys_flag & 0x0C for message in store.query("T", "hidden")] == [4]

    def test_small_slices_lead_to_the_same_queues(self) -> None:
        trees = []
        for slice_size in (1024, 8 << 20):
            disk = new_disk()
            store = open_small(disk, dispatch_slice_size=slice_size)
            for body in numbered(50, 700):
                store.append(Message("T", body, keys="k"))
            store.flush()
            store.close()
            trees.append({p: c for p, c in disk.tree().items() if p.startswith("consumequeue")})
        assert trees[0] == trees[1]


class TestLimits:
    def test_synchronous_flush_shows_what_is_durable(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        disk.on_operation = lambda _: check()

        def check() -> None:
            assert store.dispatched_position <= store.flushed_position

        for body in numbered(30, 1_000):
            store.append(Message("T", body))
        store.flush()
        disk.on_operation = None
        assert store.dispatched_position == store.log_range[1]

    def test_asynchronous_flush_shows_what_is_committed(self) -> None:
        store = open_small(new_disk(), **ASYNC)
        store.append(Message("T", b"a"))
        assert bodies(store, "T") == [b"a"]
        pooled = open_small(new_disk(), **ASYNC, transient_pool_enable=True)
        pooled.append(Message("T", b"a"))
        assert pooled.offsets("T", 0) == (0, 0)
        pooled.reads._clock.advance(200)
        pooled.scheduler.tick()
        assert bodies(pooled, "T") == [b"a"]

    def test_a_group_waits_for_the_disk_and_holds_up_what_follows(self) -> None:
        store = open_small(new_disk(), **ASYNC)
        group = store.append_group([run_of(*numbered(30, 1_000))])
        store.append(Message("U", b"behind"))
        assert store.dispatched_position == group.position
        assert store.offsets("U", 0) == (0, 0)
        store.flush()
        assert bodies(store, "U") == [b"behind"]


class TestDamagedLog:
    def test_a_bad_record_stops_dispatch_with_its_place(self) -> None:
        """Bytes that change between append and dispatch; nothing behind them is shown."""
        store = open_small(new_disk(), **ASYNC, transient_pool_enable=True)
        first = store.append(Message("T", b"a"))
        store.append(Message("T", b"b"))
        segment = store._opened.log.segments.last
        assert segment is not None
        segment.target[first.end_position + 4] ^= 0xFF
        with pytest.raises(CorruptRecord) as caught:
            store.flush()
        assert caught.value.position == first.end_position
        assert caught.value.path.startswith("commitlog/")
        assert bodies(store, "T") == [b"a"]


class TestHealing:
    def stored(self, count: int = 60) -> tuple[MessageStore, SimulatedDisk]:
        disk = new_disk()
        store = open_small(disk)
        put_all(store, "T", numbered(count, 200), keys="key")
        put_all(store, "U", [b"u"])
        store.close()
        return open_small(disk), disk

    @pytest.mark.parametrize("number", [0, 1, 2])
    @pytest.mark.parametrize("harm", ["flip", "delete", "truncate"])
    def test_damaged_queue_files_are_rebuilt_on_the_way(self, number: int, harm: str) -> None:
        disk = new_disk()
        store = open_small(disk)
        put_all(store, "T", numbered(60, 200))
        store.close()
        path = queue_paths(disk)[number]
        getattr(disk, harm)(path, *([] if harm == "delete" else [37]))
        store = open_small(disk)
        assert bodies(store, "T") == numbered(60, 200)
        assert store.put_now(Message("T", b"next")).queue_offset == 60
        store.close()
        again = open_small(disk)
        assert bodies(again, "T") == [*numbered(60, 200), b"next"]

    @pytest.mark.parametrize("call", ["get", "columns", "store_time", "by_time", "durable_offset"])
    def test_every_kind_of_read_heals(self, call: str) -> None:
        disk = new_disk()
        store = open_small(disk, **ASYNC)
        put_all(store, "T", numbered(60, 200))
        store.close()
        disk.flip(queue_paths(disk)[0], 100)
        store = open_small(disk, **ASYNC)
        store.append(Message("T", b"not durable"))
        body = numbered(1, 200, 3)[0]
        answers = {
            "get": lambda: store.get("T", 0, 3, 1).messages()[0].body == body,
            "columns": lambda: bytes(store.read_columns("T", 0, 3, 4, 1)["value"][0]) == body,
            "store_time": lambda: store.store_time("T", 0, 3) == disk.clock.wall_ms(),
            "by_time": lambda: store.offset_by_time("T", 0, 0) == 0,
            "durable_offset": lambda: store.durable_offset("T", 0) == 60,
        }
        assert answers[call]()

    def test_a_deleted_topic_stays_deleted_when_its_queue_is_rebuilt(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        put_all(store, "T", numbered(30, 200))
        assert store.delete_topic("T") == 1
        put_all(store, "T", numbered(30, 200, 30))
        store.close()
        disk.flip(queue_paths(disk)[0], 8 * 399)
        store = open_small(disk)
        assert store.offsets("T", 0) == (30, 60)
        assert bodies(store, "T") == numbered(30, 200, 30)
        assert store.offsets("T", 0) == (30, 60)

    def test_a_damaged_index_is_rebuilt_on_the_way(self) -> None:
        store, disk = self.stored()
        store.close()
        for path in [p for p in disk.files() if p.startswith("index/")]:
            disk.flip(path, 8 * 50)
        store = open_small(disk)
        assert len(store.query("T", "key", 64)) == 60

    def test_an_index_that_cannot_be_written_stops_puts_until_it_can(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        put_all(store, "T", [b"a"], keys="k")
        full = {"allocate", "create"}
        disk.fail(disk.operation_count + 1, errno.ENOSPC, sticky=True, methods=full)
        for _ in range(40):
            store.append(Message("T", b"b", keys="k"))
        store.flush()
        assert bodies(store, "T")[0] == b"a"
        assert store.append(Message("T", b"c")).status is PutStatus.SERVICE_NOT_AVAILABLE
        with pytest.raises(DiskFull):
            store.query("T", "k", 64)
        disk._faults.clear()
        store.scheduler.tick()
        assert store.put_now(Message("T", b"c", keys="k")).ok
        assert len(store.query("T", "k", 64)) == store.offsets("T", 0)[1]

    def test_queues_that_cannot_be_written_stop_puts_until_they_can(self) -> None:
        disk = new_disk()
        store = open_small(disk, consume_queue_flush_least_pages=0)
        put_all(store, "T", numbered(3))
        disk.fail(disk.operation_count + 1, errno.ENOSPC, sticky=True, methods={"make_dir"})
        disk.clock.advance(1_000)
        store.scheduler.tick()
        assert store.append(Message("T", b"c")).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert bodies(store, "T") == numbered(3), "reads go on from memory"
        disk._faults.clear()
        disk.clock.advance(1_000)
        store.scheduler.tick()
        assert store.put_now(Message("T", b"3")).ok
        store.close()
        assert bodies(open_small(disk), "T") == numbered(4)


class TestCheckpoints:
    def test_they_shorten_the_next_recovery(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        put_all(store, "T", numbered(20, 500))
        middle = store.log_range[1]
        disk.clock.advance(10_000)
        store.scheduler.tick()
        put_all(store, "T", numbered(20, 500, 20))
        again = open_small(disk.kill())
        assert again.recovery.dispatched_from == middle
        assert bodies(again, "T") == numbered(40, 500)

    def test_an_asynchronous_store_flushes_first(self) -> None:
        disk = new_disk()
        store = open_small(disk, **ASYNC)
        store.append(Message("T", b"a"))
        end = store.log_range[1]
        disk.clock.advance(10_000)
        store.scheduler.tick()
        disk.clock.advance(10_000)
        store.scheduler.tick()
        assert store.flushed_position == end
        assert open_small(disk.kill(), **ASYNC).recovery.dispatched_from == end

    def test_without_news_nothing_is_written(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        put_all(store, "T", numbered(3))
        for _ in range(3):
            disk.clock.advance(20_000)
            store.scheduler.tick()
        operations = disk.operation_count
        for _ in range(10):
            disk.clock.advance(20_000)
            store.scheduler.tick()
        assert disk.operation_count == operations
