"""The source and the sink over Spark Connect, in a process of its own: sessions do not mix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_rmq import EmbeddedBroker

pytest.importorskip("pyspark")

PROJECT = Path(__file__).resolve().parents[2]
SCRIPT = """
import io, json, sys
from pyspark.sql import SparkSession
from pyspark_rmq import watch
from pyspark_rmq.progress import lag_of
from tests.spark.stream_runs import patiently
options, topic, out, checkpoint = json.loads(sys.argv[1])
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
frame = spark.read.format("rmq").options(**options).load(topic)
values = sorted(bytes(row.value).decode() for row in frame.collect())
stream = spark.readStream.format("rmq").options(**options).option("subscribe", topic)
stream = stream.option("startingOffsets", "earliest").load().select("value")
writer = (
    stream.writeStream.format("rmq").options(**options).option("topic", out)
    .option("checkpointLocation", checkpoint).trigger(availableNow=True)
)

tries = []

def run():
    tries.append(1)
    query = writer.start()
    lag_of(query.lastProgress)
    shown = io.StringIO()
    view = watch(query, out=shown)
    query.awaitTermination()
    assert query.exception() is None, query.exception()
    assert lag_of(query.lastProgress).total == 0
    return view, shown.getvalue()

view, shown = patiently(run)
copied = spark.read.format("rmq").options(**options).load(out).count()

def write(batch, number):
    # Twice, as when Spark runs a batch again.
    for _ in range(2):
        rows = batch.write.format("rmq").options(**options).option("topic", out)
        rows = rows.option("sinkId", "connect").mode("append")
        if is_numbered:
            rows = rows.option("batchId", str(number))
        rows.save()

refusals = []
for is_numbered in (False, True):
    each = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
    each = each.option("checkpointLocation", f"{checkpoint}-{is_numbered}")
    try:
        patiently(lambda: each.start().awaitTermination())
    except Exception as error:
        refusals.append(str(error))
both = spark.read.format("rmq").options(**options).load(out).count()
print(json.dumps([values, copied, view, shown, len(tries), refusals, both]))
spark.stop()
"""


def test_read_and_write(
    broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, out = new_topic(2), new_topic(2)
    broker.produce(topic, [f"m{number}" for number in range(20)])
    arguments = json.dumps([broker.options, topic, out, str(tmp_path / "checkpoint")])
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, arguments],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    values, copied, view, shown, tries, refusals, both = json.loads(done.stdout.splitlines()[-1])
    assert values == sorted(f"m{number}" for number in range(20))
    assert copied == 20
    # Tasks of foreachBatch do not see the number of their batch.
    assert len(refusals) == 1 and "Over Spark Connect that number does" in refusals[0]
    assert both == 40
    # A second try has fewer rows, or none.
    assert view[2] == 20 or tries > 1, view
    assert shown.splitlines()[-1].endswith(f"lag {topic} 0 ended")
