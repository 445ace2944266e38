"""Changes of tables to Arrow values, one for each changed row."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from broker_core import errors
from pyspark_rmq.number_arrays import number_array
from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.bad_records import BadRow, Decoded, Undecodable
from pyspark_rmq.payloads.changes.envelopes import ENVELOPES, Millis
from pyspark_rmq.payloads.json_columns import absent
from pyspark_rmq.payloads.json_values import Convert, converter, is_number, number, parse
from pyspark_rmq.payloads.reader_options.time_texts import TimeTexts
from pyspark_rmq.payloads.spark_types import TIMESTAMP, sql_name

_ROWS: Final = ("before", "after")
_BOOLEANS: Final[Mapping[Any, bool]] = {"1": True, "0": False, "true": True, "false": False}
_TOMBSTONES: Final = (b"", b"null")
_EPOCH: Final = datetime.date(1970, 1, 1)


class ChangeDecoder:
    """Decodes bodies to one STRUCT. Raises `InvalidArgument` for fields that changes lack."""

    def __init__(
        self, kind: Any, value_format: str, times: TimeTexts, keeps_fields: bool = False
    ) -> None:
        self._kind = kind
        self._envelope = ENVELOPES[value_format]
        _check(kind, value_format)
        self._problems: list[str] | None = [] if keeps_fields else None
        self._fields = [
            (field.name, _field(field, value_format, times, self._problems)) for field in kind
        ]

    def decode(self, bodies: Any) -> Decoded:
        """The changes of each body; a body with a bad row is one bad row."""
        values: list[Any] = []
        bad: list[BadRow] = []
        places: list[int] = []
        for place, body in enumerate(bodies.to_pylist()):
            first = len(values)
            if self._envelope.has_tombstones and body.strip() in _TOMBSTONES:
                continue
            try:
                rows = self._envelope.rows(parse(body))
                values += [{name: of(row.get(name)) for name, of in self._fields} for row in rows]
                places += [place] * len(rows)
            except Undecodable as problem:
                values.append(absent(self._kind) if self._problems is not None else None)
                places.append(place)
                bad.append(BadRow(first, str(problem)))
            if self._problems:
                reason = self._problems[0]
                self._problems.clear()
                bad += [BadRow(row, reason) for row in range(first, len(values))]
        return Decoded(pa.array(values, self._kind), bad, number_array(np.array(places, np.int64)))


def _check(kind: Any, value_format: str) -> None:
    known = ENVELOPES[value_format].fields
    if not pa.types.is_struct(kind):
        raise errors.InvalidArgument(
            f"valueFormat={value_format} gives a STRUCT with the fields {', '.join(known)}, not"
            f" {sql_name(kind)}"
        )
    for field in kind:
        if field.name not in known:
            raise errors.InvalidArgument(
                f"valueFormat={value_format} has no field {field.name}. It has:"
                f" {', '.join(known)}; columns of the table are fields of before and after"
            )
        wanted = known[field.name]
        if wanted and sql_name(field.type) != wanted:
            raise errors.InvalidArgument(
                f"field {field.name} of valueFormat={value_format} is {wanted}, not"
                f" {sql_name(field.type)}"
            )


def _field(field: Any, value_format: str, times: TimeTexts, problems: list[str] | None) -> Convert:
    if field.type == TIMESTAMP:
        return _micros
    convert = converter(field.type, times, f"value.{field.name}", problems)
    if field.name in _ROWS:
        adapt = _FORMS[value_format](field.type, f"value.{field.name}")
        return lambda value: convert(adapt(value))
    if problems is None:
        return convert

    def kept(value: Any) -> Any:
        try:
            return convert(value)
        except Undecodable as problem:
            problems.append(str(problem))
            return None

    return kept


def _micros(value: Millis | None) -> int | None:
    return None if value is None else value.value * 1_000


def _texts(kind: Any, path: str) -> Convert:
    """Canal writes every value as a text, numbers too."""
    if not pa.types.is_struct(kind):
        return lambda value: value
    forms = {field.name: _of_text(field.type) for field in kind}

    def adapt(row: Any) -> Any:
        if row is None:
            return None
        return {
            name: forms[name](value) if type(value) is str and name in forms else value
            for name, value in row.items()
        }

    return adapt


def _of_text(kind: Any) -> Callable[[str], Any]:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return number
    if pa.types.is_boolean(kind):
        return lambda text: _BOOLEANS.get(text.lower(), text)
    if pa.types.is_binary(kind):
        return _of_latin
    return lambda text: text


def _of_latin(text: str) -> str:
    """Bytes of a BLOB are characters."""
    try:
        return base64.b64encode(text.encode("latin-1")).decode()
    except UnicodeEncodeError:
        return text


def _numbers(kind: Any, path: str) -> Convert:
    """Debezium writes dates as days; its times have several units, which a body does not name."""
    if pa.types.is_list(kind):
        inner = _numbers(kind.value_type, f"{path}[]")
        return lambda value: [inner(one) for one in value] if type(value) is list else value
    if pa.types.is_struct(kind):
        forms = {field.name: _numbers(field.type, f"{path}.{field.name}") for field in kind}

        def adapt(row: Any) -> Any:
            if type(row) is not dict:
                return row
            return {
                name: forms[name](value) if name in forms else value for name, value in row.items()
            }

        return adapt
    if pa.types.is_date(kind):
        return _date_text
    if pa.types.is_timestamp(kind):
        return lambda value: _refuse_number(value, path)
    return lambda value: value


def _date_text(value: Any) -> Any:
    if not is_number(value):
        return value
    try:
        return (_EPOCH + datetime.timedelta(days=int(value))).isoformat()
    except (ValueError, OverflowError):
        return value


def _refuse_number(value: Any, path: str) -> Any:
    if is_number(value):
        raise Undecodable(
            f"{path} is {value:.40}, a number, and bodies of Debezium do not name its unit: read"
            " it as BIGINT and convert it, or let Debezium write texts"
        )
    return value


_FORMS: Final[Mapping[str, Callable[[Any, str], Convert]]] = {
    formats.CANAL: _texts,
    formats.DEBEZIUM: _numbers,
}
