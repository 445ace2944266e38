"""Columns that a writer accepts, and their positions in a DataFrame. No Spark, no Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker_core import errors
from pyspark_rmq.columns import HEADERS
from pyspark_rmq.payloads import formats
from pyspark_rmq.sink.sink_options import AT_LEAST_ONCE, COLUMN, HASH, ROUND_ROBIN, SinkOptions

# Name -> Spark's simple names of the types that it may have
WRITABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "value": ("binary", "string"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "partition": ("int",),
    "broker": ("string",),
    "shardingKey": ("string",),
    "delayLevel": ("int",),
    "deliverAt": ("timestamp", "bigint"),
    "flag": ("int",),
}
# With columnNames=kafka.
_KAFKA_COLUMNS: Final = {HEADERS.name: (HEADERS.kind,)}


# Number of a column, or of a column and of a field in it.
Place = int | tuple[int, int]


class SinkColumns(NamedTuple):
    """Position of each column in a row; None if it is missing."""

    value: int | None
    """None when several columns, or the whole row, become the body."""
    key: Place | None = None
    topic: int | None = None
    tags: Place | None = None
    properties: int | None = None
    partition: int | None = None
    broker: int | None = None
    sharding_key: Place | None = None
    delay_level: int | None = None
    flag: int | None = None
    deliver_at: int | None = None
    selector: str = ROUND_ROBIN
    payload: tuple[int, ...] | None = None
    """Columns to encode as one object; None without valueFormat, () if `value` is encoded."""
    property_columns: tuple[tuple[str, Place], ...] = ()
    headers: int | None = None
    hashes_keys: bool = False
    """Rows that name no queue go to the queue of their key, as with Kafka's producer."""


_NESTED: Final = ("struct<", "map<", "array<")


def writable(options: SinkOptions) -> dict[str, tuple[str, ...]]:
    """Columns of a message -> Spark's simple names of the types that they may have."""
    return {**WRITABLE, **(_KAFKA_COLUMNS if options.takes_kafka_columns else {})}


def message_names(options: SinkOptions) -> dict[str, str]:
    """Names of the message's columns, by their names in lower case."""
    return {name.lower(): name for name in writable(options)}


def find_columns(fields: Iterable[tuple[str, str]], options: SinkOptions) -> SinkColumns:
    """The columns of a schema given as (name, simple type).

    Raises `InvalidArgument` for columns that cannot be written, types that do not fit, and options
    that ask for a column that is not there.
    """
    schema = list(fields)
    if options.packs_json:
        return _packed(schema, options)
    names = message_names(options)
    unknown = [name for name, _ in schema if name.lower() not in names]
    if unknown and not options.takes_kafka_columns:
        raise errors.InvalidArgument(
            f"columns that cannot be written: {', '.join(unknown)}. There are:"
            f" {', '.join(WRITABLE)}; select those, or give valueFormat=json to write the others as"
            " fields of one object"
        )
    # Kafka's sink ignores other columns, such as those that its source has besides.
    known = [
        (index, name, kind) for index, (name, kind) in enumerate(schema) if name.lower() in names
    ]
    at = placed(known, options)
    if "value" not in at:
        raise errors.InvalidArgument("there is no column value: it becomes the body of a message")
    return assembled(at, options)


def placed(fields: Iterable[tuple[int, str, str]], options: SinkOptions) -> dict[str, Place]:
    """Place of each of these columns, given as (index, name, simple type). Checks types."""
    at: dict[str, Place] = {}
    names, kinds = message_names(options), writable(options)
    for index, given, kind in fields:
        name = names[given.lower()]
        if name in at:
            raise errors.InvalidArgument(f"duplicate column {name}")
        is_typed_key = name == "key" and options.key_format == formats.JSON
        if is_typed_key and kind.startswith(_NESTED):
            at[name] = index
            continue
        if kind not in kinds[name]:
            raise errors.InvalidArgument(
                errors.explained(
                    f"column {given} is {kind:.80}, and must be {' or '.join(kinds[name])}:"
                    f" {_conversion(given, kind, kinds[name])}",
                    "column-types",
                )
            )
        at[name] = index
    if {"delayLevel", "deliverAt"} <= at.keys():
        raise errors.InvalidArgument("columns delayLevel and deliverAt exclude each other")
    return at


def assembled(at: Mapping[str, Any], options: SinkOptions) -> SinkColumns:
    """The columns at these places."""
    if not options.topic and "topic" not in at:
        raise errors.InvalidArgument("no topic: give the option topic or a column topic")
    return SinkColumns(
        at.get("value"),
        at.get("key"),
        # The option has priority over the column.
        None if options.topic else at["topic"],
        at.get("tags"),
        at.get("properties"),
        at.get("partition"),
        at.get("broker"),
        at.get("shardingKey"),
        at.get("delayLevel"),
        at.get("flag"),
        at.get("deliverAt"),
        _selector(at, options),
        headers=at.get(HEADERS.name),
        hashes_keys=options.takes_kafka_columns,
    )


def _conversion(name: str, kind: str, accepted: tuple[str, ...]) -> str:
    """The expression that makes the column fit."""
    if kind.startswith(("struct", "array", "map")) and "string" in accepted:
        text = f'write it as JSON with .withColumn("{name}", to_json("{name}"))'
        return f"{text}, or whole rows with the option format=json" if name == "value" else text
    if accepted[0].startswith("map"):
        return f'make a map with .withColumn("{name}", create_map(…))'
    target = "string" if "string" in accepted else accepted[0]
    return f'cast it with .withColumn("{name}", col("{name}").cast("{target}"))'


def _packed(schema: list[tuple[str, str]], options: SinkOptions) -> SinkColumns:
    if not options.topic:
        raise errors.InvalidArgument("format=json needs the option topic")
    if options.queue_selector not in ("", ROUND_ROBIN):
        raise errors.InvalidArgument(
            "format=json puts every column into the body, so that none is left to choose a queue"
            " by: only queueSelector=roundRobin goes with it"
        )
    if not schema:
        raise errors.InvalidArgument("there is no column to write")
    return SinkColumns(None)


def _selector(at: Mapping[str, Any], options: SinkOptions) -> str:
    suggested = COLUMN if {"partition", "broker"} & at.keys() else ""
    suggested = suggested or (HASH if "shardingKey" in at else ROUND_ROBIN)
    by_key = options.takes_kafka_columns and "key" in at and suggested == ROUND_ROBIN
    asked = options.queue_selector or (HASH if by_key else suggested)
    if asked == COLUMN and suggested != COLUMN:
        raise errors.InvalidArgument("queueSelector=column needs a column partition or broker")
    if asked == HASH and not {"shardingKey", "key"} & at.keys():
        raise errors.InvalidArgument("queueSelector=hash needs a column shardingKey or key")
    if asked != suggested and not (asked == HASH and suggested == ROUND_ROBIN):
        raise errors.InvalidArgument(
            f"queueSelector={asked} would ignore a column that selects the queue of a row"
            " (partition, broker or shardingKey): leave one of them out"
        )
    return asked


def allowed_guarantee(columns: SinkColumns, guarantee: str) -> str:
    """The guarantee that rows with these columns allow; `auto` stays `auto` if any is possible.

    Raises `InvalidArgument` if they exclude the requested guarantee.
    """
    if (columns.delay_level is None and columns.deliver_at is None) or guarantee == AT_LEAST_ONCE:
        return guarantee
    if guarantee == "auto":
        return AT_LEAST_ONCE
    raise errors.InvalidArgument(
        "columns delayLevel and deliverAt cannot be written with deliveryGuarantee=exactly_once: a"
        " delayed message is stored elsewhere first and cannot become visible with its batch."
        " Leave the column out, or give deliveryGuarantee=at_least_once"
    )
