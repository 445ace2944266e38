"""Whole rows as JSON objects, the way Spark's `to_json` writes them, but with nulls.

Binary values are Base64, times ISO 8601, decimals numbers.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

import orjson
import pyarrow as pa

from pyspark_rmq.payloads.json_encoding import json_text, plain_value, python_rows

_OPTIONS: Final = orjson.OPT_NON_STR_KEYS


def json_bodies(batch: Any) -> Any:
    """A binary array with the object of each row of a record batch."""
    rows = python_rows(batch.to_struct_array(), "JSON")
    return pa.array([json_text(row, _OPTIONS, _plain) for row in rows], pa.binary())


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return plain_value(value)
