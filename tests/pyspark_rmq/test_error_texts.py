"""Errors as users see them, word for word. Each names its section of docs/errors.md."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import ClientConfig, EmbeddedCluster, MessageQueue, SyncAdmin, errors
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import PLAIN, choose_columns
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads.read_columns import SchemaField, choose_read_columns
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.outgoing_columns import ColumnReader
from pyspark_rmq.sink.task.sink_columns import find_columns
from pyspark_rmq.source.offsets.data_loss import DataLost
from pyspark_rmq.source.offsets.stream_position import StoreIdentity, StreamOffset
from pyspark_rmq.source.stream_session import Limits, StreamSession

BASE = {"rmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "orders"}
SINK = {"rmq.namesrv.addr": "127.0.0.1:9876", "topic": "t"}


def text_of(call: Callable[[], object], kind: type[errors.RmqError] = errors.RmqError) -> str:
    with pytest.raises(kind) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize(
    ("parse", "given", "text"),
    [
        (
            SourceOptions.parse,
            {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"},
            "option 'kafka.bootstrap.servers' is one of Kafka's: give rmq.namesrv.addr, with the"
            " addresses of the name servers (usually port 9876) instead. docs/source.md has all"
            " options\nSee docs/errors.md#kafka-options",
        ),
        (
            SourceOptions.parse,
            {**BASE, "kafka.sasl.mechanism": "PLAIN"},
            "option 'kafka.sasl.mechanism' is one of Kafka's: give rmq.access.key and"
            " rmq.secret.key.file instead. docs/source.md has all options\n"
            "See docs/errors.md#kafka-options",
        ),
        (
            SinkOptions.parse,
            {**SINK, "kafka.linger.ms": "5"},
            "option 'kafka.linger.ms' is one of Kafka's: there is nothing like it here: leave it"
            " out. docs/sink.md has all options\nSee docs/errors.md#kafka-options",
        ),
        (
            SourceOptions.parse,
            {**BASE, "startingoffset": "earliest"},
            "no option 'startingoffset'; did you mean startingOffsets? docs/source.md has all of"
            " them\nSee docs/errors.md#unknown-option",
        ),
        (
            SourceOptions.parse,
            {**BASE, "rmq.namesrv.addr": "rmq://127.0.0.1:9876"},
            "rmq.namesrv.addr='rmq://127.0.0.1:9876' cannot be used: an address has no scheme:"
            " leave out rmq:// and write 127.0.0.1:9876\n"
            "See docs/errors.md#name-server-with-a-scheme",
        ),
        # As the user wrote it.
        (
            SinkOptions.parse,
            {"nameserver": "http://h:1/", "topic": "t"},
            "nameServer='http://h:1/' cannot be used: an address has no scheme: leave out http://"
            " and write h:1\nSee docs/errors.md#name-server-with-a-scheme",
        ),
        (
            SourceOptions.parse,
            {"nameserver": "h:1", "path": "a", "assign": '{"a":[0]}'},
            "give one of the options subscribe, subscribePattern and assign; there is assign and"
            " path",
        ),
        (
            lambda given: SourceOptions.parse(given).for_stream(),
            {**BASE, "where": "offset > 3"},
            "option where is for spark.read: filter a stream with .where(…) after .load(), or at"
            " the broker with the option subExpression (tags) or filterSql (properties)\n"
            "See docs/errors.md#where-on-a-stream",
        ),
    ],
)
def test_options(parse: Callable[[Any], object], given: dict[str, str], text: str) -> None:
    assert text_of(lambda: parse(given)) == text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            [("value", "struct<a:int>")],
            "column value is struct<a:int>, and must be binary or string: write it as JSON with"
            ' .withColumn("value", to_json("value")), or whole rows with the option format=json\n'
            "See docs/errors.md#column-types",
        ),
        (
            [("value", "string"), ("Key", "bigint")],
            "column Key is bigint, and must be string or binary: cast it with"
            ' .withColumn("Key", col("Key").cast("string"))\nSee docs/errors.md#column-types',
        ),
        (
            [("value", "string"), ("properties", "string")],
            "column properties is string, and must be map<string,string>: make a map with"
            ' .withColumn("properties", create_map(…))\nSee docs/errors.md#column-types',
        ),
        (
            [("value", "string"), ("partition", "bigint")],
            "column partition is bigint, and must be int: cast it with"
            ' .withColumn("partition", col("partition").cast("int"))\n'
            "See docs/errors.md#column-types",
        ),
    ],
)
def test_types_of_columns_to_write(fields: list[tuple[str, str]], text: str) -> None:
    assert text_of(lambda: find_columns(fields, SinkOptions.parse(SINK))) == text


def test_types_of_columns_to_read() -> None:
    assert text_of(lambda: choose_columns([("value", "string", True)])) == (
        "column value is binary, not string: write value binary in the schema and cast it after"
        ' .load(), for example with col("value").cast("string")\nSee docs/errors.md#column-types'
    )


def test_fields_without_a_column() -> None:
    payload = SourceOptions.parse({**BASE, "valueformat": "json"}).payload
    field = SchemaField("id", "int", True, "integer")
    assert text_of(lambda: choose_read_columns([field], payload, PLAIN)) == (
        "no column 'id': the fields of valueFormat=json are in the column value, such as value"
        " STRUCT<id: STRING>, or are columns of their own with flattenValue=true"
    )


def test_null_values() -> None:
    options = SinkOptions.parse(SINK)
    reader = ColumnReader(find_columns([("value", "string")], options), options)
    batch = pa.RecordBatch.from_pydict({"value": pa.array(["a", None, None])})
    assert text_of(lambda: reader.messages(batch)) == (
        "column value is null in 2 rows, and every message has a body: leave such rows out with"
        ' .where("value IS NOT NULL"), or fill them with coalesce(value, …)\n'
        "See docs/errors.md#null-values"
    )


@pytest.mark.parametrize("made", [EmbeddedBroker, EmbeddedCluster])
def test_an_unknown_property_is_refused_before_a_broker_is_started(made: Any) -> None:
    assert text_of(lambda: made(properties={"flushDiskTyp": "SYNC_FLUSH"})) == (
        "properties: unknown property 'flushDiskTyp': did you mean flushDiskType?\n"
        "See docs/errors.md#unknown-broker-property"
    )
    assert text_of(lambda: made(properties={"zzzzzz": "1"})) == (
        "properties: unknown property 'zzzzzz': docs/broker-configuration.md has all of them\n"
        "See docs/errors.md#unknown-broker-property"
    )


def test_a_broker_is_not_a_name_server(broker: EmbeddedBroker) -> None:
    expected = (
        f"{broker.address} is a broker, not a name server: give the address of the name server,"
        " which usually listens on port 9876\nSee docs/errors.md#broker-given-as-name-server"
    )
    with SyncAdmin(broker.address) as admin:
        assert text_of(admin.topics) == expected
        assert text_of(lambda: admin.route("t"), errors.InvalidArgument) == expected
        assert text_of(admin.cluster_info) == expected
    # The others of a list are asked, too.
    both = f"{broker.address};{broker.name_server}"
    with SyncAdmin(ClientConfig(both)) as admin:  # type: ignore[arg-type]
        for _ in range(3):
            assert "broker-a" in admin.cluster_info().brokers


def test_an_error_of_a_synchronous_client_is_short(broker: EmbeddedBroker) -> None:
    with SyncAdmin("127.0.0.1:1") as admin:
        for _ in range(3):
            try:
                admin.topics()
            except errors.ConnectionLost as error:
                shown = "".join(traceback.format_exception(error))
            assert shown.splitlines()[-1] == (
                "broker_core.errors.NameServersSilent: none of the name servers 127.0.0.1:1"
                " answered: 127.0.0.1:1 could not be reached: Connection refused"
            )
            assert "During handling" not in shown
            assert "direct cause" not in shown
            files = {Path(line.split('"')[1]).name for line in shown.splitlines() if '"' in line}
            assert files <= {Path(__file__).name, "face.py", "loop_thread.py"}


def test_a_checkpoint_of_another_store(
    broker: EmbeddedBroker, new_topic: Callable[..., str], options_of: Callable[..., SourceOptions]
) -> None:
    topic = new_topic(1)
    options = options_of(subscribe=topic)
    connected = connections.connect(options.connection)
    session = StreamSession(connected.client, options)
    store = connected.call(session.initial()).stores["broker-a"].store_id
    queue = MessageQueue(topic, "broker-a", 0)
    old = StreamOffset({queue: 2}, stores={"broker-a": StoreIdentity("f" * 32, "1")})
    latest = session.latest(old, Limits(), may_wait=False)
    assert text_of(lambda: connected.call(latest), DataLost) == (
        f"the checkpoint belongs to another store of broker broker-a: that was {'f' * 32}, this is"
        f" {store}, a new one or another cluster's. To start over, use a new checkpoint directory"
        " (checkpointLocation) or delete this one; to keep it and read the new store from its first"
        " message, set failOnDataLoss=false; to keep the messages of an embedded broker from run to"
        " run, give it a directory: EmbeddedBroker(store=…)\n"
        "See docs/errors.md#checkpoint-of-another-store"
    )


def test_a_warning_says_when_the_trouble_is_over(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker, caplog.at_level(logging.WARNING):
        given = {"subscribe": "t", "rmqConsumer.pollTimeoutMs": "1", "failOnDataLoss": "false"}
        given["partition.metadata.cache.ttl.ms"] = "0"
        options = SourceOptions.parse({**broker.options, **given}).for_stream()
        connected = connections.connect(options.connection)
        session = StreamSession(connected.client, options)
        start = connected.call(session.initial())
        broker.kill()
        with contextlib.suppress(errors.ServiceNotAvailable):
            connected.call(session.latest(start, Limits(), may_wait=False))
        told = [record.getMessage() for record in caplog.records]
        reason = f"{broker.address} could not be reached: Connection refused"
        assert any(text.startswith("topics cannot be looked up for now: none of") for text in told)
        assert any(text.startswith("broker broker-a does not answer: ") for text in told)
        assert any(reason in text or "closed" in text or "lost" in text for text in told)
        caplog.clear()
        broker.restart()
        while "broker broker-a answers again" not in caplog.messages:
            with contextlib.suppress(errors.ServiceNotAvailable):
                connected.call(session.latest(start, Limits(), may_wait=False))
        assert "topics are looked up again" in caplog.messages
        connections.close_connections()
