"""Executor side: the rows of exactly the ranges of one task as Arrow batches, or an error.

    ranges ──► one PullStream each, a few prefetched   (on the client's thread)
           ──► runs of records ──► batches ──► Spark   (on the task's thread)

On the broker's host ranges are read from its files instead (`local_reader.py`). Streams fetch while
Spark works on the last batch. `BUFFER_SIZE` bounds the memory of all streams of a task. Small
batches are joined, up to 4 MB.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import groupby, islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyarrow as pa

from broker_core import (
    MessageQueue,
    PullStream,
    RecordRun,
    SubscriptionData,
    errors,
    parse_tag_expression,
)
from pyspark_rmq import connections
from pyspark_rmq.connections import Connected
from pyspark_rmq.frozen_heap import freeze_once
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads.bad_records import UNREADABLE, BadBody
from pyspark_rmq.payloads.read_columns import ReadColumn, message_columns
from pyspark_rmq.payloads.typed_rows import TypedRows, WriteBad, are_typed
from pyspark_rmq.source.compacted_topics import is_compacted
from pyspark_rmq.source.offsets.data_loss import report_loss
from pyspark_rmq.source.offsets.gone_queues import is_gone
from pyspark_rmq.source.offsets.offset_lookup import OffsetLookup
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.offsets.stream_position import Repeats, StoreIdentity
from pyspark_rmq.source.rows.conditional_rows import ConditionalRows, RowMaker
from pyspark_rmq.source.rows.local_reader import local_batches, local_places
from pyspark_rmq.source.rows.message_batches import BodiesTooLarge, Records, arrow_schema

BATCH_SIZE: Final = 4 << 20
BATCH_ROWS: Final = 50_000
BUFFER_SIZE: Final = 32 << 20
_STREAMS_AHEAD: Final = 8
_LOOKED_AT_ONCE: Final = 64
# Answers of Apache's brokers are small; joined they make a batch worth sending.
_RUN_SIZE_MIN: Final = 1 << 20
_MERGE_BELOW: Final = 256 << 10


class Task(NamedTuple):
    """What one task reads. Plain values: Spark pickles it."""

    ranges: tuple[QueueRange, ...]
    stores: Mapping[str, StoreIdentity]
    repeats: Repeats = MappingProxyType({})
    """Offsets to skip, in order: copies of rows."""

    @staticmethod
    def of(
        ranges: Sequence[QueueRange], stores: Mapping[str, StoreIdentity], repeats: Repeats
    ) -> Task:
        """A task with the repeats of its ranges."""
        mine: dict[MessageQueue, list[QueueRange]] = {}
        for part in ranges:
            if part.queue in repeats:
                mine.setdefault(part.queue, []).append(part)
        needed = {queue: _touched(repeats[queue], parts) for queue, parts in mine.items()}
        return Task(
            tuple(ranges), stores, {queue: found for queue, found in needed.items() if found}
        )


def _touched(
    pairs: Sequence[tuple[int, int]], parts: Sequence[QueueRange]
) -> tuple[tuple[int, int], ...]:
    """The pairs that overlap with one of the parts. Parts do not overlap each other."""
    spans = sorted((part.start, part.until) for part in parts)
    starts = [start for start, _ in spans]

    def is_touched(pair: tuple[int, int]) -> bool:
        # Of the parts that begin before its end, the last one ends last.
        place = bisect_left(starts, pair[1])
        return place > 0 and spans[place - 1][1] > pair[0]

    return tuple(filter(is_touched, pairs))


class _Located:
    """The queue of each batch with the batch."""

    def __init__(self, maker: ConditionalRows) -> None:
        self._maker = maker

    def batch(self, run: Records, queue: MessageQueue) -> Any:
        return self._maker.batch(run, queue), queue


class _Readable:
    """Batches without the rows whose bodies cannot be decompressed."""

    def __init__(self, maker: ConditionalRows) -> None:
        self._maker = maker

    def batch(self, run: Records, queue: MessageQueue) -> Any:
        made = self._maker.batch(run, queue)
        if made.schema.names[-1] != UNREADABLE:
            return made
        *_, reasons = made.columns
        return made.filter(reasons.is_null()).select(made.schema.names[:-1])


def read_task(
    task: Task,
    options: SourceOptions,
    columns: Sequence[ReadColumn],
    *,
    skips_unreadable: bool = False,
) -> Iterator[Any]:
    """All rows of the task, range by range in the order of their offsets.

    With `skips_unreadable`, only for columns that are not decoded, those whose bodies cannot be
    decompressed are left out.
    """
    freeze_once()
    connected = connections.connect(options.connection)
    check_stores(task, options, connected)
    tags = parse_tag_expression("", options.tag_expression).tags
    naming, typed = options.column_names, are_typed(columns)
    dead_letters = options.payload.dead_letter_topic
    messages = message_columns(columns, naming, with_body=typed, with_id=bool(dead_letters))
    maker = ConditionalRows(
        messages,
        options.where,
        options.column_names,
        tags,
        options.include_system_properties,
        task.repeats,
        keeps_unreadable=skips_unreadable or (typed and options.payload.is_typed),
    )
    if not typed:
        plain = _Readable(maker) if skips_unreadable else maker
        yield from joined(batches_of(task, options, connected, plain))
        return
    write_bad = _dead_letters(task, options, connected)
    rows = TypedRows(columns, options.payload, naming, arrow_schema(messages), write_bad)
    # Decoded here and not by the maker: a bad record is no reason to leave the broker's files.
    located = batches_of(task, options, connected, _Located(maker))
    yield from joined(rows.batch(*one) for one in located)
    rows.report_skipped()


def _dead_letters(task: Task, options: SourceOptions, connected: Connected) -> WriteBad | None:
    """Writes bad records to `deadLetterTopic`; None with another policy."""
    topic = options.payload.dead_letter_topic
    if not topic:
        return None
    # Most tasks do not write: they do not load a producer.
    from broker_core import BadMessage, DeadLetterWriter

    writer = DeadLetterWriter(
        connected.client, topic, options.reader_group, retry_for_ms=options.poll_timeout_ms
    )
    # Not only when the first bad record comes.
    connected.call(writer.check())

    def write(queue: MessageQueue, bad: Sequence[BadBody]) -> None:
        store_id = task.stores.get(queue.broker_name, StoreIdentity()).store_id
        messages = [
            BadMessage(queue, one.offset, one.body, one.reason, store_id, one.message_id)
            for one in bad
        ]
        connected.call(writer.write(messages))

    return write


def batches_of(
    task: Task, options: SourceOptions, connected: Connected, maker: RowMaker
) -> Generator[Any, None, None]:
    """Batches of each range, from files if possible, else over the network."""
    waiting = iter(task.ranges)
    while some := list(islice(waiting, _LOOKED_AT_ONCE)):
        for is_local, found in groupby(local_places(some, options, connected), _is_local):
            part = list(found)
            rest = [one for one, _ in part]
            if is_local:
                rest = yield from local_batches(part, maker, BATCH_SIZE, BATCH_ROWS)
                if rest:
                    # The read failed half-way: the log may have been replaced.
                    check_stores(task, options, connected)
            for one, run in _runs(rest, options, connected):
                yield from _batches_of_run(one, run, options, connected, maker)
            if rest:
                # The broker may have been replaced while it was read.
                check_stores(task, options, connected)


def _batches_of_run(
    part: QueueRange,
    run: RecordRun,
    options: SourceOptions,
    connected: Connected,
    maker: RowMaker,
    *,
    is_verified: bool = False,
) -> Iterator[Any]:
    """`is_verified`: by the broker, so that damage is not asked about again."""
    again = part._replace(start=run.first_offset, until=run.until_offset)
    try:
        batch = maker.batch(run, part.queue)
    except errors.CorruptRecord:
        if is_verified:
            raise
        # Asked again, the broker verifies the records and reports the damage.
        parts = [again]
    except BodiesTooLarge:
        middle = (again.start + again.until) // 2
        parts = [again._replace(until=middle), again._replace(start=middle)]
    else:
        yield batch
        return
    for one in parts:
        for found in _verified(one, options, connected):
            yield from _batches_of_run(one, found, options, connected, maker, is_verified=True)


def _is_local(pair: tuple[QueueRange, object]) -> bool:
    return pair[1] is not None


def joined(batches: Iterator[Any]) -> Iterator[Any]:
    """Merge small batches; drops empty ones."""
    held: list[Any] = []
    size = rows = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if held and (size + batch.nbytes > BATCH_SIZE or rows + batch.num_rows > BATCH_ROWS):
            yield _merged(held)
            held, size, rows = [], 0, 0
        held.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
        if size >= _MERGE_BELOW:
            yield _merged(held)
            held, size, rows = [], 0, 0
    if held:
        yield _merged(held)


def _merged(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    [merged] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return merged


def _runs(
    ranges: Sequence[QueueRange], options: SourceOptions, connected: Connected
) -> Iterator[tuple[QueueRange, RecordRun]]:
    """Runs of all ranges, in order; the next ranges are prefetched."""
    waiting = deque(ranges)
    begun: deque[tuple[QueueRange, PullStream, Any]] = deque()
    buffer_size = BUFFER_SIZE // min(len(ranges) or 1, _STREAMS_AHEAD)
    try:
        while waiting or begun:
            while waiting and len(begun) < _STREAMS_AHEAD:
                part = waiting.popleft()
                stream = _stream(part, options, connected, buffer_size)
                begun.append((part, stream, connected.begin(_next(stream))))
            part, stream, first = begun[0]
            for run in _runs_of(part, stream, first, options, connected):
                yield part, run
            begun.popleft()
            connected.call(stream.close())
    finally:
        for _, stream, first in begun:
            first.cancel()
            connected.call(stream.close())


def _verified(
    part: QueueRange, options: SourceOptions, connected: Connected
) -> Iterator[RecordRun]:
    """Runs of a range that the broker has verified."""
    stream = _stream(part, options, connected, BUFFER_SIZE, verify=True)
    first = connected.begin(_next(stream))
    try:
        yield from _runs_of(part, stream, first, options, connected)
    finally:
        connected.call(stream.close())


def _runs_of(
    part: QueueRange,
    stream: PullStream,
    first: Any,
    options: SourceOptions,
    connected: Connected,
    has_holes: bool = False,
) -> Iterator[RecordRun]:
    at = part.start
    try:
        run = first.result()
        while run is not None:
            if run.first_offset > at and not (has_holes or _filters(options)):
                _warn_of_gap(part, at, run.first_offset, connected)
            yield run
            at = run.until_offset
            run = connected.call(_next(stream))
    except errors.OffsetOutOfRange as error:
        may_be_hole = error.offset < error.max_offset and not has_holes
        if may_be_hole and is_compacted(connected, part.queue):
            yield from _runs_around_holes(part._replace(start=at), options, connected)
            return
        report_loss(
            f"queue {part.queue_id} of {part.topic} on {part.broker_name} was to be read from"
            f" offset {part.start} to {part.until}, and has {error.min_offset} to"
            f" {error.max_offset} only: offset {error.offset} was deleted or cut off",
            fails=options.fails_on_data_loss,
        )
    except errors.RemoteError as error:
        if not connected.call(is_gone(connected.client, part.queue, options.reader_group)):
            raise
        report_loss(
            f"queue {part.queue_id} of {part.topic} on {part.broker_name} is gone, because the"
            " topic has fewer read queues there now, was deleted there, or is not readable:"
            f" {part.until - at} messages, offsets {at} to {part.until}, were not read ({error})",
            fails=options.fails_on_data_loss,
        )


def _filters(options: SourceOptions) -> bool:
    """Whether the broker filters rows."""
    return bool(options.sql_expression or parse_tag_expression("", options.tag_expression).tags)


def _warn_of_gap(part: QueueRange, start: int, until: int, connected: Connected) -> None:
    """A stream skips missing offsets only with failOnDataLoss=false."""
    if not is_compacted(connected, part.queue):
        report_loss(
            f"offsets {start} to {until} of queue {part.queue_id} of {part.topic} on"
            f" {part.broker_name} were deleted before they were read",
            fails=False,
        )


def _runs_around_holes(
    part: QueueRange, options: SourceOptions, connected: Connected
) -> Iterator[RecordRun]:
    """Runs of a compacted queue; a missing end is still data loss."""
    stream = _stream(part, options, connected, BUFFER_SIZE // _STREAMS_AHEAD, has_holes=True)
    first = connected.begin(_next(stream))
    try:
        yield from _runs_of(part, stream, first, options, connected, has_holes=True)
    finally:
        connected.call(stream.close())


async def _next(stream: PullStream) -> RecordRun | None:
    return await anext(stream, None)


def _stream(
    part: QueueRange,
    options: SourceOptions,
    connected: Connected,
    buffer_size: int,
    has_holes: bool = False,
    verify: bool = False,
) -> PullStream:
    if options.sql_expression:
        subscription = SubscriptionData(part.topic, options.sql_expression, expression_type="SQL92")
    else:
        subscription = parse_tag_expression(part.topic, options.tag_expression)
    return PullStream(
        connected.client,
        part.queue,
        part.start,
        part.until,
        group=options.reader_group,
        subscription=subscription,
        buffer_size_max=buffer_size,
        request_size=min(BATCH_SIZE, buffer_size),
        # A failing stream loses the runs that it is joining, so a stream that may fail joins none.
        run_size_min=_RUN_SIZE_MIN if options.fails_on_data_loss else 0,
        retry_limit_ms=options.poll_timeout_ms,
        allow_gaps=has_holes or not options.fails_on_data_loss,
        verify=verify,
    )


def check_stores(task: Task, options: SourceOptions, connected: Connected) -> None:
    """Report data loss if a broker's log is not the one that the offsets belong to."""
    expected = {broker: store for broker, store in task.stores.items() if store.store_id}
    if not expected:
        return
    # Ask the broker, even if files are read: replicas share the identity of the log, but the files
    # of each replica have their own.
    topics = {part.broker_name: part.topic for part in task.ranges}
    found = connected.call(_stores(topics, expected, options, connected))
    for broker, store in expected.items():
        if broker in found and found[broker] != store:
            report_loss(
                f"broker {broker} has another log (store {found[broker].store_id}, epoch"
                f" {found[broker].epoch}) than the one that these offsets belong to (store"
                f" {store.store_id}, epoch {store.epoch})",
                fails=options.fails_on_data_loss,
            )


async def _stores(
    topics: Mapping[str, str],
    expected: Mapping[str, StoreIdentity],
    options: SourceOptions,
    connected: Connected,
) -> dict[str, StoreIdentity]:
    for topic in set(topics.values()):
        await connected.client.routes.route(topic)
    return await OffsetLookup(connected.client, options).stores(topics, expected)
