"""Registration requests: both body forms, the checksum, and everything that must be refused."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.wire.bodies.topic_config import (
    DataVersion,
    TopicConfig,
    encode_register_body,
)
from broker_core.errors import InvalidArgument, RemoteError, RmqError
from broker_core.nameserver.broker_registration import (
    decode_compressed_body,
    decode_register_body,
    read_registration,
)
from broker_core.nameserver.settings import NameServerSettings, RouteLimits

SETTINGS = NameServerSettings()
LIMITS = SETTINGS.limits
VERSION = DataVersion(3, 0, 1_700_000_000_000)
VERSION_JSON = b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}'

FIELDS = {
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}

# As Apache 5.x sends it: with the mapping sections and keys that mean nothing to us.
JAVA_BODY = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":' + VERSION_JSON + b","
    b'"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},'
    b'"topicConfigTable":{"T1":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,'
    b'"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":0,"writeQueueNums":8},'
    b'"TBW102":{"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}},'
    b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
)
TOPICS = (TopicConfig("T1", 8, 8), TopicConfig("TBW102", 8, 8, 7))


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compressed(
    topics: Sequence[bytes], version: bytes = VERSION_JSON, tail: bytes = b"", level: int = 9
) -> bytes:
    parts = [block(version), struct.pack(">i", len(topics)), *map(block, topics), block(b"[]")]
    return zlib.compress(b"".join(parts) + tail, level)


def test_a_java_registration_is_read() -> None:
    fields = {
        **FIELDS,
        "brokerId": "1",
        "heartbeatTimeoutMillis": "9000",
        "enableActingMaster": "false",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(JAVA_BODY) & 0x7FFFFFFF),
        "__ZONE_NAME": "zone-1",
    }
    found = read_registration(fields, memoryview(JAVA_BODY), SETTINGS)
    assert found.identity == ("DefaultCluster", "broker-a", 1, "10.0.0.1:10911")
    assert (found.version, found.topics) == (VERSION, TOPICS)
    assert found.ha_address == "10.0.0.1:10912"
    assert found.heartbeat_timeout_ms == 9_000
    assert found.enable_acting_master is False
    assert found.zone_name == "zone-1"


def test_absent_fields_mean_an_old_broker() -> None:
    found = read_registration(FIELDS, b"", SETTINGS)
    assert (found.version, found.topics) == (DataVersion(), ())
    assert found.heartbeat_timeout_ms == 120_000
    assert found.enable_acting_master is None
    assert found.zone_name is None


def test_our_own_body_is_read() -> None:
    assert decode_register_body(encode_register_body(VERSION, TOPICS), LIMITS) == (VERSION, TOPICS)


@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("tail", [b"", struct.pack(">i", 1) + block(b"{}")])
def test_the_compressed_form_of_4_9_and_5_x(level: int, tail: bytes) -> None:
    body = compressed(
        [b"T1 8 8 6 SINGLE_TAG {}", b"TBW102 8 8 7 SINGLE_TAG"], tail=tail, level=level
    )
    assert decode_compressed_body(body, LIMITS) == (VERSION, TOPICS)
    found = read_registration({**FIELDS, "compressed": "true"}, body, SETTINGS)
    assert found.topics == TOPICS


def test_attributes_of_the_compressed_form_may_hold_spaces() -> None:
    body = compressed([b'T1 8 8 6 SINGLE_TAG {"a b": "c d"}'])
    _, [topic] = decode_compressed_body(body, LIMITS)
    assert topic.attributes == {"a b": "c d"}


def test_the_checksum_covers_the_raw_body() -> None:
    body = compressed([b"T1 8 8 6 SINGLE_TAG {}"])
    right = {**FIELDS, "compressed": "true", "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    read_registration(right, body, SETTINGS)
    wrong = {**right, "bodyCrc32": "12345"}
    with pytest.raises(RemoteError, match="crc32 not match") as refused:
        read_registration(wrong, body, SETTINGS)
    assert refused.value.response_code == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("brokerName", ""),
        ("brokerName", "../x"),
        ("brokerName", "b\n"),
        ("brokerName", "b" * 256),
        ("clusterName", "c/d"),
        ("brokerAddr", "10.0.0.1"),
        ("brokerAddr", "0.0.0.0:10911"),
        ("brokerAddr", "[::]:10911"),
        ("brokerAddr", "10.0.0.1:0"),
        ("brokerAddr", "10.0.0.1:65536"),
        ("brokerAddr", "10.0.0.1:1091x"),
        ("brokerAddr", "a,b:1"),
        ("brokerAddr", "http://x:1"),
        ("brokerAddr", "x" * 300 + ":1"),
        ("haServerAddr", "nothing"),
        ("brokerId", "-1"),
        ("brokerId", "9" * 19),
        ("brokerId", "9" * 5_000),
        ("brokerId", "0x1"),
        ("heartbeatTimeoutMillis", "0"),
        ("heartbeatTimeoutMillis", "9" * 18),
        ("bodyCrc32", "abc"),
        ("__ZONE_NAME", "a b"),
    ],
)
def test_bad_fields_are_refused(field: str, value: str) -> None:
    with pytest.raises(InvalidArgument):
        read_registration({**FIELDS, field: value}, b"", SETTINGS)


@pytest.mark.parametrize("field", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
def test_a_missing_field_is_named(field: str) -> None:
    fields = {name: value for name, value in FIELDS.items() if name != field}
    with pytest.raises(InvalidArgument, match=field):
        read_registration(fields, b"", SETTINGS)


@pytest.mark.parametrize("address", ["broker_1.example-2.com:1", "[fe80::1%eth0]:2", "::1:10911"])
def test_good_addresses(address: str) -> None:
    assert (
        read_registration({**FIELDS, "brokerAddr": address}, b"", SETTINGS).identity[3] == address
    )


def test_a_bomb_is_refused_at_the_cap() -> None:
    limits = RouteLimits(registration_size_max=10_000)
    bomb = zlib.compress(bytes(100 << 20), 9)
    with pytest.raises(InvalidArgument, match="larger than 10000"):
        decode_compressed_body(bomb, limits)


def test_a_body_of_exactly_the_cap_is_read() -> None:
    body = compressed([b"T1 8 8 6 SINGLE_TAG {}"])
    size = len(zlib.decompress(body))
    decode_compressed_body(body, RouteLimits(registration_size_max=size))
    with pytest.raises(InvalidArgument):
        decode_compressed_body(body, RouteLimits(registration_size_max=size - 1))


def test_too_many_topics_are_refused_before_they_are_built() -> None:
    limits = RouteLimits(topics_max=1)
    with pytest.raises(InvalidArgument, match="2 topics"):
        decode_register_body(JAVA_BODY, limits)
    many = zlib.compress(block(VERSION_JSON) + struct.pack(">i", (1 << 31) - 1))
    with pytest.raises(InvalidArgument, match="topics"):
        decode_compressed_body(many, LIMITS)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not zlib",
        compressed([b"T1 8 8 6 SINGLE_TAG {}"])[:-6],
        zlib.compress(b""),
        zlib.compress(b"\0\0"),
        zlib.compress(struct.pack(">i", -1)),
        zlib.compress(struct.pack(">i", (1 << 31) - 1) + b"{}"),
        compressed([b"T1 8 8 6"]),
        compressed([b"T1 8 8 99 SINGLE_TAG"]),
        compressed([b"T1 x 8 6 SINGLE_TAG"]),
        compressed([b"T1 8 8 6 SINGLE_TAG ["]),
        compressed([b"\xff 8 8 6 SINGLE_TAG"]),
        compressed([], version=b"[]"),
        compressed([], version=b"{" * 10_000),
    ],
)
def test_broken_compressed_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(RmqError):
        decode_compressed_body(body, LIMITS)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"topicConfigSerializeWrapper":[]}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":1}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{{"a":1}:{}}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":NaN}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":' + b"9" * 5_000 + b"}}}",
    ],
)
def test_broken_json_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(RmqError):
        decode_register_body(body, LIMITS)


@given(st.integers(0, len(JAVA_BODY) - 1), st.integers(0, 255))
def test_any_changed_byte_gives_topics_or_a_refusal(position: int, byte: int) -> None:
    body = bytearray(JAVA_BODY)
    body[position] = byte
    try:
        _, topics = decode_register_body(bytes(body), LIMITS)
    except RmqError:
        return
    assert all(isinstance(topic, TopicConfig) for topic in topics)


@given(st.binary(max_size=200))
def test_any_inflated_bytes_give_topics_or_a_refusal(data: bytes) -> None:
    for inflated in (data, block(VERSION_JSON) + data):
        try:
            decode_compressed_body(zlib.compress(inflated), LIMITS)
        except RmqError:
            continue


def test_the_java_body_is_standard_json() -> None:
    assert json.loads(JAVA_BODY)["filterServerList"] == []
