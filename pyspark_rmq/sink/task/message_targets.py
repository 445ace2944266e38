"""Targets of a task's messages: the staging area of brokers, or the queues themselves.

Both run on the client's event loop, in the background of the task.
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
    StagedPart,
    batch_from_arrow,
    errors,
)
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.sink_topics import topic_queues
from pyspark_rmq.sink.task.outgoing_columns import OutgoingColumns
from pyspark_rmq.sink.task.queue_selection import QueueSelection
from pyspark_rmq.sink.task.result import Ranges, joined_ranges

# Placeholder: the broker fills in hosts and positions.
_NO_HOST: Final = bytes(8)
_DELAYED_AT_ONCE: Final = 256


class TopicQueues:
    """The queues of topics, cached for one task. Creates topics as the options say."""

    def __init__(self, client: ClientInstance, options: SinkOptions) -> None:
        self._client = client
        self._options = options
        self._known: dict[str, tuple[MessageQueue, ...]] = {}

    async def of(self, topic: str) -> tuple[MessageQueue, ...]:
        """All writable queues. Raises for a topic that does not exist."""
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = await topic_queues(self._client, self._options, topic)
        return known


class MessageTarget(Protocol):
    """Where the messages of one task go."""

    async def append(self, messages: OutgoingColumns) -> None:
        """Take messages; returns when more can be taken."""

    async def finish(self) -> tuple[tuple[StagedPart, ...], Ranges]:
        """Returns when everything is stored: sealed parts, and ranges of queues."""

    async def keep(self) -> None:
        """Until cancelled: what the batch has staged does not expire. May end at once."""

    async def abort(self) -> None:
        """Stop writing; staged data is dropped."""

    @property
    def retry_count(self) -> int:
        """Requests that were sent again."""

    @property
    def digest(self) -> int:
        """exactly_once: digest of all messages, independent of their queues; see `digest_rows`."""


class LocalWriteImpossible(errors.RmqError):
    """shortCircuit=on, and the staging files of a broker cannot be written."""


class StagingTarget:
    """exactly_once: stages rows at their brokers, one part per broker."""

    def __init__(
        self,
        sink: SinkClient,
        queues: TopicQueues,
        selection: QueueSelection,
        identity: BatchIdentity,
        *,
        compresses: bool = False,
        requires_files: bool = False,
    ) -> None:
        self._compresses = compresses
        self._requires_files = requires_files
        self._sink = sink
        self._queues = queues
        self._selection = selection
        self._identity = identity
        self._writers: dict[str, Any] = {}
        self._given_digest = 0

    async def append(self, messages: OutgoingColumns) -> None:
        """Stage each row at the broker of its queue."""
        queues = await self._queues.of(messages.topic)
        if self._compresses:
            # The digest is that of the rows, and writers see compressed bodies.
            self._given_digest += messages.digest
            messages = messages.compressed()
        index = self._selection.choose(queues, messages.places)
        brokers = sorted({queue.broker_name for queue in queues})
        for broker in brokers:
            own = [number for number, q in enumerate(queues) if q.broker_name == broker]
            own_messages, own_index = messages, index
            if len(brokers) > 1:
                rows = np.flatnonzero(np.isin(index, own))
                if not len(rows):
                    continue
                own_messages = messages.take(rows)
                own_index = np.searchsorted(own, index[rows]).astype(np.int32)
            keys = tuple((messages.topic.encode(), queues[number].queue_id) for number in own)
            await self._stage(broker, own_messages, keys, own_index)

    async def finish(self) -> tuple[tuple[StagedPart, ...], Ranges]:
        """Seal all parts."""
        return tuple([await writer.seal() for writer in self._writers.values()]), {}

    async def keep(self) -> None:
        """Renew the parts of all tasks of the batch, also before the first row of this one."""
        await self._sink.keep_staged(self._identity)

    async def abort(self) -> None:
        """Drop the drafts of brokers that can be reached; the others expire."""
        for writer in self._writers.values():
            await writer.abort()

    async def _stage(
        self,
        broker: str,
        messages: OutgoingColumns,
        keys: tuple[tuple[bytes, int], ...],
        index: Any,
    ) -> None:
        writer = self._writers.get(broker)
        if writer is None:
            writer = self._writers[broker] = await self._sink.stage(self._identity, broker)
            if self._requires_files and not writer.is_local:
                raise LocalWriteImpossible(
                    f"shortCircuit=on, and the staging files of broker {broker} cannot be written"
                    " from here: it is on another host, has another user, or has aclEnable=true."
                    " Use shortCircuit=auto to send the rows over the network then"
                )
        first = 0
        for flag, sys_flag, run in messages.runs_of_one_flag():
            after = first + run.row_count
            batch = _encoded(run, keys, index[first:after], flag)
            await writer.append(batch._replace(sys_flag=sys_flag))
            first = after

    @property
    def retry_count(self) -> int:
        """Blocks that were sent again."""
        return sum(writer.retry_count for writer in self._writers.values())

    @property
    def digest(self) -> int:
        """Digest of all messages; see `digest_rows`."""
        if self._compresses:
            return self._given_digest
        return sum(writer.digest for writer in self._writers.values())


class QueueTarget:
    """at_least_once: sends rows to their queues."""

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
        # One for each queue that rows name, and None for rows that name no queue.
        self._windows: dict[MessageQueue | None, SendWindow] = {}

    async def append(self, messages: OutgoingColumns) -> None:
        """Returns when the messages are sent; those sent one by one are acknowledged, too."""
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
            # Any queue will do: the producer fills one after the other and avoids lost brokers.
            await self._send(messages, None)
            return
        index = self._selection.choose(queues, messages.places)
        rows = np.argsort(index, kind="stable")
        cuts = np.flatnonzero(np.diff(index[rows])) + 1
        groups = [group for group in np.split(rows, cuts) if len(group)]
        await _all([self._send(messages.take(g), queues[index[g[0]]]) for g in groups])

    async def finish(self) -> tuple[tuple[StagedPart, ...], Ranges]:
        """Wait until every message is acknowledged; returns where they are."""
        ranges = []
        for window in self._windows.values():
            for queue, first, count in await window.settle():
                ranges.append({queue: (first, first + count, count)})
        return (), joined_ranges(ranges)

    async def keep(self) -> None:
        """Nothing is staged."""

    async def abort(self) -> None:
        """Stop sending. Messages that were sent stay."""
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

    @property
    def digest(self) -> int:
        """Not needed: these messages are not told apart by batch."""
        return 0

    async def _send_alone(
        self, queues: tuple[MessageQueue, ...], messages: OutgoingColumns
    ) -> None:
        """Send one by one: brokers refuse batches of delayed or compressed messages."""
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
    """Wait until all have ended, then raise the first error."""
    for found in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found
