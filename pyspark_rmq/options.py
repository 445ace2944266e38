"""Parses the options of a reader into one frozen `SourceOptions`.

Strict: unknown options, invalid values and contradictions fail on the driver, before anything is
connected. Secrets never appear in errors or logs.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker_core import ClientConfig, errors, parse_tag_expression, read_secret_file
from pyspark_rmq import columns, option_values
from pyspark_rmq.kafka_options import FOR_READERS, option_instead_of
from pyspark_rmq.payloads import formats
from pyspark_rmq.payloads.formats import PayloadOptions
from pyspark_rmq.payloads.reader_options.time_texts import TimePatterns
from pyspark_rmq.payloads.registry.client import check_url
from pyspark_rmq.payloads.schema_options import FRAMINGS
from pyspark_rmq.source.offsets import start_position
from pyspark_rmq.source.offsets.start_position import EARLIEST, LATEST, Positions
from pyspark_rmq.source.rows.predicates import Predicate, parse_where

_I32_MAX: Final = (1 << 31) - 1
_DAY_MS: Final = 86_400_000
HIDDEN: Final = "*****"
DESCRIBED: Final = ("topics", "queues", "groups", "lag", "dlq")
# Tasks on the broker's host read its files: if possible, always (else an error), never.
SHORT_CIRCUITS: Final = ("auto", "on", "off")


class Known(NamedTuple):
    """One option: parser, default and aliases."""

    read: Callable[[str, str], Any]
    default: Any = None
    aliases: tuple[str, ...] = ()
    is_secret: bool = False


_text, _number, _one_of = option_values.plain, option_values.number, option_values.one_of
_flag = option_values.flag
_ms = _number(0, _DAY_MS)

_CONNECTION_NAMES: Final = frozenset(
    {
        "rmq.namesrv.addr",
        "rmq.embedded",
        "rmq.broker.address.rewrite",
        "rmq.connect.timeout.ms",
        "rmq.access.key",
        "rmq.secret.key",
        "rmq.secret.key.file",
        "rmq.security.token",
        "rmq.tls.enable",
        "rmq.tls.ca",
        "rmq.tls.cert",
        "rmq.tls.key",
        "rmq.tls.verify",
    }
)

# Schema registry, shared by source and sink.
REGISTRY: Final[Mapping[str, Known]] = {
    "value.schema.registry.url": Known(check_url, ""),
    "value.schema.registry.user": Known(_text, ""),
    "value.schema.registry.password": Known(_text, "", is_secret=True),
    "value.schema.registry.id": Known(_number(0, (1 << 32) - 1)),
}

KNOWN: Final[Mapping[str, Known]] = MappingProxyType(
    {
        # Where
        "rmq.namesrv.addr": Known(_text, aliases=("nameServer",)),
        "rmq.embedded": Known(_text),
        "rmq.broker.address.rewrite": Known(_text, ""),
        "rmq.connect.timeout.ms": Known(_number(1, _DAY_MS), 10_000),
        "rmq.access.key": Known(_text, is_secret=True),
        "rmq.secret.key": Known(_text, is_secret=True),
        "rmq.secret.key.file": Known(_text),
        "rmq.security.token": Known(_text, is_secret=True),
        "rmq.tls.enable": Known(_flag, False),
        "rmq.tls.ca": Known(_text),
        "rmq.tls.cert": Known(_text),
        "rmq.tls.key": Known(_text),
        "rmq.tls.verify": Known(_flag, True),
        # What
        "subscribe": Known(option_values.words, (), ("topic", "path")),
        "subscribePattern": Known(option_values.pattern, ""),
        "assign": Known(_text, ""),
        "subExpression": Known(_text, "*", ("tags",)),
        "filterSql": Known(_text, ""),
        "describe": Known(_one_of(*DESCRIBED), ""),
        "where": Known(_text, ""),
        "filterPushdown": Known(_flag, False),
        # From where to where
        "startingOffsets": Known(_text),
        "startingTimestamp": Known(_text),
        "startingOffsetsByTimestamp": Known(_text),
        "startingOffsetsByTimestampStrategy": Known(_one_of("error", "latest"), "error"),
        "endingOffsets": Known(_text),
        "endingTimestamp": Known(_text),
        "endingOffsetsByTimestamp": Known(_text),
        # How much at once
        "maxOffsetsPerTrigger": Known(_number(1)),
        "maxBytesPerTrigger": Known(_number(1)),
        "minOffsetsPerTrigger": Known(_number(1)),
        "maxTriggerDelay": Known(option_values.duration_ms, 900_000),
        "minPartitions": Known(_number(1, 100_000), 1),
        "maxRecordsPerPartition": Known(_number(1)),
        "latestOffsetWaitMs": Known(_number(0, 10_000), 200),
        # Columns
        "includeProperties": Known(_flag, False, ("includeHeaders",)),
        "includeSystemProperties": Known(_flag, False),
        "columnNames": Known(_one_of(*columns.NAMINGS), columns.PLAIN),
        # Payloads
        "valueFormat": Known(_one_of(*formats.VALUE_FORMATS), formats.BINARY),
        "flattenValue": Known(_flag, False),
        "inferSchema": Known(_flag, False),
        "inferSchemaSampleRows": Known(_number(1, 100_000), formats.SAMPLE_ROWS),
        "badRecords": Known(_one_of(*formats.BAD_RECORDS), formats.FAIL),
        "deadLetterTopic": Known(_text, ""),
        "mode": Known(_one_of(*formats.MODES), ""),
        "timeZone": Known(formats.time_zone, formats.UTC),
        "timestampFormat": Known(formats.time_pattern, ""),
        "timestampNTZFormat": Known(formats.time_pattern, ""),
        "dateFormat": Known(formats.time_pattern, ""),
        "keyFormat": Known(formats.key_format, formats.STRING),
        "value.schema": Known(_text, ""),
        "value.schema.file": Known(_text, ""),
        "value.schema.registry.framing": Known(_one_of(*FRAMINGS), FRAMINGS[0]),
        **REGISTRY,
        "value.message.name": Known(_text, ""),
        # Groups
        "rmq.group": Known(_text, "", ("rmq.consumer.group",)),
        "groupIdPrefix": Known(_text, "spark-rmq-source"),
        "commitOffsetsToBroker": Known(_flag),
        # Failures
        "failOnDataLoss": Known(_flag, True),
        "deduplicate": Known(_flag, False),
        "deduplicateBatches": Known(_number(1, 10_000), 64),
        "waitForTopicMs": Known(_ms, 0),
        "readFromSlave": Known(_one_of("auto"), "auto"),
        "shortCircuit": Known(_one_of(*SHORT_CIRCUITS), SHORT_CIRCUITS[0]),
        "rmqConsumer.pollTimeoutMs": Known(_number(1, _DAY_MS), 120_000),
        "fetchOffset.numRetries": Known(_number(0, 1_000), 3),
        "fetchOffset.retryIntervalMs": Known(_ms, 10),
        "partition.metadata.cache.ttl.ms": Known(_number(-1, _DAY_MS), 1_000),
    }
)
# Connection options, shared by source and sink.
CONNECTION: Final[Mapping[str, Known]] = MappingProxyType(
    {name: known for name, known in KNOWN.items() if name in _CONNECTION_NAMES}
)


class ConnectionOptions(NamedTuple):
    """How to reach a cluster. Equal options share a client within a process."""

    name_servers: str
    address_rewrite: str = ""
    request_timeout_ms: int = 10_000
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""
    tls_enable: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_verify: bool = True
    embedded: str = ""
    """The name of `rmq.embedded`, if it was given."""

    @property
    def shown(self) -> str:
        """The cluster, for errors: its name servers, and the option that stands for them."""
        if not self.embedded:
            return self.name_servers
        return f"{self.name_servers} (rmq.embedded={self.embedded})"

    def __repr__(self) -> str:
        # Without secrets: it may appear in errors and logs.
        return f"<connection to {self.name_servers}>"

    def client_config(self) -> ClientConfig:
        """Configuration of the client."""
        return ClientConfig(
            self.name_servers,  # type: ignore[arg-type]  # takes one text too
            address_rewrite=self.address_rewrite,  # type: ignore[arg-type]
            request_timeout_ms=self.request_timeout_ms,
            access_key=self.access_key,
            secret_key=self.secret_key,
            security_token=self.security_token,
            tls_enable=self.tls_enable,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_verify=self.tls_verify,
        )


@dataclasses.dataclass(frozen=True)
class SourceOptions:
    """All options of a reader. Plain values, pickled for executors."""

    connection: ConnectionOptions
    topics: tuple[str, ...]
    topic_pattern: str
    assigned: Mapping[str, Mapping[str, tuple[int, ...]]]
    """Topic -> broker name ("" for the only one) -> queues."""
    tag_expression: str
    sql_expression: str
    starting: Positions | None
    ending: Positions
    rows_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    rows_per_trigger_min: int | None
    trigger_delay_max_ms: int
    partitions_min: int
    rows_per_partition_max: int | None
    latest_offset_wait_ms: int
    include_properties: bool
    include_system_properties: bool
    column_names: str
    payload: PayloadOptions
    group: str
    reader_group: str
    commits_offsets: bool
    fails_on_data_loss: bool
    deduplicates: bool
    deduplicate_batches: int
    """Number of batches that are remembered of each writer."""
    wait_for_topic_ms: int
    poll_timeout_ms: int
    lookup_retries: int
    lookup_retry_interval_ms: int
    route_ttl_ms: int
    short_circuit: str
    where: tuple[Predicate, ...]
    """Conditions that every row meets."""
    pushes_filters: bool
    describe: str
    """Table about the cluster to read instead of messages; empty for messages."""
    given: frozenset[str]
    """Names of the options that were given."""

    @staticmethod
    def parse(raw: Mapping[str, str]) -> SourceOptions:
        """Parse options as Spark passes them; names are case-insensitive."""
        return _built(OptionTexts(raw))

    def for_batch(self) -> SourceOptions:
        """Check options for `spark.read`, which begins at the earliest messages by default."""
        return self._starting_at(EARLIEST)

    def for_stream(self) -> SourceOptions:
        """Check options for `spark.readStream`, which begins at the latest messages by default."""
        if self.describe:
            raise errors.InvalidArgument(
                "option describe is for spark.read: it shows the state at one moment"
            )
        if self.payload.infers:
            raise errors.InvalidArgument(
                errors.explained(
                    "option inferSchema=true is for spark.read: later messages of a stream may have"
                    " other fields. Give .schema(…); spark.read with inferSchema=true shows one",
                    "infer-schema",
                )
            )
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in self.given:
                raise errors.InvalidArgument(
                    f"option {name} is for spark.read: a stream has no end"
                )
        for name in ("where", "filterPushdown"):
            if name in self.given:
                raise errors.InvalidArgument(
                    errors.explained(
                        f"option {name} is for spark.read: filter a stream with .where(…) after"
                        " .load(), or at the broker with the option subExpression (tags) or"
                        " filterSql (properties)",
                        "where-on-a-stream",
                    )
                )
        return self._starting_at(LATEST)

    def _starting_at(self, default: start_position.Position) -> SourceOptions:
        if self.starting is not None:
            return self
        return dataclasses.replace(self, starting=Positions(default, option="startingOffsets"))


class OptionTexts:
    """Options by name, parsed on access. Errors refer to `page` of the documentation."""

    def __init__(
        self,
        raw: Mapping[str, str],
        known: Mapping[str, Known] = KNOWN,
        page: str = "docs/source.md",
    ) -> None:
        self._known = known
        self._texts: dict[str, tuple[str, str]] = {}
        spellings = {
            spelling.lower(): (name, spelling)
            for name, option in known.items()
            for spelling in (name, *option.aliases)
        }
        for key, text in raw.items():
            found = spellings.get(key.lower())
            if found is None:
                raise errors.InvalidArgument(_unknown(key, spellings, page))
            name, spelling = found
            if name in self._texts and self._texts[name][1] != text:
                raise errors.InvalidArgument(
                    f"options {self._texts[name][0]} and {spelling} are the same one and have"
                    " different values"
                )
            if text is None:
                raise errors.InvalidArgument(f"option {spelling} has no value")
            self._texts[name] = (spelling, text)

    @property
    def given(self) -> frozenset[str]:
        return frozenset(self._texts)

    def __getitem__(self, name: str) -> Any:
        known = self._known[name]
        if name not in self._texts:
            return known.default
        spelling, text = self._texts[name]
        try:
            return known.read(spelling, text)
        except errors.InvalidConfig as error:
            if known.is_secret:
                raise errors.InvalidConfig(spelling, HIDDEN, error.accepted) from None
            raise

    def spelled(self, name: str) -> str:
        """The name that the user gave the option by: itself or one of its aliases."""
        return self._texts[name][0] if name in self._texts else name

    def text(self, name: str) -> tuple[str, str] | None:
        """Name and value as the user wrote them."""
        return self._texts.get(name)


def _unknown(key: str, spellings: Mapping[str, tuple[str, str]], page: str) -> str:
    instead = option_instead_of(key)
    if instead is not None:
        return errors.explained(
            f"option {key!r:.100} is one of Kafka's: {instead}. {page} has all options",
            "kafka-options",
        )
    advice = FOR_READERS.get(key.lower())
    if advice is not None:
        return errors.explained(
            f"option {key!r:.100} is for readers: {advice}. {page} has all options", "kafka-options"
        )
    near = difflib.get_close_matches(key.lower(), list(spellings), 1, 0.5)
    hint = f"; did you mean {spellings[near[0]][1]}?" if near else ""
    # The value is not shown: it may be a secret under a mistyped name.
    return errors.explained(
        f"no option {key!r:.100}{hint or '.'} {page} has all of them", "unknown-option"
    )


def _built(values: OptionTexts) -> SourceOptions:
    _refuse_contradictions(values)
    topics, pattern, assigned = _subscription(values)
    tags, sql = values["subExpression"], values["filterSql"]
    if sql and tags != "*":
        raise errors.InvalidArgument("options subExpression and filterSql exclude each other")
    parse_tag_expression("", tags)
    if values["deadLetterTopic"] in (*topics, *assigned):
        raise errors.InvalidArgument(
            f"deadLetterTopic={values['deadLetterTopic']} is one of the topics that are read: its"
            " messages would come back as bad records"
        )
    group = values["rmq.group"]
    commits = values["commitOffsetsToBroker"]
    if commits and not group:
        raise errors.InvalidArgument("option commitOffsetsToBroker needs a group: give rmq.group")
    starting = _starting(values)
    if starting is not None and _is_by_group(starting) and not group:
        raise errors.InvalidArgument("startingOffsets=committed needs a group: give rmq.group")
    return SourceOptions(
        connection=connection_options(values),
        topics=topics,
        topic_pattern=pattern,
        assigned=assigned,
        tag_expression=tags,
        sql_expression=sql,
        starting=starting,
        ending=_ending(values),
        rows_per_trigger_max=values["maxOffsetsPerTrigger"],
        bytes_per_trigger_max=values["maxBytesPerTrigger"],
        rows_per_trigger_min=values["minOffsetsPerTrigger"],
        trigger_delay_max_ms=values["maxTriggerDelay"],
        partitions_min=values["minPartitions"],
        rows_per_partition_max=values["maxRecordsPerPartition"],
        latest_offset_wait_ms=values["latestOffsetWaitMs"],
        include_properties=values["includeProperties"],
        include_system_properties=values["includeSystemProperties"],
        column_names=values["columnNames"],
        payload=_payload(values),
        group=group,
        reader_group=group or values["groupIdPrefix"],
        commits_offsets=bool(group) if commits is None else commits,
        fails_on_data_loss=values["failOnDataLoss"],
        deduplicates=values["deduplicate"],
        deduplicate_batches=values["deduplicateBatches"],
        wait_for_topic_ms=values["waitForTopicMs"],
        poll_timeout_ms=values["rmqConsumer.pollTimeoutMs"],
        lookup_retries=values["fetchOffset.numRetries"],
        lookup_retry_interval_ms=values["fetchOffset.retryIntervalMs"],
        route_ttl_ms=max(0, values["partition.metadata.cache.ttl.ms"]),
        short_circuit=values["shortCircuit"],
        where=_where(values),
        pushes_filters=values["filterPushdown"],
        describe=values["describe"],
        given=values.given,
    )


def _payload(values: OptionTexts) -> PayloadOptions:
    bad_records, keeps_fields = formats.bad_records(values)
    return PayloadOptions(
        values["valueFormat"],
        values["flattenValue"],
        bad_records,
        values["timeZone"],
        values["deadLetterTopic"],
        formats.schema_options(values["valueFormat"], values),
        values["keyFormat"],
        values["inferSchema"],
        values["inferSchemaSampleRows"],
        TimePatterns(values["timestampFormat"], values["timestampNTZFormat"], values["dateFormat"]),
        keeps_fields,
    ).checked(values.given)


def _refuse_contradictions(values: OptionTexts) -> None:
    # Only validated: the broker's suggestion is the only way to read from a slave so far.
    _ = values["readFromSlave"]
    low, high = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if low is not None and high is not None and low > high:
        raise errors.InvalidArgument(
            f"minOffsetsPerTrigger={low} is more than maxOffsetsPerTrigger={high}"
        )


# Client setting -> option.
_OPTION_OF: Final = {
    "name_servers": "rmq.namesrv.addr",
    "address_rewrite": "rmq.broker.address.rewrite",
    "access_key": "rmq.access.key",
    "secret_key": "rmq.secret.key",
    "security_token": "rmq.security.token",
    "tls_ca": "rmq.tls.ca",
    "tls_cert": "rmq.tls.cert",
    "tls_key": "rmq.tls.key",
}


def connection_options(values: OptionTexts) -> ConnectionOptions:
    """Validated connection options; nothing is connected."""
    servers = values["rmq.namesrv.addr"]
    embedded = values["rmq.embedded"]
    if embedded is not None:
        if servers is not None:
            raise errors.InvalidArgument(
                "options rmq.embedded and rmq.namesrv.addr exclude each other: give one of them"
            )
        # Options are parsed on the driver's machine; tasks get the address.
        from broker_core import named_broker

        servers = named_broker(embedded)
    if servers is None:
        raise errors.InvalidArgument(
            "option rmq.namesrv.addr is missing: give the name servers as host:port;host:port, or"
            " rmq.embedded=NAME for EmbeddedBroker.shared(NAME)"
        )
    found = ConnectionOptions(
        servers,
        values["rmq.broker.address.rewrite"],
        values["rmq.connect.timeout.ms"],
        access_key=values["rmq.access.key"] or "",
        secret_key=_secret_key(values),
        security_token=values["rmq.security.token"] or "",
        tls_enable=values["rmq.tls.enable"],
        tls_ca=values["rmq.tls.ca"] or "",
        tls_cert=values["rmq.tls.cert"] or "",
        tls_key=values["rmq.tls.key"] or "",
        tls_verify=values["rmq.tls.verify"],
        embedded=embedded or "",
    )
    try:
        found.client_config()
    except errors.InvalidConfig as error:
        name = values.spelled(_OPTION_OF.get(error.key, error.key))
        raise error.renamed(name) from None
    return found


def _secret_key(values: OptionTexts) -> str:
    """Reads the key file on the driver, where readers and writers are constructed."""
    secret, path = values["rmq.secret.key"] or "", values["rmq.secret.key.file"]
    if path is None:
        return secret
    if secret:
        raise errors.InvalidArgument(
            "options rmq.secret.key and rmq.secret.key.file exclude each other: keep the file"
        )
    return read_secret_file(path, "rmq.secret.key.file")


_ASSIGN: Final = '{"topic":{"broker-a":[0,1]}}, or {"topic":[0,1]} for a topic on one broker'


def _subscription(
    values: OptionTexts,
) -> tuple[tuple[str, ...], str, Mapping[str, Mapping[str, tuple[int, ...]]]]:
    given = values.given & {"subscribe", "subscribePattern", "assign"}
    if len(given) != 1 and not (values["describe"] and not given):
        found = " and ".join(sorted(map(values.spelled, given))) or "none"
        raise errors.InvalidArgument(
            f"give one of the options subscribe, subscribePattern and assign; there is {found}"
        )
    assigned: dict[str, Mapping[str, tuple[int, ...]]] = {}
    if "assign" in given:
        text = values["assign"]
        for topic, of_topic in option_values.json_object("assign", text, _ASSIGN).items():
            by_broker = of_topic if isinstance(of_topic, dict) else {"": of_topic}
            assigned[topic] = {
                broker: _queue_ids(text, queues) for broker, queues in by_broker.items()
            }
    return values["subscribe"], values["subscribePattern"], assigned


def _queue_ids(text: str, found: object) -> tuple[int, ...]:
    is_list = isinstance(found, list) and bool(found)
    if not is_list or not all(type(q) is int and 0 <= q <= _I32_MAX for q in found):  # type: ignore[attr-defined]
        raise errors.InvalidConfig("assign", text, _ASSIGN)
    return tuple(sorted(set(found)))  # type: ignore[call-overload]


def _where(values: OptionTexts) -> tuple[Predicate, ...]:
    given = values.text("where")
    return parse_where(*given, values["columnNames"]) if given is not None else ()


def _is_by_group(positions: Positions) -> bool:
    found = (positions.default, *positions.named.values())
    return any(position.anchor is start_position.Anchor.COMMITTED for position in found)


def _starting(values: OptionTexts) -> Positions | None:
    strict = values["startingOffsetsByTimestampStrategy"] == "error"
    if (given := values.text("startingTimestamp")) is not None:
        return start_position.at_time(*given, strict=strict)
    if (given := values.text("startingOffsetsByTimestamp")) is not None:
        return start_position.parse_times(*given, EARLIEST, strict=strict)
    if (given := values.text("startingOffsets")) is not None:
        return start_position.parse_positions(*given, EARLIEST)
    return None


def _ending(values: OptionTexts) -> Positions:
    if (given := values.text("endingTimestamp")) is not None:
        return start_position.at_time(*given, strict=False)
    if (given := values.text("endingOffsetsByTimestamp")) is not None:
        return start_position.parse_times(*given, LATEST, strict=False)
    if (given := values.text("endingOffsets")) is not None:
        return start_position.parse_positions(*given, LATEST, is_end=True)
    return Positions(LATEST, option="endingOffsets")
