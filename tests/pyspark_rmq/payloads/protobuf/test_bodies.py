"""Protobuf bodies: golden bytes, values of the library, and bodies that are bad."""

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


def decode(kind: Any, *bodies: bytes, message: str = "shop.Order") -> Any:
    found = ProtobufDecoder(kind, given(message)).decode(pa.array(bodies, pa.binary()))
    return found.values.to_pylist(), [reason for _, reason in found.bad]


def field(name: str) -> Any:
    return pa.struct([KIND.field(name)])


@pytest.mark.parametrize(
    ("name", "body", "value"),
    [
        ("n", "109601", 150), ("n", "10ffffffffffffffffff01", -1),
        ("id", "0a0774657374696e67", "testing"),
        ("big", "18ffffffffffffffffff01", decimal.Decimal((1 << 64) - 1)),
        ("small", "20ffffffff0f", (1 << 32) - 1), ("zig", "2803", -2),
        ("f", "350000c03f", 1.5), ("d", "39000000000000f83f", 1.5), ("yes", "4001", True),
        ("raw", "4a0200ff", b"\0\xff"), ("size", "5005", "L"), ("maybe", "5800", 0),
        ("line", "6a020803", {"a": 3}), ("lines", "720208037200", [{"a": 3}, {"a": 0}]),
        ("numbers", "7a03030405", [3, 4, 5]), ("numbers", "78037804", [3, 4]),
        ("counts", "8a0105 0a0161 1007", [("a", 7)]),
        ("byName", "920107 0a0161 12020807", [("a", {"a": 7})]),
        ("at", "62050801 10d00f", datetime.datetime(1970, 1, 1, 0, 0, 1, 2, datetime.timezone.utc)),
        ("cash", "a00109", 9),
        ("next", "8201030a0161", {"id": "a", "next": None}),
        # Absent: the default without presence, null with it.
        ("n", "", 0), ("id", "", ""), ("size", "", "S"), ("numbers", "", []), ("counts", "", []),
        ("maybe", "", None), ("at", "", None), ("line", "", None), ("cash", "", None),
        # The last one counts; unknown fields do not.
        ("n", "10011002", 2), ("n", "1001 fa7d0161", 1),
    ],
)  # fmt: skip
def test_golden_bytes(name: str, body: str, value: Any) -> None:
    assert decode(field(name), bytes.fromhex(body)) == ([{name: value}], [])


@pytest.mark.parametrize(
    ("name", "key", "body", "found"),
    [
        ("int", pa.int32(), "0a0d 08ffffffffffffffffff01 1007", -1),
        ("int", pa.int8(), "0a04 0805 1007", 5),
        ("int", pa.int8(), "0a05 08c801 1007", "a key of value.int is 200, which is not TINYINT"),
        ("long", pa.int64(), "120d 0880808080808080808001 1007", -(1 << 63)),
        ("zig", pa.int32(), "1a04 0801 1007", -1),
        ("small", pa.int64(), "2208 08ffffffff0f 1007", (1 << 32) - 1),
        ("small", pa.int32(), "2208 08ffffffff0f 1007", "is 4294967295, which is not INT"),
        ("yes", pa.bool_(), "2a04 0801 1007", True),
        ("yes", pa.bool_(), "2a02 1007", False),
    ],
)
def test_keys_of_maps(name: str, key: Any, body: str, found: Any) -> None:
    kind = pa.struct([(name, pa.map_(key, pa.int32()))])
    values, bad = decode(kind, bytes.fromhex(body), message="shop.Keyed")
    if isinstance(found, str):
        assert values == [None] and found in bad[0]
    else:
        assert (repr(values), bad) == (repr([{name: [(found, 7)]}]), [])


def test_keys_of_other_types_have_no_column() -> None:
    for name, key in (("int", pa.string()), ("yes", pa.int32()), ("long", pa.bool_())):
        kind = pa.struct([(name, pa.map_(key, pa.int32()))])
        with pytest.raises(errors.InvalidArgument, match=f"a key of value.{name} is "):
            ProtobufDecoder(kind, given("shop.Keyed"))
        with pytest.raises(errors.InvalidArgument, match=f"a key of value.{name} is "):
            ProtobufEncoder(kind, given("shop.Keyed"))


def test_a_key_that_the_field_does_not_hold_is_not_written() -> None:
    rows = pa.array([{"small": [(-1, 2)]}], pa.struct([("small", pa.map_(pa.int64(), pa.int32()))]))
    with pytest.raises(errors.InvalidArgument, match=r"a key of value.small is -1, which is not"):
        ProtobufEncoder(rows.type, given("shop.Keyed")).encode(rows)


def test_a_message_in_itself_is_read_as_deep_as_the_columns() -> None:
    order = message_class(given())(id="a")
    order.next.next.next.id = "d"
    order.next.next.id = "c"
    found, bad = decode(field("next"), order.SerializeToString())
    assert (found, bad) == ([{"next": {"id": "", "next": {"id": "c"}}}], [])


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("n", "10", "not Protobuf"), ("id", "0a05", "not Protobuf"), ("n", "07", "not Protobuf"),
        ("id", "0a01ff", "not Protobuf"), ("n", "10" + "ff" * 10 + "01", "not Protobuf"),
        ("size", "5007", "value.size is 7, which is no value of shop.Size"),
        ("at", "620b 10ffffffffffffffffff01", "-1 ns, which is not a valid time"),
        ("at", "620a 08ffffffffffffffff7f", "which is not a valid time"),
    ],
)  # fmt: skip
def test_bad_bodies(name: str, body: str, reason: str) -> None:
    values, [found] = decode(field(name), bytes.fromhex(body))
    assert values == [None]
    assert reason in found


def test_numbers_outside_of_their_column_are_bad() -> None:
    big = bytes.fromhex("18ffffffffffffffffff01")
    for kind, name in ((pa.int64(), "BIGINT"), (pa.decimal128(10, 0), r"DECIMAL(10,0)")):
        values, [reason] = decode(pa.struct([("big", kind)]), big)
        assert (values, reason) == ([None], f"value.big is {(1 << 64) - 1}, which is not {name}")


def test_deep_bodies_and_missing_fields_are_bad() -> None:
    order = message_class(given())(id="a")
    body = order.SerializeToString()
    for _ in range(120):
        size = len(body)
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        body = b"\x82\x01" + length + body
    values, [reason] = decode(field("id"), body)
    assert values == [None] and reason.startswith("not Protobuf")
    old = pa.struct([("id", pa.string())])
    assert decode(old, b"", message="old.Old")[1] == ["the required field id is missing"]


def test_a_text_of_proto2_that_is_not_utf8_is_bad() -> None:
    """The library does not check it."""
    found = decode(pa.struct([("id", pa.string())]), b"\x0a\x01\xff", message="old.Old")
    assert found == ([None], ["not Protobuf: a text is not UTF-8"])


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("id", pa.int32(), "value.id is INT, and Protobuf's string is not read as it"),
        ("n", pa.string(), "Protobuf's int32 is not read"),
        ("d", pa.float32(), "Protobuf's double is not read"),
        ("size", pa.int32(), "Protobuf's enum is not read"),
        ("line", TIMESTAMP, r"Protobuf's message shop\.Line is not read"),
        ("numbers", pa.int64(), "Protobuf's repeated int64 is not read"),
        ("n", pa.list_(pa.int32()), "is ARRAY, and Protobuf's int32"),
        ("counts", pa.list_(pa.int32()), "is ARRAY, and Protobuf's map"),
        ("line", pa.struct([("x", pa.int32())]), r"value\.line\.x: message shop\.Line has no"),
    ],
)
def test_types_that_do_not_fit(name: str, kind: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        decode(pa.struct([(name, kind)]))


def test_a_message_is_a_struct() -> None:
    with pytest.raises(errors.InvalidArgument, match="is a STRUCT, not ARRAY"):
        decode(pa.list_(pa.int32()))


@settings(max_examples=200, deadline=None)
@for_all(st.binary(max_size=40))
def test_random_bytes_are_a_row_or_a_bad_row(body: bytes) -> None:
    found = ProtobufDecoder(KIND, given()).decode(pa.array([body], pa.binary()))
    assert len(found.bad) == found.values.null_count
