"""Protobuf: what the sink writes the source reads back equal, and what cannot be written."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from broker_core import errors
from pyspark_rmq.payloads.protobuf.bodies import ProtobufDecoder
from pyspark_rmq.payloads.protobuf.encoding import ProtobufEncoder
from pyspark_rmq.payloads.protobuf.messages import message_class
from pyspark_rmq.payloads.spark_types import TIMESTAMP
from tests.pyspark_rmq.payloads.protobuf.shop_messages import KIND, given

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_int = st.integers(-(1 << 31), (1 << 31) - 1)
_line = st.fixed_dictionaries({"a": _int})
ROWS = st.fixed_dictionaries(
    {
        "id": _text, "n": _int, "zig": st.integers(-(1 << 63), (1 << 63) - 1),
        "big": st.integers(0, (1 << 64) - 1).map(decimal.Decimal), "d": st.floats(),
        "small": st.integers(0, (1 << 32) - 1), "f": st.floats(width=32), "yes": st.booleans(),
        "raw": st.binary(max_size=5), "size": st.sampled_from(["S", "L"]),
        "maybe": st.none() | _int, "line": st.none() | _line, "lines": st.lists(_line, max_size=3),
        "at": st.none() | st.datetimes().map(lambda t: t.replace(tzinfo=datetime.timezone.utc)),
        "numbers": st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
        "counts": st.dictionaries(_text, _int, max_size=3).map(lambda m: sorted(m.items())),
        "byName": st.dictionaries(_text, _line, max_size=3).map(lambda m: sorted(m.items())),
        "card": st.none() | _text, "cash": st.none(),
        "next": st.none() | st.fixed_dictionaries({"id": _text, "next": st.just({"id": "z"})}),
    }
)  # fmt: skip


def encode(kind: Any, value: Any, name: str, message: str = "shop.Order") -> Any:
    array = pa.array([{name: value}], pa.struct([(name, kind)]))
    return ProtobufEncoder(array.type, given(message)).encode(array).to_pylist()[0]


def in_order(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "counts": sorted(row["counts"]), "byName": sorted(row["byName"], key=repr)}


@settings(max_examples=100, deadline=None)
@for_all(ROWS)
def test_rows_come_back(row: dict[str, Any]) -> None:
    array = pa.array([row], KIND)
    decoded = ProtobufDecoder(KIND, given()).decode(ProtobufEncoder(KIND, given()).encode(array))
    assert not decoded.bad
    [found], [expected] = decoded.values.to_pylist(), array.to_pylist()
    assert repr(in_order(found)) == repr(in_order(expected))


def test_the_library_reads_what_is_written() -> None:
    message = message_class(given())
    body = encode(pa.timestamp("us", "Asia/Tokyo"), -1, "at")
    found = message.FromString(body)
    assert (found.at.seconds, found.at.nanos) == (-1, 999_999_000)
    assert message.FromString(encode(KIND.field("line").type, {"a": None}, "line")).HasField("line")
    assert encode(pa.int32(), None, "maybe") == b""
    assert encode(pa.int32(), 0, "maybe") == bytes.fromhex("5800")
    assert encode(pa.large_string(), "a", "id") == b"\x0a\x01a"


def test_maps_are_written_in_one_order() -> None:
    kind = KIND.field("counts").type
    names = [f"k{number}" for number in range(20)]
    bodies = [
        encode(kind, [(name, 1) for name in order], "counts") for order in (names, names[::-1])
    ]
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize(
    ("name", "kind", "value", "text"),
    [
        ("n", pa.int64(), 1 << 31, "value.n is 2147483648, which is not int32"),
        ("small", pa.int32(), -1, "value.small is -1, which is not uint32"),
        ("size", pa.string(), "M", r"value.size is 'M', no value of shop\.Size"),
        ("numbers", pa.list_(pa.int64()), [1, None], r"value.numbers\[\] is null in a row"),
        ("lines", KIND.field("lines").type, [None], r"value.lines\[\] is null in a row"),
        ("counts", KIND.field("counts").type, [("a", None)], r"value.counts\[\] is null in a row"),
    ],
)
def test_values_that_are_refused(name: str, kind: Any, value: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        encode(kind, value, name)


def test_one_field_of_a_oneof() -> None:
    kind = pa.struct([KIND.field("card"), KIND.field("cash")])
    both = pa.array([{"card": "a", "cash": 1}], kind)
    with pytest.raises(errors.InvalidArgument, match="two fields of the oneof payment"):
        ProtobufEncoder(kind, given()).encode(both)


def test_required_fields() -> None:
    assert encode(pa.string(), "a", "id", "old.Old") == b"\x0a\x01a"
    with pytest.raises(errors.InvalidArgument, match="required field id is null"):
        encode(pa.string(), None, "id", "old.Old")


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("id", pa.int32(), "value.id is INT, and is not written as Protobuf's string"),
        ("f", pa.float64(), "not written as Protobuf's float"),
        ("n", TIMESTAMP, "not written as Protobuf's int32"),
        ("n", pa.decimal128(5, 2), "not written as Protobuf's int32"),
        ("numbers", pa.int64(), "not written as Protobuf's repeated int64"),
        ("line", pa.string(), r"not written as Protobuf's message shop\.Line"),
        ("x", pa.int32(), "has no field x"),
    ],
)
def test_types_that_do_not_fit(name: str, kind: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        ProtobufEncoder(pa.struct([(name, kind)]), given())
    with pytest.raises(errors.InvalidArgument, match="is made of a STRUCT"):
        ProtobufEncoder(pa.list_(kind), given())
