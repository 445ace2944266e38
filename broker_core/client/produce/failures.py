"""Which failures of a send are retried on another broker, and the text of the final error."""

from __future__ import annotations

from typing import Final

from broker_core.client.produce.pending_send import PendingSend
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    RemoteError,
    RequestTimeout,
    RmqError,
)
from broker_core.protocol_codes import ResponseCode

# RocketMQ's own clients retry on another broker after these codes.
_RETRIED: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)


def is_worth_another_try(error: RmqError) -> bool:
    """Whether another broker, or the same one later, may accept the message."""
    if isinstance(error, ConnectionLost | RequestTimeout | BrokerNotExist):
        return True
    return isinstance(error, RemoteError) and error.code in _RETRIED


def described(error: RmqError, request: PendingSend) -> RmqError:
    """The same error with topic and broker in its text."""
    where = f" at {request.queue.broker_name}" if request.queue is not None else ""
    text = f"topic {request.topic}{where}: {error}"
    if isinstance(error, RemoteError):
        return RemoteError.for_code(error.code, text)
    if isinstance(error, ConnectionLost | RequestTimeout):
        return type(error)(f"{text}; the message may be stored" if request.was_sent else text)
    return error
