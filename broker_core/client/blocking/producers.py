"""`SyncProducer` and `SyncTransactionProducer`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any, Final

from broker_core.client.blocking.face import SyncFace, client_config, waits
from broker_core.client.connection.config import ClientConfig
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import DEFAULT_GROUP, Producer
from broker_core.client.produce.result import SendResult, SendStatus
from broker_core.client.transactions.producer import Check, Execute, TransactionProducer
from broker_core.codec.wire.bodies.message_queue import MessageQueue

# Messages of `send_many` that are under way at the same time.
_MANY: Final = 10_000


class SyncProducer(SyncFace[Producer]):
    """`Producer` with calls that wait. Any thread may call it."""

    def __init__(
        self,
        config: ClientConfig | str,
        group: str = DEFAULT_GROUP,
        *,
        timeout_ms: int | None = None,
        retries: int = 2,
        accept_statuses: Collection[SendStatus] = (),
    ) -> None:
        config = client_config(config)
        producer = Producer(
            config,
            group,
            timeout_ms=timeout_ms,
            retries=retries,
            accept_statuses=accept_statuses,
        )
        super().__init__(config, producer)

    send = waits(Producer.send)
    send_ordered = waits(Producer.send_ordered)
    send_batch = waits(Producer.send_batch)
    send_copy = waits(Producer.send_copy)
    send_copy_once = waits(Producer.send_copy_once)
    send_oneway = waits(Producer.send_oneway)
    recall = waits(Producer.recall)
    request = waits(Producer.request)
    reply = waits(Producer.reply)
    publish_queues = waits(Producer.publish_queues)
    flush = waits(Producer.flush)

    def send_async(
        self, message: OutgoingMessage, queue: MessageQueue | None = None
    ) -> concurrent.futures.Future[SendResult]:
        """Send without waiting; the future gets the result."""
        return self.begin(self._send(message, queue))

    def send_many(self, messages: Iterable[OutgoingMessage]) -> list[SendResult]:
        """Send all of them concurrently and wait; raises the first error once all have ended.

        Much faster than one `send` after another. The storage order is not defined.
        """
        results: list[SendResult] = []
        rest = iter(messages)
        while part := list(islice(rest, _MANY)):
            results += self.call(self._send_all(part))
        return results

    async def _send(self, message: OutgoingMessage, queue: MessageQueue | None) -> SendResult:
        return await self.asynchronous.send(message, queue=queue)

    async def _send_all(self, messages: list[OutgoingMessage]) -> list[SendResult]:
        futures = [self.asynchronous.send(message) for message in messages]
        if futures:
            await asyncio.wait(futures)
        # Reading every exception marks it as retrieved; the first one is raised.
        failed = [future for future in futures if future.exception() is not None]
        return [future.result() for future in (failed or futures)]


class SyncTransactionProducer(SyncProducer):
    """`TransactionProducer` with calls that wait. Any thread may call it."""

    def __init__(
        self,
        config: ClientConfig | str,
        group: str,
        *,
        execute: Execute,
        check: Check,
        **options: Any,
    ) -> None:
        config = client_config(config)
        producer = TransactionProducer(config, group, execute=execute, check=check, **options)
        SyncFace.__init__(self, config, producer)

    send_in_transaction = waits(TransactionProducer.send_in_transaction)
