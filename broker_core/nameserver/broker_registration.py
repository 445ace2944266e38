"""REGISTER_BROKER as a record: header fields and body, plain or compressed, checked and bounded.

Compressed body after inflation, every length and count an i32:

    length + JSON        data version
    count                topics, each: length + `name readQ writeQ perm filterType [attributesJson]`
    length + JSON        filter servers, ignored
    count                queue mappings (senders from 5.0 on), ignored
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.codec.json.dialect import parse_json, parse_object
from broker_core.codec.json.fields import I32_MAX, I32_MIN, object_field, text_field, whole_number
from broker_core.codec.native import body_crc
from broker_core.codec.wire.bodies.topic_config import (
    PERM_MASK,
    DataVersion,
    TopicConfig,
    parse_data_version,
    parse_topic_table,
)
from broker_core.codec.wire.topic_name import broker_name_problem
from broker_core.errors import InvalidArgument, RemoteError
from broker_core.nameserver.broker_identity import (
    BrokerIdentity,
    broker_address_problem,
    read_identity,
)
from broker_core.nameserver.settings import NameServerSettings, RouteLimits
from broker_core.protocol_codes import ResponseCode

HEARTBEAT_TIMEOUT_MS_MAX: Final = 24 * 3_600_000
ZONE_NAME_FIELD: Final = "__ZONE_NAME"

_I32 = struct.Struct(">i")


class BrokerRegistration(NamedTuple):
    """Content of one registration. `enable_acting_master` is None for senders older than 5.0."""

    identity: BrokerIdentity
    version: DataVersion
    topics: tuple[TopicConfig, ...]
    ha_address: str = ""
    heartbeat_timeout_ms: int = 120_000
    enable_acting_master: bool | None = None
    zone_name: str | None = None


def read_registration(
    ext: Mapping[str, str], body: bytes | memoryview, settings: NameServerSettings
) -> BrokerRegistration:
    """The registration in a request; refuses a wrong checksum, malformed or oversized parts."""
    identity = read_identity(ext)
    _check_crc(ext.get("bodyCrc32", "0"), body)
    if ext.get("compressed", "").lower() == "true":
        version, topics = decode_compressed_body(body, settings.limits)
    else:
        version, topics = decode_register_body(body, settings.limits)
    ha_address = ext.get("haServerAddr", "")
    if ha_address and (problem := broker_address_problem(ha_address)):
        raise InvalidArgument(f"haServerAddr {problem}")
    zone = ext.get(ZONE_NAME_FIELD) or None
    if zone is not None and (problem := broker_name_problem(zone)):
        raise InvalidArgument(f"zone {problem}")
    acting = ext.get("enableActingMaster")
    return BrokerRegistration(
        identity,
        version,
        topics,
        ha_address,
        _heartbeat_timeout_ms(ext.get("heartbeatTimeoutMillis"), settings.heartbeat_timeout_ms),
        None if acting is None else acting.lower() == "true",
        zone,
    )


def decode_register_body(
    body: bytes | memoryview, limits: RouteLimits
) -> tuple[DataVersion, tuple[TopicConfig, ...]]:
    """Version and topics of a RegisterBrokerBody; an empty body has no topics."""
    if not len(body):
        return DataVersion(), ()
    found = parse_object(body, references=True)
    wrapper = object_field(found, "topicConfigSerializeWrapper")
    table = object_field(wrapper, "topicConfigTable")
    _check_topic_count(len(table), limits)
    return parse_data_version(wrapper.get("dataVersion")), parse_topic_table(table)


def decode_compressed_body(
    body: bytes | memoryview, limits: RouteLimits
) -> tuple[DataVersion, tuple[TopicConfig, ...]]:
    """Version and topics of the compressed form."""
    reader = _Reader(_inflated(body, limits.registration_size_max))
    version = parse_data_version(parse_json(reader.block()))
    topic_count = reader.count()
    _check_topic_count(topic_count, limits)
    return version, tuple(_topic_from_text(reader.block()) for _ in range(topic_count))


def _check_crc(text: str, body: bytes | memoryview) -> None:
    expected = whole_number(text, "bodyCrc32", I32_MIN, I32_MAX)
    if expected != 0 and expected != body_crc(body):
        raise RemoteError.for_code(ResponseCode.SYSTEM_ERROR, "crc32 not match")


def _heartbeat_timeout_ms(text: str | None, default_ms: int) -> int:
    if text is None:
        return default_ms
    return whole_number(text, "heartbeatTimeoutMillis", 1, HEARTBEAT_TIMEOUT_MS_MAX)


def _check_topic_count(count: int, limits: RouteLimits) -> None:
    if count > limits.topics_max:
        raise InvalidArgument(f"{count} topics in one registration, at most {limits.topics_max}")


def _inflated(body: bytes | memoryview, size_max: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # One byte more than the limit, to detect a larger body.
        data = inflater.decompress(body, size_max + 1)
    except zlib.error as error:
        raise InvalidArgument(f"compressed body is broken: {error}") from None
    if len(data) > size_max:
        raise InvalidArgument(f"compressed body is larger than {size_max} bytes")
    if not inflater.eof:
        raise InvalidArgument("compressed body is cut short")
    return data


class _Reader:
    """Reads length-prefixed blocks; every length is checked against the remaining bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self) -> int:
        end = self._position + _I32.size
        if end > len(self._data):
            raise InvalidArgument("compressed body ends inside a length")
        (value,) = _I32.unpack_from(self._data, self._position)
        if value < 0:
            raise InvalidArgument("compressed body has a negative length")
        self._position = end
        return int(value)

    def block(self) -> bytes:
        size = self.count()
        end = self._position + size
        if end > len(self._data):
            raise InvalidArgument("compressed body ends inside a block")
        block = self._data[self._position : end]
        self._position = end
        return block


def _topic_from_text(block: bytes) -> TopicConfig:
    try:
        parts = block.decode("utf-8").split(" ", 5)
    except UnicodeDecodeError:
        raise InvalidArgument("a topic of the compressed body is not UTF-8") from None
    if len(parts) < 5:
        raise InvalidArgument("a topic of the compressed body has fewer than five items")
    name, read_count, write_count, perm, filter_type = parts[:5]
    return TopicConfig(
        name,
        whole_number(read_count, "read queues", 0, I32_MAX),
        whole_number(write_count, "write queues", 0, I32_MAX),
        whole_number(perm, "perm", 0, PERM_MASK),
        filter_type,
        attributes=_attributes(parts[5]) if len(parts) == 6 else {},
    )


def _attributes(text: str) -> dict[str, str]:
    found: Mapping[str, Any] = parse_object(text.encode())
    return {key: text_field(found, key) for key in found}
