"""Messages of Canal and Debezium as rows: what was changed, before and after. No Arrow.

Both have the fields of `COMMON`, with the same meaning. A message of Canal may be several rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.bad_records import Undecodable
from pyspark_rmq.payloads.json_values import is_number

# Field -> type; empty for those whose type the user chooses.
COMMON: Final[Mapping[str, str]] = {
    "op": "STRING",
    "before": "",
    "after": "",
    "ts": "TIMESTAMP",
    "ingestTs": "TIMESTAMP",
    "database": "STRING",
    "table": "STRING",
}
INSERTED: Final = "c"
UPDATED: Final = "u"
DELETED: Final = "d"
_DDL: Final = "ddl"
_OTHER: Final = "other"
_DEBEZIUM_OPS: Final = (INSERTED, UPDATED, DELETED, "r", "t", "m")
_CANAL_OPS: Final = {"INSERT": INSERTED, "UPDATE": UPDATED, "DELETE": DELETED, "TRUNCATE": "t"}


class Millis(NamedTuple):
    """Milliseconds since 1970."""

    value: int


class Envelope(NamedTuple):
    """A format of changes."""

    fields: Mapping[str, str]
    rows: Callable[[Any], list[dict[str, Any]]]
    """The rows of a parsed body. Raises `Undecodable`."""
    has_tombstones: bool = False
    """An empty body, or null, follows the change that deleted a row, and says nothing more."""


def _debezium(body: Any) -> list[dict[str, Any]]:
    message = _object(body, "the body")
    if "schema" in message and "payload" in message:
        # With schemas.enable=true the change is inside.
        if message["payload"] is None:
            # A tombstone with its schema.
            return []
        message = _object(message["payload"], "payload")
    op = message.get("op")
    if op not in _DEBEZIUM_OPS or is_number(op):
        raise Undecodable(f"not a change of Debezium: op is {op!r:.40}")
    source = message.get("source")
    origin = {} if source is None else _object(source, "source")
    return [
        {
            "op": op,
            "before": message.get("before"),
            "after": message.get("after"),
            "ts": _millis(origin.get("ts_ms"), "source.ts_ms"),
            "ingestTs": _millis(message.get("ts_ms"), "ts_ms"),
            "database": origin.get("db"),
            "schema": origin.get("schema"),
            "table": origin.get("table"),
            "source": source,
        }
    ]


def _canal(body: Any) -> list[dict[str, Any]]:
    message = _object(body, "the body")
    kind = message.get("type")
    if type(kind) is not str or "data" not in message:
        raise Undecodable("not a change of Canal: it has no type, or no data")
    op = _CANAL_OPS.get(kind.upper(), _DDL if message.get("isDdl") is True else _OTHER)
    row = {
        "op": op,
        "before": None,
        "after": None,
        "ts": _millis(message.get("es"), "es"),
        "ingestTs": _millis(message.get("ts"), "ts"),
        "type": kind,
        **{name: message.get(name) for name in ("database", "table", "sql", "isDdl", "pkNames")},
    }
    if op not in (INSERTED, UPDATED, DELETED):
        return [row]
    data = _objects(message["data"], "data")
    old = message.get("old")
    changed = _objects(old, "old") if op == UPDATED and old is not None else [{}] * len(data)
    if len(changed) != len(data):
        raise Undecodable(f"not a change of Canal: {len(data)} rows, {len(changed)} of them before")
    if op == INSERTED:
        return [{**row, "after": one} for one in data]
    if op == DELETED:
        return [{**row, "before": one} for one in data]
    # Only the values that were changed are in `old`.
    pairs = zip(data, changed, strict=True)
    return [
        {**row, "before": {**one, **before} if old is not None else None, "after": one}
        for one, before in pairs
    ]


def _object(value: Any, name: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise Undecodable(f"not a change: {name} is no object")
    return value


def _objects(value: Any, name: str) -> list[dict[str, Any]]:
    if type(value) is not list:
        raise Undecodable(f"not a change of Canal: {name} is no array")
    return [_object(one, name) for one in value]


def _millis(value: Any, name: str) -> Millis | None:
    if value is None:
        return None
    if not is_number(value) or not value.lstrip("-").isdigit() or len(value) > 15:
        raise Undecodable(f"not a change: {name} is {value!r:.40}, not milliseconds since 1970")
    return Millis(int(value))


ENVELOPES: Final[Mapping[str, Envelope]] = {
    formats.DEBEZIUM: Envelope(
        {**COMMON, "schema": "STRING", "source": ""}, _debezium, has_tombstones=True
    ),
    formats.CANAL: Envelope(
        {**COMMON, "type": "STRING", "sql": "STRING", "isDdl": "BOOLEAN", "pkNames": ""}, _canal
    ),
}
