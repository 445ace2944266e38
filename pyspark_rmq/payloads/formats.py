"""Payload formats, policies for bad records, and the options of both. No Arrow."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from broker_core import errors
from pyspark_rmq.payloads.schema_options import SchemaOptions, avro_options, protobuf_options

BINARY: Final = "binary"
STRING: Final = "string"
JSON: Final = "json"
MSGPACK: Final = "msgpack"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
VALUE_FORMATS: Final = (BINARY, STRING, JSON, MSGPACK, AVRO, PROTOBUF)
# Formats with fields, which the sink encodes.
WITH_FIELDS: Final = (JSON, MSGPACK, AVRO, PROTOBUF)

# Keys are texts in RocketMQ.
KEY_FORMATS: Final = (STRING, JSON)

FAIL: Final = "fail"
NULL: Final = "null"
SKIP: Final = "skip"
DEAD_LETTER: Final = "deadLetter"
BAD_RECORDS: Final = (FAIL, NULL, SKIP, DEAD_LETTER)
# Policies that return no row for a bad record.
WITHOUT_ROW: Final = (SKIP, DEAD_LETTER)

UTC: Final = "UTC"

# Option -> the formats that it is for.
_SCHEMA_OPTIONS: Final = {
    "value.schema": (AVRO,),
    "value.schema.file": (AVRO, PROTOBUF),
    "value.schema.registry.framing": (AVRO,),
    "value.message.name": (PROTOBUF,),
}


class PayloadOptions(NamedTuple):
    """How the source decodes bodies."""

    value_format: str = BINARY
    flattens: bool = False
    """The fields of the payload are columns of their own."""
    bad_records: str = FAIL
    time_zone: str = UTC
    """Zone of times that name none."""
    dead_letter_topic: str = ""
    schema: SchemaOptions = SchemaOptions()
    """Of formats that need one."""
    key_format: str = STRING

    @property
    def is_typed(self) -> bool:
        """Whether bodies are decoded at all."""
        return self.value_format != BINARY

    @property
    def default_kind(self) -> str:
        """Type of the column `value` of a reader without a schema."""
        if self.key_format != STRING:
            raise errors.InvalidArgument(
                f"keyFormat={self.key_format} needs a schema that names the fields of the key, such"
                ' as .schema("key STRUCT<id: STRING>, value BINARY")'
            )
        if self.value_format in (BINARY, STRING):
            return self.value_format
        raise errors.InvalidArgument(
            f"valueFormat={self.value_format} needs a schema that names the fields, such as"
            ' .schema("key STRING, value STRUCT<orderId: STRING, amount: DOUBLE>")'
        )

    def checked(self, given: frozenset[str]) -> PayloadOptions:
        """Raises `InvalidArgument` for options that have no effect together."""
        for name in ("badRecords", "deadLetterTopic", "flattenValue", "timeZone"):
            has_use = self.is_typed or (self.key_format != STRING and name != "flattenValue")
            if name in given and not has_use:
                raise errors.InvalidArgument(
                    f"option {name} is for typed payloads: give valueFormat, too"
                )
        if (self.bad_records == DEAD_LETTER) != bool(self.dead_letter_topic):
            raise errors.InvalidArgument(
                "options badRecords=deadLetter and deadLetterTopic go together: give both"
            )
        if self.flattens and self.value_format == STRING:
            raise errors.InvalidArgument(
                "option flattenValue needs fields, and a string has none: give another valueFormat"
            )
        return self


def key_format(name: str, text: str) -> str:
    """A format of keys. Raises `InvalidConfig`."""
    found = text.strip().lower()
    if found in KEY_FORMATS:
        return found
    accepted = " or ".join(KEY_FORMATS)
    if found in VALUE_FORMATS:
        accepted += ": keys of RocketMQ are texts, and cannot have the bytes of other formats"
    raise errors.InvalidConfig(name, text, accepted)


def schema_options(value_format: str, values: Any) -> SchemaOptions:
    """The schema of a format that needs one. Raises `InvalidArgument` for a schema in vain."""
    for name, accepted in _SCHEMA_OPTIONS.items():
        if name in values.given and value_format not in accepted:
            raise errors.InvalidArgument(
                f"option {name} is for valueFormat={' or '.join(accepted)}, not"
                f" valueFormat={value_format}"
            )
    if value_format == AVRO:
        return avro_options(values, "value")
    if value_format == PROTOBUF:
        return protobuf_options(values, "value")
    return SchemaOptions()


def time_zone(name: str, text: str) -> str:
    """The name of a time zone that this machine knows."""
    found = text.strip()
    try:
        ZoneInfo(found)
    except (LookupError, ValueError, OSError):
        accepted = "a time zone such as UTC or Europe/Berlin"
        raise errors.InvalidConfig(name, text, accepted) from None
    return found
