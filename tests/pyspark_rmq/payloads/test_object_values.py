"""Values of other libraries as Spark's types."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from pyspark_rmq.payloads.bad_records import Undecodable
from pyspark_rmq.payloads.object_values import object_converter
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ

NOON = datetime.datetime(2024, 5, 31, 12)
NOON_US = 1_717_156_800_000_000
BERLIN = datetime.timezone(datetime.timedelta(hours=2))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int8(), -128, -128),
        (pa.float64(), 3, 3.0),
        (pa.decimal128(5, 2), 1.005, decimal.Decimal("1.01")),
        (pa.decimal128(5, 2), 7, decimal.Decimal("7.00")),
        (pa.decimal128(5, 2), "1.5", decimal.Decimal("1.50")),
        (pa.decimal128(5, 2), decimal.Decimal("1E+2"), decimal.Decimal("100.00")),
        (pa.date32(), datetime.date(1970, 1, 2), 1),
        (pa.date32(), "1970-01-02", 1),
        (TIMESTAMP, NOON.replace(tzinfo=BERLIN), NOON_US - 7_200_000_000),
        (TIMESTAMP, "2024-05-31T12:00:00", NOON_US - 7_200_000_000),
        (TIMESTAMP, 5, 5_000_000),
        (TIMESTAMP, msgpack.Timestamp(-1, 999_999_999), -1),
        (TIMESTAMP_NTZ, NOON, NOON_US),
        (pa.map_(pa.string(), pa.int8()), {"a": 1}, [("a", 1)]),
        (pa.list_(pa.int8()), [1, None], [1, None]),
        (pa.struct([("a", pa.int8())]), {"b": 1}, {"a": None}),
    ],
)
def test_values(kind: Any, value: Any, expected: Any) -> None:
    assert object_converter(kind, "Europe/Berlin")(value) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 128),
        (pa.int8(), True),
        (pa.int8(), 1.0),
        (pa.bool_(), 1),
        (pa.float64(), True),
        (pa.float64(), 10**400),
        (pa.float64(), "1"),
        (pa.string(), 1),
        (pa.binary(), "x"),
        (pa.decimal128(5, 2), float("nan")),
        (pa.decimal128(5, 2), decimal.Decimal("sNaN")),
        (pa.decimal128(5, 2), True),
        (pa.date32(), NOON),
        (TIMESTAMP, NOON),
        (TIMESTAMP, True),
        (TIMESTAMP, msgpack.Timestamp(1 << 60)),
        (TIMESTAMP_NTZ, NOON.replace(tzinfo=BERLIN)),
        (pa.map_(pa.string(), pa.int8()), {1: 1}),
        (pa.map_(pa.string(), pa.int8()), [("a", 1)]),
        (pa.list_(pa.int8()), "ab"),
        (pa.struct([("a", pa.int8())]), [1]),
    ],
)
def test_values_of_other_types(kind: Any, value: Any) -> None:
    with pytest.raises(Undecodable, match=r"value.* is .*, which is not "):
        object_converter(kind, "UTC")(value)
