"""Python values of self-describing formats to what Arrow takes for a type.

Stricter than JSON: texts are texts, bytes are bytes. Dates, times and decimals, which some formats
lack, may also be texts, by the rules of `times.py`.
"""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any, Final

import pyarrow as pa

from pyspark_rmq.payloads.bad_records import Undecodable
from pyspark_rmq.payloads.json_values import Convert, decimals
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ, sql_name
from pyspark_rmq.payloads.times import date_days, timestamp_micros

_SHOWN_MAX: Final = 40
_SECOND: Final = 1_000_000
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_I64: Final = range(-(1 << 63), 1 << 63)


def object_converter(kind: Any, time_zone: str, path: str = "value") -> Convert:
    """A function that converts a value, or raises `Undecodable` with the reason."""
    if pa.types.is_struct(kind):
        convert = _structs(kind, time_zone, path)
    elif pa.types.is_map(kind):
        of_item = object_converter(kind.item_type, time_zone, f"{path}[]")
        convert = _maps(_scalars(kind.key_type, time_zone), of_item)
    elif pa.types.is_list(kind):
        convert = _lists(object_converter(kind.value_type, time_zone, f"{path}[]"))
    else:
        convert = _scalars(kind, time_zone)

    def nullable(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except Undecodable:
            raise
        except (ValueError, OverflowError, ArithmeticError):
            raise _refused(path, value, sql_name(kind)) from None

    return nullable


def _structs(kind: Any, time_zone: str, path: str) -> Convert:
    fields = [
        (field.name, object_converter(field.type, time_zone, f"{path}.{field.name}"))
        for field in kind
    ]

    def convert(value: Any) -> Any:
        found = _of(dict, value)
        return {name: of_field(found.get(name)) for name, of_field in fields}

    return convert


def _maps(of_key: Convert, of_item: Convert) -> Convert:
    return lambda value: [(of_key(k), of_item(v)) for k, v in _of(dict, value).items()]


def _lists(of_item: Convert) -> Convert:
    return lambda value: [of_item(item) for item in _of(list, value)]


def _scalars(kind: Any, time_zone: str) -> Convert:
    if pa.types.is_boolean(kind):
        return lambda value: _of(bool, value)
    if pa.types.is_integer(kind):
        return _integers(range(-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1))
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_decimal(kind):
        return _decimals(decimals(kind.precision, kind.scale))
    if pa.types.is_binary(kind):
        return lambda value: _of(bytes, value)
    if pa.types.is_date(kind):
        return _date
    if kind == TIMESTAMP:
        return lambda value: _timestamp(value, time_zone)
    if kind == TIMESTAMP_NTZ:
        return _local_time
    return lambda value: _of(str, value)


def _of(kind: type, value: Any) -> Any:
    # Not isinstance: True is an int.
    if type(value) is not kind:
        raise ValueError
    return value


def _integers(accepted: range) -> Convert:
    def convert(value: Any) -> int:
        if type(value) is not int or value not in accepted:
            raise ValueError
        return value

    return convert


def _float(value: Any) -> float:
    if type(value) is int:
        return float(value)
    found: float = _of(float, value)
    return found


def _decimals(of_text: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is float and math.isfinite(value):
            return of_text(repr(value))
        if type(value) is int or isinstance(value, decimal.Decimal):
            return of_text(str(value))
        return of_text(_of(str, value))

    return convert


def _date(value: Any) -> int:
    if type(value) is datetime.date:
        return (value - _EPOCH.date()).days
    return date_days(_of(str, value))


def _timestamp(value: Any, time_zone: str) -> int:
    if type(value) is str:
        return timestamp_micros(value, time_zone)
    if type(value) is datetime.datetime and value.tzinfo is not None:
        moment = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return (moment - _EPOCH) // _MICROSECOND
    if hasattr(value, "nanoseconds"):
        # A timestamp of msgpack, whose years may be outside of Python's.
        return _in_range(value.seconds * _SECOND + value.nanoseconds // 1_000)
    return _in_range(_of(int, value) * _SECOND)


def _local_time(value: Any) -> int:
    if type(value) is datetime.datetime and value.tzinfo is None:
        return (value - _EPOCH) // _MICROSECOND
    return timestamp_micros(_of(str, value), None)


def _in_range(micros: int) -> int:
    if micros not in _I64:
        raise ValueError
    return micros


def _refused(path: str, value: Any, name: str) -> Undecodable:
    shown = repr(value)
    if len(shown) > _SHOWN_MAX:
        shown = shown[:_SHOWN_MAX] + "…"
    return Undecodable(f"{path} is {shown}, which is not {name}")
