"""Columns of the source: names, types, order, and the selection of a user's schema. No Spark.

A user's schema selects columns by name, in any order; other columns are not decoded. Arrow types
are in `source/rows/message_batches.py`; a test compares them with Spark's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker_core import errors

PLAIN: Final = "default"
ROCKETMQ_SPARK: Final = "rocketmq-spark"
KAFKA: Final = "kafka"
NAMINGS: Final = (PLAIN, ROCKETMQ_SPARK, KAFKA)


class Column(NamedTuple):
    """One column of a row, under its default name."""

    name: str
    kind: str
    """Spark's simple name of the type."""
    nullable: bool = False
    """Messages may lack it."""


class ChosenColumn(NamedTuple):
    """A column to read."""

    output_name: str
    name: str
    nullable: bool = True


COLUMNS: Final = (
    Column("key", "string", nullable=True),
    Column("value", "binary"),
    Column("topic", "string"),
    Column("tags", "string", nullable=True),
    Column("broker", "string"),
    Column("partition", "int"),
    Column("offset", "bigint"),
    Column("timestamp", "timestamp"),
    Column("bornTimestamp", "timestamp"),
    Column("msgId", "string"),
    Column("reconsumeTimes", "int"),
)
PROPERTIES: Final = Column("properties", "map<string,string>")
# Only read if a schema names them.
EXTRA_COLUMNS: Final = (
    PROPERTIES,
    Column("flag", "int"),
    Column("offsetMsgId", "string"),
)
_OLD_NAMES: Final = {
    "value": "body",
    "broker": "brokerName",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
}
_BY_NAME: Final = {column.name: column for column in (*COLUMNS, *EXTRA_COLUMNS)}
# Columns of Spark's Kafka source that differ from ours.
HEADERS: Final = Column("headers", "array<struct<key:string,value:binary>>", nullable=True)
_KAFKA_KEY: Final = Column("keyBytes", "binary", nullable=True)
_TIMESTAMP_TYPE: Final = Column("timestampType", "int")
_KAFKA_COLUMNS: Final = (
    _KAFKA_KEY,
    *(_BY_NAME[name] for name in ("value", "topic", "partition", "offset", "timestamp")),
    _TIMESTAMP_TYPE,
)
_KAFKA_BY_NAME: Final = {
    **{name: column for name, column in _BY_NAME.items() if name != "key"},
    **{column.name: column for column in (_KAFKA_KEY, _TIMESTAMP_TYPE, HEADERS)},
}


def default_schema(
    naming: str = PLAIN,
    include_properties: bool = False,
    value_kind: str = "binary",
    fields: Sequence[str] = (),
) -> str:
    """The DDL text of a reader without a user's schema; with `fields` of a payload instead of it.

    Each field is DDL text, too.
    """
    columns = _KAFKA_COLUMNS if naming == KAFKA else COLUMNS
    if include_properties:
        columns = (*columns, HEADERS if naming == KAFKA else PROPERTIES)
    kinds = {"value": value_kind}
    kept = [column for column in columns if not fields or column.name != "value"]
    shown = (f"{_output_name(c.name, naming)} {kinds.get(c.name, c.kind)}" for c in kept)
    return ", ".join((*shown, *fields))


def choose_columns(
    fields: Iterable[tuple[str, str, bool]], naming: str = PLAIN
) -> tuple[ChosenColumn, ...]:
    """The columns of a schema given as (name, simple type, nullable).

    Raises `InvalidArgument` for an unknown name, another type, or a column that is declared not
    nullable and may be null.
    """
    known = _known(naming)
    by_output = {_output_name(name, naming).lower(): name for name in known}
    chosen = []
    for output_name, kind, nullable in fields:
        name = by_output.get(output_name.lower())
        if name is None:
            raise errors.InvalidArgument(_unknown(output_name, by_output.values(), naming))
        column = known[name]
        if kind != column.kind:
            raise errors.InvalidArgument(
                errors.explained(
                    f"column {output_name} is {column.kind}, not {kind:.80}: write"
                    f" {output_name} {column.kind} in the schema and cast it after .load(), for"
                    f' example with col("{output_name}").cast("{kind:.80}")',
                    "column-types",
                )
            )
        if not nullable and column.nullable:
            raise errors.InvalidArgument(
                f"column {output_name} may be null: not every message has one"
            )
        chosen.append(ChosenColumn(output_name, name, nullable))
    if not chosen:
        raise errors.InvalidArgument("the schema has no column")
    if len({column.name for column in chosen}) != len(chosen):
        raise errors.InvalidArgument("the schema names a column twice")
    return tuple(chosen)


def plain_name(output_name: str, naming: str = PLAIN) -> str | None:
    """The default name of a column that is called `output_name` under this naming."""
    by_output = {_output_name(name, naming).lower(): name for name in _known(naming)}
    name = by_output.get(output_name.lower())
    return "key" if name == _KAFKA_KEY.name else name


def column_of(name: str, naming: str = PLAIN) -> ChosenColumn:
    """A column by its default name."""
    return ChosenColumn(_output_name(name, naming), name, True)


def _known(naming: str) -> Mapping[str, Column]:
    return _KAFKA_BY_NAME if naming == KAFKA else _BY_NAME


def _output_name(name: str, naming: str) -> str:
    if name == _KAFKA_KEY.name:
        return "key"
    return _OLD_NAMES.get(name, name) if naming == ROCKETMQ_SPARK else name


def _unknown(asked: str, names: Iterable[str], naming: str) -> str:
    known: Sequence[str] = [_output_name(name, naming) for name in names]
    near = difflib.get_close_matches(asked.lower(), [n.lower() for n in known], 1, 0.5)
    hint = next((f"; did you mean {n}?" for n in known if near and n.lower() == near[0]), "")
    return f"no column {asked!r:.80}{hint or '.'} There are: {', '.join(known)}"
