"""HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG.

The first heartbeat of a group creates the group and its retry topic, so that the retry topic has a
route before the first message fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from broker_core.access.accounts import Account
from broker_core.access.asking_account import asking_account
from broker_core.broker.request_fields import required_text
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.new_groups import NewGroups
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.dialect import parse_object
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    parse_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import SQL92, parse_subscription
from broker_core.codec.wire.bodies.topic_config import UNIT_SUBSCRIPTION_FLAG
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidSubscription, LimitReached
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

# Connection attribute: for each waiting heartbeat, the groups unregistered since, by kind.
_WAITING: Final = "broker.waiting_heartbeats"
_PRODUCER, _CONSUMER = "producer", "consumer"

# The error of a SQL92 expression; None for a valid one.
SqlProblem = Callable[[str], "str | None"]


class HeartbeatProcessor:
    """Keeps `clients` up to date. Without `sql_problem`, SQL92 expressions are not supported.

    Without `new_groups`, each new group writes the table once.
    """

    def __init__(
        self,
        *,
        clients: ClientTable,
        groups: GroupTable,
        topics: TopicTable,
        new_groups: NewGroups | None = None,
        sql_problem: SqlProblem | None = None,
    ) -> None:
        self._clients = clients
        self._groups = groups
        self._topics = topics
        self._new_groups = new_groups
        self._sql_problem = sql_problem

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_config,
        }

    def _heartbeat(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        heartbeat = parse_heartbeat(command.body)
        self._clients.check(heartbeat)
        # Read now: the next request of this connection may have another account.
        account = asking_account(connection)
        makings = self._creations(heartbeat)
        if makings:
            left: set[tuple[str, str]] = set()
            connection.attributes.setdefault(_WAITING, []).append(left)
            return self._beat_after_creation(makings, connection, command, heartbeat, left, account)
        return self._beat(connection, command, heartbeat, account)

    def _creations(self, heartbeat: HeartbeatData) -> list[asyncio.Future[None]]:
        """Futures of the groups and retry topics that this heartbeat creates."""
        makings: list[asyncio.Future[None]] = []
        if self._new_groups is not None:
            for consumer in heartbeat.consumers:
                # Rejected groups are reported after the others are served.
                with contextlib.suppress(LimitReached):
                    makings += self._new_groups.make(consumer.group, unit_mode=consumer.unit_mode)
        return makings

    async def _beat_after_creation(
        self,
        makings: list[asyncio.Future[None]],
        connection: Connection,
        command: RemotingCommand,
        heartbeat: HeartbeatData,
        left: set[tuple[str, str]],
        account: Account | None,
    ) -> RemotingCommand:
        """`left` collects groups that the client unregisters meanwhile."""
        try:
            for making in makings:
                # The future is shared with other heartbeats.
                await asyncio.shield(making)
        finally:
            waiting = connection.attributes[_WAITING]
            waiting[:] = [other for other in waiting if other is not left]
        here = heartbeat._replace(
            producers=tuple(g for g in heartbeat.producers if (_PRODUCER, g) not in left),
            consumers=tuple(c for c in heartbeat.consumers if (_CONSUMER, c.group) not in left),
        )
        return self._beat(connection, command, here, account)

    def _beat(
        self,
        connection: Connection,
        command: RemotingCommand,
        heartbeat: HeartbeatData,
        account: Account | None,
    ) -> RemotingCommand:
        welcome: list[ConsumerData] = []
        refused: LimitReached | None = None
        for consumer in heartbeat.consumers:
            try:
                # A group that may not be created is skipped without an error: its client keeps
                # sending heartbeats, and works as soon as the group is created.
                if self._group_is_ready(consumer):
                    welcome.append(consumer)
            except LimitReached as error:
                refused = error
        self._clients.heartbeat(
            connection,
            heartbeat._replace(consumers=tuple(welcome)),
            command.language,
            command.version,
            account,
        )
        if refused is not None:
            # The other groups of this heartbeat are served; the client logs this error.
            raise refused
        return command.reply()

    def _group_is_ready(self, consumer: ConsumerData) -> bool:
        group = self._groups.find_or_create(consumer.group)
        if group is None:
            return False
        if group.retry_queue_count > 0:
            flags = UNIT_SUBSCRIPTION_FLAG if consumer.unit_mode else 0
            self._topics.create_retry(group.name, group.retry_queue_count, flags)
        return True

    def _unregister(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        required_text(command.ext, "clientID")
        producer_group = command.ext.get("producerGroup", "")
        consumer_group = command.ext.get("consumerGroup", "")
        for left in connection.attributes.get(_WAITING, ()):
            left.update(((_PRODUCER, producer_group), (_CONSUMER, consumer_group)))
        self._clients.unregister(
            connection, producer_group=producer_group, consumer_group=consumer_group
        )
        return command.reply()

    def _check_config(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        found = parse_object(command.body)
        data = found.get("subscriptionData")
        if data is None:
            return command.reply()
        subscription = parse_subscription(data)
        if subscription.is_by_tag:
            return command.reply()
        if subscription.expression_type != SQL92 or self._sql_problem is None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR,
                f"this broker does not filter by {subscription.expression_type}: subscribe by tag "
                "and filter in the consumer",
            )
        problem = self._sql_problem(subscription.sub_string)
        if problem is not None:
            raise InvalidSubscription(problem)
        return command.reply()
