"""Messages on their way out of a task: to the staging area of brokers, or to their queues.

Both run beside the client, on its event loop; the task reads the next rows meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any, Final, Protocol

import numpy as np

from broker_core import (
    BatchIdentity,
    BulkProducer,
    ClientInstance,
    ColumnBatch,
    MessageQueue,
    OutgoingMessage,
    Producer,
    SendStatus,
    SendWindow,
    SinkClient,
    StagedAt,
    batch_from_arrow,
)
from pyspark_rmq.sink.outgoing_columns import OutgoingColumns
from pyspark_rmq.sink.queue_selection import QueueSelection
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.sink_topics import topic_queues
from pyspark_rmq.sink.task_result import Ranges, joined_ranges

# Queue indexes and hosts of rows that a broker places itself.
_NO_HOST: Final = bytes(8)
_DELAYED_AT_ONCE: Final = 256


class TopicQueues:
    """The queues of topics, made if the options say so; asked once in a task."""

    def __init__(self, client: ClientInstance, options: SinkOptions) -> None:
        self._client = client
        self._options = options
        self._known: dict[str, tuple[MessageQueue, ...]] = {}

    async def of(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues that take messages. Raises for a topic that does not exist."""
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = await topic_queues(self._client, self._options, topic)
        return known


class MessageTarget(Protocol):
    """Where the messages of one task go."""

    async def append(self, messages: OutgoingColumns) -> None:
        """Take the messages; returns when there is room for more."""

    async def finish(self) -> tuple[tuple[StagedAt, ...], Ranges]:
        """Returns when everything is safe: what was staged, and what is in queues."""

    async def abort(self) -> None:
        """Give up."""

    @property
    def retry_count(self) -> int:
        """How much was sent again."""


class StagingTarget:
    """Rows wait at their brokers until the batch is published."""

    def __init__(
        self,
        sink: SinkClient,
        queues: TopicQueues,
        selection: QueueSelection,
        who: BatchIdentity,
        *,
        compresses: bool = False,
    ) -> None:
        self._compresses = compresses
        self._sink = sink
        self._queues = queues
        self._selection = selection
        self._who = who
        self._writers: dict[str, Any] = {}

    async def append(self, messages: OutgoingColumns) -> None:
        """To the staging area of the broker that each row goes to."""
        queues = await self._queues.of(messages.topic)
        if self._compresses:
            messages = messages.compressed()
        index = self._selection.choose(queues, messages.places)
        brokers = sorted({queue.broker_name for queue in queues})
        for broker in brokers:
            own = [number for number, q in enumerate(queues) if q.broker_name == broker]
            part, part_index = messages, index
            if len(brokers) > 1:
                rows = np.flatnonzero(np.isin(index, own))
                if not len(rows):
                    continue
                part = messages.take(rows)
                part_index = np.searchsorted(own, index[rows]).astype(np.int32)
            keys = tuple((messages.topic.encode(), queues[number].queue_id) for number in own)
            await self._stage(broker, part, keys, part_index)

    async def finish(self) -> tuple[tuple[StagedAt, ...], Ranges]:
        """Seal all of it."""
        return tuple([await writer.seal() for writer in self._writers.values()]), {}

    async def abort(self) -> None:
        """Drop what brokers can be told to drop; the rest expires."""
        for writer in self._writers.values():
            await writer.abort()

    async def _stage(
        self, broker: str, part: OutgoingColumns, keys: tuple[tuple[bytes, int], ...], index: Any
    ) -> None:
        writer = self._writers.get(broker)
        if writer is None:
            writer = self._writers[broker] = await self._sink.stage(self._who, broker)
        first = 0
        for flag, sys_flag, run in part.runs_of_one_flag():
            after = first + run.row_count
            batch = _encoded(run, keys, index[first:after], flag)
            await writer.append(batch._replace(sys_flag=sys_flag))
            first = after

    @property
    def retry_count(self) -> int:
        """Blocks that were sent again."""
        return sum(writer.retry_count for writer in self._writers.values())


class QueueTarget:
    """Rows go to their queues at once: at least once."""

    def __init__(
        self,
        client: ClientInstance,
        queues: TopicQueues,
        selection: QueueSelection,
        options: SinkOptions,
    ) -> None:
        self._client = client
        self._queues = queues
        self._selection = selection
        self._options = options
        self._bulk = BulkProducer(
            client,
            options.producer_group,
            attempts=options.attempts,
            in_flight=options.in_flight,
            timeout_ms=options.timeout_ms,
            first_turn=random.randrange(1 << 16),
            wait_store_ok=options.waits_store_ok,
        )
        # For each queue that rows were meant for, and for those without
        self._windows: dict[MessageQueue | None, SendWindow] = {}

    async def append(self, messages: OutgoingColumns) -> None:
        """Returns when the last messages are on their way; those sent alone are acknowledged."""
        queues = await self._queues.of(messages.topic)
        alone = messages.is_delayed
        if self._options.compresses and (is_long := messages.is_long()).any():
            alone = is_long if alone is None else alone | is_long
        if alone is not None:
            await self._send_alone(queues, messages.take(alone))
            messages = messages.take(~alone)
        if not messages.row_count:
            return
        if messages.places == (messages.row_count, None, None, None):
            # Nobody cares: the producer fills one queue after the other, and avoids lost brokers.
            await self._send(messages, None)
            return
        index = self._selection.choose(queues, messages.places)
        rows = np.argsort(index, kind="stable")
        cuts = np.flatnonzero(np.diff(index[rows])) + 1
        parts = [part for part in np.split(rows, cuts) if len(part)]
        await _all([self._send(messages.take(part), queues[index[part[0]]]) for part in parts])

    async def finish(self) -> tuple[tuple[StagedAt, ...], Ranges]:
        """When every message is acknowledged: where they are."""
        ranges = []
        for window in self._windows.values():
            for queue, first, count in await window.settle():
                ranges.append({queue: (first, first + count, count)})
        return (), joined_ranges(ranges)

    async def abort(self) -> None:
        """What is sent is sent; nothing is sent again."""
        for window in self._windows.values():
            await window.abandon()

    async def _send(self, messages: OutgoingColumns, queue: MessageQueue | None) -> None:
        keys = ((messages.topic.encode(), 0),)
        window = self._windows.get(queue)
        if window is None:
            window = self._windows[queue] = self._bulk.window()
        for flag, _, run in messages.runs_of_one_flag():
            batch = _encoded(run, keys, None, flag)
            await self._bulk.begin_columns(batch, window, queue=queue)

    @property
    def retry_count(self) -> int:
        """Requests that were sent again."""
        return self._bulk.retry_count

    async def _send_alone(
        self, queues: tuple[MessageQueue, ...], messages: OutgoingColumns
    ) -> None:
        """One by one: brokers take no batches of delayed or compressed messages."""
        index = self._selection.choose(queues, messages.places)
        window: deque[Any] = deque()
        accepted = () if self._options.waits_store_ok else tuple(SendStatus)
        producer = Producer(self._client, self._options.producer_group, accept_statuses=accepted)
        await producer.start()
        try:
            for row, number in enumerate(index.tolist()):
                message = _lone_message(messages, row)._replace(
                    wait_store_ok=self._options.waits_store_ok
                )
                window.append(producer.send(message, queue=queues[number]))
                if len(window) >= _DELAYED_AT_ONCE:
                    await window.popleft()
            while window:
                await window.popleft()
        finally:
            await asyncio.gather(*window, return_exceptions=True)
            await producer.stop()


def _lone_message(messages: OutgoingColumns, row: int) -> OutgoingMessage:
    def text(column: Any) -> str:
        return (column[row].as_py() or "") if column is not None else ""

    body = messages.body[row].as_py()
    pairs = dict(pair.split("\x01", 1) for pair in text(messages.properties).split("\x02") if pair)
    return OutgoingMessage(
        messages.topic,
        body.encode() if isinstance(body, str) else body,
        text(messages.tags),
        text(messages.keys),
        {name: value for name, value in pairs.items() if value and name != "__SHARDINGKEY"},
        delay_level=0 if messages.delay_levels is None else int(messages.delay_levels[row]),
        deliver_at_ms=_due(messages, row),
        flag=0 if messages.flags is None else int(messages.flags[row]),
        sharding_key=pairs.get("__SHARDINGKEY"),
    )


def _due(messages: OutgoingColumns, row: int) -> int | None:
    return None if messages.deliver_at is None else int(messages.deliver_at[row]) or None


def _encoded(
    messages: OutgoingColumns, keys: tuple[tuple[bytes, int], ...], index: Any, flag: int
) -> ColumnBatch:
    return batch_from_arrow(
        messages.body,
        keys,
        queue_index=None if index is None else np.ascontiguousarray(index),
        tags=messages.tags,
        keys=messages.keys,
        properties=messages.properties,
        flag=flag,
        born_host=_NO_HOST,
        store_host=_NO_HOST,
        append_crc=False,
    )


async def _all(requests: list[Any]) -> None:
    """Wait for all of them; when one fails, after all have ended."""
    for found in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found
