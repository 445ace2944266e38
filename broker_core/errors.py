"""Every exception of broker_core.

Each class says what happened, names the thing it happened to, and says whether a retry can help.
Expected outcomes (a message that is too long, an offset past the end) are values, not exceptions:
see `broker_core.protocol_codes`.
"""

from __future__ import annotations


class RmqError(Exception):
    """Base of every error raised on purpose by broker_core."""

    retriable = False


class InvalidArgument(RmqError, ValueError):
    """A caller passed a value that no store can accept (wrong type, size or name)."""


class InvalidConfig(RmqError, ValueError):
    """A configuration key has a value that cannot be used."""

    def __init__(self, key: str, value: object, accepted: str) -> None:
        super().__init__(f"{key}={value!r:.200} cannot be used: {accepted}")
        self.key = key
        self.value = value
        self.accepted = accepted


class StoreClosed(RmqError):
    """The store was closed; open it again to use it."""


class StoreFenced(RmqError):
    """A sync failed, so the store refuses to acknowledge anything until it is reopened."""


class StoreLocked(RmqError):
    """Another process (or another store object of this process) owns the directory."""


class StoreUnusable(RmqError):
    """The directory cannot be opened as a store: wrong type, permissions or file sizes."""


class StoreFormatUnsupported(StoreUnusable):
    """The directory was written by a newer version of this software."""


class CorruptStore(RmqError):
    """Damage to data that was durable: reported, never served and never cut away."""

    def __init__(self, path: str, position: int, reason: str, remedy: str = "") -> None:
        text = f"{path}: damage at position {position}: {reason}"
        super().__init__(f"{text}. {remedy}" if remedy else text)
        self.path = path
        self.position = position
        self.reason = reason


class CorruptRecord(CorruptStore):
    """One commit-log record fails its checks; the rest of the store stays readable."""


class MalformedRecord(RmqError, ValueError):
    """Bytes that were given as records, batches or frames break their format."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"malformed at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class MalformedBatch(RmqError, ValueError):
    """A row of a column batch breaks a limit of the record format."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


class StagingRefused(RmqError):
    """A staged batch is unknown, expired, incomplete, over its limit, or fails its checks."""


class DiskFull(RmqError):
    """The disk has no room for the files that an operation needs; nothing was written."""

    retriable = True
