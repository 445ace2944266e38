"""Sources that are registered, and sessions that are made, run the Python of this program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyspark_rmq
from pyspark_rmq import EmbeddedBroker

PROJECT = Path(__file__).resolve().parents[2]
PLAIN_SESSION = """
import pyspark_rmq
from pyspark.sql import SparkSession
from pyspark_rmq import EmbeddedBroker, environment
settings = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
with EmbeddedBroker(topics={"orders": 1}):
    reader = spark.read.format("rmq").option("rmq.namesrv.addr", "127.0.0.1:1")
    try:
        reader.option("subscribe", "orders").load()
    except Exception as error:
        print("DATA_SOURCE_NOT_FOUND" in str(error))
pyspark_rmq.register(spark)
environment.session._warned.clear()
with EmbeddedBroker(topics={"orders": 1}) as broker:
    rows = spark.read.format("rmq").options(**broker.options).option("subscribe", "orders")
    print(rows.load().count())
"""
MADE_BY_SESSION = """
import json, sys
import pyspark_rmq
spark = pyspark_rmq.session(master="local[1]", config={"spark.ui.enabled": "false"})
again = pyspark_rmq.session()
options = json.loads(sys.argv[1])
rows = spark.read.format("rmq").options(**options).load().count()
print(json.dumps([rows, again is spark]))
spark.stop()
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python without packages, as another installation would be."""
    path = tmp_path / "bare-python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_registering_makes_a_local_session_run_this_python(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], bare_python: str
) -> None:
    topic = new_topic(1)
    broker.produce(topic, ["a", "b"])
    context = spark.sparkContext
    before = context.pythonExec
    try:
        context.pythonExec = bare_python
        pyspark_rmq.register(spark, "rmq_here")
        reader = spark.read.format("rmq_here").options(**broker.options)
        assert reader.option("subscribe", topic).load().count() == 2
    finally:
        context.pythonExec = before


def test_registering_without_a_name_is_for_the_usual_one(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    """Also where Spark has found the source by itself, and twice."""
    topic = new_topic(1)
    broker.produce(topic, ["a", "b"])
    for _ in range(2):
        pyspark_rmq.register(spark)
        for name in ("rmq", "rocketmq"):
            reader = spark.read.format(name).options(**broker.options)
            assert reader.option("subscribe", topic).load().count() == 2


def test_a_session_finds_the_source_whatever_the_environment_says(
    broker: EmbeddedBroker, new_topic: Callable[..., str], bare_python: str, tmp_path: Path
) -> None:
    topic = new_topic(1)
    broker.produce(topic, ["a", "b", "c"])
    environment = {**os.environ, "PYSPARK_DRIVER_PYTHON": "jupyter", "PYSPARK_PYTHON": bare_python}
    environment["PYTHONPATH"] = str(PROJECT)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            MADE_BY_SESSION,
            json.dumps({"rmq.namesrv.addr": broker.name_server, "subscribe": topic}),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [3, True]


def test_a_broker_warns_of_a_session_that_does_not_find_the_source(
    bare_python: str, tmp_path: Path
) -> None:
    """Before the error of Spark, which does not name the reason; not after `register`."""
    environment = {**os.environ, "PYSPARK_PYTHON": bare_python, "PYTHONPATH": str(PROJECT)}
    environment.pop("PYSPARK_DRIVER_PYTHON", None)
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_SESSION],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["True", "0"]), done.stderr
    assert done.stderr.count(" WARNING rmq: Spark runs ") == 1, done.stderr
    assert f"set PYSPARK_PYTHON={sys.executable} and PYSPARK_DRIVER_PYTHON" in done.stderr
