"""The language for stream tests, `processed`, and the fixtures in a project of a user."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chispa.dataframe_comparer import DataFramesNotEqualError
from chispa.schema_comparer import SchemasNotEqualError
from pyspark.errors import PySparkException

from broker_core import EmbeddedBroker, Topic
from pyspark_rmq.testing import NotProcessed, StreamTest, processed
from tests.spark.stream_runs import LATE, run_to_now

PROJECT = Path(__file__).resolve().parents[2]
_ATTEMPTS = 3

Streams = Callable[..., StreamTest]


def shown_files(raised: pytest.ExceptionInfo[BaseException]) -> set[str]:
    """Where the lines come from that pytest shows above an error."""
    return {Path(entry.path).name for entry in raised.traceback.filter(raised)}


def upper(rows: Any) -> Any:
    return rows.selectExpr("upper(cast(value AS STRING)) AS text", "key")


def test_add_process_check_restart_kill(rmq_stream: Streams) -> None:
    stream = rmq_stream(upper)
    stream.check()
    with pytest.raises(AssertionError, match=r"no rows yet.*process\(\) comes before check"):
        stream.check("a")
    stream.add("a", "b", keys="k").process().check(("A", "k"), ("B", "k"))
    stream.check()
    stream.add({"value": "c", "key": "x"}).process().check({"key": "x", "text": "C"})
    stream.restart().add("d").kill().add("e").process()
    with pytest.raises(DataFramesNotEqualError, match="text=F") as raised:
        stream.check(("D", None), ("F", None))
    assert str(raised.value).startswith("df1 (or schema1) is what the query returned")
    assert shown_files(raised) == {Path(__file__).name}
    stream.check()
    for row, text in (
        ("D", r"'D'.* cannot be rows of the query, whose columns are text string, key string"),
        ({"text": "D"}, "does not have the columns of the query: text, key"),
    ):
        with pytest.raises(AssertionError, match=text):
            stream.check(row)
    assert [row.text for row in stream.rows][:2] == ["A", "B"]
    assert len(stream.rows) == 5


def test_the_clock_is_advanced(rmq_stream: Streams, rmq_broker: EmbeddedBroker) -> None:
    stream = rmq_stream(lambda rows: rows.selectExpr("cast(value AS STRING) AS text"))
    stream.add("in an hour", delay_ms=3_600_000).add("in a minute", delay_level=5)
    stream.add("now").process().check("now")
    stream.advance(60).process().check("in a minute")
    stream.kill().process().check()
    stream.advance(timedelta(hours=1)).process().check("in an hour")
    assert rmq_broker.is_clock_advanced


def test_the_next_test_has_the_time_of_the_machine(rmq_broker: EmbeddedBroker) -> None:
    assert not rmq_broker.is_clock_advanced


def test_faults_on_the_way(rmq_stream: Streams, rmq_broker: EmbeddedBroker) -> None:
    stream = rmq_stream(lambda rows: rows.selectExpr("cast(value AS STRING) AS text"))
    stream.add("a").process().check("a")
    with rmq_broker.faults.latency(0.02):
        stream.add("b").process().check("b")
    with rmq_broker.faults.kill_at("pull-done") as kill:
        rmq_broker.produce(stream.topic.name, ["c"])
        kill.wait()
    stream.process().check("c")
    stream.topic.produce(["d"])
    with rmq_broker.faults.partition(limit_s=1):
        # The cut ends before the query gives up.
        stream.process().check("d")


def test_a_frame_is_checked_with_its_types(rmq_stream: Streams, rmq_spark: Any) -> None:
    stream = rmq_stream(lambda rows: rows.selectExpr("cast(value AS STRING) AS text"))
    stream.add("a").process()
    expected = rmq_spark.createDataFrame([("a",)], "text STRING")
    stream.check(expected)
    stream.add("1").process()
    with pytest.raises(SchemasNotEqualError):
        stream.check(rmq_spark.createDataFrame([(1,)], "text INT"))


def test_a_failure_is_expected(rmq_stream: Streams) -> None:
    broken = rmq_stream(lambda rows: rows.selectExpr("raise_error('planted') AS text"))
    broken.add("a").expect_failure("planted")
    other = rmq_stream(lambda rows: rows.selectExpr("raise_error('planted') AS text"))
    with pytest.raises(PySparkException, match="planted") as raised:
        other.add("a").expect_failure("something else")
    assert shown_files(raised) == {Path(__file__).name}
    for until in (None, 1):
        failing = rmq_stream(lambda rows: rows.selectExpr("raise_error('planted') AS text"))
        with pytest.raises(PySparkException, match="planted") as raised:
            failing.add("a").process(until)
        assert shown_files(raised) == {Path(__file__).name}


def test_nothing_is_skipped_by_a_query_that_begins_at_the_end(rmq_stream: Streams) -> None:
    stream = rmq_stream(
        lambda rows: rows.selectExpr("cast(value AS STRING) AS text"),
        options={"startingOffsets": "latest"},
    )
    stream.process().check()
    stream.add("a").process().check("a")


def test_processed(
    rmq_spark: Any,
    rmq_broker: EmbeddedBroker,
    rmq_topic: Topic,
    rmq_topics: Callable[..., Topic],
) -> None:
    rmq_topic.produce([str(n) for n in range(40)])
    given = {**rmq_broker.options, "subscribe": rmq_topic.name, "startingOffsets": "earliest"}
    rows = rmq_spark.readStream.format("rmq").options(**given, maxOffsetsPerTrigger="10").load()
    query = run_to_now(rows.writeStream.format("noop").queryName("counted").start)
    try:
        processed(query, until=40)
        processed(query, until=rmq_topic)
        rmq_topic.produce(["more"] * 3)
        processed(query, until=rmq_topic)
        processed(query)
        processed(query, until=43)
        processed(query, until=lambda: query.lastProgress["batchId"] >= 4)
        with pytest.raises(NotProcessed, match=r"not within 0\.5 s: 44 rows; last report: counted"):
            processed(query, until=44, timeout_s=0.5)
        other = rmq_topics()
        other.produce(["unread"])
        unread = f"which the query does not read .it reads {rmq_topic.name}."
        with pytest.raises(NotProcessed, match=unread):
            processed(query, until=other, timeout_s=0.5)
        with pytest.raises(TypeError, match="give a topic"):
            processed(query, until="orders")  # type: ignore[arg-type]
    finally:
        query.stop()
    with pytest.raises(NotProcessed, match="the query ended before 44 rows"):
        processed(query, until=44)


_TEST = """
from pyspark_rmq.testing import processed


def test_pipeline(rmq_stream, rmq_topic, rmq_broker):
    stream = rmq_stream(lambda rows: rows.selectExpr("cast(value AS STRING) AS value"))
    stream.add("a", {"id": 1}).process().check("a", '{"id":1}')
    assert len(rmq_topic.tail()) == 0
    rmq_broker.kill()


def test_the_next_one(rmq_topic, rmq_broker):
    rmq_topic.produce(["a"])
    assert list(rmq_broker.topics()["topic"]) == [rmq_topic.name]
"""


def test_the_fixtures_in_a_project_of_a_user(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(_TEST, encoding="utf-8")
    environment = {
        **os.environ,
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYTHONPATH": str(PROJECT),
    }
    environment.pop("PYSPARK_PYTHON", None)
    for _ in range(_ATTEMPTS):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if LATE not in done.stdout:
            break
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    assert "2 passed" in done.stdout
