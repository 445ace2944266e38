"""Subscriptions: groups of a topic, topics of a group, the subscription of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.broker.request_fields import required_text
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.route_data import TopicList, encode_topic_list
from broker_core.codec.wire.bodies.subscription_data import subscription_object
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler


class SubscriptionQueriesProcessor:
    """Answers from `clients` for online groups and from `offsets` for all others."""

    def __init__(self, *, address: str, offsets: OffsetTable, clients: ClientTable) -> None:
        self._address = address
        self._offsets = offsets
        self._clients = clients

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
        }

    def _groups_of(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = required_text(command.ext, "topic")
        groups = self._clients.groups_of(topic) | self._offsets.groups_of(topic)
        return command.reply(body=emit_json({"groupList": sorted(groups)}))

    def _topics_of(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        group = required_text(command.ext, "group")
        live = self._clients.consumers(group)
        topics = self._offsets.topics_of(group) | set(live.subscriptions if live else ())
        found = TopicList(tuple(sorted(topics)), self._address)
        return command.reply(body=encode_topic_list(found))

    def _subscription(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        group = required_text(command.ext, "group")
        topic = required_text(command.ext, "topic")
        body: dict[str, Any] = {"group": group, "topic": topic}
        found = self._clients.subscription(group, topic)
        if found is not None:
            body["subscriptionData"] = subscription_object(found)
        return command.reply(body=emit_json(body))
