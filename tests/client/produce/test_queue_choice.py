"""Turns, brokers to avoid, and queues by key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.client.produce.queue_choice import Turn, queue_for_key
from broker_core.codec.wire.bodies.message_queue import MessageQueue

QUEUES = tuple(MessageQueue("T", broker, n) for broker in ("a", "b") for n in range(3))


def test_every_queue_has_its_turn() -> None:
    turn = Turn(4)
    chosen = [turn.choose(QUEUES) for _ in range(12)]
    assert chosen == [*QUEUES[4:], *QUEUES, *QUEUES[:4]]


def test_a_broker_is_avoided_if_there_is_another() -> None:
    turn = Turn(0)
    chosen = [turn.choose(QUEUES, {"a"}) for _ in range(6)]
    assert [queue.broker_name for queue in chosen] == ["b"] * 6
    assert {queue.queue_id for queue in chosen} == {0, 1, 2}
    assert turn.choose(QUEUES[:3], {"a"}) in QUEUES[:3]


def test_a_list_that_shrinks_does_not_break_the_turn() -> None:
    turn = Turn(1_000_003)
    assert turn.choose(QUEUES) in QUEUES
    assert turn.choose(QUEUES[:1]) == QUEUES[0]
    assert turn.choose(QUEUES[:1], {"a", "b"}) == QUEUES[0]


@pytest.mark.parametrize(
    # Java: Math.abs(key.hashCode()) % 6
    ("key", "number"), [("TagA", 2598919 % 6), ("", 0), ("标签", 857175 % 6)]
)  # fmt: skip
def test_keys_choose_as_in_java(key: str, number: int) -> None:
    assert queue_for_key(QUEUES, key) == QUEUES[number]


def test_the_smallest_hash_has_no_positive_twin_in_java() -> None:
    # hashCode() is -2**31 here; Java takes the remainder first.
    assert queue_for_key(QUEUES, "polygenelubricants") == QUEUES[2**31 % 6]


@given(st.text(max_size=20))
def test_a_key_always_chooses_the_same_queue(key: str) -> None:
    assert queue_for_key(QUEUES, key) is queue_for_key(QUEUES, key)
