"""The topics that every broker has."""

from __future__ import annotations

from broker_core.broker.tables.default_topics import default_topics
from broker_core.codec.wire.topic_name import (
    SCHEDULE_TOPIC,
    TEMPLATE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)


def names(*, auto_create: bool, trace_topic: bool) -> set[str]:
    found = default_topics(
        "C", "B", auto_create=auto_create, default_queue_count=8, trace_topic=trace_topic
    )
    assert len({topic.name for topic in found}) == len(found)
    return {topic.name for topic in found}


def test_the_template_and_the_trace_topic_are_optional() -> None:
    least, most = (names(auto_create=flag, trace_topic=flag) for flag in (False, True))
    assert {"C", "B", "C_REPLY_TOPIC", SCHEDULE_TOPIC, TIMER_TOPIC} <= least
    assert most - least == {TEMPLATE_TOPIC, TRACE_TOPIC}
