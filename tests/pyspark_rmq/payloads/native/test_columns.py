"""The compiled decoders return what the decoders in Python return, for good and for bad bodies."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.avro.encoding import AvroEncoder
from pyspark_rmq.payloads.avro.schemas import parse_schema
from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.json_encoding import encode_json
from pyspark_rmq.payloads.msgpack_bodies import MsgpackDecoder, encode_msgpack
from pyspark_rmq.payloads.native import plans
from pyspark_rmq.payloads.native.avro_plan import planned_avro
from pyspark_rmq.payloads.native.protobuf_plan import planned_protobuf
from pyspark_rmq.payloads.protobuf.bodies import ProtobufDecoder
from pyspark_rmq.payloads.protobuf.encoding import ProtobufEncoder
from pyspark_rmq.payloads.protobuf.messages import message_class
from pyspark_rmq.payloads.reader_options.time_texts import TimeTexts
from pyspark_rmq.payloads.schema_options import NONE
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ, arrow_type
from tests.pyspark_rmq.payloads.avro import typed_schemas
from tests.pyspark_rmq.payloads.json_corpus import BODIES, VALUES
from tests.pyspark_rmq.payloads.native.compared_decoders import assert_equal, fuzz, mixed, shown
from tests.pyspark_rmq.payloads.protobuf import shop_messages
from tests.pyspark_rmq.payloads.protobuf.test_encoding import ROWS
from tests.pyspark_rmq.payloads.typed_values import arrays_of_structs

pytest.importorskip(
    "pyspark_rmq.payloads.native._columns",
    reason="the native payload decoders are not built: python setup.py build_ext --inplace",
)

SEEDS = st.integers(0, 2**32 - 1)
LINE = pa.struct([("a", pa.int32()), ("s", pa.string())])
KIND = pa.struct(
    [
        ("s", pa.string()), ("b", pa.binary()), ("y", pa.bool_()), ("i1", pa.int8()),
        ("i2", pa.int16()), ("i4", pa.int32()), ("i8", pa.int64()), ("f", pa.float32()),
        ("d", pa.float64()), ("m", pa.decimal128(10, 2)), ("w", pa.decimal128(38, 38)),
        ("day", pa.date32()), ("at", TIMESTAMP), ("local", TIMESTAMP_NTZ), ("line", LINE),
        ("lines", pa.list_(pa.field("element", LINE))), ("map", pa.map_(pa.string(), LINE)),
        ("deep", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.int64()))))),
    ]
)  # fmt: skip
# Without maps, whose order is that of Protobuf's library.
SHOP = pa.struct([field for field in shop_messages.KIND if not pa.types.is_map(field.type)])


def chosen(kind: Any, chance: Random) -> Any:
    """Some of the fields, in any order."""
    fields = list(kind)
    chance.shuffle(fields)
    return pa.struct(fields[: chance.randint(1, len(fields))])


@st.composite
def full_rows(draw: st.DrawFn) -> Any:
    """Rows of KIND, of any values that can be written."""
    made = draw(arrays_of_structs())
    chance = Random(draw(SEEDS))
    rows = [
        {
            "s": chance.choice(["", "é", 'a"b\\c\n', "x" * 40, None]), "b": chance.randbytes(3),
            "y": chance.random() < 0.5, "i1": chance.randrange(-128, 128),
            "i2": chance.randrange(-(1 << 15), 1 << 15), "i4": chance.randrange(1 << 31),
            "i8": chance.randrange(-(1 << 63), 1 << 63), "f": chance.choice([0.5, -0.0, 1e30]),
            "d": chance.choice([0.1, -2.5e300, 5e-324, 123456789.123456789, 1e22, 1 / 3]),
            "m": chance.choice([1, -1, None]), "day": chance.choice([0, -719162, 2932896]),
            "at": chance.randrange(-(10**15), 10**15), "local": chance.randrange(10**15),
            "line": {"a": 1, "s": None}, "lines": [{"a": 2}, None, {"s": "z"}],
            "map": [("k", {"a": 1}), ("l", None)], "deep": [[1, 2], [], None, [None]],
        }
        for _ in range(3)
    ]  # fmt: skip
    return pa.array(rows, KIND), made


@settings(max_examples=15, deadline=None)
@for_all(full_rows(), SEEDS)
def test_json_equals_python(rows: Any, seed: int) -> None:
    for array in rows:
        kind = chosen(array.type, Random(seed))
        for time_zone in ("UTC", "Asia/Tokyo"):
            decoder = JsonDecoder(kind, TimeTexts(time_zone))
            planned = plans.planned(plans.JSON, kind, takes_local=time_zone == "UTC")
            fuzz(decoder, planned, encode_json(array).to_pylist(), seed, 20)


@settings(max_examples=15, deadline=None)
@for_all(full_rows(), SEEDS)
def test_msgpack_equals_python(rows: Any, seed: int) -> None:
    for array in rows:
        kind = chosen(array.type, Random(seed))
        bodies = encode_msgpack(array).to_pylist()
        bodies += [msgpack.packb(_loose(Random(seed + 1), 4)) for _ in range(3)]
        planned = plans.planned(plans.MSGPACK, kind, takes_local=True)
        fuzz(MsgpackDecoder(kind), planned, bodies, seed, 40)


def _loose(chance: Random, depth: int) -> Any:
    """A map of values of any kind for the fields of KIND."""
    values = [
        None, True, 0, 127, 128, -1, -33, 1 << 63, -(1 << 63), 1.5, float("nan"), 1e300, "", "12.5",
        "2024-05-31", "2024-05-31T12:30:15.5+02:00", "-0.005", b"", b"x", [], {},
        msgpack.Timestamp(5, 7), msgpack.Timestamp(-1, 999_999_999), msgpack.ExtType(5, b"x"),
    ]  # fmt: skip
    if depth:
        values += [[_loose(chance, depth - 1)], _loose(chance, depth - 1)]
    return {field.name: chance.choice(values) for field in KIND if chance.random() < 0.5}


@settings(max_examples=15, deadline=None)
@for_all(full_rows(), SEEDS)
def test_avro_equals_python(rows: Any, seed: int) -> None:
    for array in rows:
        kind = chosen(array.type, Random(seed))
        given = typed_schemas.given(typed_schemas.schema_of(array.type), NONE)
        schemas = {None: parse_schema(given.texts[0][1], "value.schema")}
        bodies = AvroEncoder(array.type, given).encode(array).to_pylist()
        fuzz(AvroDecoder(kind, given), planned_avro(kind, schemas, NONE), bodies, seed, 40)


@settings(max_examples=15, deadline=None)
@for_all(ROWS, SEEDS)
def test_protobuf_equals_python(row: Any, seed: int) -> None:
    given = shop_messages.given()
    array = pa.array([row], shop_messages.KIND)
    bodies = ProtobufEncoder(shop_messages.KIND, given).encode(array).to_pylist()
    # Repeated fields twice, two members of a oneof.
    bodies += [bodies[0] + bodies[0], bodies[0] + b"\xa0\x01\x05"]
    kind = chosen(SHOP, Random(seed))
    planned = planned_protobuf(kind, message_class(given).DESCRIPTOR)
    fuzz(ProtobufDecoder(kind, given), planned, bodies, seed, 40)


@pytest.mark.parametrize("sql", VALUES)
def test_json_equals_python_on_the_corpus(sql: str) -> None:
    kind = pa.struct([("a", arrow_type(_JSON_TYPES.get(sql, sql.lower()), "a"))])
    bodies = [b'{"b": 1, "a": %s}' % text.encode() for text in VALUES[sql]]
    assert_equal(JsonDecoder(kind), bodies)


_JSON_TYPES: dict[str, Any] = {
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    **{
        f"ARRAY<{name}>": {"type": "array", "elementType": kind, "containsNull": True}
        for name, kind in (("INT", "integer"), ("STRING", "string"))
    },
    **{
        f"MAP<STRING, {name}>": {
            "type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True,
        }
        for name, kind in (("INT", "integer"), ("STRING", "string"))
    },
    "STRUCT<b: INT>": {
        "type": "struct", "fields": [{"name": "b", "type": "integer", "nullable": True}]
    },
}  # fmt: skip
_JSON_TYPES["ARRAY<STRUCT<b: INT>>"] = {
    "type": "array", "elementType": _JSON_TYPES["STRUCT<b: INT>"], "containsNull": True,
}  # fmt: skip


def test_json_bodies_equal_python_on_the_corpus() -> None:
    assert_equal(JsonDecoder(pa.struct([("a", pa.int32()), ("s", pa.string())])), BODIES)


def decoders() -> list[tuple[Any, Any, bytes]]:
    """One of each format, with a good body."""
    kind = pa.struct([("id", pa.string()), ("numbers", pa.list_(pa.field("element", pa.int64())))])
    row = {"id": "é" * 9, "numbers": [1, -1, 1 << 40]}
    array = pa.array([row], kind)
    schema = {
        "type": "record", "name": "R",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "numbers", "type": {"type": "array", "items": "long"}},
        ],
    }  # fmt: skip
    avro, shop = typed_schemas.given(schema, NONE), shop_messages.given()
    parsed = {None: parse_schema(json.dumps(schema), "value.schema")}
    return [
        (JsonDecoder(kind), plans.planned(plans.JSON, kind), encode_json(array)[0].as_py()),
        (
            MsgpackDecoder(kind),
            plans.planned(plans.MSGPACK, kind),
            encode_msgpack(array)[0].as_py(),
        ),
        (
            AvroDecoder(kind, avro),
            planned_avro(kind, parsed, NONE),
            AvroEncoder(kind, avro).encode(array)[0].as_py(),
        ),
        (
            ProtobufDecoder(kind, shop),
            planned_protobuf(kind, message_class(shop).DESCRIPTOR),
            ProtobufEncoder(kind, shop).encode(array)[0].as_py(),
        ),
    ]


@pytest.mark.parametrize("place", range(4), ids=["json", "msgpack", "avro", "protobuf"])
def test_a_good_body_is_not_left_to_python(place: int) -> None:
    _, planned, body = decoders()[place]
    values, refused = planned.columns(pa.array([body] * 3, pa.binary()))
    assert not len(refused)
    assert values.to_pylist() == [{"id": "é" * 9, "numbers": [1, -1, 1 << 40]}] * 3


@pytest.mark.parametrize("place", range(4), ids=["json", "msgpack", "avro", "protobuf"])
def test_a_bad_row_does_not_change_its_neighbours(place: int) -> None:
    """Every cut of a body, each between two good ones."""
    decoder, _, body = decoders()[place]
    good = decoder.by_row(pa.array([body], pa.binary())).values.to_pylist()[0]
    given = [part for end in range(len(body)) for part in (body, body[:end])] + [body]
    found = assert_equal(decoder, given)
    assert found.values.to_pylist()[::2] == [good] * (len(body) + 1)
    assert found.bad, "no cut is bad"


@pytest.mark.parametrize("place", range(4), ids=["json", "msgpack", "avro", "protobuf"])
def test_random_bytes_are_bad_rows_or_values(place: int) -> None:
    decoder, planned, _ = decoders()[place]
    chance = Random(20)
    bodies = [chance.randbytes(chance.randrange(40)) for _ in range(1_000)]
    assert_equal(decoder, bodies)
    fuzz(decoder, planned, bodies, 5)


@pytest.mark.parametrize("place", range(4), ids=["json", "msgpack", "avro", "protobuf"])
def test_a_slice_of_bodies_is_decoded(place: int) -> None:
    decoder, _, body = decoders()[place]
    bodies = pa.array(mixed([body], Random(1), 50), pa.binary())
    for part in (bodies.slice(7, 20), bodies.slice(0, 0), bodies.slice(49)):
        assert shown(decoder.decode(part).values) == shown(decoder.by_row(part).values)


@pytest.mark.parametrize(
    ("number", "accepted"),
    [("0.1", True), ("1e22", True), ("1e23", True), ("123456789012345678901", True),
     ("9007199254740993", True), ("0." + "1" * 80, False), ("1e400", False), ("5e-324", True)],
)  # fmt: skip
def test_doubles_are_rounded_as_python_rounds(number: str, accepted: bool) -> None:
    kind = pa.struct([("d", pa.float64())])
    planned = plans.planned(plans.JSON, kind)
    assert planned is not None
    values, refused = planned.columns(pa.array([b'{"d":%s}' % number.encode()], pa.binary()))
    assert (not len(refused)) is accepted
    if accepted:
        assert values.to_pylist() == [{"d": float(number)}]


@pytest.mark.parametrize("factor", [1, 2, 10, 123])
@pytest.mark.parametrize("form", ["%d", "-%d", '"%d"', "%d.5", "%d456", "000%d"])
def test_a_decimal_that_does_not_fit_into_128_bits_is_bad(factor: int, form: str) -> None:
    """Cut to 128 bits, these numbers are zero or small."""
    kind = pa.struct([("d", pa.decimal128(38, 0))])
    body = b'{"d":%s}' % (form % (factor << 128)).encode()
    assert [bad.row for bad in assert_equal(JsonDecoder(kind), [body]).bad] == [0]


@settings(max_examples=50, deadline=None)
@for_all(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_any_double_comes_back(numbers: list[float]) -> None:
    kind = pa.struct([("d", pa.float64())])
    bodies = pa.array([b'{"d":%s}' % repr(number).encode() for number in numbers], pa.binary())
    found = JsonDecoder(kind).decode(bodies)
    assert repr(found.values.to_pylist()) == repr([{"d": number} for number in numbers])


@pytest.mark.parametrize("body_format", [plans.JSON, plans.MSGPACK])
def test_deep_nesting_is_refused(body_format: int) -> None:
    kind = pa.struct([("a", pa.int32())])
    deep = {plans.JSON: b"[" * 100_000, plans.MSGPACK: b"\x81\xa1b" + b"\x91" * 100_000}
    planned = plans.planned(body_format, kind)
    assert planned is not None
    prefix = b'{"b":' if body_format == plans.JSON else b""
    _, refused = planned.columns(pa.array([prefix + deep[body_format]], pa.binary()))
    assert list(refused) == [0]


def test_offsets_outside_of_the_data_are_an_error() -> None:
    from pyspark_rmq.payloads.native._columns import (  # type: ignore[import-not-found]
        ColumnDecoder,
    )

    row = np.array([[0, 1, 1, 0, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 1]], np.int64).tobytes()
    decoder = ColumnDecoder(plans.JSON, 0, row, b"", b"", b"a")
    for offsets in ([0, 99], [3, 1], [-1, 2]):
        with pytest.raises(ValueError, match="inside of the data"):
            decoder.decode(b"{}", np.array(offsets, np.int32), 0, 1)
    for first, count in ((0, 2), (2, 0), (-1, 1), (0, -1), (1 << 62, 1)):
        with pytest.raises(ValueError, match="no such rows"):
            decoder.decode(b"{}", np.array([0, 2], np.int32), first, count)


@settings(max_examples=100, deadline=None)
@for_all(SEEDS)
def test_a_plan_that_is_none_is_an_error_or_harmless(seed: int) -> None:
    """Numbers that `plans.py` would not make."""
    from pyspark_rmq.payloads.native._columns import ColumnDecoder

    chance = Random(seed)

    def rows(count: int, width: int) -> bytes:
        pick = [-1, 0, 0, 1, 1, 2, 3, 7, 10, 14, 1 << 40]
        return np.array([chance.choice(pick) for _ in range(count * width)], np.int64).tobytes()

    try:
        decoder = ColumnDecoder(
            chance.randrange(-1, 5), chance.randrange(3), rows(chance.randrange(4), 8),
            rows(chance.randrange(4), 8), rows(chance.randrange(2), 3), b"abc",
        )  # fmt: skip
    except ValueError:
        return
    for body in (b"{}", b'{"a":1}', b"\x81\xa1a\x01", b"\x00\x02a", b"\x08\x01"):
        decoder.decode(body, np.array([0, len(body)], np.int32), 0, 1)
