"""Rows that a killed at-least-once task left, and its retry wrote again, are read once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from broker_core import SyncAdmin
from broker_core.runtime.clock import SystemClock
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.batch_plan import batch_ranges, batch_tasks
from pyspark_rmq.source.offsets.offset_planning import plan_tasks, ranges_between
from pyspark_rmq.source.offsets.stream_position import StreamOffset
from pyspark_rmq.source.rows import repeat_survey
from pyspark_rmq.source.rows.message_batches import arrow_schema
from pyspark_rmq.source.rows.range_reader import Task, read_task
from pyspark_rmq.source.rows.repeat_survey import batch_repeats, deduplicated
from pyspark_rmq.source.stream_session import Limits, StreamSession
from tests.spark.repeating_sink import ROWS, values_of, write

PROJECT = Path(__file__).resolve().parents[2]
VALUE = (ChosenColumn("value", "value"),)


def messages_in(broker: EmbeddedBroker, topic: str) -> int:
    with SyncAdmin(broker.name_server) as admin:
        return sum(end - begin for begin, end in admin.topic_offsets(topic).values())


def kill_a_task(broker: EmbeddedBroker, topic: str, batch: int, **more: str) -> int:
    """How much a task had written when it was killed: some of it, not all."""
    before = messages_in(broker, topic)
    command = [sys.executable, "-m", "tests.spark.repeating_sink", broker.name_server, topic]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    options = [f"{name}={value}" for name, value in more.items()]
    task = subprocess.Popen(
        [*command, str(batch), *options], stdin=subprocess.PIPE, cwd=PROJECT, env=environment
    )
    assert task.stdin is not None
    clock = SystemClock()
    until = clock.monotonic() + 300
    try:
        while (written := messages_in(broker, topic) - before) == 0:
            assert task.poll() is None, "the task has ended"
            assert clock.monotonic() < until
    finally:
        task.send_signal(signal.SIGKILL)
        task.wait()
        task.stdin.close()
    written = messages_in(broker, topic) - before
    assert 0 < written < ROWS
    return written


class Reading:
    """A query as the stream reader runs it, and the multiset of what it read."""

    def __init__(self, broker: EmbeddedBroker, topic: str, **more: str) -> None:
        texts = {**broker.options, "subscribe": topic, "startingOffsets": "earliest", **more}
        self.options = SourceOptions.parse({"deduplicate": "true", **texts}).for_stream()
        self.connected = connections.connect(self.options.connection)
        self.values: Counter[str] = Counter()
        self.batches: list[tuple[StreamOffset, StreamOffset]] = []
        self.restart()
        self.position: StreamOffset = self.connected.call(self.session.initial())

    def restart(self) -> None:
        """All that a new driver has is the position."""
        self.session = StreamSession(self.connected.client, self.options)

    def run(self) -> None:
        limits = Limits(self.options.rows_per_trigger_max)
        while True:
            end = self.connected.call(self.session.latest(self.position, limits, may_wait=False))
            if end is self.position:
                return
            end = deduplicated(self.position, end, self.options, self.connected)
            end = StreamOffset.from_json(end.to_json())
            self.batches.append((self.position, end))
            self.values.update(self.rows(self.position, end))
            self.position = end
            self.restart()

    def rows(self, start: StreamOffset, end: StreamOffset) -> list[str]:
        tasks = plan_tasks(ranges_between(start, end), end.row_sizes, tasks_min=2)
        found = [Task.of(ranges, dict(end.stores), end.repeats) for ranges in tasks]
        return values_in(found, self.options)


def values_in(tasks: list[Task], options: SourceOptions) -> list[str]:
    batches = [batch for task in tasks for batch in read_task(task, options, VALUE)]
    table = pa.Table.from_batches(batches, arrow_schema(VALUE))
    return [value.decode() for value in table.column(0).to_pylist()]


def once(*batches: int) -> Counter[str]:
    return Counter(value for batch in batches for value in values_of(batch))


@pytest.mark.parametrize("more", [{}, {"queueSelector": "hash"}], ids=["blocks", "hash"])
def test_a_killed_task_and_its_retries(
    broker: EmbeddedBroker, new_topic: Callable[..., str], more: dict[str, str]
) -> None:
    topic = new_topic(4)
    strict = Reading(broker, topic, maxOffsetsPerTrigger="3000")
    written = kill_a_task(broker, topic, 0, **more)
    # What the killed task left is read before the retry writes it again, elsewhere.
    strict.run()
    assert sum(strict.values.values()) == written
    kill_a_task(broker, topic, 0, **more)
    write(broker.name_server, topic, 0, **more)
    write(broker.name_server, topic, 1, **more)
    # A batch again after the next one: a driver of yesterday.
    write(broker.name_server, topic, 0, **more)
    broker.produce(topic, [b"plain", b"plain"])
    strict.run()
    assert strict.values == once(0, 1) + Counter({"plain": 2})
    assert len(strict.batches) > 4
    # Read again they are the same, also without what was read before.
    again = Counter(row for pair in strict.batches for row in strict.rows(*pair))
    assert again == strict.values
    for way in ("on", "off"):
        whole = Reading(broker, topic, shortCircuit=way)
        whole.run()
        assert (whole.values, len(whole.batches)) == (strict.values, 1)
    plain = Reading(broker, topic, deduplicate="false")
    assert sum(plain.values.values()) == 0


def test_a_batch_read_and_its_conditions(
    broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(4)
    for _ in range(2):
        write(broker.name_server, topic, 0)

    def read(**more: str) -> Counter[str]:
        texts = {**broker.options, "subscribe": topic, "deduplicate": "true", **more}
        options = SourceOptions.parse(texts).for_batch()
        connected = connections.connect(options.connection)
        ranges = connected.call(batch_ranges(connected.client, options))
        repeats = batch_repeats(ranges, options, connected) if options.deduplicates else {}
        tasks = batch_tasks(connected.client, options, ranges, repeats=repeats)
        return Counter(values_in(connected.call(tasks), options))

    assert read() == once(0)
    assert read(deduplicate="false") == once(0) + once(0)
    assert read(minPartitions="5", shortCircuit="off") == once(0)
    # Conditions choose among the rows that are left: together they are everything, once.
    parts = [read(where=f"partition = {queue}") for queue in range(4)]
    assert sum(parts, Counter()) == once(0)
    assert read(where="offset < 1000") + read(where="offset >= 1000") == once(0)


def test_a_batch_ends_where_its_list_is_full(
    broker: EmbeddedBroker, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeat_survey, "RANGES_MAX", 5)
    topic = new_topic(4)
    for batch in (0, 0, 1, 0, 1):
        write(broker.name_server, topic, batch, queueSelector="hash")
        broker.produce(topic, [b"plain"])
    reading = Reading(broker, topic, shortCircuit="off")
    reading.run()
    assert reading.values == once(0, 1) + Counter({"plain": 5})


def test_positions_are_small(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(4)
    reading = Reading(broker, topic, deduplicateBatches="3")
    for batch in range(6):
        write(broker.name_server, topic, batch)
        reading.run()
    kept = reading.position.to_json()["rows"]
    assert kept == {topic: {"query": {str(batch): {"0": [0, ROWS]} for batch in (3, 4, 5)}}}
    assert "repeats" not in reading.position.to_json()
