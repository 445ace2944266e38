"""CONSUMER_SEND_MSG_BACK: a consumer failed to process a message and asks for a retry.

The copy goes through the delay topic to the group's retry topic, or to its dead letters. The
consumer is answered when the copy is as durable as a send, because it then commits the message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from broker_core.broker.request_fields import optional_flag, required_number, required_text
from broker_core.broker.retry_policy import retry_level, times_max
from broker_core.broker.scheduled.delayed_message import delayed_form
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.broker.viewed_record import viewed_record
from broker_core.codec.json.fields import I32_MAX, I32_MIN, whole_number
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.message_properties import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    change_properties,
)
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.topic_config import (
    PERM_WRITE,
    UNIT_SUBSCRIPTION_FLAG,
    TopicConfig,
)
from broker_core.codec.wire.pop_handle import NOT_POPPED
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import GroupNotExist, NoPermission, RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore


class SendBackProcessor:
    """Event loop only. `level_count` is the number of delay levels."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        level_count: int,
        stats: BrokerStats | None = None,
        broker_permission: int = 6,
        choose_queue: Callable[[int], int] = random.randrange,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._level_count = level_count
        self._stats = stats
        self._broker_permission = broker_permission
        self._choose_queue = choose_queue

    def reconfigure(self, broker_permission: int) -> None:
        """Apply the broker's write permission."""
        self._broker_permission = broker_permission

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    async def send_back(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """Store the copy, and answer once it is as durable as a send."""
        ext = command.ext
        position = required_number(ext, "offset", least=0)
        asked_level = required_number(ext, "delayLevel", I32_MIN, I32_MAX)
        group = _known_group(self._groups, required_text(ext, "group"))
        if not self._broker_permission & PERM_WRITE:
            raise NoPermission(
                ResponseCode.NO_PERMISSION, "the broker does not take messages (brokerPermission)"
            )
        if group.retry_queue_count <= 0:
            return command.reply()
        sys_flag = UNIT_SUBSCRIPTION_FLAG if optional_flag(ext, "unitMode", False) else 0
        topic = self._topics.create_retry(group.name, group.retry_queue_count, sys_flag)
        # Administrators included: sending back a hidden record would deliver it.
        found = viewed_record(self._store, position)
        if found is None:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {position}"
            )
        record = found[1]
        limit = times_max(group.retry_times_max, _asked_times(ext))
        level = retry_level(record.reconsume_times, limit, asked_level)
        if level is None:
            topic = self._topics.create_dlq(group.name)
        if not topic.perm & PERM_WRITE:
            raise NoPermission(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden"
            )
        await self._store_copy(record, topic, level, group)
        return command.reply()

    async def _store_copy(
        self, record: MessageRecord, target: TopicConfig, level: int | None, group: GroupConfig
    ) -> None:
        """Append the retry copy of `record` and wait until it is durable; raises if it is not."""
        properties = record.properties
        origin_topic = properties.get(RETRY_TOPIC, record.topic)
        origin_id = properties.get(ORIGIN_MESSAGE_ID, record.message_id)
        changes = {RETRY_TOPIC: origin_topic, ORIGIN_MESSAGE_ID: origin_id, WAIT: "false"}
        changes |= NOT_POPPED
        if level is None:
            changes |= {
                DELAY: "",
                DLQ_ORIGIN_TOPIC: origin_topic,
                DLQ_ORIGIN_MESSAGE_ID: origin_id,
            }
        text = change_properties(record.property_text, changes)
        topic, queue_id = target.name, 0
        if level is not None:
            count = max(1, min(group.retry_queue_count, target.write_queue_count))
            queue_id = self._choose_queue(count)
            topic, queue_id, text = delayed_form(topic, queue_id, text, level, self._level_count)
        result = self._store.append_text(
            topic,
            queue_id,
            record.body,
            text,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=encode_host(record.born_host),
            reconsume_times=record.reconsume_times + 1,
        )
        result = await self._store.acknowledged(result)
        if not result.ok:
            remark = f"{result.status.name} {result.remark}".rstrip()
            raise RemoteError(ResponseCode.SYSTEM_ERROR, remark)
        if self._stats is not None:
            self._stats.put(topic, 1, result.end_position - result.position)
            self._stats.send_back(group.name, origin_topic)
            if level is None:
                self._stats.dlq(group.name, origin_topic)


def _known_group(groups: GroupTable, name: str) -> GroupConfig:
    group = groups.find_or_create(name)
    if group is None:
        raise GroupNotExist(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
        )
    return group


def _asked_times(ext: Mapping[str, str]) -> int | None:
    text = ext.get("maxReconsumeTimes")
    return whole_number(text, "maxReconsumeTimes", I32_MIN, I32_MAX) if text else None
