"""RECALL_MESSAGE: cancels a timer message that is not due yet.

As in RocketMQ, every handle of this broker and topic with a due time in the future is answered with
success, whether the message exists or not; `recalled` says whether it did. Answered once the recall
is as durable as a send: then the message is never delivered.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.broker.request_fields import required_text
from broker_core.broker.scheduled.timer_delivery import TimerDelivery
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.wire.recall_handle import RecallHandle, decode_handle
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, NoPermission, RemoteError, TopicNotExist
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore


class RecallMessageProcessor:
    """Event loop only."""

    def __init__(
        self,
        *,
        store: MessageStore,
        clock: Clock,
        topics: TopicTable,
        timers: TimerDelivery,
        broker_name: str,
        delay_max_ms: int,
        is_enabled: bool,
    ) -> None:
        self._store = store
        self._clock = clock
        self._topics = topics
        self._timers = timers
        self._broker_name = broker_name
        self._delay_max_ms = delay_max_ms
        self._is_enabled = is_enabled

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    async def recall(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """Store the recall, and answer when it is durable."""
        handle = self._handle(command.ext)
        recalled = self._timers.recall(handle.topic, handle.unique_key, handle.due_ms)
        result = await self._store.acknowledged(recalled.result)
        if not result.status.stored:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"recall failed, execute error: {result.status.name} {result.remark}",
            )
        ext = {"msgId": handle.unique_key}
        if recalled.message_count:
            ext["recalled"] = "true"
        return command.reply(ResponseCode.SUCCESS, None, ext)

    def _handle(self, ext: Mapping[str, str]) -> RecallHandle:
        if not self._is_enabled:
            raise NoPermission(
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden: set recallMessageEnable=true",
            )
        if not self._timers.is_running:
            raise RemoteError(
                ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, messages are recalled by masters"
            )
        topic = required_text(ext, "topic")
        if self._topics.find(topic) is None:
            raise TopicNotExist(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic[:255]}] not exist"
            )
        try:
            handle = decode_handle(required_text(ext, "recallHandle"))
        except InvalidArgument as error:
            raise _illegal(str(error)) from error
        if handle.topic != topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker_name != self._broker_name:
            raise _illegal(f"recall failed, the message is on broker {handle.broker_name[:127]}")
        left_ms = handle.due_ms - self._clock.wall_ms()
        if not 0 < left_ms <= self._delay_max_ms:
            raise _illegal("recall failed, timestamp invalid: its time has come or is too far")
        return handle


def _illegal(text: str) -> RemoteError:
    return RemoteError(ResponseCode.ILLEGAL_OPERATION, text)
