"""Types of payloads; `tests/spark/test_payloads.py` compares them with Spark's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from broker_core import errors
from pyspark_rmq.payloads.spark_types import TIMESTAMP, arrow_type, sql_name, writable_type


def array(kind: Any, nullable: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": nullable}


def struct(kind: Any, nullable: bool = True) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": "f", "type": kind, "nullable": nullable}]}


def test_nested_types() -> None:
    assert arrow_type(array(struct("timestamp")), "v") == pa.list_(
        pa.field("element", pa.struct([pa.field("f", TIMESTAMP)]))
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("void", "v has type void"),
        (array("void"), r"v\[\] has type void"),
        (struct("string", nullable=False), "v.f is declared NOT NULL"),
        (array("string", nullable=False), "elements of v is declared NOT NULL"),
        ({"type": "udt", "class": "x"}, "v has type udt"),
    ],
)
def test_types_that_cannot_be_read(kind: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        arrow_type(kind, "v")


def test_not_null_can_be_written() -> None:
    writable_type(struct(array("string", nullable=False), nullable=False), "v")
    with pytest.raises(errors.InvalidArgument, match=r"v.f\[\] has type interval"):
        writable_type(struct(array("interval", nullable=False), nullable=False), "v")


def test_names_in_sql() -> None:
    kinds = [pa.int8(), pa.int64(), TIMESTAMP, pa.decimal128(5, 2), pa.struct([]), pa.string()]
    assert [sql_name(kind) for kind in kinds] == [
        "TINYINT", "BIGINT", "TIMESTAMP", "DECIMAL(5,2)", "STRUCT", "STRING",
    ]  # fmt: skip
