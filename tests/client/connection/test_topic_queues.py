"""Which queues a route offers."""

from __future__ import annotations

import pytest

from broker_core.client.connection.topic_queues import (
    ordered_queue_counts,
    publish_queues,
    queue_count,
    subscribe_queues,
    template_queues,
)
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.route_data import BrokerData, QueueData, TopicRoute
from broker_core.errors import InvalidArgument

A = BrokerData("c", "a", {0: "h:1", 1: "h:2"})
B = BrokerData("c", "b", {0: "h:3"})
SLAVE_ONLY = BrokerData("c", "s", {1: "h:4"})


def _ids(queues: tuple[MessageQueue, ...]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_order_is_by_broker_and_id_whatever_the_route_says() -> None:
    route = TopicRoute((B, A), (QueueData("b", 2, 2, 6), QueueData("a", 1, 2, 6)))
    assert _ids(publish_queues("T", route)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert _ids(subscribe_queues("T", route)) == [("a", 0), ("b", 0), ("b", 1)]


def test_permissions_and_masters_decide() -> None:
    queues = (QueueData("a", 1, 1, 4), QueueData("b", 1, 1, 2), QueueData("s", 1, 1, 6))
    route = TopicRoute((A, B, SLAVE_ONLY), queues)
    assert _ids(publish_queues("T", route)) == [("b", 0)]
    assert _ids(subscribe_queues("T", route)) == [("a", 0), ("s", 0)]


def test_queues_of_brokers_that_are_gone_are_left_out() -> None:
    route = TopicRoute((A,), (QueueData("a", 1, 1, 6), QueueData("gone", 1, 1, 6)))
    assert _ids(publish_queues("T", route)) == [("a", 0)]
    assert _ids(subscribe_queues("T", route)) == [("a", 0)]


def test_the_order_configuration_overrides_the_queues_of_producers() -> None:
    route = TopicRoute((A, B), (QueueData("a", 8, 8, 6),), "a:2;b:1;gone:3")
    assert _ids(publish_queues("T", route)) == [("a", 0), ("a", 1), ("b", 0)]
    assert len(subscribe_queues("T", route)) == 8
    assert queue_count(route) == 14


@pytest.mark.parametrize("conf", ["a", "a:x", "a:-1", "a:99999999999"])
def test_bad_order_configuration(conf: str) -> None:
    with pytest.raises(InvalidArgument):
        ordered_queue_counts(conf)


def test_a_template_gives_at_most_four_queues_for_each_broker() -> None:
    route = TopicRoute((A, B), (QueueData("a", 8, 8, 7), QueueData("b", 2, 2, 7)))
    assert _ids(template_queues("New", route)) == [
        ("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1),
    ]  # fmt: skip
    assert {queue.topic for queue in template_queues("New", route)} == {"New"}
