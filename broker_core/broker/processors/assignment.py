"""QUERY_ASSIGNMENT: a consumer that leaves the division of queues to the broker asks for its share.

The queues are those of all brokers of the topic, as the name servers have them, the members those
of this broker; the shares are what the members would compute themselves. Every group pulls here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from broker_core.broker.client_table import ClientTable
from broker_core.broker.topic_table import TopicTable
from broker_core.codec.json_dialect import emit_json, parse_json
from broker_core.codec.json_fields import object_field, text_field
from broker_core.codec.message_queue import MessageQueue, queue_object
from broker_core.codec.queue_allocation import Allocation, allocate_average, allocate_by_circle
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.codec.route_data import TopicRoute
from broker_core.codec.topic_config import PERM_READ
from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

_BROADCASTING: Final = "BROADCASTING"
_STRATEGIES: Final[Mapping[str, Allocation]] = {
    "AVG": allocate_average,
    "AVG_BY_CIRCLE": allocate_by_circle,
}


class AssignmentProcessor:
    """Divides the queues of a topic among the members that this broker knows."""

    def __init__(
        self,
        *,
        broker_name: str,
        topics: TopicTable,
        clients: ClientTable,
        route: Callable[[str], Awaitable[TopicRoute | None]] | None = None,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._clients = clients
        self._route = route

    def handlers(self) -> Mapping[int, Handler]:
        """What each request code is answered by."""
        return {RequestCode.QUERY_ASSIGNMENT: self._assign}

    async def _assign(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        found = object_field({"body": parse_json(command.body)}, "body")
        topic = text_field(found, "topic")
        group = text_field(found, "consumerGroup")
        queues = await self._queues(topic)
        if text_field(found, "messageModel", "") != _BROADCASTING:
            strategy = text_field(found, "strategyName", "")
            allocate = _STRATEGIES.get(strategy)
            if allocate is None:
                raise InvalidArgument(
                    f"strategyName {strategy[:40]!r}: this broker divides by "
                    f"{' or '.join(_STRATEGIES)}; let the client divide the queues itself"
                )
            queues = allocate(
                queues, self._clients.consumer_ids(group), text_field(found, "clientId")
            )
        rows = [{"messageQueue": queue_object(queue), "mode": "PULL"} for queue in queues]
        return command.reply(body=emit_json({"messageQueueAssignments": rows}))

    async def _queues(self, topic: str) -> list[MessageQueue]:
        route = await self._route(topic) if self._route is not None else None
        if route is not None:
            return [
                MessageQueue(topic, data.broker_name, number)
                for data in route.queues
                if data.perm & PERM_READ
                for number in range(data.read_queue_count)
            ]
        own = self._topics.find(topic)
        if own is None or not own.perm & PERM_READ:
            return []
        return [MessageQueue(topic, self._broker_name, n) for n in range(own.read_queue_count)]
