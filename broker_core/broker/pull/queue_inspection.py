"""QUERY_CONSUME_QUEUE: the entries of one consume queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core.broker.request_fields import optional_number, required_number, required_text
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.wire.bodies.message_queue import QUEUE_ID_MAX
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData, subscription_object
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

# Limits the answer; tools ask again from the next index.
UNITS_MAX: Final = 1_000


class QueueInspectionProcessor:
    """Answers from `store`; with a group, also whether its filter matches each entry."""

    def __init__(self, *, store: MessageStore, topics: TopicTable, clients: ClientTable) -> None:
        self._store = store
        self._topics = topics
        self._clients = clients

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.QUERY_CONSUME_QUEUE: self._look}

    def _look(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        topic = required_text(ext, "topic")
        queue_id = required_number(ext, "queueId", 0, QUEUE_ID_MAX)
        index = optional_number(ext, "index", 0, 0, I64_MAX)
        count = min(optional_number(ext, "count", 1, 0, I64_MAX), UNITS_MAX)
        self._topics.required(topic)
        low, end = self._store.offsets(topic, queue_id)
        body: dict[str, Any] = {"maxQueueIndex": end, "minQueueIndex": low}
        group = ext.get("consumerGroup", "")
        subscription = self._clients.subscription(group, topic) if group else None
        if group:
            body["filterData"] = (
                f"{group[:255]}@{topic} is not online!" if subscription is None else "null"
            )
        if subscription is not None:
            body["subscriptionData"] = subscription_object(subscription)
        # The tools fail on an answer without a list.
        found = self._store.units(topic, queue_id, index, count) if low <= index < end else []
        body["queueData"] = [self._unit(unit, group, subscription) for unit in found]
        return command.reply(body=emit_json(body))

    def _unit(
        self, unit: tuple[int, int, int], group: str, subscription: SubscriptionData | None
    ) -> dict[str, Any]:
        position, size, tag_code = unit
        is_wanted = not group
        if subscription is not None:
            codes = subscription.codes
            is_wanted = not codes or not subscription.is_by_tag or tag_code in codes
        return {
            "eval": is_wanted,
            "physicOffset": position,
            "physicSize": size,
            "tagsCode": tag_code,
        }
