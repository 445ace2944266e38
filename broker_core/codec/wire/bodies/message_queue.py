"""One queue of one broker, maps keyed by it, and the bodies that lock queues.

A queue is `{"brokerName":"broker-a","queueId":0,"topic":"T"}`. As a map key it is written raw,
which is not JSON but is read by every client (`{{"brokerName":…}:5}`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker_core.codec.json.dialect import (
    ObjectKey,
    RawKeyMap,
    emit_json,
    key_fields,
    parse_object,
)
from broker_core.codec.json.fields import (
    I32_MAX,
    flag_field,
    list_field,
    text_field,
    whole_field,
)
from broker_core.errors import InvalidArgument

QUEUE_ID_MAX: Final = I32_MAX


class MessageQueue(NamedTuple):
    """Ordered by topic, broker name and id; rebalancing relies on this order."""

    topic: str
    broker_name: str
    queue_id: int


class QueueLockRequest(NamedTuple):
    """The queues that a client locks or unlocks."""

    client_id: str
    group: str
    queues: tuple[MessageQueue, ...]
    only_this_broker: bool = False


def queue_object(queue: MessageQueue) -> dict[str, Any]:
    """The JSON object of a queue, keys in RocketMQ's order."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def parse_queue(found: object) -> MessageQueue:
    """A queue from a parsed object."""
    if not isinstance(found, Mapping):
        raise InvalidArgument("a message queue is not an object")
    return MessageQueue(
        text_field(found, "topic"),
        text_field(found, "brokerName", ""),
        whole_field(found, "queueId", None, 0, QUEUE_ID_MAX),
    )


def queue_map(entries: Mapping[MessageQueue, Any]) -> RawKeyMap:
    """A map keyed by queues, for `emit_json`."""
    return RawKeyMap((queue_object(queue), value) for queue, value in entries.items())


def parse_queue_map(found: object) -> dict[MessageQueue, Any]:
    """A map keyed by queues, from a parsed object."""
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidArgument("a map of message queues is not an object")
    keys: Iterable[str | ObjectKey] = found
    return {parse_queue(key_fields(key)): found[key] for key in keys}


def encode_lock_request(request: QueueLockRequest) -> bytes:
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""
    return emit_json(
        {
            "clientId": request.client_id,
            "consumerGroup": request.group,
            "mqSet": [queue_object(queue) for queue in request.queues],
            "onlyThisBroker": request.only_this_broker,
        }
    )


def parse_lock_request(body: bytes | memoryview) -> QueueLockRequest:
    """The inverse of `encode_lock_request`; Go leaves `onlyThisBroker` out."""
    found = parse_object(body)
    return QueueLockRequest(
        text_field(found, "clientId"),
        text_field(found, "consumerGroup"),
        tuple(parse_queue(queue) for queue in list_field(found, "mqSet")),
        flag_field(found, "onlyThisBroker", False),
    )


def encode_locked_queues(queues: Iterable[MessageQueue]) -> bytes:
    """Response to LOCK_BATCH_MQ: the queues that the client has locked."""
    return emit_json({"lockOKMQSet": [queue_object(queue) for queue in queues]})


def parse_locked_queues(body: bytes | memoryview) -> frozenset[MessageQueue]:
    """The inverse of `encode_locked_queues`."""
    return frozenset(parse_queue(queue) for queue in list_field(parse_object(body), "lockOKMQSet"))
