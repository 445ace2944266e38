"""The groups of a client instance."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.client.connection.group_registry import (
    INNER_PRODUCER_GROUP,
    ConsumerRegistration,
    GroupRegistry,
    ProducerRegistration,
)
from broker_core.errors import InvalidArgument

CONSUMED: Any = "data of a consumer"


def consumer(group: str) -> ConsumerRegistration:
    return ConsumerRegistration(group, lambda: CONSUMED, lambda: None)


def test_each_group_once_per_kind() -> None:
    registry = GroupRegistry()
    assert not registry
    registry.add_producer(ProducerRegistration("g"))
    registry.add_consumer(consumer("g"))
    assert registry
    with pytest.raises(InvalidArgument, match="producer group g is already used"):
        registry.add_producer(ProducerRegistration("g"))
    with pytest.raises(InvalidArgument, match="consumer group g is already used"):
        registry.add_consumer(consumer("g"))
    assert registry.remove_producer("g")
    assert not registry.remove_producer("g")
    assert registry.remove_consumer("g")
    assert not registry


def test_names_are_checked() -> None:
    with pytest.raises(InvalidArgument, match=r"producer .*'a b'"):
        GroupRegistry().add_producer(ProducerRegistration("a b"))


def test_a_heartbeat_has_all_groups_and_the_one_for_messages_sent_back() -> None:
    registry = GroupRegistry()
    registry.add_producer(ProducerRegistration("p"))
    registry.add_consumer(consumer("c"))
    heartbeat = registry.heartbeat("id")
    assert heartbeat.client_id == "id"
    assert heartbeat.producers == ("p", INNER_PRODUCER_GROUP)
    assert heartbeat.consumers == (CONSUMED,)
