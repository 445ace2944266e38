"""Walking the log, and recovery's verdicts: where it ends, what is torn and what is damage."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable

import pytest

from broker_core.dispatch.log_dispatcher import LogDispatcher
from broker_core.errors import CorruptStore, StoreFenced
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.derived.consume_queue_set import ConsumeQueueSet
from broker_core.storage.log.log_walk import KeptSteps, group_header_at, walk_step
from broker_core.storage.state.recovery import (
    find_log_end,
)
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import bodies, new_disk, numbered, open_small, put_all, run_of

SIZE = 16 << 10
FIRST = "commitlog/00000000000000000000"
ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}
NO_DELAYS = memoryview(b"").cast("B")


def walk(store: MessageStore, slice_size: int = 8 << 20) -> list[tuple[int, int, int]]:
    """(start, end, records) of every step over a whole log."""
    log = store._opened.log
    position, steps = log.start, []
    while position < log.position:
        step = walk_step(
            log.segments,
            position,
            log.position,
            check_crc=1,
            delays=NO_DELAYS,
            slice_size=slice_size,
        )
        assert step.scan is not None
        assert step.end > position
        steps.append((step.start, step.end, step.scan.count))
        position = step.end
    return steps


class TestWalk:
    def filled(self) -> MessageStore:
        store = open_small(new_disk())
        put_all(store, "T", numbered(30, 1_500))
        return store

    def test_steps_stay_inside_one_file(self) -> None:
        store = self.filled()
        steps = walk(store)
        assert [start for start, _, _ in steps] == [0, SIZE, 2 * SIZE]
        assert sum(count for _, _, count in steps) == 30

    @pytest.mark.parametrize("slice_size", [1, 100, 1_700, 5_000])
    def test_slices_cut_no_record(self, slice_size: int) -> None:
        steps = walk(self.filled(), slice_size)
        assert sum(count for _, _, count in steps) == 30
        for (_, end, _), (start, _, _) in itertools.pairwise(steps):
            assert end == start

    def test_past_the_end(self) -> None:
        store = self.filled()
        log = store._opened.log
        step = walk_step(log.segments, log.position, 1 << 40, check_crc=1, delays=NO_DELAYS)
        assert (step.scan is None or step.scan.count == 0, step.end) == (True, log.position)
        assert step.ended
        beyond = walk_step(log.segments, 1 << 40, 1 << 41, check_crc=1, delays=NO_DELAYS)
        assert (beyond.scan, beyond.ended) == (None, True)

    def test_group_headers_are_recognised_where_they_are(self) -> None:
        store = open_small(new_disk())
        store.append(Message("T", b"a"))
        group = store.append_group([run_of(b"b", b"c")], b"note")
        store.append(Message("rmq_sys_append_grouP", b"d"))
        segments = store._opened.log.segments
        header = group_header_at(segments, group.position)
        assert header is not None
        assert (header.start, header.end, header.note) == (
            group.position, group.end_position, b"note",
        )  # fmt: skip
        others = [p for p in range(store.log_range[1] + 10) if p != group.position]
        assert not any(group_header_at(segments, p) for p in others)


class TestKeptSteps:
    @pytest.mark.parametrize("size_max", [0, 1, 700, 1 << 20])
    def test_kept_steps_and_a_walk_over_the_rest_find_the_same(self, size_max: int) -> None:
        store = open_small(new_disk())
        for number in range(60):
            store.append(Message(f"T{number % 3}", bytes(1_000), number % 2, keys=f"k{number}"))
        store.append_group([run_of(b"b", b"c", topic=b"T1")])
        store.flush()
        log, disk = store._opened.log, new_disk()
        kept = KeptSteps(size_max)
        end = find_log_end(log.segments, 0, NO_DELAYS, 0, None, kept)
        assert (end.position, kept.is_full) == (log.position, size_max < 1 << 20)
        queues = ConsumeQueueSet(disk, 2_000)
        dispatcher = LogDispatcher(
            log, queues, None, 0, clock=disk.clock, delays=NO_DELAYS, slice_size=8 << 20
        )
        dispatcher.dispatch_kept(kept, log.position)
        assert (dispatcher.position > 0) is (size_max > 0)
        assert (dispatcher.position == log.position) is (size_max == 1 << 20)
        dispatcher.dispatch(log.position, log.position)
        assert dispatcher.store_timestamp == store._opened.dispatcher.store_timestamp
        assert len(queues) == len(store._opened.queues)
        for queue in store._opened.queues:
            assert queues.queue(queue.key).read(0, 99) == queue.read(0, 99)

    def test_steps_behind_the_limit_are_not_given(self) -> None:
        store = open_small(new_disk())
        put_all(store, "T", numbered(30, 1_500))
        log, kept = store._opened.log, KeptSteps()
        find_log_end(log.segments, 0, NO_DELAYS, 0, None, kept)
        assert kept.take(1, log.position) is None, "not where a step begins"
        step = kept.take(SIZE, log.position)
        assert step is not None
        assert (step.start, step.end) == (SIZE, 2 * SIZE)
        assert kept.take(SIZE, log.position) is None, "given once"
        assert kept.take(2 * SIZE, log.position - 1) is None
        assert kept.take(2 * SIZE, log.position) is not None


class TestVerdicts:
    """Ten messages; the last five are not durable, in a mode that shows them at once."""

    def half_durable(self) -> tuple[SimulatedDisk, list[int]]:
        disk = new_disk()
        store = open_small(disk, **ASYNC)
        put_all(store, "T", numbered(5, 300))
        ends = [store.append(Message("T", body)).end_position for body in numbered(5, 300, 5)]
        assert store.flushed_position < ends[0]
        return disk.kill(), [store.flushed_position, *ends]

    def test_after_a_kill_everything_is_there(self) -> None:
        disk, ends = self.half_durable()
        store = open_small(disk, **ASYNC)
        assert not store.recovery.clean
        assert store.log_range == (0, ends[-1])
        assert bodies(store, "T") == numbered(10, 300)
        assert store.epoch == 1, "nothing that was seen is gone"

    @pytest.mark.parametrize("victim", range(5))
    def test_a_torn_tail_is_cut_and_zeroed(self, victim: int) -> None:
        disk, ends = self.half_durable()
        disk.flip(FIRST, 8 * (ends[victim] + 150))
        store = open_small(disk, **ASYNC)
        assert store.recovery.cut_reason
        assert bodies(store, "T") == numbered(5 + victim, 300)
        assert store.log_range == (0, ends[victim])
        assert not any(disk.content(FIRST)[ends[victim] :])
        assert store.put_now(Message("T", b"next")).queue_offset == 5 + victim
        assert bodies(open_small(disk.kill(), **ASYNC), "T")[-1] == b"next"

    def test_cut_bytes_never_come_back(self) -> None:
        """A new record of the same size ends where an old intact one began."""
        disk, ends = self.half_durable()
        disk.flip(FIRST, 8 * (ends[0] + 150))
        store = open_small(disk, **ASYNC)
        result = store.append(Message("T", b"again".ljust(300, b".")))
        assert result.end_position == ends[1]
        again = open_small(disk.kill(), **ASYNC)
        assert bodies(again, "T") == [*numbered(5, 300), b"again".ljust(300, b".")]

    @pytest.mark.parametrize("at", [4, 20, 40, 150, 380])
    def test_damage_below_the_watermark_is_reported_and_not_touched(self, at: int) -> None:
        disk, _ = self.half_durable()
        disk.flip(FIRST, 8 * at)
        tree = disk.tree()
        with pytest.raises(CorruptStore) as caught:
            open_small(disk, **ASYNC)
        assert caught.value.path == FIRST
        assert caught.value.position == 0
        changed = {p for p, c in disk.tree().items() if tree.get(p) != c}
        assert not {p for p in changed if p.startswith("commitlog")}
        with pytest.raises(CorruptStore):
            open_small(disk, **ASYNC)

    @pytest.mark.parametrize(
        "harm",
        [
            lambda disk: disk.delete(FIRST),
            lambda disk: disk.truncate(FIRST, 100),
            lambda disk: disk.overwrite(FIRST, bytes(SIZE)),
        ],
        ids=["missing", "short", "zeros"],
    )
    def test_lost_files_are_reported(self, harm: Callable[[SimulatedDisk], None]) -> None:
        disk, _ = self.half_durable()
        harm(disk)
        with pytest.raises(CorruptStore, match=FIRST):
            open_small(disk, **ASYNC)

    def test_a_power_cut_keeps_the_epoch_and_every_end_that_was_named(self) -> None:
        """With ASYNC_FLUSH, too: only what is durable is named to readers that keep offsets."""
        disk = new_disk()
        store = open_small(disk, **ASYNC)
        put_all(store, "T", numbered(5, 300))
        named: list[BaseException | None] = []
        store.reads.when_visible_is_durable(named.append)
        store.flush()
        assert named == [None]
        store.append(Message("T", b"seen, not durable"))
        ends = set()
        for state in disk.crash_states(limit=30):
            again = open_small(disk.reboot(state), **ASYNC)
            assert (again.epoch, again.recovery.epoch_changed) == (1, False)
            assert bodies(again, "T")[:5] == numbered(5, 300)
            ends.add(again.offsets("T", 0)[1])
        assert ends == {5, 6}

    def test_the_epoch_changes_when_the_disk_failed(self) -> None:
        disk = new_disk()
        store = open_small(disk, **ASYNC)
        put_all(store, "T", numbered(5, 300))
        store.append(Message("T", b"seen, not durable"))
        disk.fail(disk.operation_count + 1, errno.EIO, sticky=True, methods={"sync"})
        with pytest.raises(StoreFenced):
            store.flush()
        again = open_small(disk.kill(), **ASYNC)
        assert (again.epoch, again.recovery.epoch_changed) == (2, True)

    def test_with_synchronous_flush_the_epoch_stays(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        put_all(store, "T", numbered(5, 300))
        for state in disk.crash_states(limit=30):
            again = open_small(disk.reboot(state))
            assert (again.epoch, again.recovery.epoch_changed) == (1, False)
            assert bodies(again, "T") == numbered(5, 300)

    def test_recovery_twice_is_recovery_once(self) -> None:
        disk, ends = self.half_durable()
        disk.flip(FIRST, 8 * (ends[2] + 150))
        first = open_small(disk, **ASYNC)
        found, log_range = bodies(first, "T"), first.log_range
        for _ in range(3):
            disk = disk.kill()
            again = open_small(disk, **ASYNC)
            assert (bodies(again, "T"), again.log_range) == (found, log_range)
            assert again.recovery.cut_reason == ""

    def test_queues_and_index_are_a_function_of_the_log(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        put_all(store, "T", numbered(60, 300), keys="key other", tags="tag")
        store.close()
        before = {p: c for p, c in disk.tree().items() if p.startswith(("consumequeue", "index"))}
        for name in ("consumequeue", "index", "dispatch_checkpoint"):
            disk.delete(name)
        store = open_small(disk)
        assert bodies(store, "T") == numbered(60, 300)
        assert len(store.query("T", "key", 64)) == 60
        store.close()
        after = {p: c for p, c in disk.tree().items() if p.startswith(("consumequeue", "index"))}
        queues = {p: c for p, c in before.items() if p.startswith("consumequeue")}
        assert {p: c for p, c in after.items() if p.startswith("consumequeue")} == queues
        indexes = [
            sorted(c for p, c in t.items() if p.startswith("index")) for t in (before, after)
        ]
        assert indexes[0] == indexes[1], "names are creation times, the bytes are the same"
