"""The parts of `spark_sink.py`: throughput, publication of one large batch, fixed cost."""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import functions as F

from benchmarks.broker_parts.produce import BATCHES, Load, load_once
from benchmarks.broker_parts.servers import APACHE, sides
from benchmarks.measuring.measure import column_batch, touch_memory
from benchmarks.measuring.results import ratio, row
from benchmarks.measuring.rounds import Figure, better, compare, figure, ratio_of
from benchmarks.spark_parts.competitors import (
    KAFKA_DEFAULT,
    KAFKA_LATENCY_TUNED,
    KAFKA_SYNCED,
    KAFKA_TUNED,
    KAFKA_WRITES_TUNED,
    Reading,
    Writing,
    settings_text,
    size_name,
)
from benchmarks.spark_parts.servers import KafkaTopics
from broker_core import BatchIdentity, OutgoingMessage, SyncProducer
from broker_core.client.blocking.sink import SyncSinkClient
from broker_core.client.produce.bulk_producer import BATCH_COUNT
from broker_core.codec.native import measure_batch
from pyspark_rmq import EmbeddedBroker

QUEUES: Final = 4
# A broker has ASYNC_FLUSH by default, and syncs each batch of a sink: sinkWaitForDisk is true.
SYNCED: Final = {"flushDiskType": "SYNC_FLUSH", "sinkWaitForDisk": "true"}
UNSYNCED: Final = {"flushDiskType": "ASYNC_FLUSH", "sinkWaitForDisk": "false"}
NETWORK: Final = {"shortCircuit": "off"}
PUBLISHED_SIZE: Final = 100_000_000
# Log, staging files, queues, and buffers of the writer.
TOUCHED: Final = 3
_WARM_UP: Final = 10
_WAIT_S: Final = 600
_numbers: Final = itertools.count(1)

# Name of the goal -> ours, the peers of which the better one counts, goal at 100 B and at 1 KiB.
GOALS: Final = {
    "default_{}_exactly_once_over_kafka": (
        "exactly once, synced, files", (KAFKA_DEFAULT, KAFKA_TUNED), "none", "none"
    ),
    "unsynced_{}_exactly_once_over_kafka": (
        "exactly once, unsynced, files", (KAFKA_DEFAULT, KAFKA_TUNED), ">=2.3", ">=2"
    ),
    "unsynced_{}_exactly_once_network_over_kafka": (
        "exactly once, unsynced, network", (KAFKA_DEFAULT, KAFKA_TUNED), ">=1.2", ">=1.2"
    ),
    "synced_{}_exactly_once_over_synced_kafka": (
        "exactly once, synced, files", ("kafka synced", "kafka synced, tuned"), ">=3", ">=3"
    ),
    "synced_{}_exactly_once_network_over_synced_kafka": (
        "exactly once, synced, network", ("kafka synced", "kafka synced, tuned"), "none", "none"
    ),
    "unsynced_{}_at_least_once_over_exactly_once": (
        "at least once, unsynced", ("exactly once, unsynced, files",), ">=0.9", ">=0.9"
    ),
    "unsynced_{}_exactly_once_over_ceiling": (
        "exactly once, unsynced, files", ("null",), "none", "none"
    ),
}  # fmt: skip


class Benchmark:
    """Servers are started when a part needs them."""

    def __init__(
        self, session: Any, root: Path, stack: ExitStack, arguments: argparse.Namespace
    ) -> None:
        self._session = session
        self._root = root
        self._stack = stack
        self._quick: bool = arguments.quick
        self._scale: float = arguments.scale
        self._sizes: Sequence[int] = arguments.sizes
        self._rounds = 3 if arguments.quick else 5
        self._transfer = "spark_conf()" if arguments.spark_conf else "Spark's transfer defaults"
        self._kafka_server: KafkaTopics | None = None

    # Parts

    def write(self) -> None:
        """`df.write` of the same rows to each."""
        with self._broker(SYNCED) as synced, self._broker(UNSYNCED) as unsynced:
            for size in self._sizes:
                rows = self._rows(size)
                topics = {
                    "synced": _new_topic(synced),
                    "unsynced": _new_topic(unsynced),
                    "kafka": self._kafka().new_topic(QUEUES),
                    "kafka synced": self._kafka().new_topic(QUEUES, KAFKA_SYNCED),
                }
                kafka = self._kafka().options
                all_of_them = writings(synced.options, unsynced.options, kafka, topics)
                found = {one.name: one for one in all_of_them}
                figures = self._compare(found, rows, size)
                for name, one in figures.items():
                    settings = f"{found[name].settings}, {self._transfer}"
                    row("sink, df.write", name, settings, "rows/s", one, x=size)
                for name, writing in found.items():
                    cold = rows / self._write_once(writing, rows, size, touch=False)
                    table = f"sink, df.write, {size_name(size)}, one run without touch_memory"
                    row(table, name, writing.settings, "rows/s", figure([cold]))
                write_lines(size, figures)

    def disk(self) -> None:
        """Every batch on the disk before it counts, against a plain write and sync."""
        with self._broker(SYNCED) as broker:
            for size in self._sizes:
                self._beside_disk(broker, size)

    def _beside_disk(self, broker: EmbeddedBroker, size: int) -> None:
        rows, label = self._rows(size), size_name(size)
        stored = _stored_size(rows, size)
        null = Writing("null", "null_arrow", {}, "what Spark hands over, as bytes of the log")
        ours = _ours(
            "ours", broker.options, _new_topic(broker), "exactly_once", settings_text(SYNCED)
        )
        disk = "plain sequential write and one fdatasync"

        def rate(name: str) -> float:
            if name == "disk":
                return stored / 1e6 / self._disk_once(stored)
            writing = ours if name == "ours" else null
            return stored / 1e6 / self._write_once(writing, rows, size)

        found = compare(["null", "ours", "disk"], rate, self._rounds)
        for name, settings in (("null", null.settings), ("ours", ours.settings), ("disk", disk)):
            row("sink and disk", name, settings, "MB/s", found[name], x=size)
        goal = f"sync_exactly_once_{label}_over_disk"
        ratio(goal, ratio_of(found["ours"], found["disk"]), "none", "disk")
        # No sink can store more than Spark passes to it.
        slower = better(found, ["disk", "null"], more_is_better=False)
        ratio(f"{goal}_and_spark", ratio_of(found["ours"], found[slower]), ">=0.7", slower)

    def publish(self) -> None:
        """Batches of 100 MB: alone, as the plain write is, then next to a producer that sends."""
        size = int(PUBLISHED_SIZE * min(self._scale, 1))
        waits: list[float] = []
        with self._broker(SYNCED) as broker, SyncSinkClient(broker.name_server) as sink:
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

            stored = publication()[0]

            def take(name: str) -> float:
                if name == "plain":
                    return self._disk_once(stored)
                if name == "alone":
                    return publication()[1]
                with _sending(broker.name_server, other) as worst:
                    taken = publication()[1]
                waits.append(worst[0] * 1000)
                return taken

            found = compare(["alone", "plain", "beside"], take, 3 if self._quick else 7)
        table = f"sink, publication of {stored / 1e6:.0f} MB"
        flush = settings_text(SYNCED)
        row(table, "a batch", flush, "s", found["alone"])
        row(table, "a batch, beside a producer that sends", flush, "s", found["beside"])
        row(table, "plain write", "sequential, one fdatasync", "s", found["plain"])
        # The first is that of the warm-up.
        held = figure(waits[1:])
        row(table, "slowest send of that producer", flush, "ms", held)
        plain = ratio_of(found["alone"], found["plain"])
        ratio("publish_over_plain_write", plain, "<=1.3", "plain write")
        ratio("publish_holds_others_up_ms", held.median, "<=100")

    def apache(self) -> None:
        """At least once into Apache's broker."""
        rows = self._scaled(300_000 if self._quick else 2_000_000)
        seconds = 2.0 if self._quick else 5.0
        # The same number of messages, and so of bytes, in a request as our sink sends.
        equal = Load(BATCHES.threads, BATCHES.size, BATCH_COUNT)
        with sides(self._root / "apache") as found:
            [side] = [side for side in found if side.kind == APACHE]
            options = {"rmq.namesrv.addr": side.cluster.name_server_address}
            writing = _ours("our sink", options, side.new_topic(), "at_least_once", "")
            own = side.new_topic()
            takes: dict[str, Callable[[], float]] = {
                "our sink": lambda: rows / self._write_once(writing, rows, BATCHES.size),
                "Apache's producer, equal batches": lambda: load_once(side, own, equal, seconds)[
                    "rate"
                ],
                "Apache's producer, its benchmark's batches": lambda: load_once(
                    side, own, BATCHES, seconds
                )["rate"],
            }
            rates = compare(list(takes), lambda name: takes[name](), self._rounds)
        counts = dict(zip(rates, (BATCH_COUNT, BATCH_COUNT, BATCHES.batch), strict=True))
        for name, one in rates.items():
            settings = f"ASYNC_FLUSH, {counts[name]} messages of {BATCHES.size} B a request"
            row(f"sink into Apache {APACHE}", name, settings, "rows/s", one)
        peer = better(rates, list(rates)[1:])
        value = ratio_of(rates["our sink"], rates[peer])
        ratio("at_least_once_over_apache_batch_producer", value, ">=1", peer)

    def trickle(self) -> None:
        """Source to sink, a few rows at a time; one partition and so one task for all."""
        count = 15 if self._quick else 40
        with self._broker(UNSYNCED) as broker:
            pipes = self._pipes(broker)

            def take(name: str) -> float:
                source, target, feed = pipes[name]
                with feed():
                    return self._micro_batches(source, target, count)

            found = compare(list(pipes), take, self._rounds, warm_ups=0)
        for name, one in found.items():
            settings = f"{pipes[name][1].settings}, one partition, {self._transfer}"
            row("source and sink, micro-batch of a few rows", name, settings, "ms", one)
        ratio("trickle_over_null", ratio_of(found["ours"], found["null"]), "<=1.15", "null")
        peer = better(found, [KAFKA_DEFAULT, KAFKA_TUNED], more_is_better=False)
        ratio("trickle_over_kafka", ratio_of(found["ours"], found[peer]), "<=1.3", peer)

    def _pipes(self, broker: EmbeddedBroker) -> dict[str, tuple[Reading, Writing, Any]]:
        """Source, sink and producer of each."""
        # Planning a micro-batch takes longer with more columns, so the null source has as many.
        null = {"rows": str(1 << 40), "rowsPerBatch": "10", "partitions": "1", "columns": "default"}
        source, target = _new_topic(broker, 1), _new_topic(broker, 1)
        earliest = {"startingOffsets": "earliest"}
        read = Reading("ours", "rmq", {**broker.options, "subscribe": source, **earliest}, "")
        kafka = self._kafka()
        feed, sunk = kafka.new_topic(1), kafka.new_topic(1)
        kafka_read = {**kafka.options, "subscribe": feed, **earliest}
        kafka_write = {**kafka.options, "topic": sunk}
        unsynced = "at least once, acks=all (default), logs not synced"
        return {
            "null": (
                Reading("null", "null_arrow", null, ""),
                Writing("null", "null_arrow", {}, "rows made beforehand, nothing written"),
                lambda: ExitStack(),
            ),
            "ours": (
                read,
                _ours("ours", broker.options, target, "exactly_once", settings_text(UNSYNCED)),
                lambda: _trickle(broker.name_server, source),
            ),
            KAFKA_DEFAULT: (
                Reading(KAFKA_DEFAULT, "kafka", kafka_read, ""),
                Writing(KAFKA_DEFAULT, "kafka", kafka_write, unsynced),
                lambda: kafka.trickle(feed, 100),
            ),
            KAFKA_TUNED: (
                Reading(KAFKA_TUNED, "kafka", {**kafka_read, **KAFKA_LATENCY_TUNED}, ""),
                Writing(
                    KAFKA_TUNED,
                    "kafka",
                    kafka_write,
                    f"{unsynced}, {settings_text(KAFKA_LATENCY_TUNED)}",
                ),
                lambda: kafka.trickle(feed, 100),
            ),
        }

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

    def _scaled(self, rows: int) -> int:
        return max(1_000, int(rows * self._scale))

    def _rows(self, size: int) -> int:
        return self._scaled((1_000_000 if self._quick else 10_000_000) * 100 // max(size // 2, 100))

    # Measuring

    def _compare(self, writings: Mapping[str, Writing], rows: int, size: int) -> dict[str, Figure]:
        """Rows per second of each, in turns; the first round only warms up."""

        def take(name: str) -> float:
            return rows / self._write_once(writings[name], rows, size)

        return compare(list(writings), take, self._rounds)

    def _write_once(self, writing: Writing, rows: int, size: int, *, touch: bool = True) -> float:
        frame = self._session.range(rows).select(F.lit(bytearray(os.urandom(size))).alias("value"))
        writer = frame.write.format(writing.format).options(**writing.options).mode("append")
        if touch:
            touch_memory(self._root, TOUCHED * _stored_size(rows, size))
        started = time.perf_counter()
        writer.save()
        return time.perf_counter() - started

    def _disk_once(self, size: int) -> float:
        """Seconds of a plain sequential write and one sync, which finds the memory a log finds."""
        path = self._root / "plain"
        touch_memory(self._root, TOUCHED * size)
        taken = _plain_write(path, size)
        path.unlink()
        return taken

    def _micro_batches(self, source: Reading, target: Writing, count: int) -> float:
        """Median milliseconds of a micro-batch with rows, the first ten left out."""
        frame = source.load(self._session.readStream).select("value")
        checkpoint = str(self._root / f"checkpoint-{next(_numbers)}")
        query = (
            frame.writeStream.format(target.format)
            .options(**target.options)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        spent: dict[int, float] = {}
        try:
            _until(query, lambda: _note_batches(query, spent) >= count + _WARM_UP)
        finally:
            query.stop()
        return statistics.median(list(spent.values())[_WARM_UP:])


_BROKER: Final = "broker-a"


def writings(
    synced: Mapping[str, str],
    unsynced: Mapping[str, str],
    kafka: Mapping[str, str],
    topics: Mapping[str, str],
) -> list[Writing]:
    """All writers; the options of a connection to each server, and its topics."""
    found = [Writing("null", "null_arrow", {}, "batches taken and dropped, nothing stored")]
    for mode, options, flush in (("synced", synced, SYNCED), ("unsynced", unsynced, UNSYNCED)):
        text = settings_text(flush) + (" (its default)" if mode == "synced" else "")
        topic = topics[mode]
        name = f"exactly once, {mode}"
        found += [
            _ours(f"{name}, files", options, topic, "exactly_once", text),
            _ours(f"{name}, network", options, topic, "exactly_once", text, NETWORK),
            _ours(f"at least once, {mode}", options, topic, "at_least_once", text),
        ]
    for name, topic, how in (
        ("kafka", topics["kafka"], "logs not synced"),
        ("kafka synced", topics["kafka synced"], f"{settings_text(KAFKA_SYNCED)} (logs synced)"),
    ):
        text = f"at least once, acks=all (default), {how}"
        own = {**kafka, "topic": topic}
        default, tuned = (name, f"{name}, tuned")
        if name == "kafka":
            default, tuned = KAFKA_DEFAULT, KAFKA_TUNED
        more = settings_text(KAFKA_WRITES_TUNED)
        found += [
            Writing(default, "kafka", own, text),
            Writing(tuned, "kafka", {**own, **KAFKA_WRITES_TUNED}, f"{text}, {more}"),
        ]
    return found


def write_lines(size: int, figures: Mapping[str, Figure]) -> None:
    """One line for each goal."""
    for name, (ours, peers, small, large) in GOALS.items():
        peer = better(figures, peers)
        goal = small if size <= 100 else large if size <= 1024 else "none"
        value = ratio_of(figures[ours], figures[peer])
        ratio(name.format(size_name(size)), value, goal, peer)


def _ours(
    name: str,
    broker: Mapping[str, str],
    topic: str,
    guarantee: str,
    flush: str,
    more: Mapping[str, str] | None = None,
) -> Writing:
    options = {**broker, "topic": topic, "deliveryGuarantee": guarantee, **(more or {})}
    way = settings_text(more or {}, "shortCircuit=auto")
    if guarantee == "at_least_once":
        way = "sent over the network"
    return Writing(name, "rmq", options, ", ".join(filter(None, (flush, way))))


def _new_topic(broker: EmbeddedBroker, queues: int = QUEUES) -> str:
    topic = f"sink-{next(_numbers)}"
    broker.create_topic(topic, queues)
    return topic


def _stored_size(rows: int, size: int) -> int:
    """Bytes in the log of `rows` rows of `size` bytes."""
    batch = column_batch(1_000, size, QUEUES, topic="sink-000")._replace(append_crc=True)
    return measure_batch(batch)[0] * rows // batch.count


def _plain_write(path: Path, size: int) -> float:
    """Seconds to write `size` bytes sequentially and to sync them."""
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
