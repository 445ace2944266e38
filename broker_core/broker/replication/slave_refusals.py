"""Requests that a slave rejects: it stores no message and changes no table of its master."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

_PUTS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.BULK_SEND,
    RequestCode.SEND_ONCE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.STAGE_BEGIN,
    RequestCode.STAGE_APPEND,
    RequestCode.STAGE_SEAL,
    RequestCode.STAGE_DROP,
    RequestCode.STAGE_RENEW,
    RequestCode.SINK_PUBLISH,
)
# Pops change offsets and store retries.
_POPS: Final = (
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
)
_CHANGES: Final = (
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)


def refused_on_a_slave() -> Mapping[int, Handler]:
    """Request codes and the handlers that replace those of the processors."""
    return {
        **dict.fromkeys(map(int, _PUTS), _refuse_put),
        **dict.fromkeys(map(int, _POPS), _refuse_pop),
        **dict.fromkeys(map(int, _CHANGES), _refuse_change),
    }


def _refuse_put(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    # This code makes producers try another broker.
    raise RemoteError.for_code(
        ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave: only its master takes messages"
    )


def _refuse_pop(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    raise RemoteError.for_code(
        ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave: only its master serves pops"
    )


def _refuse_change(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    raise RemoteError.for_code(
        ResponseCode.SYSTEM_ERROR,
        "this broker is a slave: change topics and groups at its master, they are copied here",
    )
