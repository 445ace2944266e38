"""Spark's progress reports -> lag."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_rmq.progress import QueueLag, lag_of

_LATEST = {
    "version": 1,
    "queues": {"t": {"b": {"0": 9, "1": 4}}},
    "lag": {"t": {"b": {"0": 6, "1": 0}}},
    "totalLag": 6,
}


def progress(latest: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "some-id",
        "name": None,
        "batchId": 3,
        "numInputRows": 18,
        "processedRowsPerSecond": 1234.5,
        "sources": [{"latestOffset": latest}],
        **more,
    }


def test_lag_by_queue() -> None:
    for latest in (_LATEST, json.dumps(_LATEST)):
        lag = lag_of(progress(latest))
        assert lag is not None
        assert lag.queues == (QueueLag("t", "b", 0, 6), QueueLag("t", "b", 1, 0))
        assert (lag.total, lag.longest, lag.name, lag.batch_id) == (6, 6, "some-id", 3)


def test_a_line_for_people() -> None:
    lag = lag_of(progress(_LATEST, name="orders"))
    assert lag is not None
    assert lag.line() == "orders batch 3 [███████████████·····] 1,234 rows/s, 6 waiting"


def test_other_sources_have_none() -> None:
    assert lag_of(progress(None)) is None
    assert lag_of(progress('"7"')) is None
    assert lag_of(progress('{"orders":{"0":5}}')) is None


def test_there_is_no_report_before_the_first_batch() -> None:
    assert lag_of(None) is None


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"sources": None},
        {"sources": [None, "x", {}]},
        progress("{"),
        progress('{"totalLag": 1}'),
        progress('{"totalLag": 1, "lag": {"t": 1}}'),
        progress('{"totalLag": 1, "lag": {"t": {"b": {"x": 1}}}}'),
        "a text",
    ],
)
def test_a_report_of_another_form_is_none(report: Any) -> None:
    assert lag_of(report) is None


def test_a_report_without_its_other_fields() -> None:
    lag = lag_of({"sources": [{"latestOffset": _LATEST}]})
    assert lag is not None
    assert (lag.total, lag.name, lag.batch_id, lag.rows_per_second) == (6, "query", 0, 0.0)
