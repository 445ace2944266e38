"""Requests that the broker relays to a client, whose answer it returns.

Running info (307), consuming one message directly (309), and the positions of a group's members
(223, which asks each with 221). Each relay waits in its own task, so the requesting connection is
served meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from broker_core.access.asking_account import is_administrator
from broker_core.broker.request_fields import required_text
from broker_core.broker.tables.client_table import ClientTable, Member
from broker_core.broker.viewed_record import viewed_record
from broker_core.codec.json.dialect import emit_json, parse_json
from broker_core.codec.wire.bodies.message_queue import parse_queue_map, queue_map
from broker_core.codec.wire.message_id import decode_message_id
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    ConnectionLost,
    InvalidArgument,
    LimitReached,
    MalformedJson,
    RemoteError,
    RequestTimeout,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

RELAY_TIMEOUT_MS: Final = 10_000
STATUS_TIMEOUT_MS: Final = 5_000
# Each relay holds two requests until the client answers.
RELAYS_MAX: Final = 64


class ClientRelaysProcessor:
    """Finds the client in `clients`; messages to consume come from `store`."""

    def __init__(self, *, broker_name: str, store: MessageStore, clients: ClientTable) -> None:
        self._broker_name = broker_name
        self._store = store
        self._clients = clients
        self._relays = 0

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._positions,
        }

    async def _running_info(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        passed = RemotingCommand(command.code, dict(command.ext), version=command.version)
        return await self._relay(command, passed)

    def _consume(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        message_id = required_text(command.ext, "msgId")
        position = decode_message_id(message_id)[1]
        found = viewed_record(self._store, position, is_administrator=is_administrator(connection))
        if found is None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, f"there is no message {message_id[:60]} in this broker"
            )
        ext = {**command.ext, "brokerName": self._broker_name}
        return self._relay(command, RemotingCommand(command.code, ext, found[0]))

    async def _positions(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic = required_text(command.ext, "topic")
        name = required_text(command.ext, "group")
        only = command.ext.get("clientAddr", "")
        group = self._clients.consumers(name)
        members = [] if group is None else list(group.members.values())
        asked = [member for member in members if not only or member.client_id == only]
        if not asked:
            who = f"client {only[:255]} of group" if only else "any consumer of group"
            return command.reply(ResponseCode.SYSTEM_ERROR, f"{who} {name[:255]} is not online")
        found = await asyncio.gather(*(self._position(member, topic, name) for member in asked))
        table = {
            member.client_id: queue_map(queues) for member, queues in zip(asked, found, strict=True)
        }
        body = {"consumerTable": table, "messageQueueTable": {}}
        return command.reply(body=emit_json(body))

    async def _relay(self, command: RemotingCommand, passed: RemotingCommand) -> RemotingCommand:
        group = required_text(command.ext, "consumerGroup")
        client_id = required_text(command.ext, "clientId")
        client = self._clients.consumer_connection(group, client_id)
        if client is None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR,
                f"the consumer {group[:255]} {client_id[:255]} is not online",
            )
        who = f"consumer {client_id[:255]} of group {group[:255]}"
        answer = await self._ask(client, passed, RELAY_TIMEOUT_MS, who)
        return command.reply(answer.code, answer.remark, answer.ext, answer.body)

    async def _position(self, member: Member, topic: str, group: str) -> dict[Any, Any]:
        ext = {"topic": topic, "group": group}
        passed = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext)
        who = f"consumer {member.client_id} of group {group[:255]}"
        answer = await self._ask(member.connection, passed, STATUS_TIMEOUT_MS, who)
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteError.for_code(answer.code, f"{who}: {answer.remark or answer.code}")
        try:
            body = parse_json(answer.body, references=True)
            return parse_queue_map(body.get("messageQueueTable") if isinstance(body, dict) else {})
        except (InvalidArgument, MalformedJson) as error:
            raise UnexpectedAnswer(f"{who} sent a malformed answer: {error}") from None

    async def _ask(
        self, client: Connection, passed: RemotingCommand, timeout_ms: int, who: str
    ) -> RemotingCommand:
        if self._relays >= RELAYS_MAX:
            raise LimitReached(f"{RELAYS_MAX} questions to clients are open; try again later")
        self._relays += 1
        try:
            return await client.request(passed, timeout_ms)
        except RequestTimeout:
            raise RemoteError.for_code(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} did not answer in {timeout_ms} ms"
            ) from None
        except ConnectionLost as error:
            raise RemoteError.for_code(ResponseCode.SYSTEM_ERROR, f"{who}: {error}") from None
        finally:
            self._relays -= 1
