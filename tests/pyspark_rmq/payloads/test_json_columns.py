"""Columns of JSON bodies equal what the reference makes of each body, and no body hides another."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.reader_options.time_texts import TimeTexts
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ

ORDER = pa.struct(
    [
        pa.field("id", pa.string()),
        pa.field("count", pa.int32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("weight", pa.float64()),
        pa.field("paid", pa.bool_()),
        pa.field("at", TIMESTAMP),
        pa.field("day", pa.date32()),
        pa.field("local", TIMESTAMP_NTZ),
        pa.field("raw", pa.binary()),
        pa.field("lines", pa.list_(pa.field("element", pa.struct([pa.field("d", pa.date32())])))),
    ]
)
GOOD = (
    b'{"id":"o-1","count":3,"price":1.5,"weight":2e3,"paid":true,"at":"2024-05-31T12:00:00Z",'
    b'"day":"2024-05-31","local":"2024-05-31 12:00:00","raw":"AQID",'
    b'"lines":[{"d":"2024-06-01"},null],"more":{"x":[1]}}'
)


def bodies_of(*bodies: bytes) -> Any:
    return pa.array(bodies, pa.binary())


def test_a_good_batch_is_decoded_by_column() -> None:
    decoder = JsonDecoder(ORDER)
    found = decoder.by_column(bodies_of(GOOD, b"{}", b' {"id":\n"o-2"}\n'))
    assert found is not None
    assert found.equals(decoder.by_row(bodies_of(GOOD, b"{}", b' {"id":\n"o-2"}\n')).values)
    assert found.type == ORDER
    assert found[0].as_py()["raw"] == b"\x01\x02\x03"
    assert str(found[0].as_py()["price"]) == "1.50"
    assert found[1].as_py() == {field.name: None for field in ORDER}


@pytest.mark.parametrize(
    "bodies",
    [
        [b'{"count":1} {"count":2}', b""],
        [b'{"count":1}{"count":2}', b'{"count":3', b"}"],
        [b'{"count":1,', b'"id":"x"}', b"{} {}"],
        [b'{"id":"x', b'y"}', b"{} {}"],
        [b"{} {}", b'{"count":1}\x00}', b'{"count":2}'],
        [b'{"more":{"a":1}', b"{}}", b"{} {}"],
        [b"{}", b"[]"],
        [b"{}", b'{"id":"\xff"}'],
        [b"{}", b'{"more":Inf}'],
        [b"{}", b'{"id":"\\ud800"}'],
        [b"{}", b'{"more":' + b"[" * 300 + b"]" * 300 + b"}"],
    ],
)
def test_bodies_that_together_look_like_objects_stay_apart(bodies: list[bytes]) -> None:
    decoder = JsonDecoder(ORDER)
    assert decoder.by_column(bodies_of(*bodies)) is None
    decoded = decoder.decode(bodies_of(*bodies))
    alone = [decoder.decode(bodies_of(body)) for body in bodies]
    assert [row for row, _ in decoded.bad] == [n for n, one in enumerate(alone) if one.bad]
    assert decoded.bad
    assert decoded.values.to_pylist() == [one.values[0].as_py() for one in alone]


@pytest.mark.parametrize(
    ("precision", "scale", "number"),
    [
        (38, 38, b"11"),
        (38, 38, b"-11"),
        (38, 18, b"1000000000000000000000"),
        (38, 18, b'"1000000000000000000000.5"'),
        (38, 10, b"123456789012345678901234567890"),
        (30, 9, b"1" * 30),
    ],
)
def test_a_decimal_that_is_too_large_at_its_scale_is_bad(
    precision: int, scale: int, number: bytes
) -> None:
    """Arrow's parser computes with 128 bits, and some of these overflow to numbers that fit."""
    decoder = JsonDecoder(pa.struct([("d", pa.decimal128(precision, scale))]))
    bodies = bodies_of(b'{"d":%s}' % number)
    assert decoder.by_column(bodies) is None
    assert [bad.row for bad in decoder.decode(bodies).bad] == [0]


@pytest.mark.parametrize(
    "number",
    [b"458753e-100000000", b'"5e-10000000"', b"1E-77", b"[5e-99 ]", b"0." + b"0" * 99 + b"5"],
)
def test_decimals_with_many_places_are_not_given_to_the_parser(number: bytes) -> None:
    """Arrow's parser takes their power of ten from memory beyond its table, or ends the process."""
    kind = pa.list_(pa.decimal128(20, 2)) if number.startswith(b"[") else pa.decimal128(20, 2)
    decoder = JsonDecoder(pa.struct([("s", pa.string()), ("d", kind)]))
    bodies = bodies_of(b'{"s":"1e5","d":%s}' % number)
    assert decoder.by_column(bodies) is None
    found = decoder.decode(bodies)
    assert not found.bad
    assert str(found.values[0].as_py()["d"]) in ("0.00", "[Decimal('0.00')]")


@pytest.mark.parametrize("name", ["day", "at", "local"])
@pytest.mark.parametrize("text", ["0000-12-31", "0000-12-31T23:59:59", "0000-12-31 23:00:00-05:00"])
def test_there_is_no_year_zero(name: str, text: str) -> None:
    bodies = bodies_of(b'{"%s":"%s"}' % (name.encode(), text.encode()))
    assert [bad.row for bad in JsonDecoder(ORDER).by_parts(bodies).bad] == [0]


def test_names_like_powers_of_ten_do_not_slow_decimals_down() -> None:
    decoder = JsonDecoder(pa.struct([("s", pa.string()), ("d", pa.decimal128(20, 2))]))
    text = b"5e3f-4e1a-9e-99a-" + b"7" * 100_000
    assert decoder.by_column(bodies_of(b'{"s":"%s","d":1.5,"x":2E-5}' % text)) is not None


def test_a_bad_body_among_many_is_found_and_the_others_are_as_without_it() -> None:
    decoder = JsonDecoder(ORDER)
    bodies = [b'{"count":%d}' % n for n in range(5_000)]
    bodies[3_210] = b'{"count":"many"}'
    decoded = decoder.decode(bodies_of(*bodies))
    assert decoded.bad == [(3_210, 'value.count is "many", which is not INT')]
    counts = decoded.values.field(1).to_pylist()
    assert counts[:3_210] == list(range(3_210)) and counts[3_211:] == list(range(3_211, 5_000))
    assert decoded.values[3_210].as_py() is None


def test_many_brackets_are_no_depth() -> None:
    bodies = [b'{"more":[' + b"[]," * 80 + b"[]]}"] * 9
    assert JsonDecoder(ORDER).by_column(bodies_of(b"x", *bodies).slice(1)) is not None


def test_sliced_bodies() -> None:
    decoder = JsonDecoder(ORDER)
    bodies = bodies_of(b"x", *[b'{"count":%d}' % n for n in range(9)], b"y").slice(1, 9)
    found = decoder.by_column(bodies)
    assert found is not None and found.field(1).to_pylist() == list(range(9))


@pytest.mark.parametrize(
    "kind", [pa.map_(pa.string(), pa.int32()), pa.list_(pa.field("element", pa.int32()))]
)
def test_maps_and_arrays_as_whole_bodies(kind: Any) -> None:
    is_map = pa.types.is_map(kind)
    decoded = JsonDecoder(kind).decode(bodies_of(b'{"a":1}' if is_map else b"[1]", b"5"))
    assert decoded.values.to_pylist() == [[("a", 1)] if is_map else [1], None]
    assert [row for row, _ in decoded.bad] == [1]


def test_times_without_a_zone_are_of_the_zone_that_is_given() -> None:
    kind = pa.struct([pa.field("at", TIMESTAMP)])
    bodies = bodies_of(b'{"at":"2024-05-31T12:00:00"}', b'{"at":"2024-05-31T12:00:00Z"}')
    berlin = (
        JsonDecoder(kind, TimeTexts("Europe/Berlin"))
        .decode(bodies)
        .values.field(0)
        .cast(pa.int64())
    )
    utc = JsonDecoder(kind).decode(bodies).values.field(0).cast(pa.int64())
    assert [b.as_py() - u.as_py() for b, u in zip(berlin, utc, strict=True)] == [-7_200_000_000, 0]


_leaf = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 40), 1 << 40), st.floats(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from(
        ["2024-05-31", "2024-05-31T12:30:15+02:00", "2024-05-31T12:30Z", "AQID", "1.005", "1e3"]
    ),
)  # fmt: skip
_value = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["d", "x", "id"]), inner, max_size=2),
    ),
    max_leaves=6,
)
_object = st.dictionaries(
    st.sampled_from([*(field.name for field in ORDER), "more"]), _value, max_size=4
)
_whole = _object.map(lambda found: json.dumps(found, ensure_ascii=False).encode())
_broken = st.builds(
    lambda body, at, junk: body[:at] + junk + body[at:],
    _whole,
    st.integers(0, 40),
    st.one_of(st.binary(max_size=3), st.sampled_from([b"}", b"{", b'"', b"\n", b",", b"NaN"])),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(_whole, _broken), min_size=1, max_size=5))
def test_columns_and_rows_agree_on_any_bodies(bodies: list[bytes]) -> None:
    decoder = JsonDecoder(ORDER)
    reference = decoder.by_row(bodies_of(*bodies))
    found = decoder.by_column(bodies_of(*bodies))
    if found is not None:
        assert not reference.bad
        assert repr(found.to_pylist()) == repr(reference.values.to_pylist())
    assert list(decoder.decode(bodies_of(*bodies)).bad) == reference.bad


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_bad(body: bytes) -> None:
    decoded = JsonDecoder(ORDER).decode(bodies_of(body))
    assert len(decoded.values) == 1
    assert (decoded.values[0].as_py() is None) == bool(decoded.bad)


def test_permissive_keeps_what_can_be_converted() -> None:
    kind = pa.struct(
        [
            ("a", pa.int32()),
            ("l", pa.list_(pa.int32())),
            ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ]
    )
    bodies = bodies_of(
        b'{"a":"x","l":[1],"s":{"x":true,"y":"t"}}', b'{"a":1,"l":[1,"x"]}', b"{", b'{"a":2}', b"[]"
    )
    decoded = JsonDecoder(kind, keeps_fields=True).decode(bodies)
    nothing = {"a": None, "l": None, "s": None}
    assert decoded.values.to_pylist() == [
        {"a": None, "l": [1], "s": {"x": None, "y": "t"}}, {**nothing, "a": 1},
        nothing, {**nothing, "a": 2}, nothing,
    ]  # fmt: skip
    assert [bad.row for bad in decoded.bad] == [0, 1, 2, 4]
    assert decoded.bad[0].reason == 'value.a is "x", which is not INT'
