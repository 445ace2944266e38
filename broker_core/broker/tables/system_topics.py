"""Topics that every broker has, and which of them clients may not send to.

Pure: names, sizes and permissions. `TopicTable` creates the topics when it loads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_core.codec.wire.bodies.topic_config import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
)
from broker_core.codec.wire.topic_name import (
    BENCHMARK_TOPIC,
    OFFSET_MOVED_TOPIC,
    REPLY_TOPIC_SUFFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TEMPLATE_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
)
from broker_core.storage.log.append_group import GROUP_TOPIC

TRANSACTION_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
APPEND_GROUP_TOPIC: Final = GROUP_TOPIC.decode()

SCHEDULE_QUEUE_COUNT: Final = 18

_FIXED_NAMES: Final = frozenset(
    {
        BENCHMARK_TOPIC,
        OFFSET_MOVED_TOPIC,
        SCHEDULE_TOPIC,
        SELF_TEST_TOPIC,
        TEMPLATE_TOPIC,
        TRACE_TOPIC,
        TRANSACTION_GIVEN_UP_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_TOPIC,
    }
)

# Only the broker writes here: a forged record would be delivered or committed.
_BROKER_ONLY: Final = frozenset(
    {
        APPEND_GROUP_TOPIC,
        OFFSET_MOVED_TOPIC,
        SCHEDULE_TOPIC,
        SELF_TEST_TOPIC,
        TIMER_TOPIC,
        TRANSACTION_GIVEN_UP_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_TOPIC,
    }
)

# Not readable by consumers: delayed and half messages, and the broker's own records.
_UNREADABLE: Final = frozenset(
    {
        APPEND_GROUP_TOPIC,
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_TOPIC,
    }
)

_READ_WRITE: Final = PERM_READ | PERM_WRITE
_TEMPLATE: Final = _READ_WRITE | PERM_INHERIT


def system_topics(
    cluster_name: str,
    broker_name: str,
    *,
    auto_create: bool,
    default_queue_count: int,
    trace_topic: bool,
) -> tuple[TopicConfig, ...]:
    """The topics that every broker has.

    Cluster and broker are topics too: tools send to them to measure, and look up creation keys.
    """
    found = [
        _topic(SELF_TEST_TOPIC, 1),
        _topic(BENCHMARK_TOPIC, 1024),
        _topic(cluster_name, 16, _TEMPLATE),
        _topic(broker_name, 1, _TEMPLATE),
        _topic(OFFSET_MOVED_TOPIC, 1),
        _topic(SCHEDULE_TOPIC, SCHEDULE_QUEUE_COUNT),
        _topic(TIMER_TOPIC, 1),
        _topic(TRANSACTION_HALF_TOPIC, 1),
        _topic(TRANSACTION_OP_TOPIC, 1),
        _topic(f"{cluster_name}{REPLY_TOPIC_SUFFIX}", 1),
    ]
    if auto_create:
        found.append(template_topic(default_queue_count))
    if trace_topic:
        found.append(_topic(TRACE_TOPIC, 1))
    return tuple(found)


def template_topic(queue_count: int) -> TopicConfig:
    """The template of topics that are created by sends."""
    return _topic(TEMPLATE_TOPIC, queue_count, _TEMPLATE)


def is_system_topic(name: str, own: Iterable[str] = ()) -> bool:
    """Whether a name belongs to the servers; `own` are those that carry this broker's names."""
    return name in _FIXED_NAMES or name.startswith(SYSTEM_TOPIC_PREFIX) or name in own


def refuses_sends(name: str) -> bool:
    """Whether only the broker itself may write to this topic."""
    return name in _BROKER_ONLY


def refuses_pulls(name: str) -> bool:
    """Whether only the broker itself may read this topic."""
    return name in _UNREADABLE


def _topic(name: str, queue_count: int, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queue_count, queue_count, perm)
