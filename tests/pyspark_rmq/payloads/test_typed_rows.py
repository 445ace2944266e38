"""Payload columns of a broker's messages: values, bad records by policy, and their places."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from broker_core import (
    BadMessage,
    DeadLetterWriter,
    MessageQueue,
    ReceivedMessage,
    SyncDeadLetters,
    SyncProducer,
    errors,
)
from broker_core.codec.records.message_record import COMPRESSED, MessageRecord
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads.bad_records import BadRecord
from pyspark_rmq.payloads.read_columns import SchemaField, choose_read_columns
from pyspark_rmq.source.batch_plan import batch_ranges
from pyspark_rmq.source.found_schema import found_schema
from pyspark_rmq.source.rows.range_reader import Task, read_task
from pyspark_rmq.source.rows.seen_rows import SeenRows
from tests.pyspark_rmq.payloads.registry.http_registry import http_registry

STRUCT = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "string", "nullable": True, "metadata": {}},
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
    ],
}
STRUCT_OF_OP = {
    "type": "struct",
    "fields": [{"name": "op", "type": "string", "nullable": True, "metadata": {}}],
}
VALUE = SchemaField("value", "struct<id:string,n:int>", True, STRUCT)
KEY = SchemaField("key", "string", True, "string")
OFFSET = SchemaField("offset", "bigint", True, "long")
BAD = [
    SchemaField("badReason", "string", True, "string"),
    SchemaField("badValue", "binary", True, "binary"),
]


@pytest.fixture
def read(broker: EmbeddedBroker) -> Callable[..., Any]:
    """`read(topic, fields, **options)`: all rows of a topic."""

    def rows(topic: str, fields: list[SchemaField], **given: str) -> list[dict[str, Any]]:
        texts = {**broker.options, "subscribe": topic, "valueFormat": "json", **given}
        options = SourceOptions.parse(texts).for_batch()
        columns = choose_read_columns(fields, options.payload, options.column_names)
        connected = connections.connect(options.connection)
        ranges = connected.call(batch_ranges(connected.client, options))
        batches = list(read_task(Task(tuple(ranges), {}), options, columns))
        assert all(batch.schema.names == [field.name for field in fields] for batch in batches)
        found: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist() if batches else []
        return found

    return rows


@pytest.fixture
def topic(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> str:
    """One queue: two good messages around two bad ones."""
    name = new_topic(1)
    bodies = ['{"id":"a","n":1,"more":[]}', '{"id":"b","n":"x"}', "{", '{"n":4}']
    broker.produce(name, bodies, keys="k")
    return name


@pytest.mark.parametrize("circuit", ["on", "off"])
def test_null(read: Callable[..., Any], topic: str, circuit: str) -> None:
    rows = read(topic, [OFFSET, VALUE, KEY, *BAD], badRecords="null", shortCircuit=circuit)
    assert [row["value"] for row in rows] == [
        {"id": "a", "n": 1}, None, None, {"id": None, "n": 4},
    ]  # fmt: skip
    assert [row["badValue"] for row in rows] == [None, b'{"id":"b","n":"x"}', b"{", None]
    assert rows[1]["badReason"] == 'value.n is "x", which is not INT'
    assert rows[2]["badReason"].startswith("not JSON")
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert {row["key"] for row in rows} == {"k"}


@pytest.mark.parametrize("circuit", ["on", "off"])
def test_fail_names_the_place_and_the_reason(
    read: Callable[..., Any], topic: str, circuit: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BadRecord) as raised:
        read(topic, [VALUE], shortCircuit=circuit)
    text = str(raised.value)
    assert f"offset 1 of queue 0 of {topic} on " in text
    assert 'value.n is "x", which is not INT' in text
    assert "badRecords=null" in text and "badRecords=skip" in text
    # The broker's files are not given up for it.
    assert "over the network" not in caplog.text


def test_skip_counts(
    read: Callable[..., Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        rows = read(topic, [OFFSET, VALUE], badRecords="skip")
    assert [row["offset"] for row in rows] == [0, 3]
    assert "skipped 2 bad records, the first at offset 1 of queue 0" in caplog.text


def test_dead_letters(
    broker: EmbeddedBroker, new_topic: Callable[..., str], read: Callable[..., Any], topic: str
) -> None:
    dead = new_topic(2)
    given = {"badRecords": "deadLetter", "deadLetterTopic": dead}
    with SyncDeadLetters(broker.name_server) as letters:
        for circuit in ("off", "on", "off"):
            rows = read(topic, [OFFSET, VALUE], shortCircuit=circuit, **given)
            assert [row["offset"] for row in rows] == [0, 3]
            found = sorted(letters.read(dead), key=lambda letter: letter.message.body)
            bodies = [letter.message.body for letter in found]
            assert bodies == [b"{", b'{"id":"b","n":"x"}'], "once, however often it is read"
        properties = found[1].message.properties
        assert {name: properties[f"ORIGIN_{name}"] for name in ("TOPIC", "QUEUE", "OFFSET")} == {
            "TOPIC": topic, "QUEUE": "0", "OFFSET": "1",
        }  # fmt: skip
        assert properties["ORIGIN_BROKER"] == found[1].queue.broker_name
        assert found[1].reason == 'value.n is "x", which is not INT'
        assert (found[1].message.keys, found[1].origin_topic) == ("k", topic)
        # Repaired readers get them back where they were.
        assert {each.target for each in letters.replay(dead)} == {topic}


def test_a_copy_of_a_dead_letter_is_one_for_deduplicate(
    broker: EmbeddedBroker, new_topic: Callable[..., str], topic: str
) -> None:
    """Two attempts of a task at the same time may both write it."""
    dead = new_topic(1)
    queue = MessageQueue(topic, "broker-a", 0)
    bad = [BadMessage(queue, offset, b"", "why", "store-1") for offset in (1, 2)]
    options = SourceOptions.parse({**broker.options, "subscribe": topic})
    connected = connections.connect(options.connection)
    writer = DeadLetterWriter(connected.client, dead, "readers")
    assert connected.call(writer.write(bad)) == 2
    with SyncDeadLetters(broker.name_server) as letters, SyncProducer(broker.name_server) as again:
        first = letters.read(dead)[0].message
        again.send_copy(first, dead, {"UNIQ_KEY": first.message_id})
        found = [letter.message for letter in letters.read(dead)]
    texts = pa.array([message.record.property_text for message in found], pa.binary())
    assert SeenRows(64).repeats(dead, texts).tolist() == [False, False, True]
    # Rows of another log are others.
    other = bad[0]._replace(store_id="store-2").properties()
    assert other["SPARK_SINK_ROW"] != bad[0].properties()["SPARK_SINK_ROW"]


def test_a_dead_letter_topic_that_is_missing_is_found_before_a_bad_record(
    read: Callable[..., Any], topic: str
) -> None:
    with pytest.raises(errors.TopicNotExist, match="no-such-topic"):
        read(topic, [VALUE], badRecords="deadLetter", deadLetterTopic="no-such-topic")


def test_flattened(read: Callable[..., Any], topic: str) -> None:
    fields = [
        SchemaField("n", "int", True, "integer"),
        SchemaField("value", "binary", True, "binary"),
        OFFSET,
        SchemaField("id", "string", True, "string"),
    ]
    rows = read(topic, fields, badRecords="null", flattenValue="true")
    assert [(row["n"], row["id"]) for row in rows] == [
        (1, "a"), (None, None), (None, None), (4, None),
    ]  # fmt: skip
    assert rows[2]["value"] == b"{"


def test_only_bad_rows(read: Callable[..., Any], topic: str) -> None:
    """No field of the payload is selected, so every object is valid."""
    rows = read(topic, [OFFSET, BAD[0]], badRecords="null")
    assert [row["badReason"] is None for row in rows] == [True, True, False, True]


def test_conditions_come_first(read: Callable[..., Any], topic: str) -> None:
    assert read(topic, [VALUE], where="offset = 3") == [{"value": {"id": None, "n": 4}}]


def test_msgpack(
    read: Callable[..., Any], broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    broker.produce(topic, [b"\x82\xa2id\xa1a\xa1n\x01", b"{}"])
    rows = read(topic, [VALUE, BAD[0]], valueFormat="msgpack", badRecords="null")
    assert [row["value"] for row in rows] == [{"id": "a", "n": 1}, None]
    assert rows[1]["badReason"].startswith("not msgpack")
    with pytest.raises(BadRecord, match=r"offset 1 .*is not valueFormat=msgpack"):
        read(topic, [VALUE], valueFormat="msgpack")


def test_strings(
    read: Callable[..., Any], broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    broker.produce(topic, ["café", b"\xff"])
    fields = [SchemaField("value", "string", True, "string")]
    with pytest.raises(BadRecord, match=r"offset 1 .*not UTF-8 at byte 0"):
        read(topic, fields, valueFormat="string")
    rows = read(topic, fields, valueFormat="string", badRecords="null")
    assert rows == [{"value": "café"}, {"value": None}]


ID_KEY = SchemaField("key", "struct<id:string,n:int>", True, STRUCT)
BODY = SchemaField("value", "binary", True, "binary")


@pytest.fixture
def keyed(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> str:
    """One queue: good keys around a message without one and two with bad ones."""
    name = new_topic(1)
    body = '{"id":"v"}'
    for key in ('{"id":"a","n":1}', "", '{"id":"b","n":"x"}', "plain", '{"n":5}'):
        broker.produce(name, [body], keys=key)
    broker.produce(name, ["{"], keys='{"n":')
    return name


def test_typed_keys(read: Callable[..., Any], keyed: str) -> None:
    given = {"keyFormat": "json", "badRecords": "null"}
    rows = read(keyed, [ID_KEY, VALUE, OFFSET, *BAD], **given)
    assert [row["key"] for row in rows] == [
        {"id": "a", "n": 1}, None, None, None, {"id": None, "n": 5}, None,
    ]  # fmt: skip
    assert [row["value"] and row["value"]["id"] for row in rows] == ["v"] * 5 + [None]
    reasons = [row["badReason"] for row in rows]
    assert reasons[:3] == [None, None, 'key.n is "x", which is not INT']
    assert reasons[3].startswith("not JSON") and reasons[4] is None
    assert rows[2]["badValue"] == b'{"id":"v"}'
    skipping = read(keyed, [OFFSET, ID_KEY], **{**given, "badRecords": "skip"})
    assert [row["offset"] for row in skipping] == [0, 1, 4]
    # The first bad record counts; a later one has a bad value.
    with pytest.raises(BadRecord, match=r"offset 2 of .* is not keyFormat=json"):
        read(keyed, [ID_KEY, VALUE], keyFormat="json")


def test_typed_keys_beside_plain_bodies(read: Callable[..., Any], keyed: str) -> None:
    given = {"keyFormat": "json", "valueFormat": "binary"}
    rows = read(keyed, [BODY, ID_KEY], **given, badRecords="null")
    assert [row["value"] for row in rows] == [b'{"id":"v"}'] * 5 + [b"{"]
    assert rows[0]["key"] == {"id": "a", "n": 1}
    text = r"offset 2 of .* is not keyFormat=json of the schema: key\.n is \"x\", which is not INT"
    with pytest.raises(BadRecord, match=text):
        read(keyed, [BODY, ID_KEY], **given)
    # The text of a key needs no decoding.
    assert read(keyed, [KEY, BODY], **given)[3]["key"] == "plain"
    kafka = {**given, "columnNames": "kafka", "badRecords": "skip"}
    assert [row["key"]["n"] for row in read(keyed, [ID_KEY, BODY], **kafka) if row["key"]] == [1, 5]


def _field(name: str, kind: Any, simple: str = "struct<>") -> SchemaField:
    return SchemaField(name, simple, True, kind)


def test_changes_are_rows(
    read: Callable[..., Any], broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    """A message with several rows repeats its columns; a bad one is one record."""
    topic, dead = new_topic(1), new_topic(1)
    good = '{"type":"INSERT","data":[{"id":"a","n":"1"},{"id":"b","n":"2"}]}'
    bad = '{"type":"INSERT","data":[{"id":"a"},{"n":"x"}]}'
    broker.produce(topic, [good, bad, '{"type":"DELETE","data":[{"id":"a"}]}'], keys="k")
    fields = [OFFSET, _field("op", "string", "string"), _field("after", STRUCT), KEY]
    given = {"valueFormat": "canal-json", "flattenValue": "true"}
    rows = read(topic, [*fields, *BAD], **given, badRecords="null")
    assert [(row["offset"], row["op"], row["after"] and row["after"]["id"]) for row in rows] == [
        (0, "c", "a"), (0, "c", "b"), (1, None, None), (2, "d", None),
    ]  # fmt: skip
    assert [row["badValue"] for row in rows] == [None, None, bad.encode(), None]
    assert {row["key"] for row in rows} == {"k"}
    keyed = [_field("key", STRUCT), _field("op", "string", "string")]
    given |= {"badRecords": "deadLetter", "deadLetterTopic": dead, "keyFormat": "json"}
    assert read(topic, keyed, **given) == [], "every key is bad"
    with SyncDeadLetters(broker.name_server) as letters:
        assert len(letters.read(dead)) == 3, "one for each message"


def test_permissive(read: Callable[..., Any], topic: str) -> None:
    rows = read(topic, [VALUE, *BAD], mode="PERMISSIVE")
    assert [row["value"] for row in rows] == [
        {"id": "a", "n": 1}, {"id": "b", "n": None}, {"id": None, "n": None}, {"id": None, "n": 4},
    ]  # fmt: skip
    assert [row["badReason"] is None for row in rows] == [True, False, False, True]
    assert len(read(topic, [VALUE], mode="DROPMALFORMED")) == 2
    with pytest.raises(BadRecord, match="offset 1 of queue 0"):
        read(topic, [VALUE], mode="FAILFAST")


def test_a_registry_of_schemas(
    read: Callable[..., Any], broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    fields = [{"name": "n", "type": "int"}, {"name": "id", "type": "string"}]
    broker.produce(topic, [b"\0\0\0\0\7\2\2a", b"\0\0\0\0\x08", b"\0\0\0\0\7\4\2b"])
    with http_registry() as registry:
        registry.add(7, {"type": "record", "name": "R", "fields": fields})
        given = {"valueFormat": "avro", "value.schema.registry.url": registry.url}
        rows = read(topic, [VALUE, BAD[0]], **given, badRecords="null")
        assert [row["value"] for row in rows] == [{"id": "a", "n": 1}, None, {"id": "b", "n": 2}]
        assert rows[1]["badReason"].endswith("has no schema 8")
        assert registry.asked == ["/schemas/ids/7", "/schemas/ids/8"]
        options = SourceOptions.parse({**broker.options, "subscribe": topic, **given})
        with pytest.raises(errors.InvalidArgument, match="needs a schema of the columns"):
            found_schema(options)
        options = SourceOptions.parse(
            {**broker.options, "subscribe": topic, **given, "value.schema.registry.id": "7"}
        )
        assert "value struct<`n`: integer, `id`: string>" in found_schema(options)


DAMAGED = b"\x78\x9cdamaged"
BOMB = zlib.compress(bytes((16 << 20) + 1))
IS_PACKED = "the body cannot be decompressed: zlib: "


def send_stored(broker: EmbeddedBroker, topic: str, *bodies: bytes) -> None:
    """Send bodies that say that they are compressed, with key k."""
    queue = MessageQueue(topic, "broker-a", 0)
    with SyncProducer(broker.name_server) as producer:
        for number, body in enumerate(bodies):
            record = MessageRecord(topic, 0, body, sys_flag=COMPRESSED)
            changes = {"UNIQ_KEY": f"{topic}-{number}", "KEYS": "k", "TAGS": f"t{number}"}
            producer.send_copy(ReceivedMessage(record, queue), topic, changes)


@pytest.fixture
def packed(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> str:
    """One queue: good, damaged, bad, good, too large."""
    name = new_topic(1)
    good, bad = (zlib.compress(text) for text in (b'{"id":"a"}', b"{"))
    send_stored(broker, name, good, DAMAGED, bad, good, BOMB)
    return name


@pytest.mark.parametrize("circuit", ["on", "off"])
def test_unreadable_bodies_are_bad_records(
    read: Callable[..., Any], packed: str, circuit: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"shortCircuit": circuit, "badRecords": "null"}
    rows = read(packed, [VALUE, OFFSET, *BAD, KEY], **given)
    good = {"id": "a", "n": None}
    assert [row["value"] for row in rows] == [good, None, None, good, None]
    assert [row["badValue"] for row in rows] == [None, DAMAGED, b"{", None, BOMB]
    reasons = [row["badReason"] or "" for row in rows]
    assert [reason.startswith(IS_PACKED) for reason in reasons] == [False, True, *[False] * 3]
    assert reasons[2].startswith("not JSON")
    assert reasons[4].startswith(IS_PACKED[:-6] + "the body is larger than 16777216")
    assert [(row["offset"], row["key"]) for row in rows] == [(at, "k") for at in range(5)]
    # A condition that leaves out rows before it.
    rows = read(packed, [OFFSET, BAD[0]], **given, where="offset > 0 AND offset < 4")
    assert [(row["offset"], row["badReason"] is None) for row in rows] == [
        (1, False), (2, False), (3, True),
    ]  # fmt: skip
    rows = read(packed, [OFFSET, BAD[0]], badRecords="null", tags="t3 || t4", shortCircuit=circuit)
    assert [(row["offset"], row["badReason"] is None) for row in rows] == [(3, True), (4, False)]
    assert "over the network" not in caplog.text
    with caplog.at_level(logging.WARNING):
        rows = read(packed, [OFFSET, VALUE], badRecords="skip", shortCircuit=circuit)
    assert [row["offset"] for row in rows] == [0, 3]
    assert "skipped 3 bad records, the first at offset 1 of queue 0" in caplog.text
    assert len(read(packed, [VALUE], mode="PERMISSIVE", shortCircuit=circuit)) == 5


def test_an_unreadable_body_fails_with_its_offset(read: Callable[..., Any], packed: str) -> None:
    with pytest.raises(BadRecord) as raised:
        read(packed, [VALUE])
    text = str(raised.value)
    assert f"the message at offset 1 of queue 0 of {packed} on broker-a: {IS_PACKED}" in text
    assert "badRecords=skip" in text and "schema" not in text
    for circuit in ("on", "off"):
        with pytest.raises(errors.DecompressionFailed, match="offset 1 of queue 0") as raised:
            read(packed, [BODY], valueFormat="binary", shortCircuit=circuit)
    # A body that is not decoded is not a bad record, but the error is as clear.
    given = {"keyFormat": "json", "valueFormat": "binary", "badRecords": "skip"}
    with pytest.raises(errors.DecompressionFailed, match="offset 1 of queue 0"):
        read(packed, [BODY, ID_KEY], **given)


@pytest.mark.parametrize(
    ("value_format", "fields"),
    [
        ("json", [VALUE]),
        ("json", [SchemaField("value", "variant", True, "variant")]),
        ("msgpack", [VALUE]),
        ("string", [SchemaField("value", "string", True, "string")]),
        ("canal-json", [SchemaField("value", "struct<op:string>", True, STRUCT_OF_OP)]),
        ("avro", [VALUE]),
    ],
)
def test_only_unreadable_bodies(
    read: Callable[..., Any],
    broker: EmbeddedBroker,
    new_topic: Callable[..., str],
    value_format: str,
    fields: list[SchemaField],
) -> None:
    """The decoder has nothing to decode."""
    topic = new_topic(1)
    send_stored(broker, topic, DAMAGED, DAMAGED)
    given = {"badRecords": "null", "valueFormat": value_format}
    if value_format == "avro":
        kinds = [{"name": "n", "type": "int"}, {"name": "id", "type": "string"}]
        schema = {"type": "record", "name": "R", "fields": kinds}
        given["value.schema"] = json.dumps(schema)
    rows = read(topic, [*fields, *BAD], **given)
    assert [(row["value"], row["badValue"]) for row in rows] == [(None, DAMAGED)] * 2


def test_unreadable_bodies_do_not_count_for_the_schema(broker: EmbeddedBroker, packed: str) -> None:
    for circuit in ("on", "off"):
        given = {**broker.options, "subscribe": packed, "valueFormat": "json"}
        options = SourceOptions.parse({**given, "inferSchema": "true", "shortCircuit": circuit})
        assert "value struct<`id`: string>" in found_schema(options)


def test_unreadable_bodies_between_changes(
    read: Callable[..., Any], broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    two = b'{"type":"INSERT","data":[{"id":"a"},{"id":"b"}]}'
    none = b'{"type":"INSERT","data":[]}'
    bodies = [zlib.compress(body) for body in (two, none, b"{", two)]
    send_stored(broker, topic, DAMAGED, bodies[0], DAMAGED, bodies[1], *bodies[2:])
    fields = [OFFSET, _field("op", "string", "string"), _field("after", STRUCT), BODY, *BAD]
    given = {"valueFormat": "canal-json", "flattenValue": "true", "badRecords": "null"}
    rows = [row for row in read(topic, fields, **given) if row["offset"] != 3]
    assert [(row["offset"], row["op"], row["after"] and row["after"]["id"]) for row in rows] == [
        (0, None, None), (1, "c", "a"), (1, "c", "b"), (2, None, None), (4, None, None),
        (5, "c", "a"), (5, "c", "b"),
    ]  # fmt: skip
    assert [row["badValue"] for row in rows] == [DAMAGED, None, None, DAMAGED, b"{", None, None]
    assert [row["value"] for row in rows] == [DAMAGED, two, two, DAMAGED, b"{", two, two]
    assert [bool(row["badReason"]) for row in rows] == [
        True, False, False, True, True, False, False,
    ]  # fmt: skip


def test_dead_letters_of_unreadable_bodies(
    broker: EmbeddedBroker, new_topic: Callable[..., str], read: Callable[..., Any], packed: str
) -> None:
    dead = new_topic(1)
    given = {"badRecords": "deadLetter", "deadLetterTopic": dead}
    for _ in range(2):
        assert [row["offset"] for row in read(packed, [OFFSET, VALUE], **given)] == [0, 3]
    # The dead letters are readable.
    stored = read(dead, [BODY], valueFormat="binary")
    assert sorted(row["value"][:1] for row in stored) == [b"x", b"x", b"{"]
    with SyncDeadLetters(broker.name_server) as letters:
        found = {letter.message.body: letter for letter in letters.read(dead)}
        assert found[DAMAGED].reason.startswith(IS_PACKED)
        assert found[DAMAGED].message.properties["ORIGIN_OFFSET"] == "1"
        # A replay is the original again.
        assert len(letters.replay(dead)) == 3
    rows = read(packed, [OFFSET, *BAD], badRecords="null", where="offset > 4")
    assert {row["badValue"] for row in rows} == {DAMAGED, b"{", BOMB}
    assert sum("decompressed" in row["badReason"] for row in rows) == 2
