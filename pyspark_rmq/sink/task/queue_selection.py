"""Selects the queue of each row, for all rows of a batch at once.

By column: queue `partition` of broker `broker`; rows without both are hashed. By hash: the queue
that Java's clients choose for the same key; rows without a key go round robin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from broker_core import MessageQueue, errors, java_hash
from pyspark_rmq.number_arrays import number_array

_LENGTH_MAX: Final = 256


class RowPlaces(NamedTuple):
    """Columns that select a queue; None for a missing column."""

    row_count: int
    partitions: Any = None
    """Arrow int32"""
    brokers: Any = None
    """Arrow string"""
    hash_keys: Any = None
    """Arrow string"""

    def take(self, rows: Any) -> RowPlaces:
        """Some of the rows."""
        columns = (None if c is None else c.take(number_array(rows)) for c in self[1:])
        return RowPlaces(len(rows), *columns)


class QueueSelection:
    """Round-robin state of one task; `first` is the first queue."""

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def choose(self, queues: Sequence[MessageQueue], rows: RowPlaces) -> Any:
        """int32 index into `queues` for each row. Raises `InvalidArgument` if a queue is missing.

        `queues` are all queues of one topic, in the order that every client knows.
        """
        chosen = np.full(rows.row_count, -1, np.int64)
        if rows.partitions is not None:
            _by_partition(chosen, queues, rows)
        elif rows.brokers is not None:
            self._by_broker(chosen, queues, rows.brokers)
        if rows.hash_keys is not None:
            open_rows = (chosen < 0) & rows.hash_keys.is_valid().to_numpy(zero_copy_only=False)
            hashes = np.abs(java_hashes(rows.hash_keys)) % len(queues)
            chosen[open_rows] = hashes[open_rows]
        self._in_turn(chosen, len(queues))
        return chosen.astype(np.int32)

    def _in_turn(self, chosen: Any, queue_count: int) -> None:
        left = np.flatnonzero(chosen < 0)
        chosen[left] = (self._next + np.arange(len(left))) % queue_count
        self._next = (self._next + len(left)) % queue_count

    def _by_broker(self, chosen: Any, queues: Sequence[MessageQueue], brokers: Any) -> None:
        for broker in pc.unique(brokers.drop_null()).to_pylist():
            rows = np.flatnonzero(_equal(brokers, broker))
            own = np.array([i for i, q in enumerate(queues) if q.broker_name == broker], np.int64)
            if not len(own):
                raise errors.InvalidArgument(_no_queue(queues, broker, None))
            chosen[rows] = own[(self._next + np.arange(len(rows))) % len(own)]
            self._next += len(rows)


def _by_partition(chosen: Any, queues: Sequence[MessageQueue], rows: RowPlaces) -> None:
    has_partition = rows.partitions.is_valid().to_numpy(zero_copy_only=False)
    if not has_partition.any():
        return
    partitions = pc.fill_null(rows.partitions, -1).to_numpy()
    names = sorted({queue.broker_name for queue in queues})
    if rows.brokers is None:
        if len(names) > 1:
            raise errors.InvalidArgument(
                f"topic {queues[0].topic} is on the brokers {', '.join(names)}: a column partition"
                " needs a column broker beside it"
            )
        wanted: list[tuple[str, Any]] = [(names[0], has_partition)]
    else:
        if (has_partition & ~rows.brokers.is_valid().to_numpy(zero_copy_only=False)).any():
            raise errors.InvalidArgument("a row has a partition, but no broker")
        found = pc.unique(rows.brokers.drop_null()).to_pylist()
        wanted = [(name, has_partition & _equal(rows.brokers, name)) for name in found]
    for name, where in wanted:
        by_id = {q.queue_id: i for i, q in enumerate(queues) if q.broker_name == name}
        for partition in np.unique(partitions[where]).tolist():
            if partition not in by_id:
                raise errors.InvalidArgument(_no_queue(queues, name, partition))
            chosen[where & (partitions == partition)] = by_id[partition]


def _no_queue(queues: Sequence[MessageQueue], broker: str, partition: int | None) -> str:
    counts: dict[str, int] = {}
    for queue in queues:
        counts[queue.broker_name] = counts.get(queue.broker_name, 0) + 1
    known = ", ".join(f"{name} with queues 0 to {count - 1}" for name, count in counts.items())
    asked = f"broker {broker!r:.100}" + ("" if partition is None else f", partition {partition}")
    return f"a row asks for {asked} of topic {queues[0].topic}, which is on {known}"


def _equal(texts: Any, value: str) -> Any:
    return pc.fill_null(pc.equal(texts, value), False).to_numpy(zero_copy_only=False)


def java_hashes(texts: Any) -> Any:
    """Java's `String.hashCode` of each text as int64; null counts as empty."""
    count = len(texts)
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64)
    state = np.zeros(count, np.uint32)
    if not count or not lengths.any():
        return state.astype(np.int64)
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + count].astype(np.int64)
    units = np.frombuffer(data, np.uint8)
    is_plain = lengths <= _LENGTH_MAX
    if (units >= 0x80).any():
        is_plain &= pc.fill_null(pc.string_is_ascii(texts), True).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(is_plain & (lengths > 0))
    position = 0
    while len(rows):
        state[rows] = state[rows] * np.uint32(31) + units[starts[rows] + position]
        position += 1
        rows = rows[lengths[rows] > position]
    found = state.view(np.int32).astype(np.int64)
    for row in np.flatnonzero(~is_plain).tolist():
        found[row] = java_hash(texts[row].as_py().encode())
    return found
