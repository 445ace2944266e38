"""One JSON body to one Python value, by the rules of Spark's JSON reader.

This is the reference: `json_columns.py` decodes whole columns and leaves to it every body that it
does not accept. Numbers are kept as texts until the type of their field is known, so that decimals
and large integers stay exact.
"""

from __future__ import annotations

import base64
import decimal
import json
import math
import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from pyspark_rmq.payloads.bad_records import Undecodable
from pyspark_rmq.payloads.reader_options.time_texts import TimeTexts
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ, is_variant, sql_name

# Deeper bodies are bad. The parser is recursive.
DEPTH_MAX: Final = 256
_SHOWN_MAX: Final = 40
_SECOND: Final = 1_000_000

_INTEGER: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_DIGITS_MAX: Final = 2_000
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_NOT_NUMBERS: Final = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "+INF": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}
# Precision for rounding, above that of any type; traps are checked explicitly.
_CONTEXT: Final = decimal.Context(prec=4 * _DIGITS_MAX, rounding=decimal.ROUND_HALF_UP)

Convert = Callable[[Any], Any]


class _Number(str):
    """The text of a number."""

    __slots__ = ()


def number(text: str) -> Any:
    """A text as the parsed value that it would be without quotes."""
    return _Number(text)


def is_number(value: Any) -> bool:
    """Whether a parsed value is a number: its text."""
    return type(value) is _Number


_JSON: Final = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number)


def parse(body: bytes) -> Any:
    """The value of a body. Raises `Undecodable`."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"not UTF-8 at byte {error.start}") from None
    if not text.strip(" \t\r\n"):
        raise Undecodable("the body is empty")
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX and _is_too_deep(text):
        raise Undecodable(f"nested more than {DEPTH_MAX} levels deep")
    try:
        value = _JSON.decode(text)
    except ValueError as error:
        raise Undecodable(f"not JSON: {error}") from None
    if value is None:
        raise Undecodable("the body is null")
    return value


def converter(
    kind: Any, times: TimeTexts, path: str = "value", problems: list[str] | None = None
) -> Convert:
    """A function that converts a parsed value to what Arrow takes for type `kind`.

    It raises `Undecodable` for a value that Spark's reader would not convert. With a list for
    `problems` such a field of a struct is null, and the reason is appended.
    """
    if is_variant(kind):
        return _nullable(_variant, "VARIANT", path)
    if pa.types.is_struct(kind):
        return _structs(kind, times, path, problems)
    if pa.types.is_map(kind):
        return _maps(converter(kind.item_type, times, f"{path}[]", problems), path)
    if pa.types.is_list(kind):
        return _lists(converter(kind.value_type, times, f"{path}[]", problems), path)
    return _nullable(_scalars(kind, times), sql_name(kind), path)


def _structs(kind: Any, times: TimeTexts, path: str, problems: list[str] | None) -> Convert:
    fields = []
    for field in kind:
        of_field = converter(field.type, times, f"{path}.{field.name}", problems)
        fields.append((field.name, of_field if problems is None else _kept(of_field, problems)))

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise _refused(path, value, "STRUCT")
        return {name: of_field(value.get(name)) for name, of_field in fields}

    return convert


def _kept(of_value: Convert, problems: list[str]) -> Convert:
    """Null instead of an error."""

    def convert(value: Any) -> Any:
        try:
            return of_value(value)
        except Undecodable as problem:
            problems.append(str(problem))
            return None

    return convert


def _maps(of_item: Convert, path: str) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise _refused(path, value, "MAP")
        return [(_text(name, path), of_item(item)) for name, item in value.items()]

    return convert


def _lists(of_item: Convert, path: str) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not list:
            raise _refused(path, value, "ARRAY")
        return [of_item(item) for item in value]

    return convert


def _nullable(of_value: Convert, name: str, path: str) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        try:
            return of_value(value)
        except (ValueError, OverflowError, ArithmeticError):
            raise _refused(path, value, name) from None

    return convert


def _scalars(kind: Any, times: TimeTexts) -> Convert:
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return _integers(kind.bit_width)
    if pa.types.is_floating(kind):
        return _floats(kind)
    if pa.types.is_decimal(kind):
        return decimals(kind.precision, kind.scale)
    if pa.types.is_binary(kind):
        return _binary
    if pa.types.is_date(kind):
        return lambda value: times.date(_string(value))
    if kind == TIMESTAMP:
        return _timestamps(times)
    if kind == TIMESTAMP_NTZ:
        return lambda value: times.local(_string(value))
    return _any_text


def _variant(value: Any) -> Any:
    from pyspark_rmq.payloads.variant.spark_variants import variant_of

    _refuse_words(value)
    text = dumped(value)
    # Raises for half of a surrogate pair.
    text.encode()
    return variant_of(text)


def _refuse_words(value: Any) -> None:
    """Neither JSON nor Spark's `parse_json` has NaN."""
    if type(value) is _Number and value.lstrip("-")[:1].isalpha():
        raise ValueError
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            _refuse_words(one)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def _integers(bits: int) -> Convert:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(value: Any) -> int:
        number = _integer(value)
        if not least <= number <= most:
            raise ValueError
        return number

    return convert


def _integer(value: Any) -> int:
    if type(value) is not _Number or len(value) > _DIGITS_MAX or not _INTEGER.fullmatch(value):
        raise ValueError
    return int(value)


def _floats(kind: Any) -> Convert:
    def convert(value: Any) -> float:
        if (known := _NOT_NUMBERS.get(value if isinstance(value, str) else "")) is not None:
            return known
        if type(value) is not _Number:
            raise ValueError
        if kind == pa.float64():
            return float(value)
        # Rounded once, from the text.
        found: float = pa.scalar(str(value)).cast(kind).as_py()
        return found

    return convert


def decimals(precision: int, scale: int) -> Convert:
    """A function that converts the text of a number; raises `ValueError`."""
    unit, limit = decimal.Decimal(1).scaleb(-scale), decimal.Decimal(1).scaleb(precision - scale)

    def convert(value: Any) -> decimal.Decimal:
        if not isinstance(value, str) or len(value) > _DIGITS_MAX or not _DECIMAL.fullmatch(value):
            raise ValueError
        number = decimal.Decimal(value)
        # Before rounding: an exponent must not make a huge number of digits.
        if number and number.adjusted() > precision:
            raise ValueError
        rounded = number.quantize(unit, context=_CONTEXT)
        # Not `abs`, which rounds to 28 digits.
        if rounded.copy_abs() >= limit:
            raise ValueError
        return rounded

    return convert


def _binary(value: Any) -> bytes:
    text = _string(value)
    # Padding without need, which Python ignores.
    if text.endswith("=") and len(text.rstrip("=")) % 4 == 0:
        raise ValueError
    return base64.b64decode(text.encode("ascii"), validate=True)


def _timestamps(times: TimeTexts) -> Convert:
    def convert(value: Any) -> int:
        if type(value) is _Number:
            return _in_range(_integer(value) * _SECOND)
        return times.timestamp(_string(value))

    return convert


def _in_range(micros: int) -> int:
    if not -(1 << 63) <= micros < 1 << 63:
        raise ValueError
    return micros


def _string(value: Any) -> str:
    if type(value) is not str:
        raise ValueError
    return value


def _any_text(value: Any) -> str:
    """Texts as they are, other values as JSON."""
    text = value if isinstance(value, str) else dumped(value)
    text.encode()
    return str(text)


def dumped(value: Any) -> str:
    """A parsed value as JSON text; numbers as they were written."""
    if type(value) is _Number:
        return str(value)
    if type(value) is dict:
        inside = ",".join([f"{dumped(name)}:{dumped(item)}" for name, item in value.items()])
        return "{" + inside + "}"
    if type(value) is list:
        return "[" + ",".join([dumped(item) for item in value]) + "]"
    return json.dumps(value, ensure_ascii=False)


def _text(name: str, path: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Undecodable(f"{path} has a key with half of a surrogate pair") from None
    return name


def _refused(path: str, value: Any, name: str) -> Undecodable:
    shown = dumped(value).encode("utf-8", "replace").decode()
    if len(shown) > _SHOWN_MAX:
        shown = shown[:_SHOWN_MAX] + "…"
    return Undecodable(f"{path} is {shown}, which is not {name}")


def _is_too_deep(text: str) -> bool:
    depth = 0
    for found in _BRACKETS.finditer(text):
        mark = found[0]
        if mark in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif mark in "]}":
            depth -= 1
    return False
