"""Sends columns: hundreds of thousands of messages in requests of megabytes.

Our broker accepts requests of megabytes (BULK_SEND); other brokers get ordinary batches, as large
as they accept. Delivery is at least once: unacknowledged requests are retried, on another broker if
there is one. Messages of one call to one queue keep their order unless a retry is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import AsyncIterator, Coroutine, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from broker_core.client.connection.backoff import Backoff
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.failures import is_worth_another_try
from broker_core.client.produce.queue_choice import Turn
from broker_core.codec.native import join_client_batch
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.send_request import SendRequest, send_request_fields
from broker_core.codec.wire.topic_name import TEMPLATE_TOPIC
from broker_core.errors import (
    InvalidArgument,
    NotAcknowledged,
    RemoteError,
    RmqError,
    SystemBusy,
)
from broker_core.protocol_codes import RequestCode, ResponseCode

# Large enough to make the overhead per request small; holds a usual Spark batch.
REQUEST_SIZE: Final = 2 << 20
# Apache's broker limits a batch to maxMessageSize, headers included.
BATCH_SIZE: Final = 1 << 20
# The answer to an ordinary batch lists an id of 32 digits for every message.
BATCH_COUNT: Final = 1_000
IN_FLIGHT: Final = 4
_NO_HOST: Final = encode_host(("127.0.0.1", 0))


class StoredRun(NamedTuple):
    """Messages with consecutive offsets in one queue."""

    queue: MessageQueue
    queue_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used


_Tasks = set[asyncio.Task[list[StoredRun]]]


class SendWindow:
    """Requests under way, begun in order. May outlive a call, so that the next messages are sent
    before the last answers have arrived.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._under_way: _Tasks = set()
        self.runs: list[StoredRun] = []
        """The acknowledged messages."""

    async def begin(self, request: Coroutine[Any, Any, list[StoredRun]]) -> None:
        """Begin a request and wait until there is room for another; raises the error of any."""
        self._under_way.add(asyncio.ensure_future(request))
        if len(self._under_way) >= self._size:
            self._take(await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED))

    async def settle(self) -> list[StoredRun]:
        """Wait until all are acknowledged; raises the first error immediately."""
        while self._under_way:
            self._take(await asyncio.wait(self._under_way, return_when=asyncio.FIRST_EXCEPTION))
        return self.runs

    async def abandon(self) -> None:
        """Cancel all requests."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._under_way.clear()

    def _take(self, ended: tuple[_Tasks, _Tasks]) -> None:
        done, self._under_way = ended
        failed = [task for task in done if task.exception() is not None]
        for task in (*failed, *done):
            self.runs += task.result()


class BulkProducer:
    """Sends column batches of one topic each, over a shared `ClientInstance`."""

    def __init__(
        self,
        client: ClientInstance,
        group: str = "PYTHON_BULK_PRODUCER",
        *,
        attempts: int = 3,
        in_flight: int = IN_FLIGHT,
        timeout_ms: int = 30_000,
        first_turn: int = 0,
        wait_store_ok: bool = True,
    ) -> None:
        """A part is tried `attempts` times; a busy broker is asked again for `timeout_ms`.

        `wait_store_ok=False` accepts stored messages that are not yet flushed or replicated.
        """
        if attempts < 1 or in_flight < 1:
            raise InvalidArgument(f"attempts={attempts}, in_flight={in_flight}: give 1 or more")
        self._client = client
        self._group = group
        self._attempts = attempts
        self._in_flight = in_flight
        self._timeout_ms = timeout_ms
        self._turn = Turn(first_turn)
        self._wait_store_ok = wait_store_ok
        self.retry_count = 0

    async def send_bodies(
        self, topic: str, bodies: Sequence[bytes], *, queue: MessageQueue | None = None
    ) -> list[StoredRun]:
        """Messages without tags, keys or properties."""
        offsets = array("q", (0, *accumulate(map(len, bodies))))
        return await self.send_columns(columns_of(topic, b"".join(bodies), offsets), queue=queue)

    async def send_columns(
        self, batch: ColumnBatch, *, queue: MessageQueue | None = None
    ) -> list[StoredRun]:
        """Send all rows in parts to the queues of the topic that the batch names, in turn.

        With `queue`, all rows go there. Returns when every message is acknowledged; raises the
        error of the first part that cannot be stored.
        """
        window = self.window()
        try:
            await self.begin_columns(batch, window, queue=queue)
            return await window.settle()
        finally:
            await window.abandon()

    def window(self) -> SendWindow:
        """A new window for `begin_columns`."""
        return SendWindow(self._in_flight)

    async def begin_columns(
        self, batch: ColumnBatch, window: SendWindow, *, queue: MessageQueue | None = None
    ) -> None:
        """As `send_columns`, but returns when all requests have begun; then `window.settle()`."""
        topic = batch.queues[0][0].decode()
        async for target, body, count in self._parts(topic, batch, queue):
            await window.begin(self._store(topic, target, body, count, queue))

    async def _parts(
        self, topic: str, batch: ColumnBatch, queue: MessageQueue | None
    ) -> AsyncIterator[tuple[MessageQueue, bytes, int]]:
        row = 0
        while row < batch.count:
            target = queue or await self._choose(topic)
            limited, size = batch, REQUEST_SIZE
            if not await self._takes_bulk(target):
                limited = batch._replace(count=min(batch.count, row + BATCH_COUNT))
                size = BATCH_SIZE
            row, count, body = join_client_batch(limited, row, -1, size)
            yield target, body, count

    async def _choose(self, topic: str, avoid: Sequence[str] = ()) -> MessageQueue:
        return self._turn.choose(await self._client.routes.publish_queues(topic), avoid)

    async def _takes_bulk(self, queue: MessageQueue) -> bool:
        address = self._client.routes.broker_address(queue.broker_name)
        return (await self._client.capabilities.of(address)).bulk_send

    async def _store(
        self,
        topic: str,
        target: MessageQueue,
        body: bytes,
        count: int,
        fixed: MessageQueue | None,
    ) -> list[StoredRun]:
        """Send one part, with retries."""
        backoff, clock = Backoff(), self._client.clock
        busy_until = clock.monotonic() + self._timeout_ms / 1000
        failed = 0
        while True:
            try:
                if await self._takes_bulk(target):
                    return [await self._send_bulk(topic, target, body)]
                return [await self._send_batch(topic, target, body, count)]
            except RmqError as error:
                # A broker whose disk is slow refuses sends for a second, longer than the attempts.
                is_busy = isinstance(error, SystemBusy) and clock.monotonic() < busy_until
                failed += not (is_busy and self._attempts > 1)
                if failed == self._attempts or not is_worth_another_try(error):
                    raise
                self.retry_count += 1
                await backoff.wait()
                # While a broker restarts, the name servers may list none.
                with contextlib.suppress(RmqError):
                    await self._client.routes.route(topic, refresh=True)
                    if fixed is None:
                        target = await self._choose(topic, (target.broker_name,))

    async def _send_bulk(self, topic: str, target: MessageQueue, body: bytes) -> StoredRun:
        fields = {
            "producerGroup": self._group,
            "topic": topic,
            "queueId": str(target.queue_id),
            "defaultTopic": TEMPLATE_TOPIC,
            "bornTimestamp": str(self._client.clock.wall_ms()),
        }
        command = RemotingCommand(RequestCode.BULK_SEND, fields, body)
        answer = await self._acknowledged(target, command)
        return StoredRun(target, int(answer.ext["queueOffset"]), int(answer.ext["count"]))

    async def _send_batch(
        self, topic: str, target: MessageQueue, body: bytes, count: int
    ) -> StoredRun:
        born = self._client.clock.wall_ms()
        wait = "true" if self._wait_store_ok else "false"
        request = SendRequest(
            self._group,
            topic,
            TEMPLATE_TOPIC,
            4,
            target.queue_id,
            0,
            born,
            0,
            f"WAIT\x01{wait}\x02",
            is_batch=True,
        )
        fields = send_request_fields(request)
        command = RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, fields, body)
        answer = await self._acknowledged(target, command)
        return StoredRun(target, int(answer.ext["queueOffset"]), count)

    async def _acknowledged(
        self, target: MessageQueue, command: RemotingCommand
    ) -> RemotingCommand:
        answer = await self._client.request_broker(
            target.broker_name, command, timeout_ms=self._timeout_ms
        )
        if answer.code == ResponseCode.SUCCESS:
            return answer
        stored = (
            ResponseCode.FLUSH_DISK_TIMEOUT,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
            ResponseCode.SLAVE_NOT_AVAILABLE,
        )
        if answer.code in stored and not self._wait_store_ok and "queueOffset" in answer.ext:
            return answer
        if answer.code in stored:
            raise NotAcknowledged(
                f"{target.topic} at {target.broker_name}: stored, but {answer.remark}", answer
            )
        raise RemoteError.for_code(answer.code, answer.remark)


def columns_of(topic: str, data: bytes, offsets: array[int]) -> ColumnBatch:
    """A batch of bodies only; hosts and queue are placeholders."""
    return ColumnBatch(
        len(offsets) - 1,
        ((topic.encode(), 0),),
        None,
        (data, offsets, 8),
        born_host=_NO_HOST,
        store_host=_NO_HOST,
        append_crc=False,
    )
