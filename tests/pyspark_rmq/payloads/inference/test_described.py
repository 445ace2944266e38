"""Types as DDL text."""

from __future__ import annotations

from pyspark_rmq.payloads.inference.described import (
    array_of,
    ddl_of,
    fields_of,
    map_of,
    struct_of,
    undescribed,
)


def test_ddl() -> None:
    kind = struct_of([("a b", "long"), ("c`", array_of(map_of("decimal(3,1)")))])
    assert ddl_of(kind) == "struct<`a b`: long, `c```: array<map<string, decimal(3,1)>>>"
    assert list(fields_of(kind) or ()) == ["a b", "c`"]
    assert fields_of("long") is None and fields_of(array_of("long")) is None


def test_errors_name_the_way() -> None:
    assert "value.a is X, for which there is no column: give .schema" in str(
        undescribed("value.a", "X")
    )
