"""Short-circuit reads: a task on the broker's host decodes the broker's files into Arrow.

    task's thread    hands batches to Spark
    reader's thread  entries ──► records in the mapped log ──► the next batches

For each range the broker tells where its files are, which log they belong to and how far it may be
read; `ReadOnlyStore` verifies it. On any failure (a file that retention removed, another epoch, no
permission, no descriptors left) the task reads the rest over the network, where the cause is
reported. Only verified damage is an error here: the network would find it, too, after retries.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from broker_core import LocalRange, MessageQueue, ReadOnlyStore, ask_local_range, errors
from pyspark_rmq.connections import Connected
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.rows.conditional_rows import RowMaker

_log = logging.getLogger(__name__)

_BATCHES_AHEAD: Final = 2
_STORES_MAX: Final = 8

Place = tuple[QueueRange, LocalRange | None]
_Made = tuple[int, int, Any]


def local_places(
    ranges: Sequence[QueueRange], options: SourceOptions, connected: Connected
) -> list[Place]:
    """Each range with the files to read it from; None means over the network.

    Raises `LocalReadImpossible` with shortCircuit=on.
    """
    if options.short_circuit == "off" or options.sql_expression:
        return [(part, None) for part in ranges]
    places = connected.call(_ask(ranges, options, connected))
    found: list[Place] = []
    for part, place in zip(ranges, places, strict=True):
        reason = "its broker is another product, on another host, or away"
        if place is not None:
            reason = _problem(place)
        if reason and options.short_circuit == "on":
            raise LocalReadImpossible(
                f"shortCircuit=on, and queue {part.queue_id} of {part.topic} on {part.broker_name}"
                f" cannot be read from files: {reason}. Use shortCircuit=auto to read it over the"
                " network then"
            )
        found.append((part, None if reason else place))
    return found


class LocalReadImpossible(errors.RmqError):
    """shortCircuit=on, and the files of a broker cannot be read."""


def local_batches(
    places: Sequence[Place], maker: RowMaker, size_max: int, rows_max: int
) -> Generator[Any, None, list[QueueRange]]:
    """Yields batches of the ranges in order; returns the ranges left to the network."""
    reading = _LocalReading(places, maker, size_max, rows_max)
    ahead: deque[Future[_Made | None]] = deque()
    number, offset = 0, places[0][0].start if places else 0
    has_failed = False
    try:
        worker = _process.worker()
        ahead.extend(worker.submit(reading.next) for _ in range(_BATCHES_AHEAD))
        while (made := ahead.popleft().result()) is not None:
            ahead.append(worker.submit(reading.next))
            number, offset, batch = made
            yield batch
    except errors.CorruptStore:
        has_failed = True
        raise
    except Exception as error:  # noqa: BLE001 - the read goes on without the short cut
        has_failed = True
        is_known = isinstance(error, errors.RmqError | OSError)
        _log.log(
            logging.INFO if is_known else logging.WARNING,
            "reading over the network instead of from the broker's files: %r",
            error,
            exc_info=not is_known,
        )
        return _rest(places, number, offset)
    finally:
        for future in ahead:
            future.cancel()
        _end(reading, has_failed)
    return []


def _end(reading: _LocalReading, has_failed: bool) -> None:
    """Release the maps, after the batch that the thread may be working on."""
    try:
        _process.worker().submit(reading.close, keep=not has_failed).result()
    except Exception as error:  # noqa: BLE001 - the rows are complete, or left to the network
        _log.warning("files of a broker could not be closed: %r", error)


def _rest(places: Sequence[Place], number: int, offset: int) -> list[QueueRange]:
    ranges = [part for part, _ in places[number:]]
    first = ranges[0]._replace(start=max(offset, ranges[0].start))
    return [part for part in (first, *ranges[1:]) if part.rows > 0]


class _LocalReading:
    """Makes batches on the reader's thread."""

    def __init__(
        self, places: Sequence[Place], maker: RowMaker, size_max: int, rows_max: int
    ) -> None:
        self._places = places
        self._maker = maker
        self._size_max = size_max
        self._rows_max = rows_max
        self._store: ReadOnlyStore | None = None
        self._made = self._make()

    def next(self) -> _Made | None:
        """Number of the range, offset after the batch, batch; None at the end."""
        return next(self._made, None)

    def close(self, keep: bool) -> None:
        """Release the store. With `keep` the next task reuses its maps."""
        self._made.close()
        store, self._store = self._store, None
        if store is not None and keep:
            _process.give_back(store)
        elif store is not None:
            store.close()

    def _make(self) -> Generator[_Made, None, None]:
        for number, (part, place) in enumerate(self._places):
            assert place is not None
            store = self._store_of(place)
            store.forget_below(place.log_start)
            runs = store.runs(
                place,
                part.topic,
                part.queue_id,
                part.start,
                part.until,
                size_max=self._size_max,
                count_max=self._rows_max,
            )
            for run in runs:
                batch = self._maker.batch(_LocalRun(store, run), part.queue)
                # After reading: proves that the bytes belonged to this log.
                store.check_identity()
                yield number, run.first_offset + run.count, batch

    def _store_of(self, place: LocalRange) -> ReadOnlyStore:
        if self._store is not None and self._store.layout != place.layout:
            _process.give_back(self._store)
            self._store = None
        if self._store is None:
            self._store = _process.take(place)
        return self._store


class _LocalRun:
    """A run as `RowMaker` needs it."""

    def __init__(self, store: ReadOnlyStore, run: Any) -> None:
        self._store = store
        self._run = run
        self.count = run.count

    def columns(self, queue: MessageQueue, wanted: int, _: int = 0) -> dict[str, Any]:
        return self._store.columns(queue.topic, queue.queue_id, self._run, wanted)


class _Process:
    """The reader's thread and the idle stores of this process."""

    def __init__(self) -> None:
        # Tasks of one process may end on any thread.
        self._lock = threading.Lock()
        self._id = 0
        self._worker: ThreadPoolExecutor | None = None
        self._stores: list[ReadOnlyStore] = []

    def worker(self) -> ThreadPoolExecutor:
        """One thread for all tasks."""
        with self._lock:
            self._leave_parent()
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "rmq-local-reads")
            return self._worker

    def take(self, place: LocalRange) -> ReadOnlyStore:
        """An open store, owned by the caller until `give_back`; raises `StoreUnusable`."""
        with self._lock:
            self._leave_parent()
            for store in self._stores:
                if store.layout == place.layout:
                    self._stores.remove(store)
                    return store
                if store.directory == place.layout.directory:
                    # Another store, or the same one after a crash.
                    self._stores.remove(store)
                    store.close()
                    break
        return ReadOnlyStore(place.layout)

    def give_back(self, store: ReadOnlyStore) -> None:
        """Keep it for the next task."""
        with self._lock:
            self._stores.append(store)
            while len(self._stores) > _STORES_MAX:
                self._stores.pop(0).close()

    def close(self) -> None:
        """Unmap everything and end the thread."""
        with self._lock:
            self._leave_parent()
            worker, self._worker = self._worker, None
            stores, self._stores = self._stores, []
        if worker is not None:
            worker.shutdown()
        for store in stores:
            store.close()

    def _leave_parent(self) -> None:
        if self._id != os.getpid():
            self._id, self._worker, self._stores = os.getpid(), None, []


_process = _Process()


def close_local_stores() -> None:
    """Close all files; the next task opens them again."""
    _process.close()


def _problem(place: LocalRange) -> str:
    """Why the store cannot be opened here; empty if it can."""
    try:
        _process.give_back(_process.take(place))
    except Exception as error:  # noqa: BLE001 - any failure is a reason to use the network
        return str(error) or repr(error)
    return ""


async def _ask(
    ranges: Sequence[QueueRange], options: SourceOptions, connected: Connected
) -> list[LocalRange | None]:
    client, group = connected.client, options.reader_group
    return await asyncio.gather(*(ask_local_range(client, part.queue, group) for part in ranges))
