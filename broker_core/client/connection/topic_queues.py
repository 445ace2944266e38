"""Which queues a route offers to producers and to consumers. Pure.

Order is the same for every client (broker name, then queue id), since the choice of a queue by a
key and the allocation of queues among consumers depend on it.
"""

from __future__ import annotations

from typing import Final

from broker_core.codec.json.fields import whole_number
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.route_data import TopicRoute
from broker_core.codec.wire.bodies.topic_config import PERM_READ, PERM_WRITE
from broker_core.protocol_codes import MASTER_ID

# Limit against hostile routes: each queue becomes an object here.
QUEUES_MAX: Final = 65_536
# Queues of a topic that is created by a send; the same as in RocketMQ's clients.
TEMPLATE_QUEUE_COUNT: Final = 4

Queues = tuple[MessageQueue, ...]


def publish_queues(topic: str, route: TopicRoute) -> Queues:
    """Queues that take messages: writable, on brokers that have a master."""
    masters = {b.broker_name for b in route.brokers if MASTER_ID in b.addresses}
    if route.order_topic_conf is not None:
        counts = ordered_queue_counts(route.order_topic_conf)
    else:
        counts = {q.broker_name: q.write_queue_count for q in route.queues if q.perm & PERM_WRITE}
    return _queues(topic, {name: count for name, count in counts.items() if name in masters})


def subscribe_queues(topic: str, route: TopicRoute) -> Queues:
    """Queues that can be read, on brokers with at least one member."""
    alive = {b.broker_name for b in route.brokers if b.addresses}
    counts = {
        q.broker_name: q.read_queue_count
        for q in route.queues
        if q.perm & PERM_READ and q.broker_name in alive
    }
    return _queues(topic, counts)


def template_queues(topic: str, template: TopicRoute) -> Queues:
    """Queues that `topic` will have once a first send creates it."""
    masters = {b.broker_name for b in template.brokers if MASTER_ID in b.addresses}
    counts = {
        q.broker_name: min(TEMPLATE_QUEUE_COUNT, q.read_queue_count)
        for q in template.queues
        if q.perm & PERM_WRITE and q.broker_name in masters
    }
    return _queues(topic, counts)


def queue_count(route: TopicRoute) -> int:
    """The largest number of queues that any of the functions above would make of `route`."""
    count = sum(max(q.read_queue_count, q.write_queue_count) for q in route.queues)
    if route.order_topic_conf is not None:
        count += sum(ordered_queue_counts(route.order_topic_conf).values())
    return count


def ordered_queue_counts(conf: str) -> dict[str, int]:
    """`broker-a:4;broker-b:4` as a mapping; raises `InvalidArgument`."""
    counts = {}
    for item in filter(None, conf.split(";")):
        name, _, count = item.rpartition(":")
        counts[name] = whole_number(count, "orderTopicConf", 0, QUEUES_MAX)
    return counts


def _queues(topic: str, counts: dict[str, int]) -> Queues:
    return tuple(
        MessageQueue(topic, name, number)
        for name in sorted(counts)
        for number in range(counts[name])
    )
