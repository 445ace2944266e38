"""Topics and groups of the servers."""

from __future__ import annotations

import pytest

from broker_core.broker.tables.system_topics import (
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANSACTION_HALF_TOPIC,
    is_system_topic,
    refuses_pulls,
    refuses_sends,
    system_topics,
)
from broker_core.codec.wire.topic_name import (
    BENCHMARK_TOPIC,
    SCHEDULE_TOPIC,
    TEMPLATE_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
)


def names(*, auto_create: bool, trace_topic: bool) -> set[str]:
    found = system_topics(
        "C", "B", auto_create=auto_create, default_queue_count=8, trace_topic=trace_topic
    )
    assert len({topic.name for topic in found}) == len(found)
    return {topic.name for topic in found}


def test_the_template_and_the_trace_topic_are_optional() -> None:
    least, most = (names(auto_create=flag, trace_topic=flag) for flag in (False, True))
    assert {"C", "B", "C_REPLY_TOPIC", SCHEDULE_TOPIC, TIMER_TOPIC} <= least
    assert most - least == {TEMPLATE_TOPIC, TRACE_TOPIC}


@pytest.mark.parametrize("name", [SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_HALF_TOPIC])
def test_waiting_messages_are_neither_sent_nor_pulled_by_clients(name: str) -> None:
    assert refuses_sends(name)
    assert refuses_pulls(name)


def test_operators_may_read_what_was_given_up() -> None:
    assert refuses_sends(TRANSACTION_GIVEN_UP_TOPIC)
    assert not refuses_pulls(TRANSACTION_GIVEN_UP_TOPIC)
    assert not refuses_sends(BENCHMARK_TOPIC)


def test_names_of_the_servers() -> None:
    assert is_system_topic("rmq_sys_anything")
    assert is_system_topic("B", own=("B",))
    assert not is_system_topic("orders")
