"""Reads through a property filter: what is found, where the next read begins, how much is done."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.sql.filter import SqlFilter
from broker_core.errors import CorruptRecord
from broker_core.protocol_codes import GetStatus
from broker_core.store.message_store import MessageStore
from broker_core.store.reads import filtered_read
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk, open_small

HOUR_MS = 3_600_000
WANTED = SqlFilter("a = 'yes'")


class Counting(NamedTuple):
    """A filter that remembers what it was asked."""

    seen: list[bytes]
    cost: int = 1
    answer: bool = False

    def accepts(self, property_text: bytes, /) -> bool:
        self.seen.append(property_text)
        return self.answer


def stored(
    wanted: list[bool], size: int = 10, **settings: object
) -> tuple[MessageStore, SimulatedDisk]:
    """One message for each flag, which says whether it matches."""
    disk = new_disk()
    store = open_small(disk, **settings)
    for number, is_wanted in enumerate(wanted):
        properties = {"a": "yes" if is_wanted else "no", "n": str(number)}
        body = b"%d" % number
        assert store.append(Message("T", body.ljust(size), properties=properties)).ok
    store.flush()
    return store, disk


def numbers(messages: list[MessageRecord]) -> list[int]:
    return [int(message.properties["n"]) for message in messages]


def test_statuses_and_offsets() -> None:
    store, _ = stored([False, True, False, False, True, False])
    found = store.get("T", 0, 0, record_filter=WANTED)
    assert (found.status, found.next_offset, found.message_count) == (GetStatus.FOUND, 6, 2)
    assert numbers(found.messages()) == [1, 4]
    assert found.last_position == found.messages()[-1].physical_offset
    assert (found.min_offset, found.max_offset) == (0, 6)
    none = store.get("T", 0, 5, record_filter=WANTED)
    assert (none.status, none.next_offset, none.records) == (GetStatus.NO_MATCHED_MESSAGE, 6, b"")
    end = store.get("T", 0, 6, record_filter=WANTED)
    assert (end.status, end.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 6)
    nowhere = store.get("U", 0, 0, record_filter=WANTED)
    assert nowhere.status is GetStatus.NO_MATCHED_LOGIC_QUEUE


def test_a_full_answer_ends_the_look() -> None:
    store, _ = stored([True] * 10)
    for count, expected in ((0, 1), (1, 1), (3, 3), (10, 10), (99, 10)):
        result = store.get("T", 0, 0, count, record_filter=WANTED)
        assert (result.message_count, result.next_offset) == (expected, expected)
    record = len(store.get("T", 0, 0, 1).records)
    for size, expected in ((0, 1), (record, 1), (3 * record - 1, 2), (3 * record, 3)):
        result = store.get("T", 0, 0, size_max=size, record_filter=WANTED)
        assert (result.message_count, result.next_offset) == (expected, expected)


def test_each_message_is_judged_once_and_no_more_than_configured() -> None:
    store, _ = stored([False] * 90, visited_units_max=70)
    none = Counting([])
    result = store.get("T", 0, 0, record_filter=none)
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 70)
    assert len(none.seen) == len(set(none.seen)) == 70


def test_costly_filters_look_at_less() -> None:
    store, _ = stored([False] * 90)
    costly = Counting([], cost=filtered_read.WORK_MAX // 10)
    result = store.get("T", 0, 0, record_filter=costly)
    assert result.status is GetStatus.NO_MATCHED_MESSAGE
    assert result.next_offset == len(costly.seen) == 10
    # However much it costs, each read gets on.
    beyond = Counting([], cost=filtered_read.WORK_MAX * 10)
    assert store.get("T", 0, 10, record_filter=beyond).next_offset == 11


def test_large_messages_count_as_work() -> None:
    store, _ = stored([False] * 40, size=200_000, commit_log_file_size=16 << 20)
    none = Counting([])
    result = store.get("T", 0, 0, record_filter=none)
    read = len(none.seen) * 200_000
    assert result.next_offset == len(none.seen) < 40 or read <= filtered_read.WORK_MAX * 512


def test_removed_messages_are_passed_over() -> None:
    store, disk = stored([True] * 12, size=4_000)
    low = Counting([])
    disk.clock.advance(72 * HOUR_MS)
    store.clean(manual=True)
    first = store.offsets("T", 0)[0]
    assert first > 0
    assert store.get("T", 0, 0, record_filter=low).status is GetStatus.OFFSET_TOO_SMALL
    result = store.get("T", 0, first, record_filter=WANTED)
    assert numbers(result.messages()) == list(range(first, 12))
    assert low.seen == []


def test_damage_is_reported_and_not_filtered_out() -> None:
    store, _ = stored([False] * 3)
    position = store.get("T", 0, 1, 1).last_position
    segment = store._opened.log.segments.find(position)
    assert segment is not None
    segment.view[position - segment.base + 90] ^= 1
    with pytest.raises(CorruptRecord):
        store.get("T", 0, 0, record_filter=WANTED)


@settings(max_examples=60)
@given(
    st.lists(st.booleans(), min_size=1, max_size=80),
    st.integers(0, 40),
    st.integers(0, 2_000),
    st.integers(1, 60),
)
def test_a_walk_finds_every_wanted_message_once(
    wanted: list[bool], count_max: int, size_max: int, visit_max: int
) -> None:
    store, _ = stored(wanted, visited_units_max=visit_max)
    offset, found = 0, []
    while offset < len(wanted):
        result = store.get("T", 0, offset, count_max, size_max=size_max, record_filter=WANTED)
        messages = result.messages()
        assert (result.status is GetStatus.FOUND) == bool(messages)
        assert len(messages) == result.message_count <= max(count_max, 1)
        assert len(messages) == 1 or len(result.records) <= size_max or not messages
        assert result.next_offset > offset
        assert all(offset <= number < result.next_offset for number in numbers(messages))
        found += numbers(messages)
        offset = result.next_offset
    assert found == [number for number, is_wanted in enumerate(wanted) if is_wanted]
