"""Payload formats, policies for bad records, and the options of both. No Arrow."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from broker_core import errors
from pyspark_rmq.payloads.reader_options.time_patterns import TimePattern
from pyspark_rmq.payloads.reader_options.time_texts import TimePatterns, TimeTexts
from pyspark_rmq.payloads.schema_options import SchemaOptions, avro_options, protobuf_options

BINARY: Final = "binary"
STRING: Final = "string"
JSON: Final = "json"
MSGPACK: Final = "msgpack"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
CANAL: Final = "canal-json"
DEBEZIUM: Final = "debezium-json"
# Changes of tables, which only the source reads.
CHANGES: Final = (CANAL, DEBEZIUM)
WRITTEN_FORMATS: Final = (BINARY, STRING, JSON, MSGPACK, AVRO, PROTOBUF)
VALUE_FORMATS: Final = (*WRITTEN_FORMATS, *CHANGES)
# Formats with fields, which the sink encodes.
WITH_FIELDS: Final = (JSON, MSGPACK, AVRO, PROTOBUF)
# Formats with a schema of their own.
WITH_SCHEMA: Final = (AVRO, PROTOBUF)
# Formats whose maps have also numbers and booleans as keys.
WITH_OTHER_KEYS: Final = (MSGPACK, PROTOBUF)
# Formats whose fields a sample of bodies shows.
INFERRED: Final = (JSON, MSGPACK)
SAMPLE_ROWS: Final = 1_000

# Keys are texts in RocketMQ.
KEY_FORMATS: Final = (STRING, JSON)

FAIL: Final = "fail"
NULL: Final = "null"
SKIP: Final = "skip"
DEAD_LETTER: Final = "deadLetter"
BAD_RECORDS: Final = (FAIL, NULL, SKIP, DEAD_LETTER)
# Policies that return no row for a bad record.
WITHOUT_ROW: Final = (SKIP, DEAD_LETTER)

# Modes of Spark's readers -> the policy.
PERMISSIVE: Final = "PERMISSIVE"
MODES: Final = {PERMISSIVE: NULL, "DROPMALFORMED": SKIP, "FAILFAST": FAIL}
_PATTERNS: Final = ("timestampFormat", "timestampNTZFormat", "dateFormat")

UTC: Final = "UTC"

# Option -> the formats that it is for.
_SCHEMA_OPTIONS: Final = {
    "value.schema": (AVRO,),
    "value.schema.file": (AVRO, PROTOBUF),
    "value.schema.registry.framing": (AVRO, PROTOBUF),
    "value.schema.registry.id": (AVRO, PROTOBUF),
    "value.schema.registry.url": (AVRO,),
    "value.schema.registry.user": (AVRO,),
    "value.schema.registry.password": (AVRO,),
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
    infers: bool = False
    """A batch reader without a schema takes it from a sample of bodies."""
    sample_rows: int = SAMPLE_ROWS
    patterns: TimePatterns = TimePatterns()
    keeps_fields: bool = False
    """mode=PERMISSIVE: a bad JSON body keeps its good fields."""

    @property
    def is_typed(self) -> bool:
        """Whether bodies are decoded at all."""
        return self.value_format != BINARY

    @property
    def checks_columns(self) -> bool:
        """Whether the format permits only some columns."""
        return bool(self.schema.option) or self.value_format in CHANGES

    @property
    def times(self) -> TimeTexts:
        """How texts of times are read."""
        return TimeTexts(self.time_zone, self.patterns)

    @property
    def finds_schema(self) -> bool:
        """Whether a reader without `.schema(…)` takes the fields from the payload's schema."""
        is_known = self.infers or self.value_format in WITH_SCHEMA
        return is_known and self.key_format == STRING

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
        or_infer = "; spark.read also takes inferSchema=true" * (self.value_format in INFERRED)
        fields = "orderId: STRING, amount: DOUBLE"
        if self.value_format in CHANGES:
            fields = "op: STRING, after: STRUCT<id: BIGINT>, ts: TIMESTAMP"
        raise errors.InvalidArgument(
            f"valueFormat={self.value_format} needs a schema that names the fields, such as"
            f' .schema("key STRING, value STRUCT<{fields}>"){or_infer}'
        )

    def checked(self, given: frozenset[str]) -> PayloadOptions:
        """Raises `InvalidArgument` for options that do not work together."""
        for name in ("badRecords", "mode", "deadLetterTopic", "flattenValue", "timeZone"):
            has_use = self.is_typed or (self.key_format != STRING and name != "flattenValue")
            if name in given and not has_use:
                raise errors.InvalidArgument(
                    f"option {name} is for typed payloads: give valueFormat, too"
                )
        has_texts = JSON in (self.value_format, self.key_format) or self.value_format in CHANGES
        for name in _PATTERNS:
            if name in given and not has_texts:
                raise errors.InvalidArgument(
                    f"option {name} is for times that are texts in JSON: valueFormat=json,"
                    f" {' or '.join(CHANGES)}, or keyFormat=json"
                )
        if self.infers and self.value_format not in INFERRED:
            if self.value_format in WITH_SCHEMA:
                reason = f"leave it out, because the schema of {self.value_format} is known"
            elif self.value_format in CHANGES:
                reason = f"name the columns of the table for valueFormat={self.value_format}"
            else:
                reason = f"valueFormat={self.value_format} has no fields"
            raise errors.InvalidArgument(
                f"option inferSchema=true is for valueFormat={' or '.join(INFERRED)}: {reason}"
            )
        if "inferSchemaSampleRows" in given and not self.infers:
            raise errors.InvalidArgument("option inferSchemaSampleRows needs inferSchema=true")
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


def bad_records(values: Any) -> tuple[str, bool]:
    """The policy of `badRecords` or `mode`, and whether bad records keep their good fields."""
    if "mode" not in values.given:
        return values["badRecords"], False
    if "badRecords" in values.given:
        raise errors.InvalidArgument(
            "options mode and badRecords exclude each other: mode="
            f"{values['mode']} is like badRecords={MODES[values['mode']]}"
        )
    return MODES[values["mode"]], values["mode"] == PERMISSIVE


def time_pattern(name: str, text: str) -> str:
    """Checks a pattern of dates and times. Raises `InvalidConfig`."""
    TimePattern(name, text)
    return text


def written_format(name: str, text: str) -> str:
    """A format of the sink. Raises `InvalidConfig`."""
    found = text.strip().lower()
    if found in WRITTEN_FORMATS:
        return found
    accepted = " or ".join(WRITTEN_FORMATS)
    raise errors.InvalidConfig(
        name, text, accepted + f"; only sources read {found}" * (found in CHANGES)
    )


def schema_options(value_format: str, values: Any, writes: bool = False) -> SchemaOptions:
    """The schema of a format that needs one. Raises `InvalidArgument` if the format uses none."""
    for name, accepted in _SCHEMA_OPTIONS.items():
        if name in values.given and value_format not in accepted:
            raise errors.InvalidArgument(
                f"option {name} is for valueFormat={' or '.join(accepted)}, not"
                f" valueFormat={value_format}"
            )
    if value_format == AVRO:
        return avro_options(values, "value", writes)
    if value_format == PROTOBUF:
        return protobuf_options(values, "value", writes)
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
