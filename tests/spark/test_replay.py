"""The driver is killed at every point of a batch; what it reads again is what it read before."""

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

pytest.importorskip("pyspark")

PROJECT = Path(__file__).resolve().parents[2]


def run_driver(work: Path, options: dict[str, str], kill_at: str, trigger: dict[str, Any]) -> int:
    """The exit code of a driver; its processes are gone afterwards."""
    with (work / "driver.log").open("ab") as log, subprocess.Popen(
        [sys.executable, "-m", "tests.spark.killing_source", str(work), json.dumps(options),
         json.dumps(trigger)],
        cwd=PROJECT,
        env={**os.environ, "KILL_AT": kill_at, "KILL_WORK": str(work),
             "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)},
        stdout=log,
        stderr=log,
    ) as driver:  # fmt: skip
        return driver.wait(timeout=120)


def test_a_replay_reads_the_same(
    broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    from tests.spark.killing_source import POINTS, last_batch

    topic = new_topic(4)
    options = {
        **broker.options,
        "subscribe": topic,
        "startingOffsets": "latest-15",
        "maxOffsetsPerTrigger": "25",
        "minPartitions": "2",
    }
    sent = 0

    def produce(count: int) -> None:
        nonlocal sent
        with SyncProducer(broker.name_server) as producer:
            for number in range(sent, sent + count):
                queue = MessageQueue(topic, "broker-a", number % 4)
                producer.send(OutgoingMessage(topic, f"m{number}".encode()), queue=queue)
        sent += count

    produce(80)
    for point in POINTS:
        # The first time in batch 0, whose beginning is in no checkpoint of Spark's own.
        kill_at = f"{point}:{last_batch(tmp_path) + 1}"
        code = run_driver(tmp_path, options, kill_at, {"availableNow": True})
        assert code < 0, (kill_at, (tmp_path / "driver.log").read_text()[-3000:])
        # What comes now must not show in the batch that is read again.
        produce(80)
    code = run_driver(tmp_path, options, ":0", {"availableNow": True})
    assert code == 0, (tmp_path / "driver.log").read_text()[-3000:]

    attempts: dict[int, list[Any]] = {}
    for path in sorted(tmp_path.glob("batch-*.json")):
        _, number, _ = path.stem.split("-")
        attempts.setdefault(int(number), []).append(json.loads(path.read_text()))
    repeated = [number for number, found in attempts.items() if len(found) > 1]
    assert repeated
    for number, found in attempts.items():
        assert all(other == found[0] for other in found), number
    assert sorted(attempts) == list(range(len(attempts)))
    rows = [row for number in sorted(attempts) for row in attempts[number][0]]
    places = [(queue, offset) for queue, offset, _ in rows]
    assert len(set(places)) == len(places)
    for queue in range(4):
        offsets = sorted(offset for found, offset, _ in rows if found == queue)
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
    in_log = {
        (message.queue.queue_id, message.queue_offset): message.body.decode()
        for message in broker.consume(topic)
    }
    assert all(in_log[queue, offset] == value for queue, offset, value in rows)
    # Everything from where the query began.
    begins = {queue: min(o for q, o, _ in rows if q == queue) for queue, _ in places}
    assert {place for place in in_log if place[1] >= begins.get(place[0], 0)} == set(places)
