"""QUERY_ASSIGNMENT: a consumer that leaves the division of queues to the broker asks for its share.

The queues are those of all brokers of the topic, as the name servers have them, the members those
of this broker; the shares are what the members would compute themselves. Members of a group that
pops are not alone with their queues: the broker gives each message to one of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from broker_core.broker.client_table import ClientTable
from broker_core.broker.request_modes import POP, PULL, RequestMode, RequestModes
from broker_core.broker.topic_table import TopicTable
from broker_core.codec.json_dialect import emit_json, parse_json
from broker_core.codec.json_fields import object_field, text_field
from broker_core.codec.message_queue import MessageQueue, queue_object
from broker_core.codec.queue_allocation import Allocation, allocate_average, allocate_by_circle
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.codec.route_data import TopicRoute
from broker_core.codec.topic_config import PERM_READ
from broker_core.codec.topic_name import RETRY_TOPIC_PREFIX
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
        modes: RequestModes | None = None,
        route: Callable[[str], Awaitable[TopicRoute | None]] | None = None,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._clients = clients
        self._modes = modes
        self._route = route

    def handlers(self) -> Mapping[int, Handler]:
        """What each request code is answered by."""
        return {RequestCode.QUERY_ASSIGNMENT: self._assign}

    async def _assign(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        found = object_field({"body": parse_json(command.body)}, "body")
        topic = text_field(found, "topic")
        group = text_field(found, "consumerGroup")
        queues = await self._queues(topic)
        mode = RequestMode(PULL)
        if text_field(found, "messageModel", "") != _BROADCASTING:
            mode = self._mode(topic, group)
            strategy = text_field(found, "strategyName", "")
            allocate = _STRATEGIES.get(strategy)
            if allocate is None:
                raise InvalidArgument(
                    f"strategyName {strategy[:40]!r}: this broker divides by "
                    f"{' or '.join(_STRATEGIES)}; let the client divide the queues itself"
                )
            members, member = self._clients.consumer_ids(group), text_field(found, "clientId")
            if mode.mode == POP:
                queues = shared_queues(allocate, queues, members, member, mode.share_queue_count)
            else:
                queues = allocate(queues, members, member)
        rows = [{"messageQueue": queue_object(queue), "mode": mode.mode} for queue in queues]
        return command.reply(body=emit_json({"messageQueueAssignments": rows}))

    def _mode(self, topic: str, group: str) -> RequestMode:
        # Retries that consumers send themselves are pulled, whatever the group does otherwise.
        if self._modes is None or topic.startswith(RETRY_TOPIC_PREFIX):
            return RequestMode(PULL)
        return self._modes.find(topic, group)

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


def shared_queues(
    allocate: Allocation,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    member: str,
    share_count: int,
) -> list[MessageQueue]:
    """What a member pops from: its own share and those of the `share_count` members after it.

    With everybody's shares it pops from whole brokers, queue -1: the broker goes round its queues.
    """
    ordered = sorted(members)
    if member not in ordered:
        return []
    if share_count <= 0 or share_count >= len(ordered) - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return [MessageQueue(topic, broker_name, -1) for topic, broker_name in brokers]
    place = ordered.index(member)
    if len(ordered) > len(queues):
        # More members than queues: nobody goes without.
        return [sorted(queues)[place % len(queues)]] if queues else []
    found: dict[MessageQueue, None] = {}
    for step in range(share_count + 1):
        other = ordered[(place + step) % len(ordered)]
        found.update(dict.fromkeys(allocate(queues, members, other)))
    return list(found)
