"""What a broker says about a message that it stored."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.codec.message_queue import MessageQueue
from broker_core.protocol_codes import ResponseCode


class SendStatus(enum.Enum):
    """How safe a stored message is. Only `SEND_OK` keeps the broker's whole promise."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_OF_CODE: Final[Mapping[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(NamedTuple):
    """Where a message is. `msg_id` is the client's own id, which survives retries."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str = ""
    recall_handle: str = ""
    """Takes the message back as long as its time has not come; only timer messages have one."""
