"""Parses the options of a writer into one frozen `SinkOptions`.

As strict as the source: unknown options and invalid values fail on the driver.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker_core import errors
from pyspark_rmq import columns, option_values
from pyspark_rmq.options import (
    CONNECTION,
    REGISTRY,
    SHORT_CIRCUITS,
    ConnectionOptions,
    Known,
    OptionTexts,
    connection_options,
)
from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.schema_options import ALWAYS, NONE, SchemaOptions

AUTO: Final = "auto"
EXACTLY_ONCE: Final = "exactly_once"
AT_LEAST_ONCE: Final = "at_least_once"

ROUND_ROBIN: Final = "roundrobin"
HASH: Final = "hash"
COLUMN: Final = "column"

JSON: Final = "json"
_DAY_MS: Final = 86_400_000
_PAGE: Final = "docs/sink.md"
_LINEAGE_SIZE_MAX: Final = 400


_text, _number, _one_of = option_values.plain, option_values.number, option_values.one_of

SINK_OPTIONS: Final[Mapping[str, Known]] = MappingProxyType(
    {
        **CONNECTION,
        # Target
        "topic": Known(_text, "", ("path",)),
        "queueSelector": Known(_one_of(ROUND_ROBIN, HASH, COLUMN), ""),
        "createTopic": Known(_one_of(AUTO, "never", "ifmissing"), AUTO),
        "topic.queues": Known(_number(1, 1_024), 8),
        # Content
        "format": Known(_one_of("columns", JSON), "columns", ("rmq.format",)),
        "columnNames": Known(_one_of(columns.PLAIN, columns.KAFKA), columns.PLAIN),
        "valueFormat": Known(formats.written_format, formats.BINARY),
        "keyFormat": Known(formats.key_format, formats.STRING),
        "value.schema": Known(_text, ""),
        "value.schema.file": Known(_text, ""),
        "value.schema.registry.framing": Known(_one_of(NONE, ALWAYS), NONE),
        **REGISTRY,
        "value.message.name": Known(_text, ""),
        "keyColumn": Known(_text, ""),
        "tagsColumn": Known(_text, ""),
        "shardingKeyColumn": Known(_text, ""),
        "propertyColumns": Known(option_values.words, ()),
        "maxMessageSize": Known(_number(1, 1 << 30), 4 << 20),
        "oversizePolicy": Known(_one_of("fail", "drop", "skip", "dlq"), "fail"),
        "oversizeTopic": Known(_text, ""),
        "compression": Known(_one_of("none", "zlib"), "none"),
        # Guarantee
        "deliveryGuarantee": Known(_one_of(AUTO, EXACTLY_ONCE, AT_LEAST_ONCE), AUTO),
        "sinkId": Known(_text, ""),
        "batchId": Known(_number(0, option_values.I64_MAX)),
        "rmq.retry.timeout.ms": Known(_number(0, _DAY_MS), 60_000),
        "waitStoreOk": Known(option_values.flag, True),
        # exactly_once only
        "shortCircuit": Known(_one_of(*SHORT_CIRCUITS), SHORT_CIRCUITS[0]),
        # at_least_once only
        "rmq.producer.group": Known(_text, "spark-rmq-sink"),
        "send.inFlight": Known(_number(1, 1_024), 4),
        "send.timeoutMs": Known(_number(1, _DAY_MS), 30_000),
        "send.retries": Known(_number(0, 1_000), 10),
        # Options of Spark, which passes them on
        "checkpointLocation": Known(_text, ""),
        "queryName": Known(_text, ""),
    }
)


@dataclasses.dataclass(frozen=True)
class SinkOptions:
    """All options of a writer. Plain values, pickled for executors."""

    connection: ConnectionOptions
    topic: str
    queue_selector: str
    """Empty: as the columns suggest."""
    creates_topics: bool
    asks_broker_for_topics: bool
    """Create missing topics on brokers with `autoCreateTopicEnable`."""
    topic_queue_count: int
    packs_json: bool
    takes_kafka_columns: bool
    value_format: str
    key_format: str
    value_schema: SchemaOptions
    column_roles: Mapping[str, str]
    """Column of the message -> column of the payload that it is taken from."""
    property_columns: tuple[str, ...]
    body_size_max: int
    drops_oversize: bool
    oversize_topic: str
    """Topic for the beginning of oversize rows; empty: none."""
    compresses: bool
    waits_store_ok: bool
    guarantee: str
    sink_id: str
    batch_id: int | None
    retry_for_ms: int
    short_circuit: str
    """Whether tasks on the broker's host write its staging files: auto, on or off."""
    producer_group: str
    in_flight: int
    timeout_ms: int
    attempts: int
    checkpoint: str
    """As given by the user; empty if Spark took it from its configuration."""

    @property
    def lineage(self) -> str:
        """Normalized checkpoint path, by which brokers recognize a copy at another place."""
        plain = re.sub(r"^file:(//)?(?=/)", "", self.checkpoint)
        plain = plain.rstrip("/") or plain
        if len(plain) <= _LINEAGE_SIZE_MAX and plain.isprintable():
            return plain
        return "sha256:" + hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()

    @staticmethod
    def parse(raw: Mapping[str, str]) -> SinkOptions:
        """Parse options as Spark passes them; names are case-insensitive."""
        values = OptionTexts(raw, SINK_OPTIONS, _PAGE)
        if values["deliveryGuarantee"] == AT_LEAST_ONCE and "batchId" in values.given:
            raise errors.InvalidArgument("option batchId needs deliveryGuarantee=exactly_once")
        return SinkOptions(
            connection=connection_options(values),
            topic=values["topic"],
            queue_selector=values["queueSelector"],
            creates_topics=values["createTopic"] == "ifmissing",
            asks_broker_for_topics=values["createTopic"] == AUTO,
            topic_queue_count=values["topic.queues"],
            packs_json=values["format"] == JSON,
            takes_kafka_columns=values["columnNames"] == columns.KAFKA,
            value_format=values["valueFormat"],
            key_format=values["keyFormat"],
            value_schema=formats.schema_options(values["valueFormat"], values, writes=True),
            column_roles={
                role: values[f"{role}Column"]
                for role in ("key", "tags", "shardingKey")
                if values[f"{role}Column"]
            },
            property_columns=values["propertyColumns"],
            body_size_max=values["maxMessageSize"],
            drops_oversize=values["oversizePolicy"] in ("drop", "skip"),
            oversize_topic=_oversize_topic(values),
            compresses=values["compression"] == "zlib",
            waits_store_ok=values["waitStoreOk"],
            guarantee=values["deliveryGuarantee"],
            sink_id=values["sinkId"],
            batch_id=values["batchId"],
            retry_for_ms=values["rmq.retry.timeout.ms"],
            short_circuit=values["shortCircuit"],
            producer_group=values["rmq.producer.group"],
            in_flight=values["send.inFlight"],
            timeout_ms=values["send.timeoutMs"],
            attempts=values["send.retries"] + 1,
            checkpoint=values["checkpointLocation"],
        )

    def __post_init__(self) -> None:
        if self.packs_json and self.value_format != formats.BINARY:
            raise errors.InvalidArgument(
                "options format=json and valueFormat exclude each other: valueFormat leaves key,"
                " tags and the like out of the body"
            )
        is_encoded = self.value_format in formats.WITH_FIELDS
        if not is_encoded and (self.column_roles or self.property_columns):
            raise errors.InvalidArgument(
                "options keyColumn, tagsColumn, shardingKeyColumn and propertyColumns need"
                " valueFormat=json, msgpack, avro or protobuf; without it, name the columns key,"
                " tags, shardingKey and properties"
            )
        if not self.waits_store_ok and self.guarantee == EXACTLY_ONCE:
            raise errors.InvalidArgument(
                "option waitStoreOk=false is for deliveryGuarantee=at_least_once: a batch that is"
                " published exactly once is stored as safely as the broker is told to"
            )

    def for_stream(self) -> SinkOptions:
        """Check options for `df.writeStream`, which numbers its batches itself."""
        if self.batch_id is not None:
            raise errors.InvalidArgument(
                "option batchId is for df.write: a stream numbers its batches itself"
            )
        return self

    def for_batch(self) -> SinkOptions:
        """Check options for `df.write`."""
        if self.batch_id is not None and not self.sink_id:
            raise errors.InvalidArgument("option batchId needs a sinkId")
        return self


def _oversize_topic(values: OptionTexts) -> str:
    is_dlq, topic = values["oversizePolicy"] == "dlq", str(values["oversizeTopic"])
    if is_dlq != bool(topic):
        raise errors.InvalidArgument(
            "options oversizePolicy=dlq and oversizeTopic go together: the topic that takes rows"
            " which are too large"
        )
    return topic
