"""Requests of brokers to a push consumer, mostly on behalf of administrators.

220  reset the offsets of queues            307  state of the consumer
221  progress of a topic                    309  have the listener consume one message
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from broker_core.client.connection.instance import ClientInstance
from broker_core.client.pull.received_message import decode_messages
from broker_core.client.push.assigned_queue import AssignedQueue
from broker_core.client.push.listener_call import ListenerCall
from broker_core.client.push.offset_keeper import OffsetKeeper
from broker_core.client.push.rebalance import Rebalance
from broker_core.client.push.stats import ConsumeStats
from broker_core.client.push.types import ConsumeContext, ConsumeStatus, PushSettings
from broker_core.codec.json.dialect import emit_json, parse_json
from broker_core.codec.json.fields import I64_MAX, list_field, whole_field
from broker_core.codec.wire.bodies.heartbeat_data import CONSUME_PASSIVELY
from broker_core.codec.wire.bodies.message_queue import (
    MessageQueue,
    parse_queue,
    parse_queue_map,
    queue_map,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData, subscription_object
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

_log = logging.getLogger(__name__)

_RESULTS: Final = {
    (ConsumeStatus.SUCCESS, False): "CR_SUCCESS",
    (ConsumeStatus.LATER, False): "CR_LATER",
    (ConsumeStatus.LATER, True): "CR_THROW_EXCEPTION",
}
_REMARK_MAX: Final = 1_000


class BrokerCallbacks:
    """Answers the requests that brokers send to a push consumer."""

    def __init__(
        self,
        client: ClientInstance,
        settings: PushSettings,
        subscriptions: Mapping[str, SubscriptionData],
        keeper: OffsetKeeper,
        rebalance: Rebalance,
        listener: ListenerCall,
        stats: ConsumeStats,
    ) -> None:
        self._client = client
        self._settings = settings
        self._subscriptions = subscriptions
        self._keeper = keeper
        self._rebalance = rebalance
        self._listener = listener
        self._stats = stats

    def handlers(self) -> dict[int, Handler]:
        """Handlers by request code."""
        return {
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def reset_offsets(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Restart the queues of this client at the given offsets; others are ignored."""
        rebalance = self._rebalance
        for queue, offset in _reset_offsets(command).items():
            assigned = rebalance.assigned.get(queue)
            if assigned is not None:
                _log.info("%s is reset to %d by %s", queue, offset, connection.peer_text)
                rebalance.restart(assigned, offset)
        return command.reply()

    def status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Progress by queue."""
        topic = command.ext.get("topic", "")
        offsets = {
            queue: self._progress(assigned)
            for queue, assigned in self._rebalance.assigned.items()
            if queue.topic == topic
        }
        body = emit_json({"consumerTable": {}, "messageQueueTable": queue_map(offsets)})
        return command.reply(body=body)

    def running_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Queues, subscriptions, rates and settings."""
        assigned = self._rebalance.assigned
        body = {
            "mqPopTable": {},
            "mqTable": queue_map({q: self._queue_info(a) for q, a in assigned.items()}),
            "properties": self._properties(),
            "statusTable": self._stats.table(),
            "subscriptionSet": [subscription_object(s) for s in self._subscriptions.values()],
            "userConsumerInfo": {},
        }
        if command.ext.get("jstackEnable") == "true":
            body["jstack"] = _task_stacks()
        return command.reply(body=emit_json(body))

    async def consume_directly(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """Call the listener with the message in the body; progress does not change."""
        messages = decode_messages(
            command.body,
            MessageQueue("", command.ext.get("brokerName", ""), 0),
            self._client.config.decompressed_size_max,
        )
        if len(messages) != 1:
            raise InvalidArgument(f"{len(messages)} messages to consume directly, not one")
        [message] = messages
        record = message.record
        message.queue = MessageQueue(record.topic, message.queue.broker_name, record.queue_id)
        clock = self._client.clock
        started = clock.monotonic()
        verdict = await self._listener.call(messages, ConsumeContext(message.queue))
        spent_ms = int((clock.monotonic() - started) * 1000)
        error = verdict.error
        result: dict[str, Any] = {
            "autoCommit": True,
            "consumeResult": _RESULTS[verdict.status, error is not None],
            "order": self._settings.orderly,
            "remark": None if error is None else f"{type(error).__name__}: {error}"[:_REMARK_MAX],
            "spentTimeMills": spent_ms,
        }
        return command.reply(body=emit_json(result))

    def _progress(self, assigned: AssignedQueue) -> int:
        noted = self._keeper.noted(assigned.queue)
        return assigned.backlog.committable_offset if noted is None else noted

    def _queue_info(self, assigned: AssignedQueue) -> dict[str, Any]:
        backlog = assigned.backlog
        clock = self._client.clock
        age_ms = 0.0
        if assigned.locked_at is not None:
            age_ms = (clock.monotonic() - assigned.locked_at) * 1000
        return {
            "cachedMsgCount": backlog.count,
            "cachedMsgMaxOffset": backlog.last_offset,
            "cachedMsgMinOffset": backlog.first_offset,
            "cachedMsgSizeInMiB": backlog.size >> 20,
            "commitOffset": self._progress(assigned),
            "droped": assigned.is_dropped,
            "lastConsumeTimestamp": assigned.last_consume_ms,
            "lastLockTimestamp": int(clock.wall_ms() - age_ms) if assigned.locked_at else 0,
            "lastPullTimestamp": assigned.last_pull_ms,
            "locked": assigned.locked_at is not None,
            "transactionMsgCount": 0,
            "transactionMsgMaxOffset": 0,
            "transactionMsgMinOffset": 0,
            "tryUnlockTimes": 0,
        }

    def _properties(self) -> dict[str, str]:
        settings, config = self._settings, self._client.config
        return {
            "PROP_CLIENT_VERSION": "V4_9_8",
            "PROP_CONSUMEORDERLY": "true" if settings.orderly else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._stats.started_ms),
            "PROP_CONSUME_TYPE": CONSUME_PASSIVELY,
            "PROP_NAMESERVER_ADDR": "".join(f"{server};" for server in config.name_servers),
            "PROP_THREADPOOL_CORE_SIZE": str(settings.concurrency),
            "consumeFromWhere": settings.from_where,
            "consumeMessageBatchMaxSize": str(settings.batch_size),
            "maxReconsumeTimes": str(settings.max_reconsume_times),
            "messageModel": settings.model,
            "pullBatchSize": str(settings.pull_count),
        }


def _reset_offsets(command: RemotingCommand) -> dict[MessageQueue, int]:
    """Java's form has a map keyed by queue, that for C++ clients a list."""
    found = parse_json(command.body, references=True)
    if not isinstance(found, dict):
        raise InvalidArgument("the offsets to reset to are not an object")
    table = found.get("offsetTable")
    if isinstance(table, list):
        return {
            parse_queue(item): whole_field(item, "offset", None, 0, I64_MAX)
            for item in list_field(found, "offsetTable")
        }
    offsets = parse_queue_map(table)
    return {
        queue: whole_field({"offset": offset}, "offset", None, 0, I64_MAX)
        for queue, offset in offsets.items()
    }


def _task_stacks() -> str:
    """Stacks of the tasks of this loop, in place of Java's thread dump."""
    lines = []
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        lines.append(task.get_name())
        for frame in task.get_stack(limit=4):
            code = frame.f_code
            lines.append(f"    {code.co_name} line {frame.f_lineno} of {code.co_filename}")
    return "\n".join(lines)
