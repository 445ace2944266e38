"""A query is killed at every point of a batch; what it reads again is what it read before.

In every run Spark's own Python processes are killed at each point, within one session, and the
whole driver with its JVM at one of them; RMQ_CRASH_LONG kills the driver at each point.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncProducer
from pyspark_rmq import EmbeddedBroker
from tests.spark.stream_runs import LATE, await_end

pytest.importorskip("pyspark")

PROJECT = Path(__file__).resolve().parents[2]
IS_LONG = bool(os.environ.get("RMQ_CRASH_LONG"))
ROWS = 80


class Killed:
    """A query over a topic that grows after every kill."""

    def __init__(self, broker: EmbeddedBroker, topic: str, work: Path) -> None:
        self.broker = broker
        self.topic = topic
        self.work = work
        self.sent = 0
        self.options = {
            **broker.options,
            "subscribe": topic,
            "startingOffsets": "latest-15",
            "maxOffsetsPerTrigger": "25",
            "minPartitions": "2",
        }

    def produce(self) -> None:
        with SyncProducer(self.broker.name_server) as producer:
            for number in range(self.sent, self.sent + ROWS):
                queue = MessageQueue(self.topic, "broker-a", number % 4)
                producer.send(OutgoingMessage(self.topic, f"m{number}".encode()), queue=queue)
        self.sent += ROWS

    def check(self) -> None:
        """Every attempt at a batch read the same, and all of them together everything, once."""
        attempts: dict[int, list[Any]] = {}
        for path in sorted(self.work.glob("batch-*.json")):
            _, number, _ = path.stem.split("-")
            attempts.setdefault(int(number), []).append(json.loads(path.read_text()))
        assert [number for number, found in attempts.items() if len(found) > 1]
        for number, found in attempts.items():
            assert all(other == found[0] for other in found), number
        assert sorted(attempts) == list(range(len(attempts)))
        rows = [row for number in sorted(attempts) for row in attempts[number][0]]
        places = [(queue, offset) for queue, offset, _ in rows]
        assert len(set(places)) == len(places)
        begins = {}
        for queue in range(4):
            offsets = [offset for found, offset, _ in rows if found == queue]
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
            begins[queue] = offsets[0]
        in_log = {
            (message.queue.queue_id, message.queue_offset): message.body.decode()
            for message in self.broker.consume(self.topic)
        }
        assert all(in_log[queue, offset] == value for queue, offset, value in rows)
        # Everything from where the query began.
        assert {place for place in in_log if place[1] >= begins[place[0]]} == set(places)


@pytest.fixture
def killed(broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path) -> Killed:
    found = Killed(broker, new_topic(4), tmp_path)
    found.produce()
    return found


def test_a_replay_reads_the_same(spark: Any, killed: Killed) -> None:
    from tests.spark.killing_source import POINTS, KillingSource, Trap, last_batch, run_query

    spark.dataSource.register(KillingSource)
    # The first time in batch 0, whose beginning is in no checkpoint of Spark's own.
    for point in POINTS:
        trap = Trap(str(killed.work), f"{point}:{last_batch(killed.work) + 1}", "self")
        failure = ended(run_query(spark, killed.work, killed.options, trap))
        # Spark gives its Python process ten seconds to start, which a busy machine may not have.
        while LATE in failure and not (killed.work / f"killed-{point}").exists():
            failure = ended(run_query(spark, killed.work, killed.options, trap))
        assert (killed.work / f"killed-{point}").exists(), failure[-3_000:]
        # What comes now must not show in the batch that is read again.
        killed.produce()
    trap = Trap(str(killed.work), ":0", "self")
    while (failure := ended(run_query(spark, killed.work, killed.options, trap))) != "":
        assert LATE in failure, failure[-3_000:]
    killed.check()


def ended(query: Any) -> str:
    """Why a query failed; empty for one that read everything."""
    from pyspark.errors import StreamingQueryException

    try:
        await_end(query)
    except StreamingQueryException as failure:
        return str(failure)
    return ""


def run_driver(killed: Killed, kill_at: str) -> int:
    """The exit code of a driver that Spark's limit for its processes did not end."""
    while True:
        code = run_driver_once(killed, kill_at)
        log = killed.work / "driver.log"
        if code != 1 or LATE not in log.read_text():
            return code
        # Nothing was read: a busy machine was slower than Spark waits for its processes.
        log.unlink()


def run_driver_once(killed: Killed, kill_at: str) -> int:
    """The exit code of a driver; its processes are gone afterwards."""
    command = [sys.executable, "-m", "tests.spark.killing_source", str(killed.work)]
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)}
    with (killed.work / "driver.log").open("ab") as log:
        driver = subprocess.Popen(
            [*command, json.dumps(killed.options), kill_at],
            cwd=PROJECT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )
    with driver:
        try:
            return driver.wait(timeout=300)
        except subprocess.TimeoutExpired:
            # Or the end of the block would wait for it without a limit.
            driver.kill()
            raise


def test_a_killed_driver_reads_the_same(killed: Killed) -> None:
    from tests.spark.killing_source import POINTS, last_batch

    for point in POINTS if IS_LONG else ("sink_after",):
        kill_at = f"{point}:{last_batch(killed.work) + 1}"
        code = run_driver(killed, kill_at)
        assert code < 0, (kill_at, (killed.work / "driver.log").read_text()[-3000:])
        killed.produce()
    code = run_driver(killed, ":0")
    assert code == 0, (killed.work / "driver.log").read_text()[-3000:]
    killed.check()
