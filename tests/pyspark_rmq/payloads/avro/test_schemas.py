"""Avro schemas: types, names, and texts that are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_core import errors
from pyspark_rmq.payloads.avro.schemas import AvroType, parse_schema


def parse(schema: Any) -> AvroType:
    return parse_schema(json.dumps(schema), "value.schema")


def record(*types: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def test_types() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 2}
    enum = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
    found = parse(record("long", ["null", "string"], fixed, enum, {"type": "string"}))
    kinds = [kind for _, kind in found.fields]
    assert [kind.kind for kind in kinds] == ["long", "union", "fixed", "enum", "string"]
    assert kinds[2].size == 2
    assert kinds[3].symbols == ("a", "b")
    assert kinds[1].shown == "[null, string]"


def test_logical_types() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    found = parse(money)
    assert (found.logical, found.precision, found.scale) == ("decimal", 4, 2)
    assert parse({"type": "int", "logicalType": "date"}).shown == "int (date)"
    # Avro: an annotation that is unknown, or invalid at this type, is ignored.
    for text in ({"logicalType": "x"}, {"logicalType": "date"}, {"logicalType": ["date"]}):
        assert parse({"type": "long", **text}).logical == ""
    for text in ({"precision": 0}, {"precision": 2, "scale": 3}, {"scale": 1}, {"precision": "4"}):
        assert parse({"type": "bytes", "logicalType": "decimal", **text}).logical == ""


def test_names_are_found_in_their_namespace() -> None:
    inner = record("int", name="In")
    found = parse(record(inner, "In", "a.b.In", name="Out", namespace="a.b"))
    kinds = [kind for _, kind in found.fields]
    assert kinds[0] is kinds[1] is kinds[2]
    assert kinds[0].name == "a.b.In"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (record(["null", "R"]), "record R contains itself"),
        (record({"type": "array", "items": "R"}), "record R contains itself"),
        (record("Other"), "there is no type 'Other'"),
        (record("int", "int") | {"fields": [{"name": "a", "type": "int"}] * 2}, "name of its own"),
        (record(record("int")), "R is defined twice"),
        (record(name="int"), "int is defined twice"),
        ({"type": "record", "name": "R"}, "has no fields"),
        ({"type": "record", "name": "R", "fields": {}}, "has no list of fields"),
        ({"type": "enum", "name": "E", "symbols": [1]}, "has no list of symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "no valid size"),
        ({"type": "array"}, "has no items"),
        ({"type": "map"}, "has no values"),
        ({"type": "array", "items": "null"}, "whose items take no bytes"),
        ({"type": "array", "items": record("null")}, "whose items take no bytes"),
        (["null", "null"], "is no union"),
        (["null", ["int"]], "is no union"),
        ([], "is no union"),
        (5, "5 is no type"),
        ({}, "is no type"),
        ({"type": 5}, "5 is no type"),
        ({"type": "record", "name": 5, "fields": []}, "has no name"),
    ],
)
def test_schemas_that_are_refused(schema: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=rf"option value.schema .*{text}"):
        parse(schema)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '"\\ud800', '{"type": "array", '])
def test_texts_that_are_not_json(text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="not JSON"):
        parse_schema(text, "value.schema")


def test_deep_and_large_schemas_are_refused() -> None:
    deep: Any = "int"
    for _ in range(70):
        deep = {"type": "map", "values": deep}
    with pytest.raises(errors.InvalidArgument, match="nested more than"):
        parse(deep)
    chain = [record("int", name="N0")]
    chain += [record(f"N{n - 1}", name=f"N{n}") for n in range(1, 200)]
    with pytest.raises(errors.InvalidArgument, match="nested more than"):
        parse(record(*chain))
    # Each has the one before twice.
    doubled = [record("null", name="N0")]
    doubled += [record(f"N{n - 1}", f"N{n - 1}", name=f"N{n}") for n in range(1, 40)]
    with pytest.raises(errors.InvalidArgument, match="more than 100000 types"):
        parse(record(*doubled))
