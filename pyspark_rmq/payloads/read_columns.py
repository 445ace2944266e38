"""Columns of a reader's schema: those of the message and those of its payload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from broker_core import errors
from pyspark_rmq.columns import ChosenColumn, choose_columns, column_of, plain_name
from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.formats import PayloadOptions
from pyspark_rmq.payloads.spark_types import arrow_type, has_other_keys, has_variant

# Roles of payload columns.
VALUE: Final = "value"
KEY: Final = "key"
MESSAGE_ID: Final = "offsetMsgId"
FIELD: Final = "field"
BAD_VALUE: Final = "badValue"
BAD_REASON: Final = "badReason"

_BAD_COLUMNS: Final = {
    BAD_VALUE.lower(): (BAD_VALUE, "binary", pa.binary()),
    BAD_REASON.lower(): (BAD_REASON, "string", pa.string()),
}


class SchemaField(NamedTuple):
    """A field of the user's schema."""

    name: str
    simple_type: str
    nullable: bool
    json_type: Any
    """Spark's `DataType.jsonValue()`"""


class PayloadColumn(NamedTuple):
    """A column that is decoded from the body."""

    output_name: str
    role: str
    arrow_type: Any


ReadColumn = ChosenColumn | PayloadColumn


def choose_read_columns(
    fields: Sequence[SchemaField], options: PayloadOptions, naming: str
) -> tuple[ReadColumn, ...]:
    """The columns of a schema. Raises `InvalidArgument` for columns that cannot be read."""
    chosen: dict[int, ReadColumn] = {}
    if options.is_typed or options.key_format != formats.STRING:
        for place, field in enumerate(fields):
            column = _payload_column(field, options, naming)
            if column is not None:
                chosen[place] = column
    rest = [place for place in range(len(fields)) if place not in chosen]
    if options.is_typed and not options.flattens:
        _refuse_fields((fields[place].name for place in rest), options, naming)
    if rest or not chosen:
        messages = choose_columns(
            ((fields[p].name, fields[p].simple_type, fields[p].nullable) for p in rest), naming
        )
        chosen.update(zip(rest, messages, strict=True))
    _refuse_twice(column.output_name for column in chosen.values())
    return tuple(chosen[place] for place in range(len(fields)))


def _refuse_fields(names: Iterable[str], options: PayloadOptions, naming: str) -> None:
    """Columns for the fields of a body need an option."""
    for name in names:
        if plain_name(name, naming) is None:
            raise errors.InvalidArgument(
                f"no column {name!r:.80}: the fields of valueFormat={options.value_format} are in"
                f" the column value, such as value STRUCT<{name:.80}: STRING>, or are columns of"
                " their own with flattenValue=true"
            )


def _payload_column(
    field: SchemaField, options: PayloadOptions, naming: str
) -> PayloadColumn | None:
    name = plain_name(field.name, naming)
    if field.name.lower() in _BAD_COLUMNS:
        return _bad_column(field, options)
    if name == KEY and options.key_format == formats.JSON:
        # The text itself can be read instead of its fields.
        is_nested = not isinstance(field.json_type, str)
        kind = arrow_type(field.json_type, field.name) if is_nested else None
        column = PayloadColumn(field.name, KEY, kind) if is_nested else None
    elif name == VALUE and options.is_typed:
        # The body itself can be read beside the fields, and instead of them.
        column = None if field.simple_type == "binary" else _value_column(field, options)
    elif name is None and options.flattens:
        column = PayloadColumn(field.name, FIELD, arrow_type(field.json_type, field.name))
    else:
        column = None
    if column is not None:
        body_format = options.value_format if column.role != KEY else formats.JSON
        if has_variant(column.arrow_type):
            refuse_variant(field.name, body_format)
        refuse_keys(field.name, column.arrow_type, body_format)
    if column is not None and not field.nullable:
        raise errors.InvalidArgument(f"column {field.name} may be null: leave NOT NULL out")
    return column


def refuse_variant(name: str, value_format: str) -> None:
    """Raises `InvalidArgument` for a VARIANT of a format that is not JSON."""
    if value_format != formats.JSON and value_format not in formats.CHANGES:
        raise errors.InvalidArgument(
            f"column {name} has a VARIANT, which valueFormat={value_format} does not have: give"
            " valueFormat=json, or a text and parse_json of it"
        )


def refuse_keys(name: str, kind: Any, value_format: str) -> None:
    """Raises `InvalidArgument` for keys of a MAP that the format does not have."""
    if value_format not in formats.WITH_OTHER_KEYS and has_other_keys(kind):
        raise errors.InvalidArgument(
            f"column {name} has a MAP whose keys are not STRING, which {value_format} does not"
            f" have: give MAP<STRING, …>, or valueFormat={' or '.join(formats.WITH_OTHER_KEYS)}"
        )


def _value_column(field: SchemaField, options: PayloadOptions) -> PayloadColumn:
    if options.flattens:
        raise errors.InvalidArgument(
            f"column {field.name} is the body with flattenValue=true, so it is binary, not"
            f" {field.simple_type}: name the fields of the payload as columns"
        )
    if options.value_format == formats.STRING:
        if field.simple_type != "string":
            raise errors.InvalidArgument(
                f"column {field.name} is string with valueFormat=string, not {field.simple_type}"
            )
        return PayloadColumn(field.name, VALUE, pa.string())
    if isinstance(field.json_type, str) and field.json_type != "variant":
        raise errors.InvalidArgument(
            f"column {field.name} is a STRUCT, MAP or ARRAY with"
            f" valueFormat={options.value_format}, not {field.simple_type}: name its fields in the"
            f' schema, as in .schema("{field.name} STRUCT<orderId: STRING, amount: DOUBLE>")'
        )
    return PayloadColumn(field.name, VALUE, arrow_type(field.json_type, field.name))


def _bad_column(field: SchemaField, options: PayloadOptions) -> PayloadColumn:
    role, simple_type, kind = _BAD_COLUMNS[field.name.lower()]
    if options.bad_records != formats.NULL:
        raise errors.InvalidArgument(
            f"column {field.name} needs badRecords=null: badRecords={options.bad_records} returns"
            " no row for a bad record"
        )
    if field.simple_type != simple_type:
        raise errors.InvalidArgument(
            f"column {field.name} is {simple_type}, not {field.simple_type}"
        )
    return PayloadColumn(field.name, role, kind)


def _refuse_twice(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise errors.InvalidArgument(f"the schema names column {name} twice")
        seen.add(name)


def message_columns(
    columns: Sequence[ReadColumn], naming: str, with_body: bool = True, with_id: bool = False
) -> tuple[ChosenColumn, ...]:
    """The columns to read from messages: the chosen ones, body, offset and a typed key.

    `with_id`: also the broker's id of each message.
    """
    found = [column for column in columns if isinstance(column, ChosenColumn)]
    if not with_body:
        return tuple(found)
    names = {column.name for column in found}
    roles = {column.role for column in columns if isinstance(column, PayloadColumn)}
    wanted = ["value", "offset"]
    if KEY in roles:
        wanted.append(KEY)
    if with_id:
        wanted.append(MESSAGE_ID)
    needed = [column_of(name, naming) for name in wanted if name not in names]
    return (*found, *needed)
