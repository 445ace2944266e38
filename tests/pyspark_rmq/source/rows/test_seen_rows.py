"""Names of rows: what counts as a copy, what is remembered, and how a position keeps it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import MessageQueue, errors
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.offsets.stream_position import StreamOffset
from pyspark_rmq.source.rows import seen_rows
from pyspark_rmq.source.rows.range_reader import Task
from pyspark_rmq.source.rows.seen_rows import Indexes, SeenRows


def texts(*names: str | None, more: str = "TAGS\x01A\x02") -> Any:
    return pa.array(
        [None if n is None else f"{more}SPARK_SINK_ROW\x01{n}\x02x\x01y".encode() for n in names],
        pa.binary(),
    )


def rows(first: int, until: int, unit: str = "q:0:0") -> Any:
    return texts(*(f"{unit}:{index}" for index in range(first, until)))


def test_the_first_of_a_name_is_no_copy() -> None:
    seen = SeenRows(8)
    assert seen.repeats("t", texts("q:0:0:0", None, "q:0:0:1", "q:0:0:0")).tolist() == [
        False, False, False, True,
    ]  # fmt: skip
    assert seen.repeats("t", texts("q:0:0:1", "q:0:1:1", "q:1:0:1")).tolist() == [
        True,
        False,
        False,
    ]
    # Another topic, or another writer, has rows of its own.
    assert not seen.repeats("u", texts("q:0:0:0")).any()
    assert not seen.repeats("t", texts("r:0:0:0")).any()
    # A writer's name may have anything in it.
    assert seen.repeats("t", texts("a:b:0:0:7", "a:b:0:0:7", "ü:0:0:7")).tolist() == [
        False, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["", "q", "q:0", "q:0:0", "q:x:0:1", "q:0:0:x", "q:0:0:-1", "q:0:0:9999999999999", ":::"],
)
def test_what_is_no_name_is_never_a_copy(name: str) -> None:
    seen = SeenRows(8)
    assert not seen.repeats("t", texts(name, name, "q:0:0:0", name)).any()
    raw = pa.array([b"SPARK_SINK_ROW\x01q\xff:0:0:1"] * 2, pa.binary())
    assert not seen.repeats("t", raw).any()
    other = pa.array([b"MY_SPARK_SINK_ROW\x01q:0:0:1", b"x\x01SPARK_SINK_ROW\x02"] * 2, pa.binary())
    assert not seen.repeats("t", other).any()
    assert seen.repeats("t", pa.array([], pa.binary())).tolist() == []


@given(st.lists(st.lists(st.integers(0, 300), min_size=1), max_size=8))
def test_intervals_are_a_set(parts: list[list[int]]) -> None:
    found, expected = Indexes(), set[int]()
    for part in parts:
        numbers = np.array(part, np.int64)
        assert found.has(numbers).tolist() == [number in expected for number in part]
        found.add(numbers)
        expected |= set(part)
        again = Indexes.from_json(json.loads(json.dumps(found.to_json())))
        every = np.arange(-1, 305)
        assert again.has(every).tolist() == [number in expected for number in every.tolist()]
        assert (again.starts == found.starts).all()
        # Apart, or they would be one.
        assert (found.starts[1:] > found.ends[:-1]).all()


def test_many_single_rows_are_a_bitmap() -> None:
    found = Indexes()
    found.add(np.arange(0, 100_000, 2))
    text = found.to_json()
    assert isinstance(text, str)
    assert len(text) < 1_000
    assert (Indexes.from_json(text).starts == found.starts).all()


def test_a_position_keeps_it() -> None:
    seen = SeenRows(8)
    seen.repeats("t", rows(0, 100))
    seen.repeats("t", rows(100, 150))
    seen.repeats("t", rows(10, 20, "q:1:3"))
    kept = seen.to_json()
    assert kept == {"t": {"q": {"0": {"0": [0, 150]}, "1": {"3": [10, 20]}}}}
    again = SeenRows.from_json(json.loads(json.dumps(kept)), 8)
    assert again.to_json() == kept
    assert again.repeats("t", rows(145, 155)).tolist() == [True] * 5 + [False] * 5
    queue = MessageQueue("t", "broker-a", 0)
    offset = StreamOffset({queue: 9}, repeats={queue: ((1, 3), (5, 9))}, seen_rows=kept)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    for broken in ({"repeats": {"t": {"b": {"0": [1]}}}}, {"rows": []}, {"repeats": {"t": 5}}):
        with pytest.raises(errors.InvalidArgument, match="cannot be used"):
            StreamOffset.from_json({**offset.to_json(), **broken})


@pytest.mark.parametrize("indexes", [[1], [3, 2], [-1, 5], "!", ["a", "b"], {"a": 1}, [2, 2]])
def test_other_rows_in_a_position_are_refused(indexes: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        SeenRows.from_json({"t": {"q": {"0": {"0": indexes}}}}, 8)


def test_old_batches_and_writers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = SeenRows(3)
    for batch in range(10):
        seen.repeats("t", rows(0, 5, f"q:{batch}:0"))
    # Within a batch of ours nothing is forgotten.
    assert seen.repeats("t", rows(0, 5, "q:0:0")).all()
    seen.forget_old()
    assert sorted(seen.to_json()["t"]["q"]) == ["7", "8", "9"]
    assert seen.repeats("t", rows(0, 5, "q:7:0")).all()
    assert seen.unknowable == 0
    assert not seen.repeats("t", rows(0, 5, "q:6:0")).any()
    assert seen.unknowable == 5
    again = SeenRows.from_json(seen.to_json(), 3)
    again.forget_old()
    for number in range(seen_rows.WRITERS_MAX):
        again.repeats("t", rows(0, 1, f"job-{number}:0:0"))
    again.forget_old()
    assert len(again.to_json()["t"]) == seen_rows.WRITERS_MAX
    assert "q" not in again.to_json()["t"]


def test_a_position_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_rows, "INTERVALS_MAX", 100)
    seen = SeenRows(64)
    for batch in range(20):
        seen.repeats("t", texts(*(f"q:{batch}:0:{index}" for index in range(0, 20, 2))))
    seen.forget_old()
    kept = sorted(map(int, seen.to_json()["t"]["q"]))
    assert 2 <= len(kept) <= 10
    assert kept[-1] == 19


def test_a_batch_with_more_partitions_than_any_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forged names could make every position grow without limit."""
    monkeypatch.setattr(seen_rows, "INTERVALS_MAX", 50)
    monkeypatch.setattr(seen_rows, "UNITS_MAX", 100)
    seen = SeenRows(64)
    seen.repeats("t", texts(*(f"q:0:{number}:0" for number in range(100))))
    seen.forget_old()
    assert len(seen.to_json()["t"]["q"]["0"]) == 100
    seen.repeats("t", texts(*(f"q:0:{number}:0" for number in range(101))))
    seen.forget_old()
    assert not seen.to_json()["t"]["q"]
    assert SeenRows.from_json(seen.to_json(), 64).to_json() == {}


@given(
    st.lists(st.integers(0, 60), min_size=2, max_size=12, unique=True),
    st.lists(st.integers(0, 60), min_size=2, max_size=12, unique=True),
)
def test_a_task_gets_the_repeats_of_its_ranges(edges: list[int], ends: list[int]) -> None:
    pairs = list(zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False))
    spans = list(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
    queue = MessageQueue("t", "b", 0)
    ranges = [QueueRange(*queue, *span) for span in reversed(spans)]
    task = Task.of([*ranges, QueueRange("t", "b", 1, 0, 99)], {}, {queue: tuple(pairs)})
    touched = [p for p in pairs if any(p[0] < until and start < p[1] for start, until in spans)]
    assert list(task.repeats.get(queue, ())) == touched
    assert task.repeats.keys() <= {queue}


def test_many_repeats_and_many_ranges() -> None:
    """Each is compared once, not with every other one."""
    queue = MessageQueue("t", "b", 0)
    pairs = tuple((at, at + 1) for at in range(0, 400_000, 2))
    ranges = [QueueRange(*queue, at, at + 1) for at in range(0, 400_000, 800)]
    task = Task.of(ranges, {}, {queue: pairs})
    assert task.repeats[queue] == tuple((part.start, part.until) for part in ranges)
