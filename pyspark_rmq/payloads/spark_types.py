"""Spark types as Arrow types.

A type is given in the form of Spark's `DataType.jsonValue()`: a name, or an object for arrays, maps
and structs. The result equals what Spark expects of a Python source; a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from broker_core import errors

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
# Unlike those of a schema's STRUCT, its fields are never null.
VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)

_SIMPLE: Final[Mapping[str, Any]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "variant": VARIANT,
}
_KEYS: Final = ("string", "boolean", "byte", "short", "integer", "long")
_SQL_NAMES: Final = {
    **{kind: name for name, kind in _SIMPLE.items()},
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def arrow_type(spark_type: Any, path: str) -> Any:
    """The Arrow type. `path` names the field in errors.

    Raises `InvalidArgument` for types that a payload cannot have, and for fields that are declared
    NOT NULL, because a payload may lack any field.
    """
    if isinstance(spark_type, str):
        return _simple(spark_type, path)
    kind = spark_type["type"]
    if kind == "struct":
        return _struct(spark_type["fields"], path)
    if kind == "array":
        _refuse_not_null(spark_type["containsNull"], f"elements of {path}")
        return pa.list_(pa.field("element", arrow_type(spark_type["elementType"], f"{path}[]")))
    if kind == "map":
        _refuse_not_null(spark_type["valueContainsNull"], f"values of {path}")
        key, item = spark_type["keyType"], spark_type["valueType"]
        if key not in _KEYS:
            raise errors.InvalidArgument(
                f"{path} is a map whose keys are not STRING, BOOLEAN or of an integer type"
            )
        return pa.map_(_SIMPLE[key], arrow_type(item, f"{path}[]"))
    raise errors.InvalidArgument(_unsupported(path, str(kind)))


def is_variant(kind: Any) -> bool:
    """Whether it is Spark's VARIANT, also in the form that a writer gets."""
    if not pa.types.is_struct(kind) or kind.num_fields != 2:
        return False
    return any((field.metadata or {}).get(b"variant") == b"true" for field in kind)


def has_variant(kind: Any) -> bool:
    """Whether it is one or has one inside."""
    if is_variant(kind):
        return True
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return any(has_variant(one) for one in inner)


def has_other_keys(kind: Any) -> bool:
    """Whether it is a map whose keys are not texts, or has one inside."""
    if pa.types.is_map(kind) and usual_type(kind.key_type) != pa.string():
        return True
    return any(has_other_keys(kind.field(place).type) for place in range(kind.num_fields))


def usual_type(kind: Any) -> Any:
    """The reader's form of a writer's type, whose zones and offsets depend on settings of Spark."""
    if is_variant(kind):
        return VARIANT
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, usual_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(usual_type(kind.key_type), usual_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", usual_type(kind.value_type)))
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else TIMESTAMP_NTZ
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def sql_name(kind: Any) -> str:
    """The name of an Arrow type in SQL, for messages."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if is_variant(kind):
        return "VARIANT"
    if pa.types.is_struct(kind):
        return "STRUCT"
    if pa.types.is_map(kind):
        return "MAP"
    if pa.types.is_list(kind):
        return "ARRAY"
    return _SQL_NAMES[kind].upper()


def _simple(name: str, path: str) -> Any:
    if (found := _SIMPLE.get(name)) is not None:
        return found
    decimal = _DECIMAL.fullmatch(name)
    if decimal is None:
        raise errors.InvalidArgument(_unsupported(path, name))
    return pa.decimal128(int(decimal[1]), int(decimal[2]))


def _struct(fields: list[Mapping[str, Any]], path: str) -> Any:
    if not fields:
        raise errors.InvalidArgument(f"{path} is a STRUCT without fields")
    names = [field["name"] for field in fields]
    if len(set(names)) != len(names):
        raise errors.InvalidArgument(f"{path} has two fields of the same name")
    found = []
    for field in fields:
        below = f"{path}.{field['name']}"
        _refuse_not_null(field["nullable"], below)
        found.append(pa.field(field["name"], arrow_type(field["type"], below)))
    return pa.struct(found)


def _refuse_not_null(nullable: bool, what: str) -> None:
    if not nullable:
        raise errors.InvalidArgument(
            f"{what} is declared NOT NULL, and a payload may lack it: leave NOT NULL out of the"
            " schema and filter rows afterwards"
        )


def _unsupported(path: str, name: str) -> str:
    return (
        f"{path} has type {name}, which payloads cannot have. They can have STRUCT, ARRAY,"
        f" MAP<STRING, …>, DECIMAL(p,s), {', '.join(sql.upper() for sql in _SQL_NAMES.values())}"
    )


def writable_type(spark_type: Any, path: str) -> Any:
    """As `arrow_type`, for a type to encode. Fields may be NOT NULL."""
    return arrow_type(_nullable(spark_type), path)


def _nullable(spark_type: Any) -> Any:
    if isinstance(spark_type, str):
        return spark_type
    if "fields" in spark_type:
        fields = [
            {**field, "type": _nullable(field["type"]), "nullable": True}
            for field in spark_type["fields"]
        ]
        return {**spark_type, "fields": fields}
    inner = {
        name: _nullable(spark_type[name])
        for name in ("elementType", "valueType")
        if name in spark_type
    }
    return {**spark_type, **inner, "containsNull": True, "valueContainsNull": True}
