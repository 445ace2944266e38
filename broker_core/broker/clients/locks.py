"""Queue locks of orderly consumers: LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.access.asking_account import asking_account
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.queue_locks import QueueLocks
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.wire.bodies.heartbeat_data import CLIENT_ID_SIZE_MAX
from broker_core.codec.wire.bodies.message_queue import (
    MessageQueue,
    QueueLockRequest,
    encode_locked_queues,
    parse_lock_request,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler


class QueueLockProcessor:
    """Locks existing queues for groups that exist or that their first pull would create.

    Behind Apache's proxy a group locks queues before its first heartbeat.
    """

    def __init__(
        self, *, locks: QueueLocks, groups: GroupTable, topics: TopicTable, clients: ClientTable
    ) -> None:
        self._locks = locks
        self._clients = clients
        self._groups = groups
        self._topics = topics

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def _lock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        request = self._request(connection, command)
        owned: list[MessageQueue] = []
        group = self._groups.find(request.group) or self._groups.from_defaults(request.group)
        if group is not None:
            queues = [queue for queue in request.queues if self._exists(queue)]
            owned = self._locks.lock(request.group, request.client_id, queues)
        return command.reply(body=encode_locked_queues(owned))

    def _unlock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        request = self._request(connection, command)
        self._locks.unlock(request.group, request.client_id, request.queues)
        return command.reply()

    def _exists(self, queue: MessageQueue) -> bool:
        topic = self._topics.find(queue.topic)
        return topic is not None and queue.queue_id < max(
            topic.read_queue_count, topic.write_queue_count
        )

    def _request(self, connection: Connection, command: RemotingCommand) -> QueueLockRequest:
        request = parse_lock_request(command.body)
        if not 0 < len(request.client_id) <= CLIENT_ID_SIZE_MAX:
            raise InvalidArgument(f"clientId must have 1 to {CLIENT_ID_SIZE_MAX} characters")
        # The owner of a lock is known by its client id only.
        account = asking_account(connection)
        self._clients.check_account(connection, request.client_id, account)
        return request
