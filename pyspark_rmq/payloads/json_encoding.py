"""Arrow values to JSON bodies, which `json_columns.py` reads back equal.

As Spark's `to_json`, with nulls: binary values are Base64, times ISO 8601, decimals numbers.
Numbers that JSON lacks are texts (`"NaN"`).
"""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Callable
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from broker_core import errors
from pyspark_rmq.payloads.nested_arrays import fields_of, leaves, with_leaves
from pyspark_rmq.payloads.spark_types import TIMESTAMP, has_variant, is_variant
from pyspark_rmq.payloads.variant.spark_variants import json_of

_OPTIONS: Final = orjson.OPT_UTC_Z


def encode_json(values: Any) -> Any:
    """A binary array with the JSON text of each value of an array without nulls.

    Raises `InvalidArgument` for a value that JSON cannot carry.
    """
    prepared = with_leaves(values, _written_type(values.type), _written)
    rows = python_rows(prepared, "JSON")
    if has_variant(values.type):
        rows = [_with_variants(row, values.type) for row in rows]
    if any(map(_has_words, leaves(prepared))):
        rows = [_with_words(row) for row in rows]
    return pa.array([json_text(row, _OPTIONS, plain_value) for row in rows], pa.binary())


def python_rows(values: Any, name: str) -> list[Any]:
    """Python values of an array. Raises `InvalidArgument` that names the format."""
    try:
        found: list[Any] = values.to_pylist()
        if _has_map(values.type):
            found = [_with_dicts(value, values.type) for value in found]
    except (KeyError, ValueError, OverflowError, pa.ArrowException) as error:
        raise errors.InvalidArgument(
            f"a row cannot be written as {name}: {error}. Dates are written for the years 1 to"
            " 9999, and maps without duplicate keys"
        ) from None
    return found


def _with_variants(value: Any, kind: Any) -> Any:
    """Values of Spark's VARIANT as JSON texts."""
    if value is None or not has_variant(kind):
        return value
    if is_variant(kind):
        try:
            return orjson.Fragment(json_of(value))
        except ValueError as error:
            raise errors.InvalidArgument(
                f"a VARIANT of a row cannot be written as JSON: {error}"
            ) from None
    if pa.types.is_struct(kind):
        return {field.name: _with_variants(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_with_variants(item, kind.value_type) for item in value]
    return {key: _with_variants(item, kind.item_type) for key, item in value.items()}


def _has_map(kind: Any) -> bool:
    if pa.types.is_map(kind):
        return True
    return pa.types.is_nested(kind) and any(_has_map(field.type) for field in fields_of(kind))


def _with_dicts(value: Any, kind: Any) -> Any:
    """Arrow's maps are lists of pairs. Raises `KeyError` for duplicate keys."""
    if value is None or not _has_map(kind):
        return value
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_with_dicts(item, kind.value_type) for item in value]
    found = {key: _with_dicts(item, kind.item_type) for key, item in value}
    if len(found) != len(value):
        raise KeyError("a map has the same key twice")
    return found


def json_text(row: Any, options: int, default: Callable[[Any], Any]) -> bytes:
    """The JSON text of Python values; `options` and `default` are those of orjson."""
    try:
        return orjson.dumps(row, default=default, option=options)
    except orjson.JSONEncodeError as error:
        raise errors.InvalidArgument(f"a row cannot be written as JSON: {error}") from None


def plain_value(value: Any) -> Any:
    """Binary values as Base64, decimals as numbers."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return orjson.Fragment(format(value, "f"))
    raise TypeError(f"no JSON for {type(value).__name__}")


def _written_type(kind: Any) -> Any:
    if is_variant(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _written_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _written_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _written_type(kind.value_type)))
    if kind == pa.float32():
        return pa.float64()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return TIMESTAMP
    return kind


def _written(values: Any, kind: Any) -> Any:
    if kind == pa.float64():
        # The shortest text that is this float: 0.1 and not 0.10000000149011612.
        return values.cast(pa.string()).cast(kind)
    return values.cast(kind)


def _has_words(values: Any) -> bool:
    if not pa.types.is_floating(values.type):
        return False
    return bool(pc.any(pc.invert(pc.is_finite(values))).as_py())


def _with_words(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _with_words(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_words(item) for item in value]
    return value
