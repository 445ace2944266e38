"""The parts of `spark_source.py`: throughput, pulls from Apache's broker, fixed cost, latency."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.measure import info, ratio
from benchmarks.spark_source_servers import KafkaTopics, RocketServer, ours
from broker_core import SyncPullConsumer

VALUE: Final = "value BINARY"
APACHE: Final = "5.5.0"
_WAIT_S: Final = 300
_numbers: Final = itertools.count(1)


class Reading(NamedTuple):
    """One competitor: a format with its options, and the columns it is asked for."""

    name: str
    format: str
    options: Mapping[str, str]
    columns: str = ""
    """For `.schema(…)`; empty takes all of them."""
    selects: str = ""
    """For `.select(…)`, where a format has no schema to choose."""

    def load(self, reader: Any) -> Any:
        """The frame; `reader` is `spark.read` or `spark.readStream`."""
        reader = reader.format(self.format).options(**self.options)
        if self.columns:
            reader = reader.schema(self.columns)
        frame = reader.load()
        return frame.select(self.selects) if self.selects else frame


class Benchmark:
    """Servers are started when a part needs them, and shared by the parts."""

    def __init__(
        self, session: Any, root: Path, stack: ExitStack, quick: bool, scale: float
    ) -> None:
        self._session = session
        self._root = root
        self._stack = stack
        self._quick = quick
        self._scale = scale
        self._ours: RocketServer | None = None
        self._kafka: KafkaTopics | None = None
        self._filled: dict[int, list[Reading]] = {}

    # Parts

    def stream(self) -> None:
        """`availableNow` over a backlog, for both sizes and both sets of columns."""
        for size, label, over_kafka in ((100, "100B", 4), (1024, "1KiB", 3)):
            rows = self._rows(size)
            readings = self._readings(rows, size)
            rates = self._compare(readings, rows, self._stream_once, 2 if self._quick else 5)
            self._throughput_lines("", label, rates, over_kafka)

    def batch(self) -> None:
        """`spark.read` over the same backlog."""
        for size, label, over_kafka in ((100, "100B", 4), (1024, "1KiB", 3)):
            if self._quick and size > 100:
                continue
            rows = self._rows(size)
            readings = self._readings(rows, size)
            rates = self._compare(readings, rows, self._batch_once, 2 if self._quick else 5)
            self._throughput_lines("batch_", label, rates, over_kafka)

    def apache(self) -> None:
        """Pipelined pulls from Apache's broker, against one pull after another."""
        # Enough for some seconds: a job's fixed cost is measured by `trickle`.
        rows = self._scaled(400_000 if self._quick else 1_000_000)
        with RocketServer(APACHE, self._root / "apache") as server:
            topic = server.filled_topic(rows, 100)
            reading = _ours_reading("apache", server, topic, VALUE)
            rates, singles = [], []
            # In turns: the broker's compiler makes both ways faster from round to round.
            for number in range(4 if self._quick else 6):
                rate = rows / self._stream_once(reading)
                single_rate = _single_pulls(server.name_server, topic, min(rows, 20_000))
                if number:
                    rates.append(rate)
                    singles.append(single_rate)
        single = statistics.median(singles)
        rate = statistics.median(rates)
        info(f"from Apache {APACHE}: {rate:.0f} rows/s, one pull at a time {single:.0f}")
        ratio("apache_over_single_pulls", rate / single, ">=5")

    def trickle(self) -> None:
        """Fixed cost of a micro-batch of a few rows."""
        count = 20 if self._quick else 60
        null = Reading(
            "null", "null_arrow", {"rows": str(1 << 40), "rowsPerBatch": "10", "partitions": "1"}
        )
        spent = {"null": self._micro_batches(null, count)}
        broker, kafka = self._servers()
        topic = broker.new_topic()
        with broker.trickle(topic, 100):
            spent["ours"] = self._micro_batches(_ours_reading("ours", broker, topic, ""), count)
        topic = kafka.new_topic()
        with kafka.trickle(topic, 100):
            spent["kafka"] = self._micro_batches(_kafka_reading(kafka, topic, ""), count)
        for name, found in spent.items():
            info(f"micro-batch of {name}: {found:.0f} ms")
        ratio("trickle_over_null", spent["ours"] / spent["null"], "<=1.1")
        ratio("trickle_over_kafka", spent["ours"] / spent["kafka"], "<=1.1")

    def latency(self) -> None:
        """From the send until the row is in `foreachBatch`."""
        count = 40 if self._quick else 200
        broker, kafka = self._servers()
        topic = broker.new_topic()
        found = {}
        with broker.trickle(topic, 5):
            reading = _ours_reading("ours", broker, topic, "bornTimestamp TIMESTAMP")
            found["ours"] = self._latencies(reading, count)
        topic = kafka.new_topic()
        with kafka.trickle(topic, 5):
            found["kafka"] = self._latencies(_kafka_reading(kafka, topic, "timestamp"), count)
        for share, name in ((50, "p50"), (99, "p99")):
            at = {kind: taken[len(taken) * share // 100] for kind, taken in found.items()}
            info(f"latency {name}: ours {at['ours']:.0f} ms, kafka {at['kafka']:.0f} ms")
            ratio(f"latency_{name}_over_kafka", at["ours"] / at["kafka"], "<=1")

    # Servers and competitors

    def _servers(self) -> tuple[RocketServer, KafkaTopics]:
        if self._ours is None or self._kafka is None:
            self._ours = self._stack.enter_context(ours(self._root / "ours"))
            self._kafka = self._stack.enter_context(KafkaTopics(self._root / "kafka"))
        return self._ours, self._kafka

    def _scaled(self, rows: int) -> int:
        return max(1_000, int(rows * self._scale))

    def _rows(self, size: int) -> int:
        return self._scaled((1_000_000 if self._quick else 4_000_000) * 100 // max(size // 2, 100))

    def _readings(self, rows: int, size: int) -> list[Reading]:
        if size not in self._filled:
            self._filled[size] = self._new_readings(rows, size)
        return self._filled[size]

    def _new_readings(self, rows: int, size: int) -> list[Reading]:
        broker, kafka = self._servers()
        topic, kafka_topic = broker.filled_topic(rows, size), kafka.filled_topic(rows, size)
        null = {"rows": str(rows), "size": str(size)}
        network = {"shortCircuit": "off"}
        return [
            Reading("null value", "null_arrow", {**null, "columns": "1"}),
            _ours_reading("ours value", broker, topic, VALUE),
            _ours_reading("network value", broker, topic, VALUE, network),
            _kafka_reading(kafka, kafka_topic, "value", "kafka value"),
            Reading("null all", "null_arrow", {**null, "columns": "7"}),
            _ours_reading("ours all", broker, topic, ""),
            _ours_reading("network all", broker, topic, "", network),
            _kafka_reading(kafka, kafka_topic, "", "kafka all"),
        ]

    def _throughput_lines(
        self, prefix: str, label: str, rates: Mapping[str, float], over_kafka: int
    ) -> None:
        for name, rate in rates.items():
            info(f"{prefix}{label} {name}: {rate:,.0f} rows/s")

        def line(name: str, ours: str, other: str, goal: str) -> None:
            ratio(f"{prefix}{name.format(label)}", rates[ours] / rates[other], goal)

        line("value_{}_over_ceiling", "ours value", "null value", ">=0.85")
        line("value_{}_over_kafka", "ours value", "kafka value", f">={over_kafka}")
        line("default_{}_over_ceiling", "ours all", "null all", ">=0.7")
        line("default_{}_over_kafka", "ours all", "kafka all", ">=2")
        line("network_value_{}_over_kafka", "network value", "kafka value", ">=1.5")
        line("network_default_{}_over_kafka", "network all", "kafka all", ">=1.5")

    # Measuring

    def _compare(
        self,
        readings: list[Reading],
        rows: int,
        seconds_of: Callable[[Reading], float],
        rounds: int,
    ) -> dict[str, float]:
        """Rows per second of each, in turns; the first round only warms up."""
        rates: dict[str, list[float]] = {reading.name: [] for reading in readings}
        for number in range(rounds + 1):
            for reading in readings:
                rate = rows / seconds_of(reading)
                if number:
                    rates[reading.name].append(rate)
        return {name: statistics.median(taken) for name, taken in rates.items()}

    def _stream_once(self, reading: Reading) -> float:
        """Seconds of the micro-batches of a query over everything."""
        query = self._query(reading, availableNow=True)
        query.awaitTermination()
        spent = [report["durationMs"]["triggerExecution"] for report in query.recentProgress]
        return float(sum(spent)) / 1000

    def _batch_once(self, reading: Reading) -> float:
        frame = reading.load(self._session.read)
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    def _micro_batches(self, reading: Reading, count: int) -> float:
        """Median milliseconds of a micro-batch with rows, the first ten left out."""
        query = self._query(reading)
        try:
            spent: dict[int, float] = {}
            self._until(query, lambda: _note_batches(query, spent) >= count + 10)
        finally:
            query.stop()
        return statistics.median(list(spent.values())[10:])

    def _latencies(self, reading: Reading, count: int) -> list[float]:
        """Milliseconds for each row, sorted; the first ten rows left out."""
        spent: list[float] = []

        def take(frame: Any, _: int) -> None:
            if len(spent) >= count + 10:
                # A query that is stopped inside a call makes Spark search the text of the error
                # with a regular expression that overflows its stack, whatever the source.
                return
            sent = [row[0].timestamp() for row in frame.collect()]
            now = time.time()
            spent.extend((now - at) * 1000 for at in sent)

        query = self._query(reading, take)
        try:
            self._until(query, lambda: len(spent) >= count + 10)
        finally:
            query.stop()
        return sorted(spent[10:])

    def _query(self, reading: Reading, take: Any = None, **trigger: Any) -> Any:
        frame = reading.load(self._session.readStream)
        checkpoint = str(self._root / f"checkpoint-{next(_numbers)}")
        writer = frame.writeStream.option("checkpointLocation", checkpoint)
        writer = writer.format("noop") if take is None else writer.foreachBatch(take)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def _until(self, query: Any, reached: Callable[[], bool]) -> None:
        pause = threading.Event()
        deadline = time.monotonic() + _WAIT_S
        while not reached():
            if query.exception() is not None:
                raise query.exception()
            if time.monotonic() > deadline:
                raise TimeoutError(f"a query did not get far enough in {_WAIT_S} s")
            pause.wait(0.2)


def _ours_reading(
    name: str,
    server: RocketServer,
    topic: str,
    columns: str,
    more: Mapping[str, str] | None = None,
) -> Reading:
    options = {**server.options, "subscribe": topic, "startingOffsets": "earliest", **(more or {})}
    return Reading(name, "rmq", options, columns)


def _kafka_reading(kafka: KafkaTopics, topic: str, selects: str, name: str = "kafka") -> Reading:
    options = {**kafka.options, "subscribe": topic, "startingOffsets": "earliest"}
    return Reading(name, "kafka", options, selects=selects)


def _note_batches(query: Any, spent: dict[int, float]) -> int:
    for report in query.recentProgress:
        if report["numInputRows"]:
            spent[report["batchId"]] = report["durationMs"]["triggerExecution"]
    return len(spent)


def _single_pulls(name_server: str, topic: str, rows: int) -> float:
    """Messages per second of a loop that waits for each answer before it asks again."""
    read = 0
    started = time.perf_counter()
    with SyncPullConsumer(name_server) as consumer:
        for queue in consumer.queues(topic):
            offset = consumer.min_offset(queue)
            while read < rows:
                result = consumer.pull(queue, offset)
                if not result.messages:
                    break
                read += len(result.messages)
                offset = result.next_offset
    return read / (time.perf_counter() - started)
