"""What the sink writes as JSON the source reads back equal, for every type."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from broker_core import errors
from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.json_encoding import encode_json
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ
from tests.pyspark_rmq.payloads.typed_values import arrays_of_structs


@settings(max_examples=100, deadline=None)
@given(arrays_of_structs())
def test_structs_come_back(array: Any) -> None:
    decoded = JsonDecoder(array.type).decode(encode_json(array))
    assert not decoded.bad
    # NaN is not equal to itself.
    assert repr(decoded.values.to_pylist()) == repr(array.to_pylist())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.field("element", pa.int32())), [[1, None], []]),
        (pa.map_(pa.string(), pa.float64()), [[("a", 1.5), ("b", None)], []]),
    ],
)
def test_arrays_and_maps_come_back(kind: Any, values: list[Any]) -> None:
    array = pa.array(values, kind)
    assert JsonDecoder(kind).decode(encode_json(array)).values.equals(array)


def test_text_of_each_type() -> None:
    moment = datetime.datetime(2024, 5, 31, 12, 0, 0, 5000)
    array = pa.array(
        [{"t": moment, "n": moment, "d": moment.date(), "f": 0.1, "x": float("nan"), "b": b"\1",
          "p": decimal.Decimal("1.50"), "z": None}],
        pa.struct([
            ("t", pa.timestamp("us", tz="Asia/Tokyo")), ("n", TIMESTAMP_NTZ), ("d", pa.date32()),
            ("f", pa.float32()), ("x", pa.float64()), ("b", pa.binary()),
            ("p", pa.decimal128(10, 2)), ("z", pa.string()),
        ]),
    )  # fmt: skip
    assert encode_json(array)[0].as_py() == (
        b'{"t":"2024-05-31T12:00:00.005000Z","n":"2024-05-31T12:00:00.005000","d":"2024-05-31",'
        b'"f":0.1,"x":"NaN","b":"AQ==","p":1.50,"z":null}'
    )


def test_sliced_rows() -> None:
    kind = pa.struct([("l", pa.list_(pa.field("element", pa.float32())))])
    array = pa.array([{"l": [9.0]}, {"l": None}, {"l": [0.5, None]}], kind)
    assert encode_json(array.slice(1)).to_pylist() == [b'{"l":null}', b'{"l":[0.5,null]}']


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32())),
        pa.array([{"d": 10_000_000}], pa.struct([("d", pa.date32())])),
        pa.array([{"t": 1 << 62}], pa.struct([("t", TIMESTAMP)])),
    ],
)
def test_values_that_json_cannot_carry(array: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="cannot be written as JSON"):
        encode_json(array)
