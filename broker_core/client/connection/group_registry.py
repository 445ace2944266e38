"""The producer and consumer groups of a client instance, with their request handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from broker_core.codec.wire.bodies.heartbeat_data import ConsumerData, HeartbeatData
from broker_core.codec.wire.topic_name import group_name_problem
from broker_core.errors import InvalidArgument
from broker_core.remoting.request_dispatch import Handler

# Java clients always list it; brokers expect it as the sender of messages that go back.
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"

_NO_HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType({})


class ProducerRegistration(NamedTuple):
    """A producer group. `handlers` answer requests of brokers by code (39)."""

    group: str
    handlers: Mapping[int, Handler] = _NO_HANDLERS


class ConsumerRegistration(NamedTuple):
    """A consumer group.

    `describe` returns its current data for each heartbeat. `rebalance` is called when members or
    queues may have changed and must not block. `handlers` answer requests of brokers by code (220,
    221, 307, 309).
    """

    group: str
    describe: Callable[[], ConsumerData]
    rebalance: Callable[[], object]
    handlers: Mapping[int, Handler] = _NO_HANDLERS


class GroupRegistry:
    """At most one producer and one consumer per group."""

    def __init__(self) -> None:
        self.producers: dict[str, ProducerRegistration] = {}
        self.consumers: dict[str, ConsumerRegistration] = {}

    def add_producer(self, producer: ProducerRegistration) -> None:
        """Raises `InvalidArgument` for an invalid name or a group that is already registered."""
        _check_group(producer.group, producer.group in self.producers, "producer")
        self.producers[producer.group] = producer

    def add_consumer(self, consumer: ConsumerRegistration) -> None:
        """Raises `InvalidArgument` for an invalid name or a group that is already registered."""
        _check_group(consumer.group, consumer.group in self.consumers, "consumer")
        self.consumers[consumer.group] = consumer

    def remove_producer(self, group: str) -> bool:
        """Returns whether the group was registered."""
        return self.producers.pop(group, None) is not None

    def remove_consumer(self, group: str) -> bool:
        """Returns whether the group was registered."""
        return self.consumers.pop(group, None) is not None

    def heartbeat(self, client_id: str) -> HeartbeatData:
        """All groups, as a heartbeat announces them."""
        return HeartbeatData(
            client_id,
            (*self.producers, INNER_PRODUCER_GROUP),
            tuple(consumer.describe() for consumer in self.consumers.values()),
        )

    def __bool__(self) -> bool:
        return bool(self.producers or self.consumers)


def _check_group(group: str, is_taken: bool, kind: str) -> None:
    problem = group_name_problem(group)
    if problem is not None:
        raise InvalidArgument(f"{kind} {problem}: {group!r:.140}")
    if is_taken:
        raise InvalidArgument(
            f"{kind} group {group} is already used on this client instance; share the {kind} or"
            " use another instance"
        )
