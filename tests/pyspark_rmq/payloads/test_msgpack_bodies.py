"""Msgpack: what the sink writes the source reads back equal, and other bodies are bad."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import errors
from pyspark_rmq.payloads.msgpack_bodies import MsgpackDecoder, encode_msgpack
from pyspark_rmq.payloads.spark_types import TIMESTAMP
from tests.pyspark_rmq.payloads.typed_values import arrays_of_structs

KIND = pa.struct([pa.field("id", pa.string()), pa.field("at", TIMESTAMP)])


@settings(max_examples=100, deadline=None)
@given(arrays_of_structs())
def test_structs_come_back(array: Any) -> None:
    decoded = MsgpackDecoder(array.type).decode(encode_msgpack(array))
    assert not decoded.bad
    assert repr(decoded.values.to_pylist()) == repr(array.to_pylist())


def test_other_libraries_read_what_is_written() -> None:
    moment = datetime.datetime(2024, 5, 31, 12, tzinfo=datetime.timezone.utc)
    array = pa.array(
        [{"id": "a", "at": moment, "p": decimal.Decimal("1.50"), "d": moment.date(), "b": b"\0"}],
        pa.struct([*KIND, ("p", pa.decimal128(5, 2)), ("d", pa.date32()), ("b", pa.binary())]),
    )
    found = msgpack.unpackb(encode_msgpack(array)[0].as_py(), timestamp=3)
    assert found == {"id": "a", "at": moment, "p": "1.50", "d": "2024-05-31", "b": b"\0"}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (msgpack.packb(None), "the body is null"),
        (msgpack.packb([1]), r"value is \[1\], which is not STRUCT"),
        (msgpack.packb({"id": 5}), "value.id is 5, which is not STRING"),
        (msgpack.packb({"id": b"x"}), "value.id is b'x', which is not STRING"),
        (msgpack.packb({"at": "noon"}), "value.at is 'noon', which is not TIMESTAMP"),
        (msgpack.packb({"at": 1 << 62}), "which is not TIMESTAMP"),
        (msgpack.packb({}) + b"\x00", "not msgpack: .*extra data"),
        (b"\x81\xa2id\xa1\xff", "not msgpack: a text is not UTF-8"),
        (b"\xdd\xff\xff\xff\xff", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (b"\x91" * 5_000 + b"\x01", "not msgpack"),
    ],
)
def test_bad_bodies(body: bytes, reason: str) -> None:
    decoded = MsgpackDecoder(KIND).decode(pa.array([body, msgpack.packb({"id": "x"})]))
    [(row, text)] = decoded.bad
    assert row == 0
    with pytest.raises(ValueError, match=reason):
        raise ValueError(text)
    assert decoded.values.to_pylist() == [None, {"id": "x", "at": None}]


@pytest.mark.parametrize(
    ("key", "body", "found"),
    [
        (pa.int32(), b"\x82\x01\xa1a\xfb\xa1b", [(1, "a"), (-5, "b")]),
        (pa.int64(), b"\x81\xcf" + b"\x7f" + b"\xff" * 7 + b"\xc0", [((1 << 63) - 1, None)]),
        (pa.bool_(), b"\x82\xc3\xa1a\xc2\xa1b", [(True, "a"), (False, "b")]),
        # As for texts, the last value of a key that occurs twice.
        (pa.int32(), b"\x82\x01\xa1a\x01\xa1b", [(1, "b")]),
        (pa.int64(), b"\x81\xcf" + b"\xff" * 8 + b"\xc0", "which is not MAP"),
        (pa.int8(), b"\x81\xcc\xc8\xa1a", "value.m is {200: 'a'}, which is not MAP"),
        (pa.int32(), b"\x81\xa11\xa1a", "which is not MAP"),
        (pa.int32(), b"\x81\xc3\xa1a", "which is not MAP"),
        (pa.int32(), b"\x81\xc0\xa1a", "which is not MAP"),
        (pa.bool_(), b"\x81\x01\xa1a", "which is not MAP"),
        (pa.string(), b"\x81\x01\xa1a", "which is not MAP"),
        # In Python True is the key 1.
        (pa.int32(), b"\x82\x01\xa1a\xc3\xa1b", "equal keys of several types"),
        (pa.bool_(), b"\x82\xc3\xa1a\x01\xa1b", "equal keys of several types"),
        (pa.int32(), b"\x82\x01\xa1a\xca\x3f\x80\0\0\xa1b", "equal keys of several types"),
    ],
)
def test_keys_of_maps(key: Any, body: bytes, found: Any) -> None:
    decoder = MsgpackDecoder(pa.struct([("m", pa.map_(key, pa.string()))]))
    decoded = decoder.decode(pa.array([b"\x81\xa1m" + body, b"\x80"], pa.binary()))
    if isinstance(found, str):
        [(row, reason)] = decoded.bad
        assert row == 0 and found in reason
    else:
        assert not decoded.bad
        assert repr(decoded.values.to_pylist()) == repr([{"m": found}, {"m": None}])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_bad(body: bytes) -> None:
    decoded = MsgpackDecoder(KIND).decode(pa.array([body], pa.binary()))
    assert (decoded.values[0].as_py() is None) == bool(decoded.bad)


def test_values_that_cannot_be_written() -> None:
    array = pa.array([{"d": 10_000_000}], pa.struct([("d", pa.date32())]))
    with pytest.raises(errors.InvalidArgument, match="cannot be written as msgpack"):
        encode_msgpack(array)
