"""Tasks read exactly their ranges from a real broker, as the columns that were asked for."""

from __future__ import annotations

import datetime
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer, errors
from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.columns import COLUMNS, PROPERTIES, ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.data_loss import DataLost
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.offsets.stream_position import StoreIdentity
from pyspark_rmq.source.rows import message_batches
from pyspark_rmq.source.rows.message_batches import arrow_schema
from pyspark_rmq.source.rows.range_reader import BATCH_ROWS, Task, joined, read_task

ALL = tuple(ChosenColumn(c.name, c.name) for c in (*COLUMNS, PROPERTIES))
VALUE = (ChosenColumn("value", "value"),)


def rows(
    options: SourceOptions,
    ranges: list[QueueRange],
    columns: tuple[ChosenColumn, ...] = VALUE,
    stores: dict[str, StoreIdentity] | None = None,
) -> list[dict[str, Any]]:
    batches = list(read_task(Task(tuple(ranges), stores or {}), options, columns))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(columns)
    return pa.Table.from_batches(batches, arrow_schema(columns)).to_pylist()


def send(broker: EmbeddedBroker, topic: str, queue_id: int, *messages: OutgoingMessage) -> None:
    queue = MessageQueue(topic, "broker-a", queue_id)
    with SyncProducer(broker.name_server) as producer:
        for message in messages:
            producer.send(message, queue=queue)


def test_every_column(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Callable[..., SourceOptions]
) -> None:
    topic = new_topic(2)
    before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
    rich = OutgoingMessage(topic, b"one", tags="A", keys="k1 k2", properties={"colour": "grün"})
    send(broker, topic, 1, rich, OutgoingMessage(topic, b"two"))
    options = options_of(subscribe=topic)
    first, second = rows(options, [QueueRange(topic, "broker-a", 1, 0, 2)], ALL)
    assert (first["key"], first["value"], first["tags"]) == ("k1 k2", b"one", "A")
    assert (first["topic"], first["broker"], first["partition"]) == (topic, "broker-a", 1)
    assert [first["offset"], second["offset"]] == [0, 1]
    assert dict(first["properties"]) == {"colour": "grün"}
    assert first["reconsumeTimes"] == 0
    assert len(first["msgId"]) == 32
    assert first["msgId"] != second["msgId"]
    assert before < first["bornTimestamp"] <= first["timestamp"] + datetime.timedelta(seconds=1)
    assert (second["key"], second["tags"], second["properties"]) == (None, None, [])


def test_exactly_the_ranges_in_order(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Callable[..., SourceOptions]
) -> None:
    topic = new_topic(12)
    for queue_id in range(12):
        bodies = [OutgoingMessage(topic, b"%d:%d" % (queue_id, n)) for n in range(20)]
        send(broker, topic, queue_id, *bodies)
    ranges = [QueueRange(topic, "broker-a", q, q, 20 - q // 2) for q in range(12)]
    expected = [b"%d:%d" % (r.queue_id, n) for r in ranges for n in range(r.start, r.until)]
    assert [row["value"] for row in rows(options_of(subscribe=topic), ranges)] == expected


def test_bodies_are_as_they_were_sent(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Callable[..., SourceOptions]
) -> None:
    topic = new_topic(1)
    bodies = [b"", b"x" * 5_000, os.urandom(100), gzip.compress(b"y" * 9000), b"z" * 1_000_000]
    send(broker, topic, 0, *(OutgoingMessage(topic, body) for body in bodies if body))
    expected = [body for body in bodies if body]
    ranges = [QueueRange(topic, "broker-a", 0, 0, len(expected))]
    assert [row["value"] for row in rows(options_of(subscribe=topic), ranges)] == expected


@pytest.mark.parametrize("short_circuit", ["off", "auto"])
def test_bodies_that_are_too_large_for_one_batch_when_decompressed(
    broker: EmbeddedBroker,
    new_topic: Callable[..., str],
    options_of: Callable[..., SourceOptions],
    monkeypatch: pytest.MonkeyPatch,
    short_circuit: str,
) -> None:
    monkeypatch.setattr(message_batches, "PLAIN_SIZE_MAX", 250_000)
    topic = new_topic(1)
    bodies = [b"%d" % n * size for n, size in enumerate([100_000] * 7 + [300_000, 5_000])]
    send(broker, topic, 0, *(OutgoingMessage(topic, body) for body in bodies))
    options = options_of(subscribe=topic, shortCircuit=short_circuit)
    task = Task((QueueRange(topic, "broker-a", 0, 0, len(bodies)),), {})
    batches = list(read_task(task, options, VALUE))
    assert [body for batch in batches for body in batch.column(0).to_pylist()] == bodies


@pytest.mark.parametrize("damaged_reads", [1, 1_000])
def test_a_run_that_is_read_again_may_be_too_large_for_one_batch(
    broker: EmbeddedBroker,
    new_topic: Callable[..., str],
    options_of: Callable[..., SourceOptions],
    monkeypatch: pytest.MonkeyPatch,
    damaged_reads: int,
) -> None:
    """A record that fails its checksum here is asked for again; the broker has verified it then."""
    monkeypatch.setattr(message_batches, "PLAIN_SIZE_MAX", 250_000)
    topic = new_topic(1)
    bodies = [b"%d" % n * 100_000 for n in range(7)]
    send(broker, topic, 0, *(OutgoingMessage(topic, body) for body in bodies))
    task = Task((QueueRange(topic, "broker-a", 0, 0, len(bodies)),), {})
    right, left = message_batches.BatchMaker.batch, [damaged_reads]

    def batch(*given: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise errors.CorruptRecord("a file", 0, "checksum")
        return right(*given)

    monkeypatch.setattr(message_batches.BatchMaker, "batch", batch)
    batches = read_task(task, options_of(subscribe=topic, shortCircuit="off"), VALUE)
    if damaged_reads == 1:
        assert [body for made in batches for body in made.column(0).to_pylist()] == bodies
    else:
        with pytest.raises(errors.CorruptRecord):
            list(batches)
        assert left[0] == damaged_reads - 2, "asked for again once"


def test_tags_are_compared_as_texts(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Callable[..., SourceOptions]
) -> None:
    # "Aa" and "BB" have the same hash, which is all that a broker compares.
    topic = new_topic(1)
    tags = ["Aa", "BB", "C", "", "Aa"]
    send(broker, topic, 0, *(OutgoingMessage(topic, b"%d" % n, t) for n, t in enumerate(tags)))
    ranges = [QueueRange(topic, "broker-a", 0, 0, 5)]
    found = rows(options_of(subscribe=topic, tags="Aa || C"), ranges)
    assert [row["value"] for row in found] == [b"0", b"2", b"4"]
    assert rows(options_of(subscribe=topic, tags="nothing"), ranges) == []


def test_more_rows_than_a_batch_may_have(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Callable[..., SourceOptions]
) -> None:
    topic = new_topic(1)
    count = 30_000
    broker.produce(topic, (b"%d" % n for n in range(count)))
    task = Task((QueueRange(topic, "broker-a", 0, 5, count),), {})
    batches = list(read_task(task, options_of(subscribe=topic), VALUE))
    assert sum(batch.num_rows for batch in batches) == count - 5
    assert all(batch.nbytes < 8 << 20 and batch.num_rows <= BATCH_ROWS for batch in batches)


def test_an_end_that_is_not_there_is_loss(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Callable[..., SourceOptions]
) -> None:
    topic = new_topic(1)
    broker.produce(topic, [b"a", b"b"])
    ranges = [QueueRange(topic, "broker-a", 0, 0, 5)]
    impatient = {"subscribe": topic, "rmqConsumer__pollTimeoutMs": 1_000}
    with pytest.raises(DataLost, match=rf"queue 0 of {topic} .*from offset 0 to 5.*failOnDataLoss"):
        rows(options_of(**impatient), ranges)
    found = rows(options_of(**impatient, failOnDataLoss="false"), ranges)
    assert [row["value"] for row in found] == [b"a", b"b"]


@pytest.mark.parametrize("place", [b"TOTALSIZE", b"body"])
def test_damage_is_reported_by_the_broker_and_never_read(tmp_path: Path, place: bytes) -> None:
    """Over the network, where records come unverified and are verified by the task."""
    count, good = 300, 100
    with EmbeddedBroker(store=tmp_path / "store", topics={"t": 1}) as broker:
        bodies = [b"<%d>" % n + os.urandom(2_000) for n in range(count)]
        broker.produce("t", bodies)
        log = min((tmp_path / "store").rglob("commitlog/0*"))
        with log.open("r+b") as file:
            data = file.read()
            at = data.index(bodies[good])
            # The size of a record is 88 bytes before its body.
            at = at + 20 if place == b"body" else at - 88
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))
        given = {"subscribe": "t", "shortCircuit": "off", "rmqConsumer.pollTimeoutMs": "100"}
        options = SourceOptions.parse({**broker.options, **given}).for_batch()
        whole = [QueueRange("t", "broker-a", 0, 0, count)]
        with pytest.raises(errors.RmqError, match=r"commitlog/0+: damage at position \d+"):
            rows(options, whole)
        before = [QueueRange("t", "broker-a", 0, 0, good)]
        assert [row["value"] for row in rows(options, before)] == bodies[:good]


def test_another_store_is_loss(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Callable[..., SourceOptions]
) -> None:
    topic = new_topic(1)
    broker.produce(topic, [b"a"])
    ranges = [QueueRange(topic, "broker-a", 0, 0, 1)]
    stores = {"broker-a": StoreIdentity("0" * 32, "1")}
    with pytest.raises(DataLost, match="another log"):
        rows(options_of(subscribe=topic), ranges, stores=stores)
    assert rows(options_of(subscribe=topic, failOnDataLoss="false"), ranges, stores=stores)


def test_a_reader_that_is_left_early_leaves_nothing_behind(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Callable[..., SourceOptions]
) -> None:
    topic = new_topic(4)
    broker.produce(topic, (b"%d" % n for n in range(5_000)))
    with SyncAdmin(broker.name_server) as admin:
        offsets = admin.topic_offsets(topic)
    task = Task(tuple(QueueRange(*queue, *ends) for queue, ends in offsets.items()), {})
    reading = read_task(task, options_of(subscribe=topic), VALUE)
    assert next(reading).num_rows
    reading.close()  # type: ignore[attr-defined]


def test_no_broker_is_an_error_in_time(new_topic: Callable[..., str]) -> None:
    options = SourceOptions.parse(
        {"nameServer": "127.0.0.1:1", "subscribe": "t", "rmqConsumer.pollTimeoutMs": "100"}
    )
    with pytest.raises(errors.ConnectionLost):
        rows(options, [QueueRange("t", "broker-a", 0, 0, 1)])


def test_small_batches_are_joined() -> None:
    schema = arrow_schema(VALUE)
    small = [pa.record_batch([pa.array([b"x"] * n, pa.binary())], schema) for n in (1, 0, 2, 3)]
    [batch] = joined(iter(small))
    assert batch.num_rows == 6
    big = pa.record_batch([pa.array([b"x" * 3_000_000], pa.binary())], schema)
    assert [b.num_rows for b in joined(iter([*small, big, *small]))] == [7, 6]
    assert list(joined(iter([small[1]]))) == []
