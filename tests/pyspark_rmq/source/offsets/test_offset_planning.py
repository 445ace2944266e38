"""Plans: complete, repeatable, balanced, and as few tasks as the bytes justify."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import MessageQueue, errors
from pyspark_rmq.source.offsets.offset_planning import (
    TASK_SIZE_MAX,
    TASK_SIZE_MIN,
    QueueRange,
    limited,
    plan_tasks,
    ranges_between,
)
from pyspark_rmq.source.offsets.stream_position import StreamOffset


def parts(*rows: int, topic: str = "t") -> list[QueueRange]:
    return [QueueRange(topic, "b", number, 100, 100 + n) for number, n in enumerate(rows)]


_lines = st.lists(st.integers(0, 500), max_size=12).map(lambda rows: parts(*rows))


def test_ranges_come_from_two_positions_alone() -> None:
    q0, q1, q2, q3 = (MessageQueue("t", "b", number) for number in range(4))
    start = StreamOffset({q0: 5, q1: 7, q3: 1})
    end = StreamOffset({q0: 9, q1: 7, q2: 4, q3: 3}, {q2: 2, q3: 0})
    assert ranges_between(start, end) == [
        QueueRange("t", "b", 0, 5, 9),
        QueueRange("t", "b", 2, 2, 4),
        QueueRange("t", "b", 3, 0, 3),
    ]


def test_a_queue_without_a_start_is_an_error() -> None:
    with pytest.raises(errors.InvalidArgument, match="queue 0 of t on b"):
        ranges_between(StreamOffset({}), StreamOffset({MessageQueue("t", "b", 0): 4}))


def test_a_queue_that_is_gone_is_not_read() -> None:
    queue = MessageQueue("t", "b", 0)
    assert ranges_between(StreamOffset({queue: 4}), StreamOffset({})) == []


@given(_lines, st.integers(1, 20), st.one_of(st.none(), st.integers(1, 300)), st.integers(1, 4096))
def test_every_row_is_in_exactly_one_task(
    line: list[QueueRange], tasks_min: int, rows_max: int | None, row_size: int
) -> None:
    tasks = plan_tasks(line, {"t": row_size}, tasks_min=tasks_min, rows_max=rows_max)
    rows = Counter(
        (part.queue_id, offset)
        for task in tasks
        for part in task
        for offset in range(part.start, part.until)
    )
    expected = {(p.queue_id, offset) for p in line for offset in range(p.start, p.until)}
    assert set(rows) == expected
    assert set(rows.values()) <= {1}
    assert all(task and all(part.rows > 0 for part in task) for task in tasks)
    assert len(tasks) >= min(tasks_min, len(expected))
    if rows_max is not None:
        assert all(sum(part.rows for part in task) <= rows_max for task in tasks)
    again = plan_tasks(line, {"t": row_size}, tasks_min=tasks_min, rows_max=rows_max)
    assert again == tasks


@given(_lines, st.integers(1, 20))
def test_tasks_are_about_equal(line: list[QueueRange], tasks_min: int) -> None:
    sizes = [sum(p.rows for p in task) for task in plan_tasks(line, {"t": 1}, tasks_min=tasks_min)]
    if sizes:
        assert max(sizes) - min(sizes) <= 2


@pytest.mark.parametrize(
    ("rows", "row_size", "expected"),
    [
        ([10, 10, 10, 10], 256, 1),
        ([1] * 1000, 256, 1),
        ([1000] * 4, TASK_SIZE_MIN // 1000 + 1, 4),
        ([1000] * 4, TASK_SIZE_MIN // 2000 + 1, 2),
        ([1000] * 4, TASK_SIZE_MIN // 4000 + 1, 1),
        ([1_000_000], 256, 1),
        ([8_000_000], 256, -(-8_000_000 * 256 // TASK_SIZE_MAX)),
        ([0, 0], 256, 0),
    ],
)
def test_as_few_tasks_as_the_bytes_justify(rows: list[int], row_size: int, expected: int) -> None:
    assert len(plan_tasks(parts(*rows), {"t": row_size})) == expected


def test_big_rows_make_more_tasks_than_small_ones() -> None:
    line = parts(400, 400, 400, 400)
    assert len(plan_tasks(line, {"t": 1 << 20})) == 4
    assert len(plan_tasks(line, {"t": 1 << 8})) == 1


@given(_lines, st.integers(1, 2000))
def test_limits_are_kept_and_used(line: list[QueueRange], rows_max: int) -> None:
    waiting = sum(part.rows for part in line)
    taken = limited(line, rows_max)
    assert sum(part.rows for part in taken) == min(rows_max, waiting)
    by_queue = {part.queue_id: part for part in line}
    for part in taken:
        assert part.start == by_queue[part.queue_id].start
        assert 0 < part.rows <= by_queue[part.queue_id].rows


def test_no_queue_starves_beside_a_long_one() -> None:
    assert [part.rows for part in limited(parts(1_000_000, 3), 100)] == [99, 1]


def test_shares_are_in_proportion() -> None:
    assert [part.rows for part in limited(parts(3000, 1000), 400)] == [300, 100]


def test_queues_take_turns_when_rows_are_few() -> None:
    line, served = parts(*[50] * 7), Counter[int]()
    for _ in range(7):
        taken = {part.queue_id: part for part in limited(line, 2)}
        assert len(taken) == 2
        served.update(taken.keys())
        line = [
            part._replace(start=taken[part.queue_id].until) if part.queue_id in taken else part
            for part in line
        ]
    assert set(served.values()) == {2}
