"""The parts of `payloads.py`: one for each format, and Kafka."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks.measuring.results import info, ratio, row
from benchmarks.measuring.rounds import Figure, compare, ratio_of
from benchmarks.payload_parts import competitors, record_bodies
from benchmarks.payload_parts.record_bodies import Records, records
from benchmarks.spark_parts.competitors import KAFKA_READS_TUNED, settings_text
from benchmarks.spark_parts.servers import KafkaTopics, RocketServer, ours
from tests.interop.maven_artifacts import PeerUnavailable

OURS: Final = "valueFormat"
FEW: Final = "3 of 50 fields"
_FEW: Final = 3
_GOALS: Final = {record_bodies.JSON: ">=1.5"}
# Rows of a quick run and of a complete one.
_ROWS: Final = {5: (400_000, 2_000_000), 50: (100_000, 500_000)}
# More rows, because both are fast and the fixed cost of a job would hide the difference.
_SELECTED_ROWS: Final = (600_000, 2_000_000)


class Benchmark:
    """Servers are started when a part needs them, and shared by the parts."""

    def __init__(
        self, session: Any, root: Path, stack: ExitStack, arguments: argparse.Namespace
    ) -> None:
        self._session = session
        self._root = root
        self._stack = stack
        self._rounds = 3 if arguments.quick else 5
        self._quick: bool = arguments.quick
        self._scale: float = arguments.scale
        self._transfer = "spark_conf()" if arguments.spark_conf else "Spark's transfer defaults"
        self._records: dict[int, Records] = {}

    # Parts

    def json(self) -> None:
        """Against `from_json`."""
        self._format(record_bodies.JSON)

    def msgpack(self) -> None:
        """Against a pandas UDF."""
        self._format(record_bodies.MSGPACK)

    def avro(self) -> None:
        """Against `from_avro`."""
        self._format(record_bodies.AVRO)

    def protobuf(self) -> None:
        """Against `from_protobuf`, or a pandas UDF."""
        self._format(record_bodies.PROTOBUF)

    def kafka(self) -> None:
        """JSON, against Spark's Kafka source with `from_json`."""
        for width in record_bodies.SIZES:
            given, count = self._given(width), self._scaled(_ROWS[width])
            bodies = given.bodies(record_bodies.JSON)
            topic = self._kafka.topic_of(bodies, count)
            peer = "Kafka source, from_json"
            frames = {
                OURS: self._typed(record_bodies.JSON, given, self._ours.topic_of(bodies, count)),
                peer: self._behind_kafka(given, topic),
            }
            settings = {peer: settings_text(KAFKA_READS_TUNED)}
            found = self._compare(f"JSON, {width} fields, Kafka", frames, count, settings)
            ratio(f"json_{width}_over_kafka", ratio_of(found[OURS], found[peer]), ">=3", peer)

    # Competitors

    @cached_property
    def _ours(self) -> RocketServer:
        return self._stack.enter_context(ours(self._root / "ours"))

    @cached_property
    def _kafka(self) -> KafkaTopics:
        return self._stack.enter_context(KafkaTopics(self._root / "kafka"))

    def _given(self, width: int) -> Records:
        if width not in self._records:
            self._records[width] = records(width)
        return self._records[width]

    def _scaled(self, rows: tuple[int, int]) -> int:
        return max(1_000, int(rows[not self._quick] * self._scale))

    def _format(self, body_format: str) -> None:
        for width in record_bodies.SIZES:
            given, count = self._given(width), self._scaled(_ROWS[width])
            topic = self._ours.topic_of(given.bodies(body_format), count)
            kind = f"STRUCT<{given.sql}>"
            try:
                peer, column = competitors.parsed(body_format, given, kind, self._root)
            except PeerUnavailable as missing:
                info(f"{body_format}: nothing to compare with: {missing}")
                continue
            frames = {
                OURS: self._typed(body_format, given, topic),
                peer: self._behind_value(column, topic),
            }
            found = self._compare(f"{body_format}, {width} fields", frames, count)
            short = peer.split(" (")[0].replace(" ", "_")
            goal = _GOALS.get(body_format, ">=1.0")
            ratio(
                f"{body_format}_{width}_over_{short}",
                ratio_of(found[OURS], found[peer]), goal, peer,
            )  # fmt: skip
        self._selected(body_format)

    def _selected(self, body_format: str) -> None:
        """Few fields against all of them."""
        width = record_bodies.SIZES[-1]
        given, count = self._given(width), self._scaled(_SELECTED_ROWS)
        topic = self._ours.topic_of(given.bodies(body_format), count)
        every = f"all {width} fields"
        frames = {
            FEW: self._typed(body_format, given, topic, _FEW),
            every: self._typed(body_format, given, topic),
        }
        found = self._compare(f"{body_format}, selected", frames, count)
        of_all = ratio_of(found[FEW], found[every])
        ratio(f"{body_format}_3_of_50_over_all", of_all, ">=2", every)

    def _typed(
        self, body_format: str, given: Records, topic: str, fields: int = 0
    ) -> Callable[[], Any]:
        options = {**self._source_options(topic), **given.options(body_format, self._root)}
        schema = f"value STRUCT<{given.sql_of(fields) if fields else given.sql}>"
        reader = self._session.read.format("rmq").options(**options).schema(schema)
        return lambda: reader.load()

    def _behind_value(self, column: Any, topic: str) -> Callable[[], Any]:
        options = self._source_options(topic)
        reader = self._session.read.format("rmq").options(**options).schema("value BINARY")
        return lambda: reader.load().select(column.alias("value"))

    def _behind_kafka(self, given: Records, topic: str) -> Callable[[], Any]:
        from pyspark.sql import functions as F

        options = {**self._kafka.options, "subscribe": topic, **KAFKA_READS_TUNED}
        reader = self._session.read.format("kafka").options(**options)
        column = F.from_json(F.col("value").cast("string"), f"STRUCT<{given.sql}>")
        return lambda: reader.load().select(column.alias("value"))

    def _source_options(self, topic: str) -> dict[str, str]:
        return {**self._ours.options, "subscribe": topic, "startingOffsets": "earliest"}

    # Measuring

    def _compare(
        self,
        table: str,
        frames: Mapping[str, Callable[[], Any]],
        count: int,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Figure]:
        for name, frame in frames.items():
            self._check(name, frame(), count)

        def take(name: str) -> float:
            frame = frames[name]()
            started = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            return count / (time.perf_counter() - started)

        found = compare(list(frames), take, self._rounds)
        for name, one in found.items():
            named = settings.get(name, "shortCircuit=auto")
            row(f"payloads, {table}", name, f"{named}, {self._transfer}", "rows/s", one)
        return found

    def _check(self, name: str, frame: Any, count: int) -> None:
        """Check that each competitor returns all rows, with values; otherwise the figures mean
        nothing.
        """
        last = frame.schema["value"].dataType.names[-1]
        [found] = frame.selectExpr("count(*) AS n", f"count(value.`{last}`) AS v").collect()
        if (found.n, found.v) != (count, count):
            raise RuntimeError(f"{name} read {found.n} rows, {found.v} with {last}, not {count}")
