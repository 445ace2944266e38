"""Spark types in the form of `DataType.jsonValue()`, as the DDL of a reader needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from broker_core import errors

DECIMAL_DIGITS_MAX: Final = 38


def struct_of(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A STRUCT with nullable fields."""
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields
        ],
    }


def array_of(kind: Any) -> dict[str, Any]:
    """An ARRAY with nullable elements."""
    return {"type": "array", "elementType": kind, "containsNull": True}


def map_of(kind: Any, key: str = "string") -> dict[str, Any]:
    """A MAP to nullable values."""
    return {"type": "map", "keyType": key, "valueType": kind, "valueContainsNull": True}


def fields_of(kind: Any) -> dict[str, Any] | None:
    """Name -> type of a STRUCT; None for other types."""
    if isinstance(kind, str) or kind["type"] != "struct":
        return None
    return {field["name"]: field["type"] for field in kind["fields"]}


def ddl_of(kind: Any) -> str:
    """The type as DDL text."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        inside = (f"{quoted(f['name'])}: {ddl_of(f['type'])}" for f in kind["fields"])
        return f"struct<{', '.join(inside)}>"
    if kind["type"] == "array":
        return f"array<{ddl_of(kind['elementType'])}>"
    return f"map<{kind['keyType']}, {ddl_of(kind['valueType'])}>"


def quoted(name: str) -> str:
    """A name in DDL text."""
    return "`" + name.replace("`", "``") + "`"


def undescribed(path: str, what: str) -> errors.InvalidArgument:
    """For a field that has no Spark type."""
    return errors.InvalidArgument(
        f"{path} is {what}, for which there is no column: give .schema(…) with the fields to read"
    )
