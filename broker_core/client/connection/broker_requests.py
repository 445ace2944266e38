"""Routes requests that brokers send to the producer or consumer group they are for.

40             a consumer group rebalances; ext consumerGroup
220, 221       ext group                       307, 309   ext consumerGroup
39             a producer group; property PGROUP of the message in the body
others         the handler registered for the code (326)
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from broker_core.client.connection.group_registry import GroupRegistry
from broker_core.codec.records.message_properties import PRODUCER_GROUP
from broker_core.codec.records.message_record import decode_record
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    CorruptRecord,
    InvalidArgument,
    RemoteError,
    RequestNotSupported,
)
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler, Result

_GROUP_FIELD: Final = {
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: "group",
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: "group",
    RequestCode.GET_CONSUMER_RUNNING_INFO: "consumerGroup",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "consumerGroup",
}


class BrokerRequests:
    """The request handler of a client's connections."""

    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry
        self._handlers: dict[int, Handler] = {}

    def set_handler(self, code: int, handler: Handler | None) -> None:
        """Set the handler of a code that names no group; None removes it."""
        if handler is None:
            self._handlers.pop(code, None)
        else:
            self._handlers[code] = handler

    def __call__(
        self, connection: Connection, command: RemotingCommand
    ) -> Result | Awaitable[Result]:
        """Find the group's handler and return its answer."""
        code = command.code
        if code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            consumer = self._registry.consumers.get(command.ext.get("consumerGroup", ""))
            if consumer is not None:
                consumer.rebalance()
            return command.reply()
        handler = self._handler_of(command)
        if handler is None:
            text = f"request type {code} not supported"
            raise RequestNotSupported(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
        return handler(connection, command)

    def _handler_of(self, command: RemotingCommand) -> Handler | None:
        code = command.code
        if code == RequestCode.CHECK_TRANSACTION_STATE:
            producer = self._registry.producers.get(_producer_group(command))
            return producer.handlers.get(code) if producer is not None else None
        field = _GROUP_FIELD.get(code)  # type: ignore[call-overload]
        if field is None:
            return self._handlers.get(code)
        group = command.ext.get(field, "")
        consumer = self._registry.consumers.get(group)
        if consumer is None:
            text = f"consumer group {group!r:.140} is not on this client"
            raise RemoteError(ResponseCode.SYSTEM_ERROR, text)
        return consumer.handlers.get(code)


def _producer_group(command: RemotingCommand) -> str:
    try:
        return decode_record(command.body).properties.get(PRODUCER_GROUP, "")
    except (CorruptRecord, InvalidArgument) as error:
        text = f"the message to check cannot be read: {error}"
        raise RemoteError(ResponseCode.SYSTEM_ERROR, text) from None
