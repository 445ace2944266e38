"""What the sink writes as JSON the source reads back equal, for every type."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import errors
from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.json_encoding import encode_json
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_naive = st.datetimes()


def _decimals(precision: int, scale: int) -> Any:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(
        lambda number: decimal.Decimal(number).scaleb(-scale, decimal.Context(prec=50))
    )


_LEAVES: dict[Any, Any] = {
    pa.string(): _text,
    pa.binary(): st.binary(max_size=8),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(1 << 7), (1 << 7) - 1),
    pa.int16(): st.integers(-(1 << 15), (1 << 15) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(10, 2): _decimals(10, 2),
    pa.decimal128(38, 0): _decimals(38, 0),
    pa.decimal128(38, 38): _decimals(38, 38),
    pa.date32(): st.dates(),
    TIMESTAMP: _naive.map(lambda moment: moment.replace(tzinfo=datetime.timezone.utc)),
    TIMESTAMP_NTZ: _naive,
}


def _typed(kinds: Any) -> Any:
    """(type, values) of arrays, maps and structs of `kinds`."""
    return st.one_of(
        kinds.map(lambda one: (pa.list_(pa.field("element", one[0])), _lists(one[1]))),
        kinds.map(lambda one: (pa.map_(pa.string(), one[0]), _maps(one[1]))),
        st.lists(kinds, min_size=1, max_size=3).map(_structs),
    )


def _lists(values: Any) -> Any:
    return st.lists(st.none() | values, max_size=3)


def _maps(values: Any) -> Any:
    return st.dictionaries(_text, st.none() | values, max_size=3).map(lambda m: list(m.items()))


def _structs(kinds: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    names = [f"f {number}é" for number in range(len(kinds))]
    fields = [pa.field(name, kind) for name, (kind, _) in zip(names, kinds, strict=True)]
    values = {name: st.none() | one[1] for name, one in zip(names, kinds, strict=True)}
    return pa.struct(fields), st.fixed_dictionaries(values)


_nested = st.recursive(st.sampled_from(list(_LEAVES.items())), _typed, max_leaves=5)


@settings(max_examples=100, deadline=None)
@given(st.lists(_nested, min_size=1, max_size=4).map(_structs), st.data())
def test_structs_come_back(typed: tuple[Any, Any], data: st.DataObject) -> None:
    kind, values = typed
    array = pa.array(data.draw(st.lists(values, min_size=1, max_size=3)), kind)
    decoded = JsonDecoder(kind).decode(encode_json(array))
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
