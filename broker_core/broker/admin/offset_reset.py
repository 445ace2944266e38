"""Offset resets: to a time, to an offset, or to the offsets of another group.

A reset is stored at once, also for a group that is offline. Commits of online members are ignored
until one of them pulls from the new offset. Members are notified with RESET_CONSUMER_CLIENT_OFFSET;
a member that does not support it learns the new offset with its next pull.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from broker_core.broker.request_fields import (
    optional_flag,
    optional_number,
    required_text,
)
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.message_queue import (
    QUEUE_ID_MAX,
    MessageQueue,
    queue_map,
    queue_object,
)
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TRANSACTION_GROUP
from broker_core.errors import (
    GroupNotExist,
    InvalidArgument,
    NoPermission,
    RmqError,
)
from broker_core.protocol_codes import LanguageCode, RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)

# Clients of this language cannot read a map with objects as keys.
_LIST_READERS: Final = frozenset({LanguageCode.CPP})


class OffsetResetProcessor:
    """Changes `offsets` and notifies the members in `clients`."""

    def __init__(
        self,
        *,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientTable,
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
        }

    def _reset(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        topic = self._topics.required(required_text(ext, "topic"))
        group = self._group(required_text(ext, "group"))
        timestamp_ms = optional_number(ext, "timestamp", -1)
        queue_id = optional_number(ext, "queueId", -1, -1, QUEUE_ID_MAX)
        targets = self._targets(topic, queue_id, timestamp_ms, optional_number(ext, "offset", -1))
        if not optional_flag(ext, "isForce", True):
            # Backwards only: a group that is behind the given time stays where it is.
            targets = {queue: self._not_after(group, queue, to) for queue, to in targets.items()}
        is_online = self._clients.consumers(group) is not None
        for queue, offset in targets.items():
            self._offsets.reset(group, queue.topic, queue.queue_id, offset, until_pulled=is_online)
        if is_online:
            self._tell(group, topic.name, timestamp_ms, targets)
        return command.reply(body=emit_json({"offsetTable": queue_map(targets)}))

    def _clone(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        source = self._group(required_text(ext, "srcGroup"))
        to = required_text(ext, "destGroup")
        # The offsets may be set before the first member of the group creates it.
        if to == TRANSACTION_GROUP or self._groups.from_defaults(to) is None:
            self._group(to)
        if self._clients.consumers(to) is not None and source != to:
            raise InvalidArgument(
                f"group {to} is online and would go on from where it is: stop it, then clone"
            )
        live = self._clients.consumers(source)
        is_offline = optional_flag(ext, "offline", False)
        # Not normalized: the look-up must use the name that access control checked.
        asked = ext.get("topic", "")
        if asked:
            self._topics.required(asked)
        self._groups.find_or_create(to)
        for name in [asked] if asked else sorted(self._offsets.topics_of(source)):
            if self._topics.find(name) is None:
                continue
            if live is not None and not is_offline and name not in live.subscriptions:
                continue
            for queue_id, offset in self._offsets.queues_of(source, name).items():
                end = self._store.offsets(name, queue_id)[1]
                self._offsets.reset(to, name, queue_id, min(offset, end))
        return command.reply()

    def _group(self, name: str) -> str:
        if name == TRANSACTION_GROUP:
            # Open transactions below a foreign offset would be lost at the next start.
            raise NoPermission(
                ResponseCode.NO_PERMISSION, f"only the broker moves the offsets of {name}"
            )
        if self._groups.find(name) is None:
            raise GroupNotExist(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {name[:255]} does not exist in this broker",
            )
        return name

    def _targets(
        self, topic: TopicConfig, queue_id: int, timestamp_ms: int, offset: int
    ) -> dict[MessageQueue, int]:
        if queue_id >= max(topic.read_queue_count, topic.write_queue_count):
            raise InvalidArgument(
                f"topic {topic.name} has no queue {queue_id}, only "
                f"{max(topic.read_queue_count, topic.write_queue_count)}"
            )
        if queue_id < 0:
            return {
                MessageQueue(topic.name, self._broker_name, each): self._at(
                    topic.name, each, timestamp_ms
                )
                for each in range(topic.read_queue_count)
            }
        queue = MessageQueue(topic.name, self._broker_name, queue_id)
        if offset < 0:
            return {queue: self._at(topic.name, queue_id, timestamp_ms)}
        low, end = self._store.offsets(topic.name, queue_id)
        if not low <= offset <= end:
            raise InvalidArgument(
                f"offset {offset} is outside queue {queue_id} of {topic.name}: give {low} to {end}"
            )
        return {queue: offset}

    def _at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        low, end = self._store.offsets(topic, queue_id)
        if timestamp_ms < 0:
            return end
        return min(max(self._store.offset_by_time(topic, queue_id, timestamp_ms), low), end)

    def _not_after(self, group: str, queue: MessageQueue, offset: int) -> int:
        stored = self._offsets.query(group, queue.topic, queue.queue_id)
        return offset if stored is None else min(offset, stored)

    def _tell(
        self, group: str, topic: str, timestamp_ms: int, targets: Mapping[MessageQueue, int]
    ) -> None:
        live = self._clients.consumers(group)
        ext = {"topic": topic, "group": group, "timestamp": str(timestamp_ms), "isForce": "true"}
        as_map = emit_json({"offsetTable": queue_map(targets)})
        rows = [{**queue_object(queue), "offset": offset} for queue, offset in targets.items()]
        as_list = emit_json({"offsetTable": rows})
        for member in list(live.members.values()) if live is not None else ():
            body = as_list if member.language in _LIST_READERS else as_map
            command = RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(ext), body)
            try:
                member.connection.oneway(command)
            except RmqError as error:
                # Its next pull reports the reset.
                _log.info("%s was not notified of a reset: %s", member.client_id, error)
