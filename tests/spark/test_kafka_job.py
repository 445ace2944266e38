"""The same job text on Kafka and on RocketMQ (`docs/migration.md`).

Collected in the complete run only (`make test-spark-versions`): Spark's Kafka connector needs an
older Spark than the other tests have.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.kafka import SPARK, KafkaServer, connector_jars
from pyspark_rmq import EmbeddedBroker
from tests.interop.maven_artifacts import PeerUnavailable
from tests.spark.spark_versions import spark_python

PROJECT = Path(__file__).resolve().parents[2]
TOPICS = {"orders": 2, "large": 2, "copies": 2}


def run_job(home: Path, source: str, options: Mapping[str, str], jars: str = "") -> dict[str, Any]:
    home.mkdir(parents=True, exist_ok=True)
    given = {"format": source, "options": dict(options), "jars": jars, "home": str(home)}
    (home / "arguments.json").write_text(json.dumps(given))
    python = str(spark_python(SPARK))
    done = subprocess.run(
        [python, "-m", "tests.spark.kafka_job", str(home / "arguments.json")],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-5_000:]
    found: dict[str, Any] = json.loads((home / "result.json").read_text())
    return found


@pytest.mark.timeout(1_500)
def test_the_job_has_the_same_result_on_both(tmp_path: Path) -> None:
    try:
        jars = ",".join(map(str, connector_jars()))
        spark_python(SPARK)
        server = KafkaServer(tmp_path / "server")
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    with server as kafka:
        for topic in TOPICS:
            kafka.create_topic(topic, partitions=2)
        theirs = run_job(tmp_path / "kafka", "kafka", kafka.options, jars)
    with EmbeddedBroker(topics=TOPICS) as broker:
        ours = run_job(tmp_path / "rmq", "rmq", {**broker.options, "columnNames": "kafka"})
    assert theirs["rows"]["large"], "the job wrote nothing"
    assert theirs["queuesOfAKey"] == 1
    assert ours == theirs
