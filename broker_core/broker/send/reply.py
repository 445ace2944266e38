"""SEND_REPLY_MESSAGE: forwards a reply to the producer that asked, on that producer's connection.

REPLY_TO_CLIENT names the client that waits for the reply. The replier is answered once that client
has confirmed it; a setting says whether the reply is also stored in the reply topic. It is an error
if the client is not connected here: replies are not kept for later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from broker_core.broker.client_address import born_host
from broker_core.broker.send.plan import SendPlanner, property_value
from broker_core.broker.tables.client_table import ClientTable
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.host_address import decode_host
from broker_core.codec.records.message_properties import change_properties
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.send_request import (
    LONG_NAMES,
    SHORT_NAMES,
    SendRequest,
    parse_send_request,
)
from broker_core.errors import RemoteError, RmqError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

_log = logging.getLogger(__name__)

PUSH_TIMEOUT_MS: Final = 10_000
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"


class ReplyMessageProcessor:
    """Event loop only."""

    def __init__(
        self,
        *,
        store: MessageStore,
        clock: Clock,
        clients: ClientTable,
        planner: SendPlanner,
        answer_fields: Mapping[str, str],
        stores_replies: bool,
    ) -> None:
        self._store = store
        self._clock = clock
        self._clients = clients
        self._planner = planner
        self._answer_fields = dict(answer_fields)
        self._stores_replies = stores_replies

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply_long_names,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    async def reply_long_names(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """SEND_REPLY_MESSAGE."""
        return await self._reply(connection, command, LONG_NAMES)

    async def reply(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """SEND_REPLY_MESSAGE_V2."""
        return await self._reply(connection, command, SHORT_NAMES)

    async def _reply(
        self, connection: Connection, command: RemotingCommand, field_names: tuple[str, ...]
    ) -> RemotingCommand:
        request = parse_send_request(command.ext, field_names)
        self._planner.check_queue(request)
        # The buffer of the request is reused once this method awaits.
        body = bytes(command.body)
        host = born_host(connection)
        push = self._push(request, body, host)
        stored = self._stored(request, body, host) if self._stores_replies else None
        await self._hand_over(property_value(request.properties, names.REPLY_TO_CLIENT), push)
        has_record = stored is not None and stored.ok
        ext = {
            **self._answer_fields,
            "msgId": stored.message_id if stored is not None and stored.ok else "0",
            "queueId": str(max(request.queue_id, 0)),
            "queueOffset": str(stored.queue_offset) if stored is not None and has_record else "0",
        }
        return command.reply(ResponseCode.SUCCESS, None, ext)

    async def _hand_over(self, client_id: str, push: RemotingCommand) -> None:
        if not client_id:
            raise _failed(f"reply message properties[{names.REPLY_TO_CLIENT}] is null")
        connection = self._clients.producer_by_client_id(client_id)
        if connection is None:
            raise _failed(f"push reply message fail, channel of <{client_id[:255]}> not found.")
        try:
            answer = await connection.request(push, PUSH_TIMEOUT_MS)
        except (RmqError, asyncio.TimeoutError) as error:
            raise _failed(f"push reply message to {client_id[:255]} fail: {error}") from error
        if answer.code != ResponseCode.SUCCESS:
            remark = (answer.remark or "")[:255]
            raise _failed(f"push reply message to {client_id[:255]} fail: {remark}")

    def _push(self, request: SendRequest, body: bytes, host: bytes) -> RemotingCommand:
        now_ms = str(self._clock.wall_ms())
        text = change_properties(request.properties.encode(), {PUSH_REPLY_TIME: now_ms})
        ext = {
            "producerGroup": request.group,
            "topic": request.topic,
            "defaultTopic": request.default_topic,
            "defaultTopicQueueNums": str(request.default_queue_count),
            "queueId": str(request.queue_id),
            "sysFlag": str(request.sys_flag),
            "bornTimestamp": str(request.born_timestamp),
            "flag": str(request.flag),
            "properties": text.decode(),
            "reconsumeTimes": str(request.reconsume_times),
            "unitMode": "true" if request.is_unit else "false",
            "bornHost": _host_text(host),
            "storeHost": _host_text(self._store.store_host),
            "storeTimestamp": now_ms,
        }
        return RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, body)

    def _stored(self, request: SendRequest, body: bytes, host: bytes) -> PutResult:
        result = self._store.append_text(
            request.topic,
            max(request.queue_id, 0),
            body,
            request.properties.encode(),
            flag=request.flag,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            born_host=host,
        )
        if not result.ok:
            _log.warning("a reply was not stored: %s %s", result.status.name, result.remark)
        return result


def _failed(text: str) -> RemoteError:
    return RemoteError(ResponseCode.SYSTEM_ERROR, text)


def _host_text(host: bytes) -> str:
    ip, port = decode_host(host)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
