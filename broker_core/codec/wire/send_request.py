"""The fields of a send request, with long names (code 10) or one-letter names (310, 320)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.codec.json.fields import I32_MAX, I32_MIN, whole_number
from broker_core.errors import InvalidArgument

LONG_NAMES: Final = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
    "batch",
)  # fmt: skip
SHORT_NAMES: Final = tuple("abcdefghijklm")


class SendRequest(NamedTuple):
    """The header of a send; the body is the message or the batch."""

    group: str
    topic: str
    default_topic: str
    default_queue_count: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str = ""
    reconsume_times: int = 0
    is_unit: bool = False
    reconsume_times_max: int | None = None
    is_batch: bool = False


def parse_send_request(ext: Mapping[str, str], names: tuple[str, ...]) -> SendRequest:
    """Parse the fields; raises `InvalidArgument` for a missing field or an invalid number."""
    get = ext.get
    (
        group,
        topic,
        default_topic,
        default_count,
        queue_id,
        sys_flag,
        born,
        flag,
        properties,
        reconsumed,
        unit,
        reconsumed_max,
        batch,
    ) = names
    limit = get(reconsumed_max)
    return SendRequest(
        _text(ext, group),
        _text(ext, topic),
        get(default_topic, ""),
        _i32(ext, default_count, "4"),
        _i32(ext, queue_id),
        _i32(ext, sys_flag),
        whole_number(_text(ext, born), born),
        _i32(ext, flag),
        get(properties) or "",
        _i32(ext, reconsumed, "0"),
        get(unit) == "true",
        None if limit is None else whole_number(limit, reconsumed_max, I32_MIN, I32_MAX),
        get(batch) == "true",
    )


def send_request_fields(request: SendRequest) -> dict[str, str]:
    """The header fields of a request, with one-letter names."""
    fields = {
        "a": request.group,
        "b": request.topic,
        "c": request.default_topic,
        "d": str(request.default_queue_count),
        "e": str(request.queue_id),
        "f": str(request.sys_flag),
        "g": str(request.born_timestamp),
        "h": str(request.flag),
        "i": request.properties,
        "j": str(request.reconsume_times),
        "k": "true" if request.is_unit else "false",
        "m": "true" if request.is_batch else "false",
    }
    if request.reconsume_times_max is not None:
        fields["l"] = str(request.reconsume_times_max)
    return fields


def _text(ext: Mapping[str, str], name: str) -> str:
    value = ext.get(name)
    if value is None:
        raise InvalidArgument(f"field {name} is missing")
    return value


def _i32(ext: Mapping[str, str], name: str, default: str | None = None) -> int:
    value = ext.get(name, default)
    if value is None:
        raise InvalidArgument(f"field {name} is missing")
    return whole_number(value, name, I32_MIN, I32_MAX)
