"""Topics: create, change, delete, list, and the ranges of their queues.

A change is answered when it is on disk and registered: tools read the route right after. System
topics cannot be changed by a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from broker_core.broker.request_fields import (
    checked_topic,
    optional_flag,
    optional_number,
    required_number,
    required_text,
)
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.config_attributes import (
    TOPIC_ATTRIBUTES,
    changed_attributes,
    parse_attribute_changes,
)
from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.tables.table_changes import TableChanges
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.dialect import emit_json, parse_object
from broker_core.codec.json.fields import I32_MAX, list_field, object_field
from broker_core.codec.wire.bodies.message_queue import MessageQueue, queue_map
from broker_core.codec.wire.bodies.route_data import TopicList, encode_topic_list
from broker_core.codec.wire.bodies.topic_config import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    data_version_object,
    parse_topic_config,
    topic_config_object,
    topic_table_object,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

# Returns when the name servers know the present table, or after a timeout; never raises.
RoutesAnnounced = Callable[[], Awaitable[object]]

TOPICS_PER_REQUEST_MAX: Final = 10_000

_PERM_MAX: Final = PERM_READ | PERM_WRITE | PERM_INHERIT
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


class TopicAdminProcessor:
    """Changes `topics`. A deletion also removes queues, offsets and statistics."""

    def __init__(
        self,
        *,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        changes: TableChanges[TopicConfig],
        offsets: OffsetTable,
        clients: ClientTable,
        stats: BrokerStats,
        routes_announced: RoutesAnnounced | None = None,
        queues_per_topic_max: int = 1024,
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._changes = changes
        self._offsets = offsets
        self._clients = clients
        self._stats = stats
        self._routes_announced = routes_announced
        self._queues_per_topic_max = queues_per_topic_max

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._put,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._put_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all,
            RequestCode.GET_TOPIC_CONFIG: self._one,
            RequestCode.GET_TOPIC_STATS_INFO: self._queue_spans,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
        }

    # Changes

    async def _put(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        changes = parse_attribute_changes(ext.get("attributes", ""))
        await self._put_all([(self._topic_of(ext), changes)])
        return command.reply()

    async def _put_list(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        found = parse_object(command.body, references=True)
        items = list_field(found, "topicConfigList")
        if not 0 < len(items) <= TOPICS_PER_REQUEST_MAX:
            raise InvalidArgument(
                f"topicConfigList has {len(items)} topics: give 1 to {TOPICS_PER_REQUEST_MAX}"
            )
        topics = []
        for item in items:
            topic = parse_topic_config(object_field({"topicConfig": item}, "topicConfig"))
            topics.append((topic, topic.attributes))
        await self._put_all(topics)
        return command.reply()

    async def _put_all(self, topics: Sequence[tuple[TopicConfig, Mapping[str, str]]]) -> None:
        """Put all topics, or none if one is invalid or the write fails."""

        def changes() -> dict[str, TopicConfig | None]:
            found = [self._with_attributes(*given) for given in topics]
            return {topic.name: self._checked(topic) for topic in found}

        # Validate before waiting, so that an invalid request fails at once.
        names = list(changes())
        await self._changes.change(names, changes)
        await self._tell_routes()

    def _topic_of(self, ext: Mapping[str, str]) -> TopicConfig:
        return TopicConfig(
            required_text(ext, "topic"),
            required_number(ext, "readQueueNums", 0, I32_MAX),
            required_number(ext, "writeQueueNums", 0, I32_MAX),
            required_number(ext, "perm", 0, I32_MAX),
            ext.get("topicFilterType") or _FILTER_TYPES[0],
            optional_number(ext, "topicSysFlag", 0, 0, I32_MAX),
            optional_flag(ext, "order", False),
        )

    def _with_attributes(self, topic: TopicConfig, changes: Mapping[str, str]) -> TopicConfig:
        before = self._topics.find(topic.name)
        current = None if before is None else before.attributes
        return topic._replace(attributes=changed_attributes(current, changes, TOPIC_ATTRIBUTES))

    def _checked(self, topic: TopicConfig) -> TopicConfig:
        self._check_name(topic.name)
        if not 0 <= topic.perm <= _PERM_MAX:
            raise InvalidArgument(
                f"perm of topic {topic.name} cannot be {topic.perm}: 2 is write, 4 is read, 6 both"
            )
        most = self._queues_per_topic_max
        for kind, count in (("read", topic.read_queue_count), ("write", topic.write_queue_count)):
            if not 0 <= count <= most:
                raise InvalidArgument(
                    f"topic {topic.name} cannot have {count} {kind} queues: give 0 to {most} "
                    "(queuesPerTopicMax)"
                )
        if not topic.read_queue_count and not topic.write_queue_count:
            raise InvalidArgument(f"topic {topic.name} has no queue: give at least 1")
        if topic.filter_type not in _FILTER_TYPES:
            raise InvalidArgument(
                f"topicFilterType of topic {topic.name} cannot be {topic.filter_type[:60]!r}: "
                f"give {' or '.join(_FILTER_TYPES)}"
            )
        return topic

    def _check_name(self, name: str) -> None:
        checked_topic(name)
        if self._topics.is_system(name):
            raise InvalidArgument(f"topic {name} belongs to the servers and cannot be changed")

    async def _delete(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        name = required_text(command.ext, "topic")
        self._check_name(name)

        def forget() -> None:
            self._store.delete_topic(name)
            self._offsets.remove_topic(name)
            self._stats.remove_topic(name)

        # The table first: if it cannot be written, nothing is lost. Data that a crash leaves behind
        # is removed by the next deletion, so an unknown topic is cleaned up as well. In one turn
        # of the loop, since the next send may create the topic again.
        await self._changes.change([name], lambda: {name: None}, forget)
        await self._tell_routes()
        return command.reply()

    async def _tell_routes(self) -> None:
        if self._routes_announced is not None:
            await self._routes_announced()

    # Queries

    def _all(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topics = self._topics.all()
        # Tools of 5.x ask for pages; the total shows that this answer has everything.
        return command.reply(
            ext={"totalTopicNum": str(len(topics))},
            body=emit_json(
                {
                    "dataVersion": data_version_object(self._topics.version),
                    "topicConfigTable": topic_table_object(topics),
                }
            ),
        )

    def _one(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=emit_json(topic_config_object(self._known(command))))

    def _queue_spans(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = self._known(command)
        count = max(topic.read_queue_count, topic.write_queue_count)
        table = {
            MessageQueue(topic.name, self._broker_name, queue_id): self._span(topic.name, queue_id)
            for queue_id in range(count)
        }
        tps = self._stats.topic_put_tps(topic.name)
        return command.reply(body=emit_json({"offsetTable": queue_map(table), "topicPutTps": tps}))

    def _span(self, topic: str, queue_id: int) -> dict[str, Any]:
        low, high = self._store.offsets(topic, queue_id)
        newest_ms = self._store.store_time(topic, queue_id, high - 1) if low < high else None
        return {"lastUpdateTimestamp": newest_ms or 0, "maxOffset": high, "minOffset": low}

    def _known(self, command: RemotingCommand) -> TopicConfig:
        return self._topics.required(required_text(command.ext, "topic"))

    def _system_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        names = tuple(name for name in self._topics.names() if self._topics.is_system(name))
        return command.reply(body=encode_topic_list(TopicList(names)))
