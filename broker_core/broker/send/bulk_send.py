"""BULK_SEND: a batch of our own client for one queue, which may be larger than one message."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random

from broker_core.broker.client_address import born_host
from broker_core.broker.request_fields import optional_number, required_text
from broker_core.broker.send.plan import SendPlanner, append_batches, merged
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.codec.json.fields import I32_MAX
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.send_request import SendRequest
from broker_core.protocol_codes import PutStatus, RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult


class BulkSendProcessor:
    """Plans like an ordinary send. Event loop only."""

    def __init__(
        self, *, store: MessageStore, planner: SendPlanner, stats: BrokerStats, clock: Clock
    ) -> None:
        self._store = store
        self._planner = planner
        self._stats = stats
        self._clock = clock
        self._random = Random()

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.BULK_SEND: self._send}

    def _send(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        ext = command.ext
        request = SendRequest(
            required_text(ext, "producerGroup"),
            required_text(ext, "topic"),
            ext.get("defaultTopic", ""),
            optional_number(ext, "defaultTopicQueueNums", 4, 1, I32_MAX),
            optional_number(ext, "queueId", -1, -1, I32_MAX),
            optional_number(ext, "sysFlag", 0, 0, I32_MAX),
            optional_number(ext, "bornTimestamp", self._clock.wall_ms(), 0),
            0,
        )
        queue_id, batches = self._planner.plan_bulk(request, command.body, self._random)
        results = append_batches(self._store, batches, born_host(connection), together=False)
        result = merged(results)
        if result.status is not PutStatus.PUT_OK:
            return command.reply(result.status.response_code, result.remark)
        size = result.end_position - result.position
        self._stats.put(request.topic, result.message_count, size)
        answer = partial(self._answer, connection, command, queue_id, result)
        self._store.when_acknowledged(result, answer)
        return None

    def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        queue_id: int,
        result: PutResult,
        status: PutStatus,
    ) -> None:
        fields = {
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
            "count": str(result.message_count),
        }
        remark = None if status is PutStatus.PUT_OK else status.name
        connection.send(command.reply(status.response_code, remark, fields))
