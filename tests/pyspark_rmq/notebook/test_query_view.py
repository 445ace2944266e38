"""Spark's progress reports as a line of text and as HTML."""

from __future__ import annotations

from typing import Any

from pyspark_rmq.notebook.query_view import QueryView


def report(batch_id: int, rows: int, lag: dict[str, int] | None, **more: Any) -> dict[str, Any]:
    queues = {topic: {"b": {"0": count, "1": 0}} for topic, count in (lag or {}).items()}
    latest = {"lag": queues, "totalLag": 1} if lag is not None else {"value": 1}
    return {
        "batchId": batch_id,
        "numInputRows": rows,
        "inputRowsPerSecond": 10.4,
        "processedRowsPerSecond": 2000.0,
        "durationMs": {"triggerExecution": 1500},
        "sources": [{"latestOffset": latest}],
        **more,
    }


def test_before_the_first_batch() -> None:
    view = QueryView("orders")
    assert view.line() == "orders: waiting for the first batch"
    assert view.with_report(None) == view
    assert "orders" in view.html()
    assert view._replace(state="ended").line() == "orders: ended"


def test_the_bar_fills() -> None:
    view = QueryView("orders").with_report(report(0, 100, {"t": 300}))
    assert view.line() == (
        "orders batch 0 [█████···············] 100 rows, 10 rows/s in, 2,000 rows/s out,"
        " 1,500 ms lag t 300"
    )
    again = view.with_report(report(0, 100, {"t": 300}))
    assert again == view
    half = view.with_report(report(1, 100, {"t": 200}))
    assert (half.rows, half.share) == (200, 0.5)
    full = half.with_report(report(2, 200, {"t": 0}))
    assert full.share == 1.0
    assert "[████████████████████] 400 rows" in full.line()


def test_every_report_counts_once() -> None:
    reports = [
        report(0, 10, {"t": 20}, timestamp="2024-05-31T10:00:00.000Z"),
        report(1, 0, {"t": 20}, timestamp="2024-05-31T10:00:10.000Z"),
        report(1, 10, {"t": 10}, timestamp="2024-05-31T10:00:11.000Z"),
        report(2, 10, {"t": 0}, timestamp="2024-05-31T10:00:12.000Z"),
    ]
    view = QueryView("q")
    for end in (2, 4, 4):
        for one in reports[:end]:
            view = view.with_report(one)
    assert (view.rows, view.batch_id, view.share) == (30, 2, 1.0)


def test_lag_is_shown_by_topic() -> None:
    view = QueryView("q").with_report(report(3, 1, {"b": 2, "a": 1}))
    assert view.line().endswith("lag a 1, b 2")
    for part in ("lag of a</td><td>1<", "lag of b</td><td>2<", '<progress value="0.250"'):
        assert part in view.html()


def test_a_query_that_reads_something_else_has_no_bar() -> None:
    view = QueryView("q").with_report(report(3, 1, None))
    assert view.share is None
    assert "[" not in view.line()
    assert "lag" not in view.line()
    assert "<progress" not in view.html()


def test_over_spark_connect_the_sources_have_the_figures() -> None:
    given = report(0, 100, {"t": 300})
    figures = {
        name: given.pop(name)
        for name in ("numInputRows", "inputRowsPerSecond", "processedRowsPerSecond")
    }
    given["numInputRows"] = None
    given["sources"] = [{**given["sources"][0], **figures}, figures]
    view = QueryView("q").with_report(given)
    assert (view.rows, view.rows_in, view.rows_out) == (200, 20.8, 4000.0)


def test_figures_that_are_none() -> None:
    odd = {"batchId": 1, "inputRowsPerSecond": float("nan"), "processedRowsPerSecond": float("inf")}
    view = QueryView("q").with_report(odd)
    assert (view.rows_in, view.rows_out, view.batch_ms) == (0.0, 0.0, 0)


def test_the_end() -> None:
    view = QueryView("q").with_report(report(3, 1, {"t": 0}))
    assert view._replace(state="ended").line().endswith("lag t 0 ended")
    failed = view._replace(state="failed", error="<b>broken</b>")
    assert failed.line().endswith("failed: <b>broken</b>")
    assert "&lt;b&gt;broken" in failed.html()
    assert not view.is_over
    assert failed.is_over


def test_names_are_escaped() -> None:
    view = QueryView("q").with_report(report(0, 1, {"<i>": 1}, name="<b>"))
    assert "<b><b>" not in view.html()
    assert "<i>" not in view.html()
