"""Settings of a consumer group as bodies and `subscriptionGroup.json` carry them.

Unknown keys (5.x has several) are kept and written back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker_core.codec.json.dialect import emit_json
from broker_core.codec.json.fields import (
    I32_MAX,
    I64_MAX,
    flag_field,
    is_deeper,
    object_field,
    text_field,
    whole_field,
)
from broker_core.errors import InvalidArgument

RETRY_TIMES_MAX_DEFAULT: Final = 16
# Unknown keys are kept for every group, so their size is limited.
EXTRA_SIZE_MAX: Final = 16 << 10
# The parser of the table file rejects deeper values.
EXTRA_DEPTH_MAX: Final = 8

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class GroupConfig(NamedTuple):
    """One consumer group of one broker."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_count: int = 1
    retry_times_max: int = RETRY_TIMES_MAX_DEFAULT
    broker_id: int = 0
    broker_id_when_slow: int = 1
    notify_on_change: bool = True
    extra: Mapping[str, Any] = _NOTHING


_KNOWN: Final = frozenset(
    {
        "brokerId",
        "consumeBroadcastEnable",
        "consumeEnable",
        "consumeFromMinEnable",
        "groupName",
        "notifyConsumerIdsChangedEnable",
        "retryMaxTimes",
        "retryQueueNums",
        "whichBrokerWhenConsumeSlowly",
    }
)


def group_config_object(group: GroupConfig) -> dict[str, Any]:
    """The JSON object of a group, keys in RocketMQ's order."""
    known = {
        "brokerId": group.broker_id,
        "consumeBroadcastEnable": group.consume_broadcast_enable,
        "consumeEnable": group.consume_enable,
        "consumeFromMinEnable": group.consume_from_min_enable,
        "groupName": group.name,
        "notifyConsumerIdsChangedEnable": group.notify_on_change,
        "retryMaxTimes": group.retry_times_max,
        "retryQueueNums": group.retry_queue_count,
        "whichBrokerWhenConsumeSlowly": group.broker_id_when_slow,
    }
    return dict(sorted({**group.extra, **known}.items())) if group.extra else known


def parse_group_config(found: Mapping[str, Any], name_default: str = "") -> GroupConfig:
    """A group from a parsed object; `name_default` is its key in the table around it."""
    extra = {key: value for key, value in found.items() if key not in _KNOWN and value is not None}
    if extra:
        _check_extra(extra)
    return GroupConfig(
        text_field(found, "groupName", name_default),
        flag_field(found, "consumeEnable", True),
        flag_field(found, "consumeFromMinEnable", True),
        flag_field(found, "consumeBroadcastEnable", True),
        whole_field(found, "retryQueueNums", 1, 0, I32_MAX),
        # -1: the group has no limit of its own.
        whole_field(found, "retryMaxTimes", RETRY_TIMES_MAX_DEFAULT, -1, I32_MAX),
        whole_field(found, "brokerId", 0, 0, I64_MAX),
        whole_field(found, "whichBrokerWhenConsumeSlowly", 1, 0, I64_MAX),
        flag_field(found, "notifyConsumerIdsChangedEnable", True),
        extra or _NOTHING,
    )


def parse_group_table(found: Mapping[str, Any]) -> tuple[GroupConfig, ...]:
    """The groups of a `subscriptionGroupTable`."""
    return tuple(parse_group_config(object_field(found, name), name) for name in found)


def group_table_object(groups: Iterable[GroupConfig]) -> dict[str, dict[str, Any]]:
    """A `subscriptionGroupTable`."""
    return {group.name: group_config_object(group) for group in groups}


def _check_extra(extra: Mapping[str, Any]) -> None:
    if is_deeper(extra, EXTRA_DEPTH_MAX):
        raise InvalidArgument(f"unknown fields of a group are deeper than {EXTRA_DEPTH_MAX}")
    if len(emit_json(extra)) > EXTRA_SIZE_MAX:
        raise InvalidArgument(f"unknown fields of a group have more than {EXTRA_SIZE_MAX} bytes")
