"""Whole rows as JSON objects, the way Spark's `to_json` writes them, but with nulls.

Binary values are Base64, times ISO 8601, decimals numbers.
"""

from __future__ import annotations

import base64
import datetime
import decimal
from typing import Any

import orjson
import pyarrow as pa

from broker_core import errors
from pyspark_rmq.payloads.json_encoding import python_rows


def json_bodies(batch: Any) -> Any:
    """A binary array with the object of each row of a record batch."""
    rows = python_rows(batch.to_struct_array(), "JSON")
    return pa.array([_dumped(row) for row in rows], pa.binary())


def _dumped(row: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(row, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError as error:
        raise errors.InvalidArgument(f"a row cannot be written as JSON: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    raise TypeError(f"no JSON for {type(value).__name__}")
