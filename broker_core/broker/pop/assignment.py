"""Queue assignment by the broker: QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE.

A consumer that does not allocate queues itself asks for its share. The queues are those of all
brokers of the topic, as the name servers know them; the members are those of this broker. Shares
equal what the members would compute. The request mode says whether a group pulls or pops a topic:
members of a group that pops share queues, and the broker gives each message to one of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from broker_core.broker.request_fields import checked_group
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.request_modes import POP, PULL, RequestMode, RequestModes, parse_mode
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.dialect import emit_json, parse_object
from broker_core.codec.json.fields import text_field
from broker_core.codec.wire.bodies.heartbeat_data import BROADCASTING
from broker_core.codec.wire.bodies.message_queue import MessageQueue, queue_object
from broker_core.codec.wire.bodies.route_data import TopicRoute
from broker_core.codec.wire.bodies.topic_config import PERM_READ
from broker_core.codec.wire.queue_allocation import Allocation, allocate_average, allocate_by_circle
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

_STRATEGIES: Final[Mapping[str, Allocation]] = {
    "AVG": allocate_average,
    "AVG_BY_CIRCLE": allocate_by_circle,
}


class RequestModeProcessor:
    """Changes `modes`; members learn of it when they next ask for their queues."""

    def __init__(self, *, topics: TopicTable, modes: RequestModes) -> None:
        self._topics = topics
        self._modes = modes

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.SET_MESSAGE_REQUEST_MODE: self._set}

    def _set(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        found = parse_object(command.body)
        topic = text_field(found, "topic")
        group = checked_group(text_field(found, "consumerGroup"))
        mode = parse_mode(found)
        self._topics.required(topic)
        if mode.mode == POP and topic.startswith(RETRY_TOPIC_PREFIX):
            raise InvalidArgument("the retry topic of a group is pulled: set the mode of its topic")
        self._modes.set(topic, group, mode)
        return command.reply()


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
        return {RequestCode.QUERY_ASSIGNMENT: self._assign}

    async def _assign(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        found = parse_object(command.body)
        topic = text_field(found, "topic")
        group = text_field(found, "consumerGroup")
        queues = await self._queues(topic)
        mode = RequestMode(PULL)
        if text_field(found, "messageModel", "") != BROADCASTING:
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
        # The retry topic of sent-back messages is always pulled.
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
    """The queues that a member pops: its own share and those of the `share_count` next members.

    A member with all shares pops whole brokers, as queue -1: the broker goes round its queues.
    """
    ordered = sorted(members)
    if member not in ordered:
        return []
    if share_count <= 0 or share_count >= len(ordered) - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return [MessageQueue(topic, broker_name, -1) for topic, broker_name in brokers]
    place = ordered.index(member)
    if len(ordered) > len(queues):
        # More members than queues: a queue is shared.
        return [sorted(queues)[place % len(queues)]] if queues else []
    found: dict[MessageQueue, None] = {}
    for step in range(share_count + 1):
        other = ordered[(place + step) % len(ordered)]
        found.update(dict.fromkeys(allocate(queues, members, other)))
    return list(found)
