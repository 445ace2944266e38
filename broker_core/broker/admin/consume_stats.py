"""Consumer progress: backlog of one group or all, time spans, offsets to correct."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from broker_core.broker.request_fields import optional_flag, required_text
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.offset_table import OffsetKey, OffsetTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.wire.bodies.message_queue import MessageQueue, queue_map, queue_object
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.pop_handle import pop_retry_topic
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import LimitReached
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore

# Maximum rows of one answer: each takes a read from disk and about 150 bytes.
ROWS_MAX: Final = 200_000


class Row(NamedTuple):
    """The progress of a group in one queue."""

    end: int
    consumed: int
    last_ms: int
    given_out: int

    def as_object(self) -> dict[str, Any]:
        """In RocketMQ's format."""
        return {
            "brokerOffset": self.end,
            "consumerOffset": self.consumed,
            "lastTimestamp": self.last_ms,
            "pullOffset": self.given_out,
        }


class ConsumeStatsProcessor:
    """Answers from `offsets` and `store`; read-only."""

    def __init__(
        self,
        *,
        broker_name: str,
        address: str,
        clock: Clock,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientTable,
        stats: BrokerStats,
        popped_until: Callable[[OffsetKey], int | None] = lambda key: None,
    ) -> None:
        self._popped_until = popped_until
        self._broker_name = broker_name
        self._address = address
        self._clock = clock
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._stats = stats

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: self._progress,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_progress,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_spans,
            RequestCode.QUERY_CORRECTION_OFFSET: self._corrections,
        }

    def _progress(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        group = required_text(command.ext, "consumerGroup")
        asked = command.ext.get("topic") or command.ext.get("topicList", "")
        names = [name.strip() for name in asked.split(";") if name.strip()]
        topics = list(self._topics_of(group, names))
        _check_rows(sum(topic.read_queue_count for topic in topics), f"group {group[:255]}")
        rows: dict[MessageQueue, Row] = {}
        for topic in topics:
            rows.update(self._rows(group, topic))
        return command.reply(body=emit_json(self._stats_object(group, topics, rows)))

    def _all_progress(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        order_only = optional_flag(command.ext, "isOrder", False)
        found: list[dict[str, Any]] = []
        total = left = 0
        for group in sorted(config.name for config in self._groups.all()):
            by_topic = []
            for topic in self._topics_of(group, ()):
                if order_only and not topic.order:
                    continue
                left += topic.read_queue_count
                _check_rows(left, "all groups; ask for one with GET_CONSUME_STATS")
                rows = self._rows(group, topic)
                total += sum(max(row.end - row.consumed, 0) for row in rows.values())
                by_topic.append(self._stats_object(group, [topic], rows))
            if by_topic:
                found.append({group: by_topic})
        body = {
            "brokerAddr": self._address,
            "consumeStatsList": found,
            "totalDiff": total,
            "totalInflightDiff": 0,
        }
        return command.reply(body=emit_json(body))

    def _time_spans(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = self._known_topic(command)
        group = required_text(command.ext, "group")
        spans = [
            self._span(group, topic.name, queue_id) for queue_id in range(topic.write_queue_count)
        ]
        return command.reply(body=emit_json({"consumeTimeSpanSet": spans}))

    def _span(self, group: str, topic: str, queue_id: int) -> dict[str, Any]:
        low, end = self._store.offsets(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id) or 0
        oldest_ms = self._time(topic, queue_id, low) if low < end else 0
        last_ms = self._time(topic, queue_id, consumed - 1) if consumed else oldest_ms
        waiting_ms = self._time(topic, queue_id, max(consumed, low)) if consumed < end else 0
        return {
            "consumeTimeStamp": last_ms,
            "delayTime": self._clock.wall_ms() - waiting_ms if waiting_ms else 0,
            "maxTimeStamp": self._time(topic, queue_id, end - 1) if low < end else 0,
            "messageQueue": queue_object(MessageQueue(topic, self._broker_name, queue_id)),
            "minTimeStamp": oldest_ms,
        }

    def _corrections(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """The lowest offset of any group by queue. Nothing is corrected in a queue in which the
        compared group is behind.
        """
        topic = required_text(command.ext, "topic")
        compared = required_text(command.ext, "compareGroup")
        left_out = {name.strip() for name in command.ext.get("filterGroups", "").split(",")}
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(topic) - left_out:
            for queue_id, offset in self._offsets.queues_of(group, topic).items():
                # Retention has deleted the message, so the group counts as no longer consuming.
                if offset >= self._store.offsets(topic, queue_id)[0]:
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        for queue_id, offset in self._offsets.queues_of(compared, topic).items():
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = I64_MAX
        return command.reply(body=emit_json({"correctionOffsets": least}))

    def _known_topic(self, command: RemotingCommand) -> TopicConfig:
        return self._topics.required(required_text(command.ext, "topic"))

    def _topics_of(self, group: str, names: Iterable[str]) -> Iterator[TopicConfig]:
        """The requested topics, or all topics that the group has consumed."""
        live = self._clients.consumers(group)
        subscribed: set[str] = set()
        if live is not None:
            popped = (pop_retry_topic(group, name) for name in live.subscriptions)
            subscribed.update(live.subscriptions, popped)
        for name in names or sorted(self._offsets.topics_of(group)):
            topic = self._topics.find(name)
            # An old offset in a topic that is no longer subscribed is no backlog.
            if topic is not None and (live is None or name in subscribed):
                yield topic

    def _rows(self, group: str, topic: TopicConfig) -> dict[MessageQueue, Row]:
        return {
            MessageQueue(topic.name, self._broker_name, queue_id): self._row(
                group, topic.name, queue_id
            )
            for queue_id in range(topic.read_queue_count)
        }

    def _row(self, group: str, topic: str, queue_id: int) -> Row:
        _, end = self._store.offsets(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id) or 0
        last_ms = self._time(topic, queue_id, consumed - 1) if consumed else 0
        # The broker does not know what was pulled and not committed yet.
        given_out = self._popped_until((group, topic, queue_id))
        return Row(end, consumed, last_ms, consumed if given_out is None else given_out)

    def _stats_object(
        self, group: str, topics: Iterable[TopicConfig], rows: Mapping[MessageQueue, Row]
    ) -> dict[str, Any]:
        tps = sum(self._stats.group_get_tps(group, topic.name) for topic in topics)
        table = queue_map({queue: row.as_object() for queue, row in rows.items()})
        return {"consumeTps": float(tps), "offsetTable": table}

    def _time(self, topic: str, queue_id: int, offset: int) -> int:
        return self._store.store_time(topic, queue_id, offset) or 0


def _check_rows(count: int, what: str) -> None:
    if count > ROWS_MAX:
        raise LimitReached(f"{count} queues are too many for one answer ({ROWS_MAX}): {what}")
