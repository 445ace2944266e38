"""Sends failed messages back to the broker for redelivery.

The broker copies its record to `%RETRY%group`, or to `%DLQ%group` after too many attempts. If it
cannot (its master is down, the record has expired), the client sends the copy to any broker that
has the retry topic.
"""

from __future__ import annotations

import logging
from typing import Final

from broker_core.client.connection.group_registry import INNER_PRODUCER_GROUP
from broker_core.client.connection.instance import ClientInstance, checked
from broker_core.client.produce.result import STATUS_OF_CODE
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.message_properties import encode_properties
from broker_core.codec.records.record_layout import HOST_BITS
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX, TEMPLATE_TOPIC
from broker_core.errors import RmqError
from broker_core.protocol_codes import FIRST_RETRY_LEVEL, RequestCode

_log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 5_000
# A limit that the copy exceeds already, so that it goes to the dead-letter queue.
_NO_MORE_TRIES: Final = 0


class SendBack:
    """Sends messages of one group back."""

    def __init__(self, client: ClientInstance, group: str, reconsume_times_max: int) -> None:
        self._client = client
        self._group = group
        self._times_max = reconsume_times_max

    async def send(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Returns whether a broker accepted it; failures are logged."""
        try:
            await self._by_broker(message, delay_level)
        except RmqError as error:
            _log.info("%s was not accepted back by its broker: %s", message, error)
        else:
            return True
        try:
            await self._by_copy(message, delay_level)
        except RmqError as error:
            _log.warning("neither %s nor a copy could be sent back: %s", message, error)
            return False
        return True

    async def _by_broker(self, message: ReceivedMessage, delay_level: int) -> None:
        ext = {
            "offset": str(message.physical_offset),
            "group": self._group,
            "delayLevel": str(delay_level),
            "originMsgId": message.message_id,
            "originTopic": message.topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(self._times_max),
        }
        command = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
        await self._client.ask_broker(message.queue.broker_name, command, _TIMEOUT_MS)

    async def _by_copy(self, message: ReceivedMessage, delay_level: int) -> None:
        record = message.record
        retry_topic = RETRY_TOPIC_PREFIX + self._group
        times = message.reconsume_times + 1
        level = delay_level if delay_level > 0 else FIRST_RETRY_LEVEL + message.reconsume_times
        properties = {
            **message.properties,
            names.RETRY_TOPIC: message.topic,
            names.ORIGIN_MESSAGE_ID: message.properties.get(
                names.ORIGIN_MESSAGE_ID, message.offset_message_id
            ),
            names.RECONSUME_TIME: str(times),
            names.MAX_RECONSUME_TIMES: str(self._times_max),
            names.DELAY: str(level),
        }
        queue = (await self._client.routes.publish_queues(retry_topic))[0]
        command = RemotingCommand(
            RequestCode.SEND_MESSAGE_V2,
            {
                "a": INNER_PRODUCER_GROUP,
                "b": retry_topic,
                "c": TEMPLATE_TOPIC,
                "d": "1",
                "e": str(queue.queue_id),
                "f": str(record.sys_flag & ~HOST_BITS),
                "g": str(record.born_timestamp),
                "h": str(record.flag),
                "i": encode_properties(properties).decode(),
                "j": str(times),
                "k": "false",
                "l": str(self._times_max if delay_level >= 0 else _NO_MORE_TRIES),
                "m": "false",
                "n": queue.broker_name,
            },
            record.body,
        )
        answer = await self._client.request_broker(queue.broker_name, command, _TIMEOUT_MS)
        if answer.code not in STATUS_OF_CODE:
            checked(answer)
