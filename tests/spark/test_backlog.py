"""A large backlog while drivers are killed: every row once, the same in every attempt.

Runs with RMQ_CRASH_LONG only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from broker_core import BulkProducer, MessageQueue
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.options import SourceOptions

pytest.importorskip("pyspark")

PROJECT = Path(__file__).resolve().parents[2]
IS_LONG = bool(os.environ.get("RMQ_CRASH_LONG"))
ROWS = 5_000_000
QUEUES = 4
BATCHES = 5
_SENT_AT_ONCE = 50_000


def value(queue: int, offset: int) -> bytes:
    return b"%d:%d:" % (queue, offset) + b"x" * 80


def fill(broker: EmbeddedBroker, topic: str) -> list[list[int]]:
    """What the sums of each queue must be."""
    broker.create_topic(topic, QUEUES)
    options = SourceOptions.parse({**broker.options, "subscribe": topic})
    connected = connections.connect(options.connection)
    connected.call(connected.client.routes.route(topic))
    producer = BulkProducer(connected.client)
    expected = []
    for queue in range(QUEUES):
        crc_sum = 0
        for first in range(0, ROWS // QUEUES, _SENT_AT_ONCE):
            bodies = [value(queue, first + n) for n in range(_SENT_AT_ONCE)]
            crc_sum += sum(map(zlib.crc32, bodies))
            place = MessageQueue(topic, "broker-a", queue)
            connected.call(producer.send_bodies(topic, bodies, queue=place))
        count = ROWS // QUEUES
        expected.append([queue, count, 0, count - 1, count * (count - 1) // 2, crc_sum])
    connections.close_connections()
    return expected


def run_driver(work: Path, options: dict[str, str], kill_at: str) -> int:
    command = [sys.executable, "-m", "tests.spark.backlog_driver", str(work), json.dumps(options)]
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)}
    with (work / "driver.log").open("ab") as log:
        driver = subprocess.Popen(
            [*command, kill_at],
            cwd=PROJECT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )
    with driver:
        return driver.wait(timeout=300)


@pytest.mark.skipif(not IS_LONG, reason="minutes and a gigabyte; RMQ_CRASH_LONG=1 runs it")
@pytest.mark.parametrize("way", ["auto", "off"])
def test_five_million_rows_and_killed_drivers(tmp_path: Path, way: str) -> None:
    with EmbeddedBroker(store=tmp_path / "store") as broker:
        expected = fill(broker, "backlog")
        options = {
            **broker.options,
            "subscribe": "backlog",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(ROWS // BATCHES),
            "shortCircuit": way,
        }
        for kill_at in ("read:0", "sink_after:1", "source_commit:2", "read:3"):
            code = run_driver(tmp_path, options, kill_at)
            log = (tmp_path / "driver.log").read_text()[-3_000:]
            assert code < 0, (kill_at, log)
        code = run_driver(tmp_path, options, ":0")
        assert code == 0, (tmp_path / "driver.log").read_text()[-3_000:]
    assert summed(attempts_of(tmp_path)) == expected


def attempts_of(work: Path) -> dict[int, list[Any]]:
    """One attempt of each batch, of which all were alike."""
    found: dict[int, list[Any]] = {}
    for path in sorted(work.glob("sums-*.json")):
        batch = int(path.stem.split("-")[1])
        found.setdefault(batch, []).append(json.loads(path.read_text()))
    assert sorted(found) == list(range(BATCHES))
    assert any(len(attempts) > 1 for attempts in found.values())
    for batch, attempts in found.items():
        assert all(other == attempts[0] for other in attempts), batch
    return {batch: attempts[0] for batch, attempts in found.items()}


def summed(batches: dict[int, list[Any]]) -> list[list[int]]:
    sums: dict[int, list[int]] = {}
    for batch in sorted(batches):
        for queue, count, low, high, offsets, values in batches[batch]:
            old = sums.setdefault(queue, [queue, 0, low, low - 1, 0, 0])
            # Where the last batch ended.
            assert low == old[3] + 1
            sums[queue] = [queue, old[1] + count, old[2], high, old[4] + offsets, old[5] + values]
    return [sums[queue] for queue in sorted(sums)]
