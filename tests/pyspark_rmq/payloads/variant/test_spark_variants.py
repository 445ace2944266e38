"""VARIANT columns without a Spark session: JSON to PySpark's binary form and back."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from broker_core import errors
from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.json_encoding import encode_json
from pyspark_rmq.payloads.read_columns import SchemaField, choose_read_columns
from pyspark_rmq.payloads.spark_types import VARIANT, arrow_type, has_variant, usual_type
from pyspark_rmq.payloads.variant.spark_variants import json_of, variant_of
from tests.pyspark_rmq.payloads.test_formats import parse

pytest.importorskip("pyspark")

BODIES = [b'{"a":[1,2.5,"\xc3\xa9",null,true],"b":{"c":12345678901234567890}}', b"[1]", b'"x"']


def test_bodies_are_read_and_written() -> None:
    decoded = JsonDecoder(VARIANT).decode(pa.array([*BODIES, b"{", b"NaN"], pa.binary()))
    assert [bad.row for bad in decoded.bad] == [3, 4]
    assert decoded.bad[1].reason == "value is NaN, which is not VARIANT"
    values = decoded.values.slice(0, 3)
    expected = [json.loads(body) for body in BODIES]
    assert [json.loads(json_of(one)) for one in values.to_pylist()] == expected
    assert [json.loads(body) for body in encode_json(values).to_pylist()] == expected


def test_variants_inside_of_other_types() -> None:
    fields = [{"name": "v", "type": "variant", "nullable": True, "metadata": {}}]
    kind = arrow_type({"type": "struct", "fields": fields}, "value")
    assert has_variant(kind) and usual_type(kind).equals(kind)
    nested = pa.struct(
        [
            ("s", kind),
            ("l", pa.list_(VARIANT)),
            ("m", pa.map_(pa.string(), VARIANT)),
            ("n", VARIANT),
        ]
    )
    body = b'{"s":{"v":{"x":1}},"l":[5,null],"m":{"k":[]},"n":null}'
    decoded = JsonDecoder(nested).decode(pa.array([body], pa.binary()))
    assert not decoded.bad
    [written] = encode_json(decoded.values).to_pylist()
    assert json.loads(written) == json.loads(body)


def test_what_json_lacks() -> None:
    with pytest.raises(ValueError, match="line 1 column 1"):
        json_of(variant_of("NaN"))
    array = pa.array([variant_of("[Infinity]")], VARIANT)
    with pytest.raises(errors.InvalidArgument, match="VARIANT of a row cannot be written as JSON"):
        encode_json(array)


def test_other_formats_have_none() -> None:
    field = SchemaField("value", "variant", True, "variant")
    [column] = choose_read_columns([field], parse(valueFormat="json"), "default")
    assert column.arrow_type == VARIANT  # type: ignore[union-attr]
    with pytest.raises(errors.InvalidArgument, match="has a VARIANT, which valueFormat=msgpack"):
        choose_read_columns([field], parse(valueFormat="msgpack"), "default")
