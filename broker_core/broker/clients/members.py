"""Members of groups: client ids for rebalancing, connections for tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker_core.broker.request_fields import required_text
from broker_core.broker.tables.client_table import ClientTable, Member
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.subscription_data import subscription_object
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import LanguageCode, RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler


class ConsumerMembersProcessor:
    """Answers from `clients`; read-only."""

    def __init__(self, *, clients: ClientTable) -> None:
        self._clients = clients

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
        }

    def _consumer_ids(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        group = required_text(command.ext, "consumerGroup")
        ids = self._clients.consumer_ids(group)
        if not ids:
            # An empty list with success would make members drop all their queues.
            return command.reply(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group[:255]}"
            )
        return command.reply(body=emit_json({"consumerIdList": ids}))

    def _consumer_connections(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        name = required_text(command.ext, "consumerGroup")
        group = self._clients.consumers(name)
        if group is None:
            return command.reply(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group {name[:255]} is not online",
            )
        body = {
            "connectionSet": _connection_objects(group.members.values()),
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {
                topic: subscription_object(subscription)
                for topic, subscription in group.subscriptions.items()
            },
        }
        return command.reply(body=emit_json(body))

    def _producer_connections(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        group = required_text(command.ext, "producerGroup")
        members = self._clients.producers(group)
        if not members:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, f"the producer group {group[:255]} is not online"
            )
        return command.reply(body=emit_json({"connectionSet": _connection_objects(members)}))

    def _all_producers(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        data = {
            group: [_producer_object(member) for member in self._clients.producers(group)]
            for group in self._clients.producer_groups()
        }
        return command.reply(body=emit_json({"data": data}))


def _connection_objects(members: Iterable[Member]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": member.connection.peer_text,
            "clientId": member.client_id,
            "language": LanguageCode(member.language),
            "version": member.version,
        }
        for member in members
    ]


def _producer_object(member: Member) -> dict[str, Any]:
    return {
        "clientId": member.client_id,
        "language": LanguageCode(member.language),
        "lastUpdateTimestamp": member.seen_wall_ms,
        # As Java formats a socket address: with the port, despite the field name.
        "remoteIP": f"/{member.connection.peer_text}",
        "version": member.version,
    }
