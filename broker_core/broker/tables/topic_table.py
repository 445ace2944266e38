"""The topics of this broker, in memory and in `topics.json`.

Owned by the event loop. A change is on disk before it can be seen or acknowledged; one that cannot
be written is undone and raises `DiskFailed`. Every name is checked here, because a topic becomes a
directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from broker_core.broker.request_fields import checked_group, checked_topic
from broker_core.broker.tables.default_topics import default_topics, template_topic
from broker_core.broker.tables.named_table import NamedTable
from broker_core.codec.json.fields import object_field
from broker_core.codec.wire.bodies.topic_config import (
    PERM_INHERIT,
    DataVersion,
    TopicConfig,
    data_version_object,
    parse_data_version,
    parse_topic_table,
    topic_table_object,
)
from broker_core.codec.wire.system_topics import is_owned, refuses_sends
from broker_core.codec.wire.topic_name import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    TEMPLATE_TOPIC,
    topic_name_problem,
)
from broker_core.errors import InvalidArgument, LimitReached, TopicNotExist
from broker_core.protocol_codes import ResponseCode
from broker_core.runtime.clock import Clock
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)

TOPICS_FILE: Final = "config/topics.json"

# Called with new and changed topics; with an empty list after a deletion.
TopicListener = Callable[[list[TopicConfig]], object]


class TopicTable(NamedTable[TopicConfig]):
    """Every topic by name. Loads and adds missing system topics when constructed."""

    def __init__(
        self,
        table: JsonTable,
        clock: Clock,
        *,
        cluster_name: str = "DefaultCluster",
        broker_name: str = "broker-a",
        auto_create: bool = True,
        default_queue_count: int = 8,
        trace_topic: bool = True,
        topics_max: int = 50_000,
        queues_per_topic_max: int = 1024,
    ) -> None:
        super().__init__(table, clock, TOPICS_FILE)
        self._auto_create = auto_create
        self._topics_max = topics_max
        self._queues_per_topic_max = queues_per_topic_max
        self._listeners: list[TopicListener] = []
        own = default_topics(
            cluster_name,
            broker_name,
            auto_create=auto_create,
            default_queue_count=default_queue_count,
            trace_topic=trace_topic,
        )
        self._own_names = frozenset(topic.name for topic in own)
        self._template = template_topic(default_queue_count)
        self._load(own)

    # Queries

    def required(self, name: str) -> TopicConfig:
        """The topic of that name; raises `TopicNotExist`."""
        topic = self.find(name)
        if topic is None:
            raise TopicNotExist(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {name[:255]} does not exist in this broker"
            )
        return topic

    def is_system(self, name: str) -> bool:
        """Whether a topic belongs to the servers: not to be created, changed or deleted."""
        return is_owned(name) or name in self._own_names

    def refuses_sends(self, name: str) -> bool:
        """Whether only the broker itself may write to this topic."""
        return refuses_sends(name)

    def on_change(self, listener: TopicListener) -> None:
        """Call `listener(changed topics)` right after every change; an empty list is a deletion."""
        self._listeners.append(listener)

    # Changes

    def check_room(self, entry: TopicConfig, coming: int = 0) -> None:
        """Raise if the table has no room for a topic after `coming` others."""
        name = checked_topic(entry.name)
        self._check_queue_counts(entry)
        count = len(self._entries) + coming
        is_own = name == TEMPLATE_TOPIC
        if name not in self._entries and count >= self._topics_max and not is_own:
            raise LimitReached(
                f"topic {name} cannot be created: this broker has {count} topics, at most "
                f"{self._topics_max} (topicsMax)"
            )

    def touch(self) -> None:
        """Begin a new data version: name servers ignore topics with an old one."""
        self._commit({}, [])

    def set_auto_create(self, is_allowed: bool) -> None:
        """Whether sends may create topics from now on."""
        self._auto_create = is_allowed
        if is_allowed and TEMPLATE_TOPIC not in self._entries:
            self.put(self._template)

    def replace(self, topics: Iterable[TopicConfig], version: DataVersion) -> list[str]:
        """Replace the table by the master's; returns the names that were removed.

        System topics stay, even if the master does not have them.
        """
        before = self._entries, self._version
        copied = {topic.name: topic for topic in topics if topic_name_problem(topic.name) is None}
        kept = {name: topic for name, topic in self._entries.items() if name in self._own_names}
        self._entries, self._version = {**kept, **copied}, version
        try:
            self.save()
        except BaseException:
            self._entries, self._version = before
            raise
        changed = [topic for topic in self._entries.values() if before[0].get(topic.name) != topic]
        gone = sorted(before[0].keys() - self._entries.keys())
        for listener in self._listeners:
            listener(changed)
        return gone

    def create_on_send(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic that a producer sends to, created from a template if allowed.

        None when it does not exist and may not be created: creation is off, the template is missing
        or may not be inherited from, or only the broker writes to topics of this name. The retry
        topic of a group is always created, with one queue; the caller checks that the group exists.
        """
        found = self._entries.get(topic)
        if found is not None:
            return found
        checked_topic(topic)
        if topic.startswith(RETRY_TOPIC_PREFIX):
            return self.create_retry(topic[len(RETRY_TOPIC_PREFIX) :], 1, sys_flag)
        made = self.from_template(topic, default_topic, queue_count, sys_flag)
        return None if made is None else self.put(made)

    def from_template(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic that `create_on_send` would create; None when it may not."""
        template = self._entries.get(default_topic)
        if (
            template is None
            or not self._auto_create
            or not template.perm & PERM_INHERIT
            or self.refuses_sends(topic)
        ):
            return None
        count = max(1, min(queue_count, template.write_queue_count))
        made = TopicConfig(
            topic, count, count, template.perm & ~PERM_INHERIT, template.filter_type, sys_flag
        )
        _log.info("topic %s created from %s with %d queues", topic, default_topic, count)
        return made

    def create_retry(self, group: str, queues: int = 1, sys_flag: int = 0) -> TopicConfig:
        """The retry topic of a group, created if missing."""
        topic = self.retry_topic(group, queues, sys_flag)
        return self._entries.get(topic.name) or self.put(topic)

    def retry_topic(self, group: str, queues: int = 1, sys_flag: int = 0) -> TopicConfig:
        """The topic that `create_retry` would create."""
        name = f"{RETRY_TOPIC_PREFIX}{checked_group(group)}"
        return TopicConfig(name, queues, queues, sys_flag=sys_flag)

    def create_dlq(self, group: str) -> TopicConfig:
        """The dead letter topic of a group, created if missing."""
        name = f"{DLQ_TOPIC_PREFIX}{checked_group(group)}"
        return self._entries.get(name) or self.put(TopicConfig(name, 1, 1))

    @names_disk_errors
    def save(self) -> None:
        """Write the table. Changes do so themselves."""
        self._table.save(
            {
                "dataVersion": data_version_object(self._version),
                "topicConfigTable": topic_table_object(self._entries.values()),
            }
        )

    def _check_queue_counts(self, topic: TopicConfig) -> None:
        most = self._queues_per_topic_max
        for kind, count in (("read", topic.read_queue_count), ("write", topic.write_queue_count)):
            if not 0 <= count <= most and topic.name not in self._own_names:
                raise InvalidArgument(
                    f"topic {topic.name} cannot have {count} {kind} queues: "
                    f"give 0 to {most} (queuesPerTopicMax)"
                )
        if not topic.read_queue_count and not topic.write_queue_count:
            raise InvalidArgument(f"topic {topic.name} has no queue: give at least 1")

    def _changed(
        self, changed: list[TopicConfig], before: Mapping[str, TopicConfig | None]
    ) -> None:
        is_gone = any(name not in self._entries for name in before)
        for listener in self._listeners:
            if changed:
                listener(changed)
            if is_gone or not changed:
                listener([])

    def _load(self, own: Iterable[TopicConfig]) -> None:
        is_changed = not self._stored()
        if not self._auto_create and self._entries.pop(TEMPLATE_TOPIC, None) is not None:
            # Its route would allow producers to create topics here.
            is_changed = True
        for topic in own:
            if topic.name not in self._entries:
                self._entries[topic.name] = topic
                is_changed = True
        if is_changed:
            self._version = self._next_version()
            self.save()

    def _take(self, stored: dict[str, Any]) -> None:
        self._version = parse_data_version(stored.get("dataVersion"))
        topics = parse_topic_table(object_field(stored, "topicConfigTable"))
        self._enter(topics, topic_name_problem)


def topic_of_log(name: str, store: MessageStore) -> TopicConfig | None:
    """A topic with as many queues as have messages in the log; None without any."""
    queues = [
        queue_id
        for topic, queue_id in store.queues()
        if topic == name and store.offsets(topic, queue_id)[1]
    ]
    return TopicConfig(name, max(queues) + 1, max(queues) + 1) if queues else None


def adopt_topics(topics: TopicTable, store: MessageStore) -> None:
    """Create topics that only the log has: the master died before this slave copied them."""
    for name in {topic for topic, _ in store.queues()}:
        found = None if topics.find(name) or topics.is_system(name) else topic_of_log(name, store)
        if found is None:
            continue
        _log.warning(
            "topic %s is known from its messages only, with %d queues", name, found.read_queue_count
        )
        try:
            topics.put(found)
        except (InvalidArgument, LimitReached) as error:
            _log.warning("topic %s was not created: %s", name, error)
