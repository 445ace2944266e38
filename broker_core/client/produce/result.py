"""Results of sends and recalls."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.protocol_codes import ResponseCode


class SendStatus(enum.Enum):
    """How safely a message is stored. Only `SEND_OK` means as safely as the broker promises."""

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
    """Where a message is stored. `msg_id` is the client's id, the same for every retry."""

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str = ""
    recall_handle: str = ""
    """For `Producer.recall`; only timer messages have one."""


class RecallResult(NamedTuple):
    """`is_confirmed`: the message was found and will not be delivered.

    Apache's brokers answer without looking the message up, so their recalls are never confirmed.
    """

    msg_id: str
    is_confirmed: bool
