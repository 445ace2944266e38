"""Short-circuit reads: the rows that the network gives, from the broker's own files."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import (
    BulkProducer,
    MessageQueue,
    OutgoingMessage,
    ReadOnlyStore,
    SyncAdmin,
    SyncProducer,
    ask_local_range,
    errors,
)
from broker_core.runtime.clock import SystemClock
from broker_core.storage.state.store_state import (
    FLAG_SYNC_FAILED,
    SLOT_SIZE,
    decode_slot,
    encode_slot,
)
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import COLUMNS, PROPERTIES, ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.data_loss import DataLost
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.offsets.stream_position import StoreIdentity
from pyspark_rmq.source.rows import local_reader
from pyspark_rmq.source.rows.message_batches import BatchMaker, arrow_schema
from pyspark_rmq.source.rows.range_reader import BATCH_ROWS, BATCH_SIZE, Task, read_task

ALL = tuple(ChosenColumn(c.name, c.name) for c in (*COLUMNS, PROPERTIES))
VALUE = (ChosenColumn("value", "value"),)
QUEUES = 3
# Small files, so that ranges cross them.
SMALL_FILES = {"mappedFileSizeCommitLog": "262144", "mappedFileSizeConsumeQueue": "4000"}

Options = Callable[..., SourceOptions]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(properties=SMALL_FILES) as running:
        yield running


@pytest.fixture(autouse=True)
def _closed_files() -> Iterator[None]:
    yield
    local_reader.close_local_stores()


def read(
    options: SourceOptions,
    ranges: list[QueueRange],
    columns: tuple[ChosenColumn, ...] = VALUE,
    stores: dict[str, StoreIdentity] | None = None,
) -> list[dict[str, Any]]:
    batches = list(read_task(Task(tuple(ranges), stores or {}), options, columns))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, arrow_schema(columns)).to_pylist()


def fill(broker: EmbeddedBroker, topic: str, count: int, first: int = 0) -> None:
    chance = random.Random(count)
    with SyncProducer(broker.name_server, timeout_ms=120_000) as producer:
        sent = [
            producer.send_async(
                OutgoingMessage(
                    topic,
                    chance.randbytes(chance.choice((1, 50, 700, 6_000))),
                    tags=chance.choice(("", "A", "B")),
                    keys=f"k{number}",
                    properties={"number": str(number)},
                ),
                queue=MessageQueue(topic, "broker-a", chance.randrange(QUEUES)),
            )
            for number in range(first, first + count)
        ]
        for result in sent:
            result.result(timeout=120)


def ends_of(broker: EmbeddedBroker, topic: str) -> dict[int, int]:
    with SyncAdmin(broker.name_server) as admin:
        return {queue.queue_id: end for queue, (_, end) in admin.topic_offsets(topic).items()}


def test_the_same_rows_as_over_the_network(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Options
) -> None:
    topic = new_topic(QUEUES)
    fill(broker, topic, 3_000)
    # A body that the client compressed, and one of a megabyte.
    with SyncProducer(broker.name_server) as producer:
        queue = MessageQueue(topic, "broker-a", 0)
        producer.send(OutgoingMessage(topic, b"z" * 200_000), queue=queue)
        producer.send(OutgoingMessage(topic, random.Random(1).randbytes(150_000)), queue=queue)
    ends = ends_of(broker, topic)
    local = options_of(subscribe=topic, shortCircuit="on")
    network = options_of(subscribe=topic, shortCircuit="off")
    chance = random.Random(5)
    for columns in (VALUE, ALL):
        for _ in range(12):
            ranges = []
            for queue_id in chance.sample(range(QUEUES), chance.randint(1, QUEUES)):
                start = chance.randrange(ends[queue_id])
                until = chance.randint(start + 1, ends[queue_id])
                ranges.append(QueueRange(topic, "broker-a", queue_id, start, until))
            assert read(local, ranges, columns) == read(network, ranges, columns)
    everything = [QueueRange(topic, "broker-a", q, 0, end) for q, end in ends.items()]
    assert len(read(local, everything)) == 3_002
    tagged = [options_of(subscribe=topic, tags="A", shortCircuit=way) for way in ("on", "off")]
    assert read(tagged[0], everything, ALL) == read(tagged[1], everything, ALL)


def test_fresh_messages_are_in_the_files(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Options
) -> None:
    # The broker keeps new queue entries in memory for a second; a reader's question writes them.
    topic = new_topic(1)
    options = options_of(subscribe=topic, shortCircuit="on")
    for number in range(5):
        broker.produce(topic, [b"%d" % number])
        rows = read(options, [QueueRange(topic, "broker-a", 0, number, number + 1)])
        assert rows == [{"value": b"%d" % number}]


def test_batches_are_cut_by_rows_and_by_bytes(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Options
) -> None:
    topic = new_topic(1)
    options = options_of(subscribe=topic, shortCircuit="on")
    connected = connections.connect(options.connection)
    for count, size in ((60_000, 10), (100, 100_000)):
        start = ends_of(broker, topic)[0]
        bodies = [bytes(size)] * count
        connected.call(BulkProducer(connected.client).send_bodies(topic, bodies))
        task = Task((QueueRange(topic, "broker-a", 0, start, start + count),), {})
        batches = list(read_task(task, options, VALUE))
        assert sum(batch.num_rows for batch in batches) == count
        assert all(batch.num_rows <= BATCH_ROWS for batch in batches)
        assert all(batch.nbytes <= BATCH_SIZE + size + 4 * BATCH_ROWS for batch in batches)
        assert len(batches) >= 2


def place_of(options: SourceOptions, topic: str, queue_id: int = 0) -> Any:
    connected = connections.connect(options.connection)
    queue = MessageQueue(topic, "broker-a", queue_id)
    return connected.call(ask_local_range(connected.client, queue, "g"))


def test_files_that_go_away_are_left_to_the_network(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Options
) -> None:
    topic = new_topic(QUEUES)
    fill(broker, topic, 1_500)
    options = options_of(subscribe=topic, shortCircuit="on")
    place = place_of(options, topic)
    part = QueueRange(topic, "broker-a", 0, 0, place.max_offset)
    maker = BatchMaker(VALUE)
    reading = local_reader.local_batches([(part, place)], maker, 50_000, 100)
    got = [next(reading) for _ in range(2)]
    # As after retention and a restart: the names are gone, and what is not open yet with them.
    directory = broker.store_dir / "consumequeue" / topic / "0"
    for path in sorted(directory.iterdir()):
        path.rename(path.with_suffix(".away"))
    rest: list[QueueRange] = []
    while True:
        try:
            got.append(next(reading))
        except StopIteration as end:
            rest = end.value
            break
    for path in sorted(directory.iterdir()):
        path.rename(path.with_suffix(""))
    rows = sum(batch.num_rows for batch in got)
    assert rest == [part._replace(start=rows)]
    over_network = read(options_of(subscribe=topic, shortCircuit="off"), [part])
    values = [value for batch in got for value in batch.column(0).to_pylist()]
    assert values == [row["value"] for row in over_network[:rows]]


def test_retention_during_the_read(options_of: Options, tmp_path: Path) -> None:
    quick = {**SMALL_FILES, "fileReservedTime": "0", "deleteCommitLogFilesInterval": "0"}
    with EmbeddedBroker(topics={"t": 1}, properties=quick) as broker:
        with SyncProducer(broker.name_server) as producer:
            bodies = [random.Random(n).randbytes(1_000) for n in range(2_000)]
            for body in bodies:
                producer.send_async(OutgoingMessage("t", body))
            producer.send(OutgoingMessage("t", b"last"))
        options = SourceOptions.parse(
            {**broker.options, "subscribe": "t", "failOnDataLoss": "false"}
        )
        place = place_of(options, "t")
        part = QueueRange("t", "broker-a", 0, 0, place.max_offset)
        reading = local_reader.local_batches([(part, place)], BatchMaker(VALUE), 20_000, 10)
        first = next(reading)
        removed = sorted((broker.store_dir / "commitlog").iterdir())[:-2]
        for path in removed:
            path.unlink()
        got = [first]
        while True:
            try:
                got.append(next(reading))
            except StopIteration as end:
                [rest] = end.value
                break
        values = [value for batch in got for value in batch.column(0).to_pylist()]
        # What was mapped is read to its end, and nothing is invented.
        assert 10 <= len(values) < part.until
        assert rest == part._replace(start=len(values))
        assert set(values) <= {*bodies, b"last"}
        connections.close_connections()


def test_another_epoch_ends_the_short_cut(options_of: Options, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with EmbeddedBroker(store=store, topics={"t": 1}, properties=SMALL_FILES) as broker:
        broker.produce("t", [b"%d" % n for n in range(300)])
        options = SourceOptions.parse({**broker.options, "subscribe": "t", "shortCircuit": "on"})
        place = place_of(options, "t")
        part = QueueRange("t", "broker-a", 0, 0, place.max_offset)
        reading = local_reader.local_batches([(part, place)], BatchMaker(VALUE), 1 << 20, 20)
        got = [next(reading)]
        broker.kill()
        # The disk has failed: the next start counts it.
        state = (store / "store_state").read_bytes()
        assert place.layout.boot_id.encode() in state
        slots = [decode_slot(state[:SLOT_SIZE]), decode_slot(state[SLOT_SIZE:])]
        generation, newest = max(slot for slot in slots if slot is not None)
        failed = newest.flags | FLAG_SYNC_FAILED
        (store / "store_state").write_bytes(
            encode_slot(newest._replace(flags=failed, durable_position=0), generation) * 2
        )
        broker.start()
        left = []
        while True:
            try:
                got.append(next(reading))
            except StopIteration as end:
                left = end.value
                break
        rows = sum(batch.num_rows for batch in got)
        assert left == [part._replace(start=rows)]
        assert place_of(options, "t").layout.epoch > place.layout.epoch
        stores = {"broker-a": StoreIdentity(place.layout.store_id, str(place.layout.epoch))}
        with pytest.raises(DataLost, match="another log"):
            read(options, [part], stores=stores)
        connections.close_connections()


def test_only_the_store_that_the_broker_named(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Options, tmp_path: Path
) -> None:
    topic = new_topic(1)
    broker.produce(topic, [b"a"])
    layout = place_of(options_of(subscribe=topic), topic).layout
    ReadOnlyStore(layout).close()
    other = [
        layout._replace(store_id="0" * 32),
        layout._replace(epoch=layout.epoch + 1),
        layout._replace(boot_id="another-machine"),
        layout._replace(directory=str(tmp_path)),
        layout._replace(directory=str(tmp_path / "missing")),
    ]
    for wrong in other:
        with pytest.raises(errors.StoreUnusable):
            ReadOnlyStore(wrong)


def test_on_says_why_it_cannot(new_topic: Callable[..., str], options_of: Options) -> None:
    topic = new_topic(1)
    options = options_of(subscribe=topic, shortCircuit="on")
    with pytest.raises(local_reader.LocalReadImpossible, match="shortCircuit=auto"):
        read(options, [QueueRange("nothing", "broker-a", 0, 0, 1)])


def test_reading_changes_nothing(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Options
) -> None:
    topic = new_topic(QUEUES)
    fill(broker, topic, 200)
    ends = ends_of(broker, topic)
    ranges = [QueueRange(topic, "broker-a", q, 0, end) for q, end in ends.items() if end]
    options = options_of(subscribe=topic, shortCircuit="on")
    read(options, ranges)

    def contents() -> dict[Path, bytes]:
        files = (broker.store_dir / name for name in ("commitlog", "consumequeue"))
        return {p: p.read_bytes() for root in files for p in root.rglob("*") if p.is_file()}

    # The broker itself writes what it kept in memory, and prepares files, for a few seconds more.
    clock = SystemClock()
    until = clock.monotonic() + 120
    while True:
        before = contents()
        read(options, ranges)
        if contents() == before:
            break
        assert clock.monotonic() < until
