"""The division of queues among members equals Java's, which runs in the same groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.queue_allocation import allocate_average, allocate_by_circle


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", f"broker-{n % 3}", n // 3) for n in range(count)]


def java_average(all_queues: list[MessageQueue], members: list[str], member: str) -> list[object]:
    """The arithmetic of Java's strategy, step by step."""
    ordered, index = sorted(all_queues), sorted(members).index(member)
    size, count = len(ordered), len(members)
    rest = size % count
    share = 1 if size <= count else size // count + (1 if rest > 0 and index < rest else 0)
    start = index * share if rest > 0 and index < rest else index * share + rest
    return [ordered[(start + n) % size] for n in range(min(share, size - start))]


@given(st.integers(1, 40), st.integers(1, 50))
def test_average_is_java_s(queue_count: int, member_count: int) -> None:
    members = [f"10.0.0.{n}@{n}" for n in range(member_count)]
    for member in members:
        expected = java_average(queues(queue_count), members, member)
        assert allocate_average(queues(queue_count)[::-1], members[::-1], member) == expected


@given(st.integers(0, 40), st.integers(1, 50), st.sampled_from([0, 1]))
def test_every_queue_has_one_member_and_shares_are_even(
    queue_count: int, member_count: int, kind: int
) -> None:
    allocate = (allocate_average, allocate_by_circle)[kind]
    members = [f"m{n}" for n in range(member_count)]
    shares = [allocate(queues(queue_count), members, member) for member in members]
    assert sorted(queue for share in shares for queue in share) == sorted(queues(queue_count))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_by_circle() -> None:
    ordered = sorted(queues(7))
    assert allocate_by_circle(queues(7), ["b", "a", "c"], "b") == [ordered[1], ordered[4]]


def test_a_member_of_no_group_gets_nothing() -> None:
    assert allocate_average(queues(4), ["a"], "b") == []
    assert allocate_by_circle(queues(4), ["a"], "b") == []
    assert allocate_average(queues(4), [], "b") == []


def test_an_id_listed_twice_counts_twice_as_in_java() -> None:
    assert len(allocate_average(queues(6), ["a", "a", "b"], "a")) == 2


def test_members_are_in_java_s_order() -> None:
    # U+10000 is behind U+FFFF by code point, and before it by UTF-16 units.
    high, low = "\U00010000", "\uffff"
    assert allocate_average(queues(2), [low, high], high) == sorted(queues(2))[:1]
