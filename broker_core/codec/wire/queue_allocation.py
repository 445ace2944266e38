"""Queue allocation in a consumer group: which member reads which queues.

Every member computes the allocation from the same two lists, or asks a broker for it. So both
functions must return exactly what Java's `AVG` and `AVG_BY_CIRCLE` strategies return.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_core.codec.wire.bodies.message_queue import MessageQueue

# Takes all queues of a topic, all members and one of them; returns the queues of that one.
Allocation = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]


def allocate_average(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> list[MessageQueue]:
    """Neighbouring queues for each member; the first members get the remainder, one each.

    A member that is not in the list gets nothing.
    """
    ordered, place = _ordered(queues, members, member)
    if place < 0:
        return []
    share, extra = divmod(len(ordered), len(members))
    start = place * share + min(place, extra)
    return ordered[start : start + share + (place < extra)]


def allocate_by_circle(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> list[MessageQueue]:
    """Every n-th queue for each of n members. A member that is not in the list gets nothing."""
    ordered, place = _ordered(queues, members, member)
    return [] if place < 0 else ordered[place :: len(members)]


def _ordered(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> tuple[list[MessageQueue], int]:
    """Queues in their order, and the place of `member` among the members in theirs; -1 if none."""
    # An id that is listed twice counts twice, as it does for the Java members of the group.
    ranked = sorted(members, key=_java_order)
    return sorted(set(queues)), ranked.index(member) if member in ranked else -1


def _java_order(text: str) -> bytes:
    # Java compares UTF-16 units, which differs from code points outside the basic plane.
    return text.encode("utf-16-be", "surrogatepass")
