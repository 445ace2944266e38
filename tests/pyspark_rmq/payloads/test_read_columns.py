"""Schemas of typed payloads, and the answers to those that cannot be read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from broker_core import errors
from pyspark_rmq.columns import PLAIN, ROCKETMQ_SPARK
from pyspark_rmq.payloads.formats import PayloadOptions
from pyspark_rmq.payloads.read_columns import (
    FIELD,
    VALUE,
    PayloadColumn,
    SchemaField,
    choose_read_columns,
)

JSON = PayloadOptions("json")
FLAT = PayloadOptions("json", flattens=True)


def field(name: str, kind: Any, simple: str = "", nullable: bool = True) -> SchemaField:
    return SchemaField(name, simple or str(kind), nullable, kind)


def struct(*fields: tuple[str, Any, bool]) -> dict[str, Any]:
    made = [{"name": n, "type": k, "nullable": is_null, "metadata": {}} for n, k, is_null in fields]
    return {"type": "struct", "fields": made}


def test_a_struct_under_both_namings() -> None:
    kind = struct(("a", "decimal(10,2)", True))
    for naming, name in ((PLAIN, "value"), (ROCKETMQ_SPARK, "body")):
        [column] = choose_read_columns([field(name, kind)], JSON, naming)
        assert column == PayloadColumn(
            name, VALUE, pa.struct([pa.field("a", pa.decimal128(10, 2))])
        )


def test_columns_of_the_message_keep_their_names_when_fields_are_columns() -> None:
    columns = choose_read_columns(
        [field("Key", "string"), field("a", "long", "bigint"), field("value", "binary")],
        FLAT,
        PLAIN,
    )
    assert [getattr(column, "role", "message") for column in columns] == [
        "message", FIELD, "message",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "options", "text"),
    [
        ([field("value", "string")], JSON, "value is a STRUCT, MAP or ARRAY with valueFormat=json"),
        ([field("value", struct())], JSON, "value is a STRUCT without fields"),
        ([field("value", struct(("a", "interval", True)))], JSON, "value.a has type interval"),
        ([field("value", struct(("a", "long", False)))], JSON, "value.a is declared NOT NULL"),
        (
            [field("value", struct(("a", "long", True), ("a", "long", True)))],
            JSON,
            "two fields of the same name",
        ),
        ([field("value", struct(("a", "long", True)), nullable=False)], JSON, "may be null"),
        (
            [field("value", {"type": "map", "keyType": "integer", "valueType": "string",
                             "valueContainsNull": True})],
            JSON,
            "keys are not STRING",
        ),
        ([field("order", "string")], JSON, "no column 'order'"),
        ([field("value", struct(("a", "long", True)), "struct<a:bigint>")], FLAT, "is the body"),
        ([field("a", "string"), field("a", "string")], FLAT, "a twice"),
        ([field("badReason", "string")], JSON, "badReason needs badRecords=null"),
        (
            [field("badValue", "string")],
            PayloadOptions("json", bad_records="null"),
            "badValue is binary, not string",
        ),
        ([field("value", "long", "bigint")], PayloadOptions("string"), "value is string with"),
        ([field("badReason", "string")], PayloadOptions(), "no column 'badReason'"),
    ],
)  # fmt: skip
def test_schemas_that_cannot_be_read(
    fields: list[SchemaField], options: PayloadOptions, text: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        choose_read_columns(fields, options, PLAIN)
