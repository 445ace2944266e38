"""Columns of readers that give no schema, from Protobuf descriptors."""

from __future__ import annotations

import pyarrow as pa
import pytest

from broker_core import errors
from pyspark_rmq.payloads.inference.described import ddl_of
from pyspark_rmq.payloads.protobuf.bodies import ProtobufDecoder
from pyspark_rmq.payloads.protobuf.columns import protobuf_column
from pyspark_rmq.payloads.spark_types import arrow_type
from tests.pyspark_rmq.payloads.protobuf import shop_messages


def test_every_type() -> None:
    found = protobuf_column(shop_messages.given("shop.Flat"))
    assert ddl_of(found) == (
        "struct<`id`: string, `n`: integer, `big`: decimal(20,0), `small`: long, `zig`: long,"
        " `f`: float, `d`: double, `yes`: boolean, `raw`: binary, `size`: string,"
        " `maybe`: integer, `at`: timestamp, `line`: struct<`a`: integer>,"
        " `lines`: array<struct<`a`: integer>>, `numbers`: array<long>,"
        " `counts`: map<string, integer>>"
    )
    # What is described can be read.
    decoder = ProtobufDecoder(arrow_type(found, "value"), shop_messages.given("shop.Flat"))
    assert decoder.decode(pa.array([b""], pa.binary())).bad == []


def test_keys_of_maps() -> None:
    found = ddl_of(protobuf_column(shop_messages.given("shop.Keyed")))
    assert found == (
        "struct<`int`: map<integer, integer>, `long`: map<long, integer>,"
        " `zig`: map<integer, integer>, `small`: map<long, integer>,"
        " `yes`: map<boolean, integer>>"
    )


def test_types_without_a_column() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"value\.next is message shop\.Order, which"):
        protobuf_column(shop_messages.given())
    with pytest.raises(errors.InvalidArgument, match="map with keys of type uint64"):
        protobuf_column(shop_messages.given("shop.Numbered"))
    with pytest.raises(errors.InvalidArgument, match=r"message shop\.Empty without fields"):
        protobuf_column(shop_messages.given("shop.Empty"))
