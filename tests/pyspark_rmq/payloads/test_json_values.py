"""Reasons that the reference gives; `tests/spark/test_payloads.py` compares its values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_rmq.payloads.bad_records import Undecodable
from pyspark_rmq.payloads.json_values import DEPTH_MAX, converter, parse
from pyspark_rmq.payloads.reader_options.time_texts import TimeTexts

KIND = pa.struct(
    [
        pa.field("n", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("d", pa.decimal128(5, 2)),
        pa.field("m", pa.map_(pa.string(), pa.int32())),
        pa.field("a", pa.list_(pa.field("element", pa.int8()))),
    ]
)


def decoded(body: bytes) -> Any:
    return converter(KIND, TimeTexts())(parse(body))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b" \n", "the body is empty"),
        (b"null", "the body is null"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"{", "not JSON: Expecting property name"),
        (b"{} {}", "not JSON: Extra data"),
        (b"[]", r"value is \[\], which is not STRUCT"),
        (b'{"n": 1.5}', "value.n is 1.5, which is not INT"),
        (b'{"n": true}', "value.n is true, which is not INT"),
        (b'{"n": ' + b"9" * 5_000 + b"}", "value.n is 9+…, which is not INT"),
        (b'{"d": 1e999999999}', r"value.d is 1e999999999, which is not DECIMAL\(5,2\)"),
        (b'{"d": 999.995}', r"value.d is 999.995, which is not DECIMAL\(5,2\)"),
        (b'{"m": {"k": "v"}}', r"value.m\[\] is \"v\", which is not INT"),
        (b'{"m": {"\\ud800": 1}}', "half of a surrogate pair"),
        (b'{"a": [1, 128]}', r"value.a\[\] is 128, which is not TINYINT"),
        (b'{"s": "\\ud800"}', "value.s is .*, which is not STRING"),
        (
            b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
            f"nested more than {DEPTH_MAX} levels deep",
        ),
        (b"[" * 10_000_000, f"nested more than {DEPTH_MAX} levels deep"),
    ],
)
def test_reasons(body: bytes, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason):
        decoded(body)


def test_texts_of_other_values_are_json() -> None:
    nested = decoded(b'{"s": {"x": [1.50, "\\u00e9", null, true]}}')
    assert nested["s"] == '{"x":[1.50,"é",null,true]}'


def test_brackets_in_texts_are_not_depth() -> None:
    assert decoded(b'{"s": "' + b"[" * 3_000 + b'"}')["s"] == "[" * 3_000


def test_the_depth_limit_is_inclusive() -> None:
    deep = b"[" * (DEPTH_MAX - 1) + b"]" * (DEPTH_MAX - 1)
    assert decoded(b'{"s": ' + deep + b"}")["s"] == deep.decode()
