"""Heartbeat of a client: its id, its groups and their subscriptions.

Enumerations are names in Java and Go, and their ordinals in C++ (and in the Python client built
on it); both are read, names are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker_core.codec.json.dialect import emit_json, parse_object
from broker_core.codec.json.fields import flag_field, list_field, text_field, whole_field
from broker_core.codec.wire.bodies.subscription_data import (
    SubscriptionData,
    parse_subscription,
    subscription_object,
)
from broker_core.errors import InvalidArgument

# Limits on what a broker parses for one client.
HEARTBEAT_SIZE_MAX: Final = 1 << 20
CLIENT_ID_SIZE_MAX: Final = 255

CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"
CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
FROM_LAST_OFFSET: Final = "CONSUME_FROM_LAST_OFFSET"
FROM_FIRST_OFFSET: Final = "CONSUME_FROM_FIRST_OFFSET"
FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"

# In the order of their ordinals.
_CONSUME_TYPES: Final = (CONSUME_ACTIVELY, CONSUME_PASSIVELY, "CONSUME_POP")
_MESSAGE_MODELS: Final = (BROADCASTING, CLUSTERING)
_START_POSITIONS: Final = (
    FROM_LAST_OFFSET,
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    FROM_FIRST_OFFSET,
    FROM_TIMESTAMP,
)

_ENUM_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


class ConsumerData(NamedTuple):
    """One consumer group of a client."""

    group: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = CLUSTERING
    consume_from_where: str = FROM_LAST_OFFSET
    subscriptions: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(NamedTuple):
    """One heartbeat. `without_sub`: subscriptions are unchanged since the previous one."""

    client_id: str
    producers: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    without_sub: bool = False


def encode_heartbeat(heartbeat: HeartbeatData) -> bytes:
    """The body of HEART_BEAT."""
    return emit_json(
        {
            "clientID": heartbeat.client_id,
            "consumerDataSet": [_consumer_object(consumer) for consumer in heartbeat.consumers],
            "heartbeatFingerprint": heartbeat.fingerprint,
            "producerDataSet": [{"groupName": group} for group in heartbeat.producers],
            "withoutSub": heartbeat.without_sub,
        }
    )


def parse_heartbeat(body: bytes | memoryview) -> HeartbeatData:
    """The inverse of `encode_heartbeat`. The broker validates the names."""
    if len(body) > HEARTBEAT_SIZE_MAX:
        raise InvalidArgument(f"a heartbeat of {len(body)} bytes, at most {HEARTBEAT_SIZE_MAX}")
    # Java may write a subscription shared by several groups once.
    found = parse_object(body, references=True)
    return HeartbeatData(
        text_field(found, "clientID"),
        tuple(text_field(item, "groupName") for item in _objects(found, "producerDataSet")),
        tuple(_parse_consumer(item) for item in _objects(found, "consumerDataSet")),
        whole_field(found, "heartbeatFingerprint", 0),
        flag_field(found, "withoutSub", False),
    )


def _consumer_object(consumer: ConsumerData) -> dict[str, Any]:
    return {
        "consumeFromWhere": consumer.consume_from_where,
        "consumeType": consumer.consume_type,
        "groupName": consumer.group,
        "messageModel": consumer.message_model,
        "subscriptionDataSet": [subscription_object(sub) for sub in consumer.subscriptions],
        "unitMode": consumer.unit_mode,
    }


def _parse_consumer(found: Mapping[str, Any]) -> ConsumerData:
    return ConsumerData(
        text_field(found, "groupName"),
        _enum_field(found, "consumeType", _CONSUME_TYPES, CONSUME_PASSIVELY),
        _enum_field(found, "messageModel", _MESSAGE_MODELS, CLUSTERING),
        _enum_field(found, "consumeFromWhere", _START_POSITIONS, FROM_LAST_OFFSET),
        tuple(parse_subscription(item) for item in list_field(found, "subscriptionDataSet")),
        flag_field(found, "unitMode", False),
    )


def _enum_field(found: Mapping[str, Any], name: str, ordinals: Sequence[str], default: str) -> str:
    value = found.get(name)
    if type(value) is int:
        return ordinals[whole_field(found, name, None, 0, len(ordinals) - 1)]
    text = text_field(found, name, default).upper()
    # Unknown names are passed on to tools; they must still have the form of a name.
    if _ENUM_NAME.fullmatch(text) is None:
        raise InvalidArgument(f"{name} {text[:60]!r} is not the name of an enumeration value")
    return text


def _objects(found: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    items: list[Mapping[str, Any]] = []
    for item in list_field(found, name):
        if not isinstance(item, dict):
            raise InvalidArgument(f"{name} has an entry that is not an object")
        items.append(item)
    return items
