"""The topics that every broker has: names, sizes and permissions.

Pure. `TopicTable` creates them when it loads. What clients may do with them is in
`codec/wire/system_topics.py`.
"""

from __future__ import annotations

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
    TEMPLATE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)

SCHEDULE_QUEUE_COUNT: Final = 18

_READ_WRITE: Final = PERM_READ | PERM_WRITE
_TEMPLATE: Final = _READ_WRITE | PERM_INHERIT


def default_topics(
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


def _topic(name: str, queue_count: int, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queue_count, queue_count, perm)
