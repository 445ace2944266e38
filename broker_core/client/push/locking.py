"""Exclusive locks on queues at their brokers: acquire, renew, release."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from broker_core.client.connection.instance import ClientInstance
from broker_core.codec.wire.bodies.message_queue import (
    MessageQueue,
    QueueLockRequest,
    encode_lock_request,
    parse_locked_queues,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RmqError
from broker_core.protocol_codes import RequestCode

_log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 1_000


class QueueLocking:
    """Locks of one group at one client."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group

    async def lock(
        self, queues: Iterable[MessageQueue]
    ) -> tuple[frozenset[MessageQueue], frozenset[MessageQueue]]:
        """(granted, refused); queues of a broker that did not answer are in neither."""
        by_broker = _by_broker(queues)
        answers = await asyncio.gather(*(self._lock(*item) for item in by_broker.items()))
        granted: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()
        for asked, given in zip(by_broker.values(), answers, strict=True):
            if given is not None:
                granted.update(given.intersection(asked))
                refused.update(set(asked) - given)
        return frozenset(granted), frozenset(refused)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release locks; after a failure they expire."""
        by_broker = _by_broker(queues)
        await asyncio.gather(*(self._unlock(*item) for item in by_broker.items()))

    async def _lock(
        self, broker_name: str, queues: list[MessageQueue]
    ) -> frozenset[MessageQueue] | None:
        try:
            command = RemotingCommand(RequestCode.LOCK_BATCH_MQ, {}, self._body(queues))
            answer = await self._client.ask_broker(broker_name, command, _TIMEOUT_MS)
            return parse_locked_queues(answer.body)
        except RmqError as error:
            _log.info("%s did not lock queues: %s", broker_name, error)
            return None

    async def _unlock(self, broker_name: str, queues: list[MessageQueue]) -> None:
        try:
            command = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, {}, self._body(queues))
            await self._client.ask_broker(broker_name, command, _TIMEOUT_MS)
        except RmqError as error:
            _log.info("%s did not unlock queues: %s", broker_name, error)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return encode_lock_request(
            QueueLockRequest(self._client.client_id, self._group, tuple(queues))
        )


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
