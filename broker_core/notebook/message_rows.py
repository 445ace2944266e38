"""Texts, bytes, dictionaries and frames as messages to send. Pure; imports no frame library."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.errors import InvalidArgument

VALUE: Final = "value"
# Columns that are not part of a body -> field of the message.
_FIELDS: Final[Mapping[str, str]] = {
    "key": "keys",
    "keys": "keys",
    "tags": "tags",
    "properties": "properties",
    "sharding_key": "sharding_key",
    "delay_level": "delay_level",
    "delay_ms": "delay_ms",
    "deliver_at_ms": "deliver_at_ms",
}
_COLUMNS: Final = frozenset({VALUE, *_FIELDS})
_NUMBERS: Final = frozenset({"delay_level", "delay_ms", "deliver_at_ms"})
_ACCEPTED: Final = "a list of texts, bytes or dictionaries, or a pandas, Arrow or polars frame"


class SharedFields(NamedTuple):
    """Fields of all messages of a call; fields of a row take precedence."""

    topic: str
    tags: str = ""
    keys: str = ""
    properties: Mapping[str, str] = {}
    delay_level: int = 0
    delay_ms: int | None = None


def outgoing_messages(messages: object, shared: SharedFields) -> Iterator[OutgoingMessage]:
    """The messages of an argument of `produce`. Raises `InvalidArgument`, also during the
    iteration.
    """
    _refuse_single(messages)
    rows = _frame_rows(messages)
    if rows is not None:
        return (_of_row(number, row, shared) for number, row in enumerate(rows))
    if not isinstance(messages, Iterable):
        given = "None" if messages is None else _kind(messages)
        raise InvalidArgument(f"{given} is not {_ACCEPTED}")
    return (_of_item(number, item, shared) for number, item in enumerate(messages))


def _refuse_single(messages: object) -> None:
    if isinstance(messages, str | bytes | bytearray | memoryview | Mapping | OutgoingMessage):
        raise InvalidArgument(
            f"produce takes several messages, and {messages!r:.60} is one: put it into a list"
        )
    if type(messages).__module__.startswith("pyspark."):
        raise InvalidArgument(
            'a Spark DataFrame is sent by Spark: df.write.format("rmq").options(**broker.options)'
            '.mode("append").save(topic)'
        )


def _frame_rows(messages: Any) -> list[dict[str, Any]] | None:
    """The rows of a frame; None for anything else."""
    package = type(messages).__module__.partition(".")[0]
    if package == "pandas" and hasattr(messages, "columns"):
        _refuse_repeated(list(messages.columns))
        found: list[dict[str, Any]] = messages.to_dict("records")
    elif package == "polars" and hasattr(messages, "to_dicts"):
        found = messages.to_dicts()
    elif package == "polars" and hasattr(messages, "collect_schema"):
        found = messages.collect().to_dicts()
    elif package == "pyarrow" and hasattr(messages, "schema"):
        _refuse_repeated(messages.schema.names)
        # A reader of record batches is read to its end.
        table = messages.read_all() if hasattr(messages, "read_all") else messages
        found = table.to_pylist()
    else:
        return None
    return [{str(name): value for name, value in row.items()} for row in found]


def _refuse_repeated(columns: list[Any]) -> None:
    """One of two columns with the same name would be lost."""
    fields = [_FIELDS.get(name, name) for name in columns if isinstance(name, str)]
    names = [*fields, *(str(name) for name in columns if not isinstance(name, str))]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"there are two columns {name!r:.80}: rename or drop one")


def _of_item(number: int, item: Any, shared: SharedFields) -> OutgoingMessage:
    if isinstance(item, OutgoingMessage):
        return item._replace(topic=shared.topic)
    if hasattr(item, "as_py"):
        item = item.as_py()
    if isinstance(item, Mapping) and VALUE in item and item.keys() <= _COLUMNS:
        return _of_row(number, item, shared)
    return _message(number, _body(number, item), {}, shared)


def _of_row(number: int, row: Mapping[str, Any], shared: SharedFields) -> OutgoingMessage:
    if VALUE in row:
        unknown = sorted(row.keys() - _COLUMNS)
        if unknown:
            raise InvalidArgument(
                f"column {unknown[0]!r:.80} is none of {', '.join(sorted(_COLUMNS))}: drop or"
                f" rename it; without a column {VALUE} each row becomes JSON"
            )
        body = _body(number, row[VALUE])
    else:
        left = {name: value for name, value in row.items() if name not in _FIELDS}
        body = _json(number, {name: None if _is_missing(v) else v for name, v in left.items()})
    fields = {_FIELDS[n]: v for n, v in row.items() if n in _FIELDS and not _is_missing(v)}
    return _message(number, body, fields, shared)


def _message(
    number: int, body: bytes, fields: Mapping[str, Any], shared: SharedFields
) -> OutgoingMessage:
    own = {name: _field(number, name, value) for name, value in fields.items()}
    has_time = not own.keys().isdisjoint(_NUMBERS)
    return OutgoingMessage(
        shared.topic,
        body,
        own.get("tags", shared.tags),
        own.get("keys", shared.keys),
        {**shared.properties, **own.get("properties", {})},
        own.get("delay_level", 0 if has_time else shared.delay_level),
        sharding_key=own.get("sharding_key"),
        deliver_at_ms=own.get("deliver_at_ms"),
        delay_ms=own.get("delay_ms", None if has_time else shared.delay_ms),
    )


def _field(number: int, name: str, value: Any) -> Any:
    if name in _NUMBERS:
        found = _whole_number(value)
        if found is None:
            raise InvalidArgument(f"message {number}: {name}={value!r:.60} is no whole number")
        return found
    if name == "properties":
        # Maps of Arrow are lists of pairs.
        pairs = value.items() if isinstance(value, Mapping) else value
        try:
            return {str(key): str(text) for key, text in pairs if not _is_missing(text)}
        except (TypeError, ValueError):
            raise InvalidArgument(
                f"message {number}: properties={value!r:.60} is no dictionary"
            ) from None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _whole_number(value: Any) -> int | None:
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if isinstance(value, str) or found == value else None


def _body(number: int, value: Any) -> bytes:
    if isinstance(value, str):
        return _encoded(number, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping | list):
        return _json(number, value)
    if _is_missing(value):
        raise InvalidArgument(f"message {number} is {value}: leave it out, or send an empty text")
    is_number = isinstance(value, int | float) or hasattr(value, "dtype")
    hint = "; send its text with str(…)" if is_number else ""
    raise InvalidArgument(
        f"message {number} is {_kind(value)}, not a text, bytes or a dictionary (JSON){hint}"
    )


def _json(number: int, value: Any) -> bytes:
    try:
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), default=_json_value, allow_nan=False
        )
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
        if reason.startswith("Out of range float"):
            reason = "JSON has no NaN and no Infinity; write None, or a text"
        raise InvalidArgument(f"message {number} cannot be written as JSON: {reason}") from None
    return _encoded(number, text)


def _encoded(number: int, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        found = text[error.start : error.start + 1]
        raise InvalidArgument(
            f"message {number} cannot be written as UTF-8: {found!r} is half of a surrogate pair"
        ) from None


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    # NumPy's numbers and arrays.
    for name in ("item", "tolist"):
        if type(value).__module__ == "numpy" and hasattr(value, name) and value.ndim == 0:
            return getattr(value, name)()
    if type(value).__module__ == "numpy":
        return value.tolist()
    raise TypeError(f"{_kind(value)} has no JSON form")


def _is_missing(value: Any) -> bool:
    """Whether it is None, or the NaN or NaT that frames have instead."""
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
