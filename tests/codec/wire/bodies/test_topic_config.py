"""Topic settings and versions as JSON objects, and the registration body built from them."""

from __future__ import annotations

import zlib

import pytest

from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.topic_config import (
    DataVersion,
    TopicConfig,
    data_version_object,
    encode_data_version,
    encode_register_body,
    parse_data_version,
    parse_topic_config,
    parse_topic_table,
    topic_config_object,
    topic_table_object,
)
from broker_core.errors import InvalidArgument

VERSION = DataVersion(counter=1, state_version=0, timestamp_ms=1_700_000_000_000)


def test_an_empty_registration_is_the_protocols_text_with_its_checksum() -> None:
    body = encode_register_body(VERSION, [])
    assert body == (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,'
        b'"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{}}}'
    )
    assert len(body) == 148
    assert zlib.crc32(body) & 0x7FFFFFFF == 385_843_084


def test_a_topic_is_the_protocols_text() -> None:
    assert emit_json(topic_config_object(TopicConfig("T1", 8, 8))) == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":8,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":0,"writeQueueNums":8}'
    )


def test_versions_are_the_same_only_if_all_fields_agree() -> None:
    assert encode_data_version(VERSION) == (
        b'{"counter":1,"stateVersion":0,"timestamp":1700000000000}'
    )
    assert parse_data_version(data_version_object(VERSION)) == VERSION
    assert parse_data_version({"counter": 1, "timestamp": VERSION.timestamp_ms}) == VERSION
    for field in ("counter", "state_version", "timestamp_ms"):
        assert VERSION._replace(**{field: 99}) != VERSION
    assert parse_data_version(None) == DataVersion()


def test_tables_round_trip() -> None:
    topics = (
        TopicConfig("T1", 8, 4, 4, "MULTI_TAG", 3, True, {"message.type": "FIFO"}),
        TopicConfig("T2", 0, 1, 2),
    )
    assert parse_topic_table(topic_table_object(topics)) == topics


def test_a_topic_of_4_9_has_no_attributes_and_may_take_its_name_from_its_key() -> None:
    assert parse_topic_config({"readQueueNums": 1, "writeQueueNums": 2}, "T") == TopicConfig(
        "T", 1, 2
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"topicName": 1},
        {"topicName": "T", "perm": 16},
        {"topicName": "T", "perm": -1},
        {"topicName": "T", "readQueueNums": 1 << 31},
        {"topicName": "T", "writeQueueNums": "8"},
        {"topicName": "T", "order": 1},
        {"topicName": "T", "topicSysFlag": 1.5},
        {"topicName": "T", "attributes": []},
        {"topicName": "T", "attributes": {"a": 1}},
    ],
)
def test_wrong_types_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        parse_topic_config(fields)


@pytest.mark.parametrize("found", [[], "1", 7, {"counter": "1"}, {"timestamp": 1 << 63}])
def test_a_broken_version_is_refused(found: object) -> None:
    with pytest.raises(InvalidArgument):
        parse_data_version(found)
