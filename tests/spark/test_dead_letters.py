"""Each bad record is one dead letter, whatever tasks, queries and the broker do meanwhile."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker
from tests.patient_client import PATIENT_BROKER
from tests.spark.stream_runs import LATE, await_end

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

BAD, ALL = 300, 3_000
EXPECTED = sorted(f"bad {n}" for n in range(7, ALL, ALL // BAD))
SCHEMA = "value STRUCT<n: INT>, offset LONG"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 2, "dead": 2}, properties=PATIENT_BROKER) as running:
        step = ALL // BAD
        bodies = [b"bad %d" % n if n % step == 7 else b'{"n":%d}' % n for n in range(ALL)]
        running.produce("orders", bodies)
        yield running


def options(broker: EmbeddedBroker) -> dict[str, str]:
    given = {"valueFormat": "json", "badRecords": "deadLetter", "deadLetterTopic": "dead"}
    return {**broker.options, **given, "subscribe": "orders", "startingOffsets": "earliest"}


def bad_orders(spark: Any, broker: EmbeddedBroker) -> Any:
    return spark.read.format("rmq").options(**options(broker)).schema(SCHEMA).load()


def dead_letters(broker: EmbeddedBroker) -> list[str]:
    """The bodies in the dead-letter topic, and that their origins agree with them."""
    messages = broker.consume("dead")
    origins = {
        (message.properties["ORIGIN_QUEUE"], message.properties["ORIGIN_OFFSET"])
        for message in messages
    }
    assert len(origins) == len(messages), "copies of a dead letter"
    return sorted(message.body.decode() for message in messages)


@contextlib.contextmanager
def killed_once(broker: EmbeddedBroker, point: str, occurrence: int) -> Iterator[None]:
    """The broker is killed at a point of a send, and started again."""

    def start_again() -> None:
        killed.wait()
        broker.start()

    with broker.faults.kill_at(point, occurrence=occurrence) as killed:
        starting = threading.Thread(target=start_again)
        starting.start()
        yield
        starting.join()
        assert killed.was_reached


@pytest.mark.parametrize("point", ["send-received", "send-done"])
def test_tasks_that_read_the_same_at_the_same_moment(
    spark: Any, broker: EmbeddedBroker, point: str
) -> None:
    """As a speculative task and a task of a lost executor do. The broker is killed meanwhile."""
    with killed_once(broker, point, 200):
        rows = bad_orders(spark, broker).union(bad_orders(spark, broker)).collect()
    assert len(rows) == 2 * (ALL - BAD)
    assert dead_letters(broker) == EXPECTED
    assert bad_orders(spark, broker).count() == ALL - BAD
    assert dead_letters(broker) == EXPECTED, "later"


def test_a_batch_that_is_read_again_by_another_run(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The sink fails behind the read, then Spark's worker is killed in the read."""
    from tests.spark.killing_source import KillingSource, Trap

    spark.dataSource.register(KillingSource)
    given = {**options(broker), "maxOffsetsPerTrigger": "1000", "killWork": str(tmp_path)}

    def run(point: str) -> str:
        """Why the query failed; empty if it did not."""
        trap = Trap(str(tmp_path), point, "self")

        def keep(rows: Any, batch: int) -> None:
            found = [row.value.n for row in rows.collect()]
            (tmp_path / f"batch-{batch}.json").write_text(json.dumps(found))
            if trap.passed("sink_after"):
                raise RuntimeError("the sink has the rows, and Spark does not know")

        stream = spark.readStream.format("rmq_killing").options(**given)
        stream = stream.options(killAt=point, killWhom="self").schema(SCHEMA).load()
        writer = stream.writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            await_end(query)
        except StreamingQueryException as failure:
            return str(failure)
        return ""

    for point in ("sink_after:0", "read:1"):
        while LATE in (failure := run(point)):
            pass
        assert failure
    while LATE in (failure := run(":0")):
        pass
    assert failure == ""
    kept = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("batch-*.json"))]
    assert sum(map(len, kept)) == ALL - BAD
    assert dead_letters(broker) == EXPECTED
