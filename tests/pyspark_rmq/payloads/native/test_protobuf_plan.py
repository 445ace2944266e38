"""Protobuf messages as plans: every type, and what is left to Python."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from pyspark_rmq.payloads.native.protobuf_plan import planned_protobuf
from pyspark_rmq.payloads.protobuf.bodies import ProtobufDecoder
from pyspark_rmq.payloads.protobuf.messages import message_class
from pyspark_rmq.payloads.schema_options import SchemaOptions
from tests.pyspark_rmq.payloads.native.compared_decoders import assert_equal, fuzz
from tests.pyspark_rmq.payloads.protobuf import shop_messages

pytest.importorskip(
    "pyspark_rmq.payloads.native._columns",
    reason="the native payload decoders are not built: python setup.py build_ext --inplace",
)

SEEDS = st.integers(0, 2**32 - 1)
# Type of a field -> the column it is read into.
TYPES = {
    1: pa.float64(), 2: pa.float64(), 3: pa.int64(), 4: pa.decimal128(20, 0), 5: pa.int16(),
    6: pa.int64(), 7: pa.int64(), 8: pa.bool_(), 9: pa.string(), 12: pa.binary(), 13: pa.int32(),
    14: pa.string(), 15: pa.decimal128(12, 2), 16: pa.int64(), 17: pa.int32(), 18: pa.int64(),
}  # fmt: skip
_SIZED, _FIXED64, _FIXED32 = (9, 12), (1, 6, 16), (2, 7, 15)


def _message(syntax: str) -> SchemaOptions:
    """Each type once and, with 100 added to its number, repeated."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="all", syntax=syntax)
    message = file.message_type.add(name="All")
    enum = file.enum_type.add(name="E")
    for name, number in (("ZERO", 0), ("ONE", 1), ("LESS", -1)):
        enum.value.add(name=name, number=number)
    for kind in TYPES:
        for number, label in ((kind, 1), (100 + kind, 3)):
            field = message.field.add(name=f"f{number}", number=number, type=kind, label=label)
            if kind == field.TYPE_ENUM:
                field.type_name = ".all.E"
    found = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return SchemaOptions("value.schema.file", descriptors=found, message="all.All")


MESSAGES = {syntax: _message(syntax) for syntax in ("proto2", "proto3")}
KIND = pa.struct(
    [(f"f{number}", kind) for number, kind in TYPES.items()]
    + [(f"f{100 + number}", pa.list_(pa.field("element", kind))) for number, kind in TYPES.items()]
)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def content(kind: int, chance: Random) -> bytes:
    if kind in _SIZED:
        return chance.choice([b"", b"ab", "é".encode(), b"\xff"[: chance.randrange(2)]])
    if kind in _FIXED64:
        return chance.choice([struct.pack("<d", 2.5), chance.randbytes(8)])
    if kind in _FIXED32:
        return chance.choice([struct.pack("<f", -0.5), chance.randbytes(4)])
    return varint(chance.choice([0, 1, 1, -1, 2, 300, 40_000, 1 << 31, 1 << 40, 1 << 63]))


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def field(number: int, chance: Random) -> bytes:
    kind = number % 100
    wire = 2 if kind in _SIZED else 1 if kind in _FIXED64 else 5 if kind in _FIXED32 else 0
    if chance.random() < 0.02:
        wire = chance.randrange(8)
    parts = [content(kind, chance) for _ in range(chance.randint(0, 3) if number > 100 else 1)]
    if wire == 2 and kind in _SIZED:
        return b"".join(tag(number, 2) + varint(len(part)) + part for part in parts)
    if number > 100 and chance.random() < 0.5:
        return tag(number, 2) + varint(len(b"".join(parts))) + b"".join(parts)
    return b"".join(tag(number, wire) + part for part in parts)


def body(chance: Random) -> bytes:
    numbers = [*TYPES, *(100 + kind for kind in TYPES), 90, 190]
    chosen = [number for number in numbers if chance.random() < 0.5 and number not in (90, 190)]
    if chance.random() < 0.2:
        chance.shuffle(chosen)
        chosen += chosen[:1]
    unknown = chance.choice([b"", tag(90, 0) + b"\x05", tag(91, 2) + b"\x01x", tag(92, 3)])
    return b"".join(field(number, chance) for number in chosen) + unknown


@settings(max_examples=25, deadline=None)
@for_all(SEEDS, st.sampled_from(list(MESSAGES)))
def test_every_type_equals_python(seed: int, syntax: str) -> None:
    chance = Random(seed)
    fields = list(KIND)
    chance.shuffle(fields)
    kind = pa.struct(fields[: chance.randint(1, 8)])
    given = MESSAGES[syntax]
    planned = planned_protobuf(kind, message_class(given).DESCRIPTOR)
    fuzz(ProtobufDecoder(kind, given), planned, [body(chance) for _ in range(20)], seed, 60)


def padded(value: int, size: int) -> bytes:
    """A varint of `size` bytes, more than it needs."""
    parts = [value >> 7 * place & 0x7F | 0x80 for place in range(size)]
    return bytes([*parts[:-1], parts[-1] & 0x7F])


@pytest.mark.parametrize("size", range(2, 12))
def test_long_tags_and_sizes_are_left_to_the_library(size: int) -> None:
    """It refuses those of more than 5 bytes; values have up to 10."""
    given = MESSAGES["proto3"]
    kind = pa.struct([KIND.field(name) for name in ("f3", "f9", "f103")])
    bodies = [
        padded(3 << 3, size) + b"\x05",
        padded(90 << 3, size) + b"\x05",
        *(tag(number, 2) + padded(1, size) + b"\x05" for number in (9, 12, 90, 103, 112)),
        tag(3, 0) + padded(5, size),
    ]
    assert_equal(ProtobufDecoder(kind, given), bodies)
    planned = planned_protobuf(kind, message_class(given).DESCRIPTOR)
    assert planned is not None
    _, refused = planned.columns(pa.array(bodies, pa.binary()))
    assert list(refused) == (list(range(7)) if size > 5 else []) + ([7] if size > 10 else [])


def test_absent_fields_are_null_or_zero() -> None:
    for syntax, expected in (("proto2", None), ("proto3", 0)):
        kind = pa.struct([KIND.field("f3"), KIND.field("f103")])
        planned = planned_protobuf(kind, message_class(MESSAGES[syntax]).DESCRIPTOR)
        assert planned is not None
        values, refused = planned.columns(pa.array([b""], pa.binary()))
        assert (values.to_pylist(), len(refused)) == ([{"f3": expected, "f103": []}], 0)


def shop(names: str) -> Any:
    return pa.struct([shop_messages.KIND.field(name) for name in names.split()])


@pytest.mark.parametrize("names", ["id", "next", "line lines at", "card cash", "size maybe"])
def test_a_message_that_contains_itself_and_maps_that_are_not_selected(names: str) -> None:
    given = shop_messages.given()
    order = message_class(given)
    one = order(id="a", n=5, size=5, maybe=0, card="x", numbers=[1, 2])
    one.next.id = "b"
    one.next.next.next.id = "c"
    one.at.FromMicroseconds(1_700_000_000_000_001)
    one.lines.add(a=1)
    one.lines.add()
    one.counts["k"] = 1
    one.byName["l"].a = 2
    bodies = [one.SerializeToString(), order(cash=1).SerializeToString(), b""]
    # Both members of a oneof: the last one counts.
    bodies.append(order(card="x").SerializeToString() + order(cash=1).SerializeToString())
    planned = planned_protobuf(shop(names), order.DESCRIPTOR)
    assert planned is not None
    _, refused = planned.columns(pa.array(bodies, pa.binary()))
    assert list(refused) == [3]
    assert not assert_equal(ProtobufDecoder(shop(names), given), bodies).bad


def test_a_selected_map_is_left_to_python() -> None:
    descriptor = message_class(shop_messages.given()).DESCRIPTOR
    assert planned_protobuf(shop("counts"), descriptor) is None


def test_required_fields_are_left_to_python() -> None:
    descriptor = message_class(shop_messages.given("old.Old")).DESCRIPTOR
    assert planned_protobuf(pa.struct([("id", pa.string())]), descriptor) is None
