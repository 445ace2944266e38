"""Topic settings as bodies carry them: TopicConfig, DataVersion and tables of them.

Brokers register these records, and `topics.json` contains them. Parsing checks types and ranges;
names are validated where they are used (`topic_name.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker_core.codec.json.dialect import emit_json
from broker_core.codec.json.fields import (
    I32_MAX,
    flag_field,
    object_field,
    text_field,
    whole_field,
)

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
PERM_MASK: Final = 15

UNIT_FLAG: Final = 1
UNIT_SUBSCRIPTION_FLAG: Final = 2

_NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})


class DataVersion(NamedTuple):
    """The version of a table. Two versions are the same state only if all three fields agree."""

    counter: int = 0
    state_version: int = 0
    timestamp_ms: int = 0


class TopicConfig(NamedTuple):
    """One topic of one broker."""

    name: str
    read_queue_count: int
    write_queue_count: int
    perm: int = PERM_READ | PERM_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = _NO_ATTRIBUTES


def data_version_object(version: DataVersion) -> dict[str, int]:
    """The JSON object of a DataVersion."""
    return {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp_ms,
    }


def encode_data_version(version: DataVersion) -> bytes:
    """A DataVersion body."""
    return emit_json(data_version_object(version))


def parse_data_version(found: object) -> DataVersion:
    """A DataVersion from a parsed object; peers older than 5.0 have no `stateVersion`."""
    values = object_field({"dataVersion": found}, "dataVersion")
    return DataVersion(
        whole_field(values, "counter", 0),
        whole_field(values, "stateVersion", 0),
        whole_field(values, "timestamp", 0),
    )


def topic_config_object(topic: TopicConfig) -> dict[str, Any]:
    """The JSON object of a TopicConfig, keys in RocketMQ's order."""
    return {
        "attributes": dict(topic.attributes),
        "order": topic.order,
        "perm": topic.perm,
        "readQueueNums": topic.read_queue_count,
        "topicFilterType": topic.filter_type,
        "topicName": topic.name,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queue_count,
    }


def parse_topic_config(found: Mapping[str, Any], name_default: str = "") -> TopicConfig:
    """A TopicConfig from a parsed object; `name_default` is its key in the table around it."""
    attributes = object_field(found, "attributes")
    return TopicConfig(
        text_field(found, "topicName", name_default),
        whole_field(found, "readQueueNums", 16, 0, I32_MAX),
        whole_field(found, "writeQueueNums", 16, 0, I32_MAX),
        whole_field(found, "perm", PERM_READ | PERM_WRITE, 0, PERM_MASK),
        text_field(found, "topicFilterType", "SINGLE_TAG"),
        whole_field(found, "topicSysFlag", 0, 0, I32_MAX),
        flag_field(found, "order", False),
        {key: text_field(attributes, key) for key in attributes} if attributes else _NO_ATTRIBUTES,
    )


def parse_topic_table(found: Mapping[str, Any]) -> tuple[TopicConfig, ...]:
    """The topics of a `topicConfigTable`."""
    return tuple(parse_topic_config(object_field(found, name), name) for name in found)


def topic_table_object(topics: Iterable[TopicConfig]) -> dict[str, dict[str, Any]]:
    """A `topicConfigTable`."""
    return {topic.name: topic_config_object(topic) for topic in topics}


def encode_register_body(version: DataVersion, topics: Iterable[TopicConfig]) -> bytes:
    """A RegisterBrokerBody, uncompressed, as every name server accepts it."""
    return emit_json(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": data_version_object(version),
                "topicConfigTable": topic_table_object(topics),
            },
        }
    )
