"""Progress never passes a message that is not done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.backlog import LocalBacklog
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


def message(offset: int) -> ReceivedMessage:
    return ReceivedMessage(MessageRecord("T", 0, b"12345", queue_offset=offset), QUEUE)


def filled(*offsets: int, start: int = 0, until: int | None = None) -> LocalBacklog:
    backlog = LocalBacklog(start)
    backlog.add(map(message, offsets), offsets[-1] + 1 if until is None else until)
    return backlog


def test_an_empty_backlog_commits_where_the_next_fetch_starts() -> None:
    backlog = LocalBacklog(7)
    assert (backlog.committable_offset, backlog.next_offset, backlog.count) == (7, 7, 0)
    backlog.add((), 12)
    assert backlog.committable_offset == 12


def test_messages_acknowledged_out_of_order() -> None:
    backlog = filled(10, 11, 12, 13, start=10)
    taken = backlog.take(4)
    assert backlog.acknowledge([taken[1], taken[2]]) == 10
    assert (backlog.count, backlog.size) == (2, 10)
    assert backlog.acknowledge([taken[0]]) == 13
    assert backlog.acknowledge([taken[3]]) == 14
    assert (backlog.count, backlog.size, backlog.span) == (0, 0, 0)


def test_filtered_messages_behind_count_as_done() -> None:
    backlog = filled(3, 8, until=40)
    assert backlog.next_offset == 40
    assert backlog.acknowledge(backlog.take(2)) == 40


def test_filtered_messages_do_not_hide_one_before_them() -> None:
    backlog = filled(3, until=4)
    backlog.add((), 900)
    assert backlog.committable_offset == 3


def test_what_is_given_back_comes_first_again() -> None:
    backlog = filled(0, 1, 2, 3)
    taken = backlog.take(2)
    backlog.give_back(taken)
    assert [m.queue_offset for m in backlog.take(9)] == [0, 1, 2, 3]


def test_acknowledged_messages_are_not_given_back() -> None:
    backlog = filled(0, 1)
    taken = backlog.take(2)
    backlog.acknowledge(taken[:1])
    backlog.give_back(taken)
    assert [m.queue_offset for m in backlog.take(9)] == [1]


def test_an_answer_that_repeats_messages_changes_nothing() -> None:
    backlog = filled(5, 6, start=5)
    backlog.add([message(5), message(6), message(7)], 8)
    assert [m.queue_offset for m in backlog.take(9)] == [5, 6, 7]


def test_acknowledging_twice_is_harmless() -> None:
    backlog = filled(0, 1)
    [first, _] = backlog.take(2)
    assert backlog.acknowledge([first, first]) == 1
    assert backlog.acknowledge([first]) == 1
    assert backlog.size == 5


@given(st.data())
def test_against_a_model(data: st.DataObject) -> None:
    backlog, held, next_offset = LocalBacklog(0), set(), 0
    taken: list[ReceivedMessage] = []
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()):
            skipped = data.draw(st.integers(0, 3))
            count = data.draw(st.integers(0, 4))
            offsets = range(next_offset + skipped, next_offset + skipped + count)
            next_offset = offsets.stop
            backlog.add(map(message, offsets), next_offset)
            held.update(offsets)
            taken += backlog.take(100)
        elif taken:
            done = taken.pop(data.draw(st.integers(0, len(taken) - 1)))
            held.discard(done.queue_offset)
            backlog.acknowledge([done])
        assert backlog.committable_offset == min(held, default=next_offset)
        assert (backlog.count, backlog.size) == (len(held), 5 * len(held))
