"""The parts of `spark_sink.py`: throughput, publication of one large batch, fixed cost."""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import functions as F

from benchmarks.broker_produce import BATCHES, load_once
from benchmarks.broker_servers import APACHE, sides
from benchmarks.measure import column_batch, info, ratio, touch_memory
from benchmarks.spark_source_servers import KafkaTopics
from broker_core import BatchIdentity, OutgoingMessage, SyncProducer
from broker_core.client.blocking.sink import SyncSinkClient
from broker_core.codec.native import measure_batch
from pyspark_rmq import EmbeddedBroker

QUEUES: Final = 4
FAST: Final = {"flushDiskType": "ASYNC_FLUSH", "sinkWaitForDisk": "false"}
SAFE: Final = {"flushDiskType": "SYNC_FLUSH"}
PUBLISHED_SIZE: Final = 100_000_000
# Log, staging files, queues, and buffers of the writer.
TOUCHED: Final = 3
_WAIT_S: Final = 300
_numbers: Final = itertools.count(1)


class Writing(NamedTuple):
    """One competitor: a format with its options."""

    name: str
    format: str
    options: Mapping[str, str]


class Benchmark:
    """Servers are started when a part needs them."""

    def __init__(
        self, session: Any, root: Path, stack: ExitStack, quick: bool, scale: float
    ) -> None:
        self._session = session
        self._root = root
        self._stack = stack
        self._quick = quick
        self._scale = scale
        self._kafka_server: KafkaTopics | None = None

    # Parts

    def write(self) -> None:
        """`df.write` of the same rows to each."""
        with self._broker(FAST) as broker:
            for size, label, over_kafka in ((100, "100B", "2.5"), (1024, "1KiB", "2")):
                rows = self._rows(size)
                writings = [
                    Writing("null", "null_arrow", {}),
                    self._kafka_writing(),
                    _ours("at_least_once", broker),
                    _ours("exactly_once", broker),
                ]
                rates = self._compare(writings, rows, size, 5)
                for name, rate in rates.items():
                    info(f"{label} {name}: {rate:,.0f} rows/s, {rate * size / 1e6:.0f} MB/s")
                once, least = rates["exactly_once"], rates["at_least_once"]
                ratio(f"exactly_once_{label}_over_kafka", once / rates["kafka"], f">={over_kafka}")
                ratio(f"at_least_once_{label}_over_exactly_once", least / once, ">=1")
                info(f"{label}: exactly once is {once / rates['null']:.2f} of the ceiling")

    def sync(self) -> None:
        """Every batch on the disk before it counts."""
        with self._broker(SAFE) as broker:
            for size, label in ((100, "100B"), (1024, "1KiB")):
                rows = self._rows(size)
                writings = [Writing("null", "null_arrow", {}), _ours("exactly_once", broker)]
                rates = self._compare(writings, rows, size, 5)
                stored = _stored_size(rows, size)
                written, ceiling = (
                    rates[name] * stored / rows / 1e6 for name in ("exactly_once", "null")
                )
                disk = self._disk_rate(stored)
                info(
                    f"{label} sync flush: {written:.0f} MB/s stored, the disk {disk:.0f} MB/s; "
                    f"Spark hands over as much as makes {ceiling:.0f} MB/s"
                )
                ratio(f"sync_exactly_once_{label}_over_disk", written / disk, ">=0.7")
                # No sink stores what it is not given.
                ratio(
                    f"sync_exactly_once_{label}_over_disk_and_spark",
                    written / min(disk, ceiling),
                    ">=0.7",
                )

    def publish(self) -> None:
        """Batches of 100 MB: alone, as the plain write is, then next to a producer that sends."""
        size = int(PUBLISHED_SIZE * min(self._scale, 1))
        alone, plain, beside, waits = [], [], [], []
        with self._broker(SAFE) as broker, SyncSinkClient(broker.name_server) as sink:
            batch = column_batch(10_000, 1024, QUEUES, topic=_new_topic(broker))
            other = _new_topic(broker)
            numbers = itertools.count()

            def publication() -> tuple[int, float]:
                """Bytes, and the seconds of the publication only."""
                who = BatchIdentity("published", next(numbers), "run")
                writer = sink.stage(who, _BROKER)
                while writer.record_count * 1024 < size:
                    writer.append(batch)
                staged = writer.seal()
                touch_memory(self._root, TOUCHED * staged.size)
                started = time.perf_counter()
                sink.publish(who, [staged])
                return staged.size, time.perf_counter() - started

            publication()
            for number in range(3 if self._quick else 7):
                stored, taken = publication()
                alone.append(taken)
                touch_memory(self._root, TOUCHED * stored)
                plain.append(_plain_write(self._root / f"plain-{number}", stored))
                with _sending(broker.name_server, other) as worst:
                    beside.append(publication()[1])
                waits.append(worst[0] * 1000)
        ours, theirs = statistics.median(alone), statistics.median(plain)
        info(
            f"{stored / 1e6:.0f} MB published in {ours:.3f} s, beside a producer in"
            f" {statistics.median(beside):.3f} s, plain {theirs:.3f} s"
        )
        ratio("publish_over_plain_write", ours / theirs, "<=1.3")
        ratio("publish_holds_others_up_ms", statistics.median(waits), "<=100")

    def apache(self) -> None:
        """At least once into Apache's broker."""
        rows = self._scaled(300_000 if self._quick else 2_000_000)
        seconds = 2.0 if self._quick else 5.0
        with sides(self._root / "apache") as found:
            [side] = [side for side in found if side.kind == APACHE]
            topic = side.new_topic()
            name_server = side.cluster.name_server_address
            options = {
                "rmq.namesrv.addr": name_server, "topic": topic,
                "deliveryGuarantee": "at_least_once",
            }  # fmt: skip
            writing = Writing("apache", "rmq", options)
            own = side.new_topic()
            rates, theirs = [], []
            for number in range(3 if self._quick else 6):
                rate = rows / self._write_once(writing, rows, BATCHES.size)
                figure = load_once(side, own, BATCHES, seconds)["rate"]
                if number:
                    rates.append(rate)
                    theirs.append(figure)
        ours, batch_producer = statistics.median(rates), statistics.median(theirs)
        info(f"into Apache {APACHE}: {ours:,.0f} rows/s; its own batches {batch_producer:,.0f}")
        ratio("at_least_once_over_apache_batch_producer", ours / batch_producer, ">=1")

    def trickle(self) -> None:
        """Source to sink, a few rows at a time."""
        count = 20 if self._quick else 60
        null = {"rows": str(1 << 40), "rowsPerBatch": "10", "partitions": "1"}
        spent = {
            "null": self._micro_batches(
                Writing("null", "null_arrow", null), Writing("null", "null_arrow", {}), count
            )
        }
        with self._broker(FAST) as broker:
            source, target = _new_topic(broker, 1), _new_topic(broker, 1)
            reading = {**broker.options, "subscribe": source, "startingOffsets": "earliest"}
            writing = Writing("ours", "rmq", {**broker.options, "topic": target})
            with _trickle(broker.name_server, source):
                spent["ours"] = self._micro_batches(Writing("ours", "rmq", reading), writing, count)
        kafka = self._kafka()
        source, target = kafka.new_topic(), kafka.new_topic()
        reading = {**kafka.options, "subscribe": source, "startingOffsets": "earliest"}
        with kafka.trickle(source, 100):
            spent["kafka"] = self._micro_batches(
                Writing("kafka", "kafka", reading),
                Writing("kafka", "kafka", {**kafka.options, "topic": target}),
                count,
            )
        for name, found in spent.items():
            info(f"micro-batch of {name}: {found:.0f} ms")
        ratio("trickle_over_null", spent["ours"] / spent["null"], "<=1.15")
        ratio("trickle_over_kafka", spent["ours"] / spent["kafka"], "<=1.3")

    # Servers

    @contextmanager
    def _broker(self, properties: Mapping[str, str]) -> Iterator[EmbeddedBroker]:
        home = self._root / f"ours-{next(_numbers)}"
        with EmbeddedBroker(store=home, properties=properties) as broker:
            yield broker

    def _kafka(self) -> KafkaTopics:
        if self._kafka_server is None:
            self._kafka_server = self._stack.enter_context(KafkaTopics(self._root / "kafka"))
        return self._kafka_server

    def _kafka_writing(self) -> Writing:
        kafka = self._kafka()
        return Writing("kafka", "kafka", {**kafka.options, "topic": kafka.new_topic()})

    def _scaled(self, rows: int) -> int:
        return max(1_000, int(rows * self._scale))

    def _rows(self, size: int) -> int:
        return self._scaled((1_000_000 if self._quick else 4_000_000) * 100 // max(size // 2, 100))

    # Measuring

    def _compare(
        self, writings: list[Writing], rows: int, size: int, rounds: int
    ) -> dict[str, float]:
        """Rows per second of each, in turns; the first round only warms up.

        The order changes with the rounds, so that each competitor runs after each other one: the
        disk and background work that one leaves behind slow down the next.
        """
        rates: dict[str, list[float]] = {writing.name: [] for writing in writings}
        for number in range(rounds + 1):
            for index in _order(number, len(writings)):
                writing = writings[index]
                rate = rows / self._write_once(writing, rows, size)
                if number:
                    rates[writing.name].append(rate)
        return {name: statistics.median(taken) for name, taken in rates.items()}

    def _write_once(self, writing: Writing, rows: int, size: int) -> float:
        frame = self._session.range(rows).select(F.lit(bytearray(os.urandom(size))).alias("value"))
        writer = frame.write.format(writing.format).options(**writing.options).mode("append")
        touch_memory(self._root, TOUCHED * _stored_size(rows, size))
        started = time.perf_counter()
        writer.save()
        return time.perf_counter() - started

    def _disk_rate(self, size: int) -> float:
        """Megabytes per second of a plain sequential write and one sync; the median of three.

        Each finds the memory that a log finds.
        """
        paths = [self._root / f"plain-{number}" for number in range(3)]
        taken = []
        for path in paths:
            touch_memory(self._root, size)
            taken.append(_plain_write(path, size))
        for path in paths:
            path.unlink()
        return size / 1e6 / statistics.median(taken)

    def _micro_batches(self, source: Writing, target: Writing, count: int) -> float:
        """Median milliseconds of a micro-batch with rows, the first ten left out."""
        frame = (
            self._session.readStream.format(source.format)
            .options(**source.options)
            .load()
            .select("value")
        )
        checkpoint = str(self._root / f"checkpoint-{next(_numbers)}")
        query = (
            frame.writeStream.format(target.format)
            .options(**target.options)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        spent: dict[int, float] = {}
        try:
            _until(query, lambda: _note_batches(query, spent) >= count + 10)
        finally:
            query.stop()
        return statistics.median(list(spent.values())[10:])


_BROKER: Final = "broker-a"


def _order(number: int, count: int) -> list[int]:
    """Row of a balanced Latin square: for an even count, each index follows each other one once."""
    zigzag = [-place // 2 if place % 2 else place // 2 for place in range(count)]
    return [(number + step) % count for step in zigzag]


def _ours(guarantee: str, broker: EmbeddedBroker) -> Writing:
    options = {**broker.options, "topic": _new_topic(broker), "deliveryGuarantee": guarantee}
    return Writing(guarantee, "rmq", options)


def _new_topic(broker: EmbeddedBroker, queues: int = QUEUES) -> str:
    topic = f"sink-{next(_numbers)}"
    broker.create_topic(topic, queues)
    return topic


def _stored_size(rows: int, size: int) -> int:
    """What so many rows of this size take in the log."""
    batch = column_batch(1_000, size, QUEUES, topic="sink-000")._replace(append_crc=True)
    return measure_batch(batch)[0] * rows // batch.count


def _plain_write(path: Path, size: int) -> float:
    """Seconds to write so many bytes one after the other and to sync them."""
    block = os.urandom(1 << 20)
    whole, rest = divmod(size, len(block))
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(whole):
            file.write(block)
        file.write(block[:rest])
        os.fdatasync(file.fileno())
    return time.perf_counter() - started


@contextmanager
def _sending(name_server: str, topic: str) -> Iterator[list[float]]:
    """Send continuously during the block; the list has the time of the slowest send in seconds."""
    worst, ended, ready = [0.0], threading.Event(), threading.Event()

    def send() -> None:
        message = OutgoingMessage(topic, b"x" * 100)
        with SyncProducer(name_server) as producer:
            producer.send(message)
            ready.set()
            while not ended.is_set():
                started = time.perf_counter()
                producer.send(message)
                worst[0] = max(worst[0], time.perf_counter() - started)

    sender = threading.Thread(target=send)
    sender.start()
    ready.wait(_WAIT_S)
    try:
        yield worst
    finally:
        ended.set()
        sender.join()


@contextmanager
def _trickle(name_server: str, topic: str, per_second: int = 100) -> Iterator[None]:
    ended = threading.Event()

    def send() -> None:
        with SyncProducer(name_server) as producer:
            while not ended.wait(1 / per_second):
                producer.send(OutgoingMessage(topic, b"x" * 100))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


def _until(query: Any, reached: Callable[[], bool]) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + _WAIT_S
    while not reached():
        if query.exception() is not None:
            raise query.exception()
        if time.monotonic() > deadline:
            raise TimeoutError(f"a query did not get far enough in {_WAIT_S} s")
        pause.wait(0.2)


def _note_batches(query: Any, spent: dict[int, float]) -> int:
    for report in query.recentProgress:
        if report["numInputRows"]:
            spent[report["batchId"]] = report["durationMs"]["triggerExecution"]
    return len(spent)
