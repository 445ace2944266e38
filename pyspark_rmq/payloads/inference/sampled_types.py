"""The Spark type of a sample of bodies, by the rules of `spark.read.json`.

A value has the narrowest type that holds it. Two types of one field become the narrowest type that
holds both; in JSON that is STRING if there is no other. Fields are in the order of their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]

from broker_core import errors
from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.bad_records import Undecodable
from pyspark_rmq.payloads.inference.described import (
    DECIMAL_DIGITS_MAX,
    array_of,
    fields_of,
    struct_of,
)
from pyspark_rmq.payloads.json_values import is_number, parse

_NULL: Final = "void"
_I64: Final = range(-(1 << 63), 1 << 63)
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
# As decimals: the types that the rules of Spark widen to.
_LONG_AS_DECIMAL: Final = (20, 0)


class _Rules(NamedTuple):
    """How values of a format become types."""

    parsed: Callable[[bytes], Any]
    scalar: Callable[[Any], Any]
    widens_to_text: bool


def sampled_type(bodies: Iterable[bytes], value_format: str) -> Any:
    """The type of the column `value`, in the form of `DataType.jsonValue()`.

    Bodies that cannot be parsed do not count. Raises `InvalidArgument` if there is no type.
    """
    rules = _RULES[value_format]
    found: Any = _NULL
    reason = "there are no messages in the range"
    for body in bodies:
        try:
            value = rules.parsed(body)
        except Undecodable as problem:
            reason = f"no body of the sample can be decoded; the last one: {problem}"
            continue
        if not isinstance(value, dict | list):
            reason = "the bodies of the sample are neither objects nor arrays"
            continue
        found = _joined(found, _type_of(value, "value", rules), "value", rules)
    if found == "string":
        reason = "some bodies of the sample are objects and others are arrays"
    elif found != _NULL:
        finished = _finished(found)
        if finished is not None:
            return finished
        reason = "the bodies of the sample have no fields"
    raise errors.InvalidArgument(
        errors.explained(
            f"option inferSchema=true: {reason}. Give .schema(…), or another range with"
            " startingOffsets and endingOffsets",
            "infer-schema",
        )
    )


def _type_of(value: Any, path: str, rules: _Rules) -> Any:
    if value is None:
        return _NULL
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise errors.InvalidArgument(
                f"option inferSchema=true: {path} is a map whose keys are not texts: give"
                " .schema(…) without it"
            )
        return struct_of(
            (name, _type_of(item, f"{path}.{name}", rules)) for name, item in value.items()
        )
    if isinstance(value, list):
        found: Any = _NULL
        for item in value:
            found = _joined(found, _type_of(item, f"{path}[]", rules), f"{path}[]", rules)
        return array_of(found)
    return rules.scalar(value)


def _joined(one: Any, other: Any, path: str, rules: _Rules) -> Any:
    if one == other or other == _NULL:
        return one
    if one == _NULL:
        return other
    fields, more = fields_of(one), fields_of(other)
    if fields is not None and more is not None:
        for name, kind in more.items():
            fields[name] = _joined(fields.get(name, _NULL), kind, f"{path}.{name}", rules)
        return struct_of(fields.items())
    if _is_array(one) and _is_array(other):
        return array_of(_joined(one["elementType"], other["elementType"], f"{path}[]", rules))
    number = _number(one, other)
    if number is not None:
        return number
    if rules.widens_to_text:
        return "string"
    raise errors.InvalidArgument(
        f"option inferSchema=true: {path} has values of the types {_word(one)} and {_word(other)}:"
        " give .schema(…) with the type to read it as"
    )


def _number(one: Any, other: Any) -> Any:
    """The number type that holds both; None if one of them is no number."""
    digits = [found for found in (_digits(one), _digits(other)) if found is not None]
    if len(digits) == 2:
        scale = max(scale for _, scale in digits)
        whole = max(precision - scale for precision, scale in digits)
        return _decimal(whole + scale, scale)
    return "double" if digits and "double" in (one, other) else None


def _digits(kind: Any) -> tuple[int, int] | None:
    if kind == "long":
        return _LONG_AS_DECIMAL
    found = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return None if found is None else (int(found[1]), int(found[2]))


def _decimal(precision: int, scale: int) -> str:
    return f"decimal({precision},{scale})" if precision <= DECIMAL_DIGITS_MAX else "double"


def _is_array(kind: Any) -> bool:
    return not isinstance(kind, str) and kind["type"] == "array"


def _finished(kind: Any) -> Any:
    """The final type: STRING if all values were null, None for an object without fields."""
    if kind == _NULL:
        return "string"
    fields = fields_of(kind)
    if fields is not None:
        kept = [(name, _finished(fields[name])) for name in sorted(fields)]
        # Spark has no columns without a name.
        kept = [(name, inner) for name, inner in kept if name and inner is not None]
        return struct_of(kept) if kept else None
    if _is_array(kind):
        inner = _finished(kind["elementType"])
        return None if inner is None else array_of(inner)
    return kind


def _word(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _json_scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if not is_number(value):
        return "string"
    if re.fullmatch(r"-?[0-9]+", value):
        digits = len(value.lstrip("-"))
        if digits <= DECIMAL_DIGITS_MAX:
            number = int(value)
            return "long" if number in _I64 else _decimal(len(str(abs(number))), 0)
    return "double"


def _unpacked(body: bytes) -> Any:
    try:
        return msgpack.unpackb(body, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Undecodable(f"not msgpack: {error or type(error).__name__}") from None


def _msgpack_scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if value in _I64 else "decimal(20,0)"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bytes):
        return "binary"
    if hasattr(value, "nanoseconds"):
        return "timestamp"
    raise errors.InvalidArgument(
        "option inferSchema=true: a body of the sample has an extension of msgpack, for which"
        " there is no column: give .schema(…) without it"
    )


_RULES: Final = {
    formats.JSON: _Rules(parse, _json_scalar, widens_to_text=True),
    formats.MSGPACK: _Rules(_unpacked, _msgpack_scalar, widens_to_text=False),
}
