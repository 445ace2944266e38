"""The queue of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from broker_core import MessageQueue, java_hash
from pyspark_rmq.sink.task.queue_selection import QueueSelection, RowPlaces, java_hashes

QUEUES = tuple(MessageQueue("T", name, q) for name in ("a", "b") for q in range(3))


def choose(selection: QueueSelection | None = None, count: int = 0, **places: list[Any]) -> Any:
    kinds = {"partitions": pa.int32(), "brokers": pa.string(), "hash_keys": pa.string()}
    arrays = {name: pa.array(values, kinds[name]) for name, values in places.items()}
    count = count or len(next(iter(arrays.values())))
    chosen = (selection or QueueSelection()).choose(QUEUES, RowPlaces(count, **arrays))
    assert chosen.dtype == np.int32
    return chosen.tolist()


def test_in_turn_from_batch_to_batch() -> None:
    selection = QueueSelection(4)
    assert choose(selection, 4) == [4, 5, 0, 1]
    assert choose(selection, 3) == [2, 3, 4]


@given(st.lists(st.one_of(st.none(), st.text(max_size=300)), max_size=40), st.integers(0, 5))
def test_hashes_are_javas(keys: list[str | None], skip: int) -> None:
    encodable = [k and k.encode("utf-8", "ignore").decode() for k in keys]
    array = pa.array(["ascii", *encodable], pa.string())
    skip = min(skip, len(array))
    expected = [java_hash((key or "").encode()) for key in array[skip:].to_pylist()]
    assert java_hashes(array[skip:]).tolist() == expected


def test_one_broker_needs_no_name() -> None:
    rows_ = RowPlaces(2, pa.array([2, 0], pa.int32()))
    assert QueueSelection().choose(QUEUES[:3], rows_).tolist() == [2, 0]
