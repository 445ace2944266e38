"""`watch` shows a query until it ends, fails or is left alone."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker, watch
from tests.spark.stream_runs import QUERY_LIMIT_S, patiently, run_to_now

pytest.importorskip("pyspark")


class Terminal(io.StringIO):
    """An output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def stream(spark: Any, broker: EmbeddedBroker, topic: str) -> Any:
    given = {**broker.options, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("rmq").options(**given, maxOffsetsPerTrigger="10").load()


def test_until_the_end_and_a_failure(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    broker.produce(topic, [f"m{n}" for n in range(30)])
    rows = stream(spark, broker, topic).writeStream.queryName("watched").format("noop")

    def run() -> tuple[Any, str]:
        out = Terminal()
        query = rows.trigger(availableNow=True).start()
        # Longer than a batch takes: none of them is missed.
        view = watch(query, out=out, interval_s=30)
        query.awaitTermination(QUERY_LIMIT_S)
        return view, out.getvalue()

    view, shown = patiently(run)
    assert (view.name, view.state, view.lag, view.share) == ("watched", "ended", {topic: 0}, 1.0)
    assert view.rows == 30
    assert shown.startswith("\r\x1b[Kwatched: waiting for the first batch")
    assert shown.endswith(f"lag {topic} 0 ended\n")
    # One line, which is rewritten.
    assert shown.count("\n") == 1

    def fail(frame: Any, _: int) -> None:
        raise ValueError("planted")

    broken = stream(spark, broker, topic).writeStream.foreachBatch(fail)
    lines = io.StringIO()
    failed = watch(broken.trigger(availableNow=True).start(), out=lines)
    assert failed.state == "failed"
    assert failed.error
    assert lines.getvalue().splitlines()[-1].endswith(failed.line()[-30:])


def test_in_the_background(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1)
    broker.produce(topic, ["a", "b"])
    rows = stream(spark, broker, topic).writeStream.format("noop")
    query = run_to_now(rows.start)
    try:
        left, followed = (watch(query, background=True, out=io.StringIO()) for _ in range(2))
        left.stop()
        assert left.join(QUERY_LIMIT_S)
        assert query.isActive
    finally:
        query.stop()
    assert followed.join(QUERY_LIMIT_S)
    assert followed.view.state == "ended"
    assert followed.view.lag == {topic: 0}
