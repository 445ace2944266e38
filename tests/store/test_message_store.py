"""Random commands against the reference model, compared after every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.codec.native import java_hash
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.config import StoreConfig
from broker_core.protocol_codes import FlushDiskType, GetStatus, PutStatus
from broker_core.storage.staging.staging_area import encode_template
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.codec.codec_backends import batch_of, column
from tests.store.reference_model import GROUP_TOPIC, ReferenceModel, Row
from tests.store.small_store import new_disk

FILE_SIZE = 4096
TOPICS = ("A", "Bb")
TAGS = ("", "x", "yy")
KEYS = ("", "k", "Aa", "BB")
HOUR_MS = 3_600_000

ROWS = st.builds(
    Row,
    st.sampled_from(TOPICS),
    st.integers(0, 1),
    st.one_of(st.integers(0, 40), st.sampled_from((1_500, 3_900))).map(lambda n: b"." * n),
    st.sampled_from(TAGS),
    st.sampled_from(KEYS),
)
SMALL_ROWS = ROWS.filter(lambda row: len(row.body) < 100)


def batch_for(rows: list[Row]) -> ColumnBatch:
    queues = tuple(dict.fromkeys((row.topic.encode(), row.queue_id) for row in rows))
    index = [queues.index((row.topic.encode(), row.queue_id)) for row in rows]
    return batch_of(
        *(row.body for row in rows),
        queues=queues,
        queue_index=np.array(index, np.int32),
        tags=column(*(row.tag.encode() for row in rows)),
        keys=column(*(row.key.encode() for row in rows)),
    )


class StoreMachine(RuleBasedStateMachine):
    """One store, one model, one disk that may lose its power."""

    mode: dict[str, Any] = {}  # noqa: RUF012 - set by the subclasses, one per flush mode

    @initialize()
    def open_store(self) -> None:
        self.config = StoreConfig(
            commit_log_file_size=FILE_SIZE,
            consume_queue_file_size=100,
            index_hash_slots=2,
            index_entries_max=7,
            index_query_max=8,
            **self.mode,
        )
        self.model = ReferenceModel(FILE_SIZE)
        self.disk = new_disk()
        self.is_sync = self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._open()

    def _open(self) -> None:
        self.store = MessageStore.open(self.disk, self.config, clock=self.disk.clock)
        self._observe()

    def _observe(self) -> None:
        """Tell the model what the disk decided; it may only have moved forward."""
        stats = self.store.stats()
        flushed = stats["flushed_position"]
        assert self.model.durable <= flushed <= self.model.end
        self.model.durable = flushed
        self.model.limit = flushed if self.is_sync else stats["committed_position"]
        assert flushed <= stats["committed_position"] <= self.model.end

    def _stamp(self) -> int:
        return max(self.model.last_stored_ms(), self.disk.clock.wall_ms())

    # Puts

    @rule(row=ROWS)
    def put(self, row: Row) -> None:
        expected = self.model.append([row], self._stamp())
        message = Message(row.topic, row.body, row.queue_id, tags=row.tag, keys=row.key)
        self._check_put(self.store.append(message), expected, 1)

    @rule(rows=st.lists(ROWS, min_size=1, max_size=6))
    def put_batch(self, rows: list[Row]) -> None:
        expected = self.model.append(rows, self._stamp())
        self._check_put(self.store.append_batch(batch_for(rows)), expected, len(rows))

    @rule(rows=st.lists(SMALL_ROWS, min_size=1, max_size=6))
    def put_batch_together(self, rows: list[Row]) -> None:
        expected = self.model.append(rows, self._stamp(), together=True)
        result = self.store.append_batch(batch_for(rows), together=True)
        self._check_put(result, expected, len(rows))

    @rule(
        runs=st.lists(st.lists(ROWS, min_size=1, max_size=4), max_size=3),
        note=st.binary(max_size=9),
    )
    def put_group(self, runs: list[list[Row]], note: bytes) -> None:
        rows = [row for run in runs for row in run]
        expected = self.model.append_group(rows, note, self._stamp())
        templates = [encode_template(batch_for(run)) for run in runs]
        result = self.store.append_group(templates, note)
        self._check_put(result, expected, len(rows))

    @rule(row=ROWS, topic=st.sampled_from(("..", "", GROUP_TOPIC, "x" * 128)))
    def refused(self, row: Row, topic: str) -> None:
        result = self.store.append(Message(topic, row.body, row.queue_id))
        assert result.status is PutStatus.MESSAGE_ILLEGAL

    def _check_put(self, result: Any, expected: Any, count: int) -> None:
        assert result.ok, result
        assert (result.position, result.queue_offset) == (expected.position, expected.queue_offset)
        assert (result.message_count, result.store_timestamp) == (count, expected.stored_ms)
        assert result.end_position == self.model.end
        self._observe()
        if self.is_sync:
            assert self.model.durable == self.model.end, (
                "without a loop an append is synced at once"
            )

    # Time and upkeep

    @rule()
    def flush(self) -> None:
        self.store.flush()
        self._observe()
        assert self.model.durable == self.model.end

    @rule(ms=st.sampled_from((1, 250, 1_000, 11_000, HOUR_MS)))
    def time_passes(self, ms: int) -> None:
        self.disk.clock.advance(ms)
        self.store.scheduler.tick()
        self._observe()
        self._check_start(self.store.log_range[0])

    @rule(ms=st.sampled_from((-HOUR_MS, -1, 500)))
    def wall_clock_steps(self, ms: int) -> None:
        self.disk.clock.set_wall(self.disk.clock.wall_ms() + ms)

    @rule()
    def retention(self) -> None:
        self.disk.clock.advance(80 * HOUR_MS)
        start = self.store.clean(manual=True)
        self._observe()
        files = -(-self.model.end // FILE_SIZE)
        assert start >= max(0, min(self.model.start + 10 * FILE_SIZE, (files - 1) * FILE_SIZE))
        self._check_start(start)

    def _check_start(self, start: int) -> None:
        assert start % FILE_SIZE == 0
        assert self.model.start <= start <= max(self.model.end, 0)
        self.model.start = start

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        self._observe()
        self.model.delete_topic(topic)

    # Ends

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.model.durable = self.model.limit = self.model.end
        self._open()
        assert self.store.recovery.clean
        assert self.store.log_range[1] == self.model.end

    @rule()
    def kill_and_open(self) -> None:
        """The page cache survives; only bytes in write buffers are gone."""
        committed, before = self.store.stats()["committed_position"], self.model.end
        epoch = self.store.epoch
        self.disk = self.disk.kill()
        self.store = MessageStore.open(self.disk, self.config, clock=self.disk.clock)
        end = self.store.log_range[1]
        assert committed <= end <= before
        assert end == before or self.config.transient_pool_enable
        self.model.cut(end)
        self._observe()
        assert self.model.durable == end
        assert self.store.epoch == epoch

    @rule(number=st.integers(0, 40))
    def power_cut_and_open(self, number: int) -> None:
        """Everything durable is there, and so every end that was named; of the rest a prefix."""
        durable, before = self.model.durable, self.model.end
        epoch = self.store.epoch
        states = list(self.disk.crash_states(limit=12))
        self.disk = self.disk.reboot(states[number % len(states)])
        self.store = MessageStore.open(self.disk, self.config, clock=self.disk.clock)
        end = self.store.log_range[1]
        assert durable <= end <= before
        self.model.cut(end)
        self._observe()
        assert self.store.epoch == epoch
        if self.is_sync:
            assert end == before
        self._check_start(self.store.log_range[0])

    # Reads

    @rule(
        queue=st.tuples(st.sampled_from((*TOPICS, GROUP_TOPIC, "None")), st.integers(0, 1)),
        offset=st.integers(-1, 30),
        count=st.integers(1, 40),
        size=st.sampled_from((1, 5_000, 1 << 20)),
        tag=st.sampled_from((None, *TAGS)),
    )
    def get(
        self, queue: tuple[str, int], offset: int, count: int, size: int, tag: str | None
    ) -> None:
        topic, queue_id = queue
        codes = None if tag is None else {java_hash(tag.encode())}
        result = self.store.get(topic, queue_id, offset, count, size_max=size, tag_codes=codes)
        kept, end = self.model.readable(topic, queue_id)
        low = kept[0].queue_offset if kept else end
        if end == 0 and (topic, queue_id) not in self.model.queues():
            assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        elif offset < low:
            assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, low)
        elif offset > end:
            assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, end)
        elif offset == end:
            assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, end)
        else:
            self._check_found(result, kept[offset - low :], count, size, tag)

    def _check_found(self, result: Any, kept: list, count: int, size: int, tag: str | None) -> None:
        matching = [r for r in kept if tag is None or r.row.tag == tag]
        taken, total = [], 0
        for record in matching:
            if taken and (len(taken) >= count or total + record.row.size > size):
                break
            taken.append(record)
            total += record.row.size
        found = [(m.queue_offset, m.physical_offset, m.body) for m in result.messages()]
        if kept and kept[0].row.topic != GROUP_TOPIC:
            assert found == [(r.queue_offset, r.position, r.row.body) for r in taken]
        expected = GetStatus.FOUND if taken else GetStatus.NO_MATCHED_MESSAGE
        assert result.status is expected
        if tag is None:
            assert result.next_offset == taken[-1].queue_offset + 1

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(KEYS[1:]), count=st.integers(1, 12))
    def query(self, topic: str, key: str, count: int) -> None:
        found = self.store.query(topic, key, count)
        expected = self.model.by_key(topic, key, min(count, 8))
        assert [m.physical_offset for m in found] == [r.position for r in expected]

    @rule(
        topic=st.sampled_from(TOPICS), queue_id=st.integers(0, 1), ago=st.integers(0, 3 * HOUR_MS)
    )
    def by_time(self, topic: str, queue_id: int, ago: int) -> None:
        time_ms = max(self._stamp() - ago, 0)
        expected = self.model.by_time(topic, queue_id, time_ms)
        assert self.store.offset_by_time(topic, queue_id, time_ms) == expected

    @precondition(lambda self: self.model.visible())
    @rule(data=st.data())
    def at_position(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.model.visible()))
        found = self.store.message_at(record.position)
        if record.position < self.model.start:
            assert found is None
        else:
            assert found is not None
            assert (found.topic, found.queue_offset) == (record.row.topic, record.queue_offset)

    # After every step

    @invariant()
    def same_ranges(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.log_range == (self.model.start, self.model.end)
        if self.is_sync:
            assert self.store.dispatched_position <= self.store.flushed_position
        for topic, queue_id in self.model.queues():
            kept, end = self.model.readable(topic, queue_id)
            low = kept[0].queue_offset if kept else end
            assert self.store.offsets(topic, queue_id) == (low, end), (topic, queue_id)
            durable = [r for r in kept if r.end <= self.model.durable]
            expected = low + len(durable)
            assert self.store.durable_offset(topic, queue_id) == expected

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        self.close_and_open()
        for topic, queue_id in self.model.queues():
            kept, _ = self.model.readable(topic, queue_id)
            for record in kept:
                found = self.store.get(topic, queue_id, record.queue_offset, 1).messages()
                assert [m.physical_offset for m in found] == [record.position]
        self.store.close()


class SyncMachine(StoreMachine):
    """Group commit."""


class AsyncMachine(StoreMachine):
    """Real-time flush."""

    mode = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH, "flush_least_pages": 1}  # noqa: RUF012


class PoolMachine(StoreMachine):
    """Commit, then flush."""

    mode = {  # noqa: RUF012
        "flush_disk_type": FlushDiskType.ASYNC_FLUSH,
        "transient_pool_enable": True,
        "transient_pool_size": 2,
        "commit_least_pages": 1,
    }


# The nightly profile runs as many examples as it says, on longer histories.
_NIGHTLY = settings.default.max_examples > 100
EXAMPLES = settings(
    max_examples=settings.default.max_examples if _NIGHTLY else 40,
    stateful_step_count=60 if _NIGHTLY else 40,
)
TestSync = SyncMachine.TestCase
TestAsync = AsyncMachine.TestCase
TestPool = PoolMachine.TestCase
TestSync.settings = TestAsync.settings = TestPool.settings = EXAMPLES
