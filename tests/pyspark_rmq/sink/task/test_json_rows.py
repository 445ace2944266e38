"""Whole rows as JSON objects."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa

from pyspark_rmq.sink.task.json_rows import json_bodies


def bodies(**columns: Any) -> list[Any]:
    return [
        json.loads(body) for body in json_bodies(pa.RecordBatch.from_pydict(columns)).to_pylist()
    ]


def test_plain_and_nested_values() -> None:
    assert bodies(a=[1, None], b=[["x"], []], c=[{"d": True}, None]) == [
        {"a": 1, "b": ["x"], "c": {"d": True}},
        {"a": None, "b": [], "c": None},
    ]


def test_values_that_json_does_not_have() -> None:
    day = datetime.date(2024, 2, 29)
    (found,) = bodies(
        raw=[b"\xff"],
        money=[decimal.Decimal("12.50")],
        day=[day],
        wait=[datetime.timedelta(seconds=90)],
    )
    assert found == {"raw": "/w==", "money": 12.5, "day": "2024-02-29", "wait": 90.0}


def test_decimals_keep_their_digits() -> None:
    batch = pa.RecordBatch.from_pydict({"m": [decimal.Decimal("12345678901234567890.10")]})
    assert json_bodies(batch).to_pylist() == [b'{"m":12345678901234567890.10}']


def test_an_empty_batch() -> None:
    assert (
        json_bodies(pa.RecordBatch.from_pydict({"a": pa.array([], pa.int64())})).to_pylist() == []
    )
