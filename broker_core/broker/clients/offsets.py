"""Progress of consumer groups: QUERY_CONSUMER_OFFSET and UPDATE_CONSUMER_OFFSET."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker_core.broker.request_fields import optional_flag, required_number, required_text
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.wire.bodies.message_queue import QUEUE_ID_MAX
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TRANSACTION_GROUP
from broker_core.errors import InvalidArgument, NoPermission, RemoteError
from broker_core.protocol_codes import LanguageCode, RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

# Readable offsets [min, max) of a queue; (0, 0) when there is none: `MessageStore.offsets`.
QueueOffsets = Callable[[str, int], tuple[int, int]]


class ConsumerOffsetProcessor:
    """Answers from `offsets`."""

    def __init__(
        self,
        *,
        offsets: OffsetTable,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        queue_offsets: QueueOffsets,
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._queue_offsets = queue_offsets

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
        }

    def _query(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        group, topic, queue_id = _queue_of(command)
        offset = self._offsets.query(group, topic, queue_id)
        if (
            offset is None
            and optional_flag(command.ext, "setZeroIfNotFound", True)
            and self._queue_offsets(topic, queue_id)[0] == 0
        ):
            # As in RocketMQ, a new group gets all of a queue of which nothing was deleted, even if
            # it wants to start at the end.
            offset = 0
        if offset is None:
            # Only this code means "first start" to clients.
            return command.reply(
                ResponseCode.QUERY_NOT_FOUND,
                "no offset is stored, maybe this group consumes the queue for the first time",
            )
        return command.reply(ext={"offset": str(offset)})

    def _update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        group, topic, queue_id = _queue_of(command)
        offset = required_number(command.ext, "commitOffset", 0, I64_MAX)
        if group == TRANSACTION_GROUP:
            # Open transactions below a foreign offset would be lost at the next start.
            raise NoPermission(
                ResponseCode.NO_PERMISSION, f"only the broker moves the offsets of {group}"
            )
        self._check_queue(group, topic, queue_id)
        end = self._queue_offsets(topic, queue_id)[1]
        if offset > end:
            raise InvalidArgument(f"queue {queue_id} of {topic} ends at {end}, before {offset}")
        if self._offsets.commit(group, topic, queue_id, offset) or command.is_oneway:
            return command.reply()
        stored = self._offsets.query(group, topic, queue_id)
        if stored is not None and offset != stored:
            if not self._is_tool(connection, command, group):
                raise RemoteError.for_code(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"group {group} is online at {stored} in queue {queue_id} of {topic}: stop it "
                    f"or reset its offset to move it to {offset}",
                )
            self._offsets.reset(group, topic, queue_id, offset)
        return command.reply()

    def _check_queue(self, group: str, topic: str, queue_id: int) -> None:
        if self._groups.find(group) is None:
            code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            raise RemoteError.for_code(code, f"group {group[:255]} does not exist")
        config = self._topics.find(topic)
        if config is None:
            code = ResponseCode.TOPIC_NOT_EXIST
            raise RemoteError.for_code(code, f"topic {topic[:255]} does not exist")
        queue_count = max(config.read_queue_count, config.write_queue_count)
        if queue_id >= queue_count:
            raise InvalidArgument(f"topic {topic} has no queue {queue_id}, only {queue_count}")

    def _is_tool(self, connection: Connection, command: RemotingCommand, group: str) -> bool:
        """Whether a request is a reset by a tool, which may move an offset backwards.

        Consumers commit one-way, except ours. A request that waits for the answer and moves an idle
        group is a reset. Java's tool resets groups with members online as well, before it notifies
        them.
        """
        live = self._clients.consumers(group)
        if live is None:
            return True
        return command.language == LanguageCode.JAVA and connection not in live.members


def _queue_of(command: RemotingCommand) -> tuple[str, str, int]:
    ext = command.ext
    return (
        required_text(ext, "consumerGroup"),
        required_text(ext, "topic"),
        required_number(ext, "queueId", 0, QUEUE_ID_MAX),
    )
