"""Enumerations shared by the store, the wire and the client. RocketMQ's names and numbers."""

from __future__ import annotations

import enum


class ResponseCode(enum.IntEnum):
    """Wire codes that a put status maps to."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14


class PutStatus(enum.Enum):
    """Outcome of a put; `stored` tells whether the message is in the log."""

    PUT_OK = (ResponseCode.SUCCESS, True)
    FLUSH_DISK_TIMEOUT = (ResponseCode.FLUSH_DISK_TIMEOUT, True)
    FLUSH_SLAVE_TIMEOUT = (ResponseCode.FLUSH_SLAVE_TIMEOUT, True)
    SLAVE_NOT_AVAILABLE = (ResponseCode.SLAVE_NOT_AVAILABLE, True)
    SERVICE_NOT_AVAILABLE = (ResponseCode.SERVICE_NOT_AVAILABLE, False)
    CREATE_MAPPED_FILE_FAILED = (ResponseCode.SYSTEM_ERROR, False)
    MESSAGE_ILLEGAL = (ResponseCode.MESSAGE_ILLEGAL, False)
    PROPERTIES_SIZE_EXCEEDED = (ResponseCode.MESSAGE_ILLEGAL, False)
    OS_PAGE_CACHE_BUSY = (ResponseCode.SYSTEM_BUSY, False)
    IN_SYNC_REPLICAS_NOT_ENOUGH = (ResponseCode.SYSTEM_ERROR, False)
    UNKNOWN_ERROR = (ResponseCode.SYSTEM_ERROR, False)

    def __new__(cls, response_code: ResponseCode, stored: bool) -> PutStatus:
        member = object.__new__(cls)
        # Several statuses share a response code; the ordinal keeps the members apart.
        member._value_ = len(cls.__members__)
        return member

    def __init__(self, response_code: ResponseCode, stored: bool) -> None:
        self.response_code = response_code
        self.stored = stored


class GetStatus(enum.Enum):
    """Outcome of a read by queue offset."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class FlushDiskType(enum.Enum):
    """When a put is acknowledged: after the sync, or before it."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class BrokerRole(enum.Enum):
    """Only masters accept puts."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"
