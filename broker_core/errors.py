"""Every exception of broker_core.

Each class says what happened, names the thing it happened to, says whether a retry can help, and
which response code tells it to a client.
Expected outcomes (a message that is too long, an offset past the end) are values, not exceptions:
see `broker_core.protocol_codes`.
"""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import ClassVar, Final

from broker_core.protocol_codes import ResponseCode

ERROR_PAGE: Final = "docs/errors.md"
_PACKAGES: Final = ("broker_core.", "pyspark_rmq.")


def explained(text: str, anchor: str) -> str:
    """`text`, with a last line that names its section of the page of errors."""
    return f"{text}\nSee {ERROR_PAGE}#{anchor}"


def _frames_of_caller(frames: TracebackType | None) -> TracebackType | None:
    """The frames before the first call of this package."""
    if frames is None or frames.tb_frame.f_globals.get("__name__", "").startswith(_PACKAGES):
        return None
    rest = _frames_of_caller(frames.tb_next)
    return TracebackType(rest, frames.tb_frame, frames.tb_lasti, frames.tb_lineno)


class RmqError(Exception):
    """Base of every error raised on purpose by broker_core."""

    retriable: bool = False
    response_code: int = ResponseCode.SYSTEM_ERROR

    def _render_traceback_(self) -> list[str]:
        """For IPython, which shows this instead of the traceback.

        Returns the frames of the caller, without those of this package; all after `%xmode Verbose`.
        """
        shell = sys.modules["IPython"].get_ipython()
        if shell is None:
            # The shell is not the global instance of its process.
            return traceback.format_exception(self)
        is_short = shell.InteractiveTB.mode != "Verbose"
        frames = _frames_of_caller(self.__traceback__) if is_short else self.__traceback__
        shown: list[str] = shell.InteractiveTB.structured_traceback(type(self), self, frames)
        return shown


class InvalidArgument(RmqError, ValueError):
    """A caller passed a value that no store can accept (wrong type, size or name)."""

    response_code = ResponseCode.INVALID_PARAMETER


class MessageTooLarge(InvalidArgument):
    """A message, a batch or its properties are over the limit that the text names."""

    response_code = ResponseCode.MESSAGE_ILLEGAL


class InvalidSubscription(InvalidArgument):
    """A filter expression that cannot be understood."""

    response_code = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class LimitReached(RmqError):
    """A table is as full as its configuration allows; the text names the setting."""


class InvalidConfig(RmqError, ValueError):
    """A configuration key has a value that cannot be used."""

    def __init__(
        self, key: str, value: object, accepted: str, source: str = "", anchor: str = ""
    ) -> None:
        where = f"{source}: " if source else ""
        text = f"{where}{key}={value!r:.200} cannot be used: {accepted}"
        super().__init__(explained(text, anchor) if anchor else text)
        self.key = key
        self.value = value
        self.accepted = accepted
        self.source = source
        self.anchor = anchor

    def renamed(self, key: str, source: str = "") -> InvalidConfig:
        """The same error under the name that the user knows the key by."""
        return InvalidConfig(key, self.value, self.accepted, source or self.source, self.anchor)


class StoreClosed(RmqError):
    """The store was closed; open it again to use it."""

    response_code = ResponseCode.SERVICE_NOT_AVAILABLE


class StoreFenced(RmqError):
    """A sync failed, so the store refuses to acknowledge anything until it is reopened."""

    response_code = ResponseCode.SERVICE_NOT_AVAILABLE


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


class DiskFailed(RmqError):
    """The disk refused the operation that is named; the failed call acknowledged nothing."""

    retriable = True


class DiskFull(RmqError):
    """The disk has no room for the files that an operation needs; nothing was written."""

    retriable = True
    response_code = ResponseCode.SERVICE_NOT_AVAILABLE


class MalformedJson(RmqError, ValueError):
    """A JSON text is not valid in the dialect of the wire, or breaks one of its limits."""

    response_code = ResponseCode.INVALID_PARAMETER


class ProtocolViolation(RmqError):
    """A peer sent invalid framing or an invalid header; only its connection is closed."""


class RequestTimeout(RmqError):
    """No answer came in time. The peer may still have carried out the request."""

    retriable = True


class ConnectionLost(RmqError):
    """The connection could not be made, or was lost before the answer."""

    retriable = True

    @property
    def is_unreachable(self) -> bool:
        """Whether no connection could be made."""
        return "could not be reached" in str(self)


class NameServersSilent(ConnectionLost):
    """None of the name servers has answered."""

    tls_failed: bool = False
    """Whether the last one was reached, and no encrypted connection could be made."""


class TlsFailed(ConnectionLost):
    """No encrypted connection could be made; the text says with whom and why. Nothing was sent."""

    retriable = False


class UnexpectedAnswer(RmqError):
    """A peer answered with success, but its answer lacks or garbles what was requested."""


class OffsetOutOfRange(RmqError):
    """Requested messages are not in their queue: expired, or not written (any more)."""

    response_code = ResponseCode.PULL_OFFSET_MOVED

    def __init__(self, queue: str, offset: int, min_offset: int, max_offset: int) -> None:
        super().__init__(
            f"{queue}: offset {offset} cannot be read; the queue holds {min_offset} to {max_offset}"
            " (exclusive)"
        )
        self.queue = queue
        self.offset = offset
        self.min_offset = min_offset
        self.max_offset = max_offset


class DecompressionFailed(RmqError):
    """A body says that it is compressed and cannot be decompressed within its limit."""


class CodecMissing(DecompressionFailed):
    """The package that decompresses a body is not installed."""


class NotAcknowledged(RmqError):
    """The message was stored, but not as safely as the broker promises; `result` has the details.

    Sending it again may store it twice.
    """

    retriable = True

    def __init__(self, text: str, result: object) -> None:
        super().__init__(text)
        self.result = result


class EmbeddedBrokerFailed(RmqError):
    """The process of an embedded broker did not start, or has ended; the text has its log."""


class PromotionRefused(RmqError):
    """A slave was not made the master, because that would not be safe or did not happen."""


class RemoteError(RmqError):
    """A response code other than success, raised by the side that refuses and by the requester.

    `for_code` picks the class, on both sides; a code without one is a plain `RemoteError`.
    """

    _classes: ClassVar[dict[int, type[RemoteError]]] = {}

    def __init__(self, code: int, remark: str | None = None) -> None:
        super().__init__(remark or f"response code {int(code)}")
        self.code = int(code)
        self.response_code = self.code
        self.remark = remark or ""

    def __init_subclass__(cls) -> None:
        RemoteError._classes[cls.response_code] = cls

    @staticmethod
    def for_code(code: int, remark: str | None = None) -> RemoteError:
        """The error of the class registered for `code`."""
        return RemoteError._classes.get(code, RemoteError)._answered(code, remark)

    @classmethod
    def _answered(cls, code: int, remark: str | None) -> RemoteError:
        return cls(code, remark)


class SystemBusy(RemoteError):
    """The peer is overloaded; the same request may succeed later."""

    retriable = True
    response_code = ResponseCode.SYSTEM_BUSY


class RequestNotSupported(RemoteError):
    """The peer does not know the request code."""

    response_code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class ServiceNotAvailable(RemoteError):
    """The peer is closing, or cannot write; another broker may serve the request."""

    retriable = True
    response_code = ResponseCode.SERVICE_NOT_AVAILABLE


class NoPermission(RemoteError):
    """The caller, the topic or the group may not do this."""

    response_code = ResponseCode.NO_PERMISSION

    @property
    def is_of_account(self) -> bool:
        """Whether an account is missing, is not known, or may not do this."""
        return "access" in self.remark.lower()


class TopicNotExist(RemoteError):
    """The peer has no topic of that name."""

    response_code = ResponseCode.TOPIC_NOT_EXIST


class QueryNotFound(RemoteError):
    """The requested item is not stored."""

    response_code = ResponseCode.QUERY_NOT_FOUND


class GroupNotExist(RemoteError):
    """The peer has no consumer group of that name."""

    response_code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


class BrokerNotExist(RemoteError):
    """No broker of that name, or no member of it with that id, is in the routes."""

    retriable = True
    response_code = ResponseCode.BROKER_NOT_EXIST


class ConsumerNotOnline(RemoteError):
    """No member of the group is connected."""

    response_code = ResponseCode.CONSUMER_NOT_ONLINE


class StagingRefused(RemoteError):
    """Staged data is unknown, expired, incomplete, over a limit or damaged: stage it again.

    The only staging error: storage and broker raise it, and the client raises it again.
    """

    response_code = ResponseCode.STAGING_REFUSED

    def __init__(self, remark: str | None = None) -> None:
        super().__init__(self.response_code, remark)

    @classmethod
    def _answered(cls, _code: int, remark: str | None) -> StagingRefused:
        return cls(remark)


class SinkFenced(RemoteError):
    """Another run writes to this sink now, or the sink belongs to another checkpoint."""

    response_code = ResponseCode.SINK_FENCED


class SinkBatchOld(RemoteError):
    """The sink is past this batch, and it is not known to be the one that was published."""

    response_code = ResponseCode.SINK_BATCH_OLD


class SinkContentDiffers(RemoteError):
    """A batch of this number was published before, with other content."""

    response_code = ResponseCode.SINK_CONTENT_DIFFERS


class ReplicationRefused(RmqError):
    """A replication link was closed; `kind` is a short word for why, the text says what to do."""

    retriable = True
    response_code = ResponseCode.SERVICE_NOT_AVAILABLE

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class LogsDiverged(ReplicationRefused):
    """A slave's log differs from its master's from the position `agreed` on."""

    def __init__(self, agreed: int, end: int, text: str) -> None:
        super().__init__("diverged", text)
        self.agreed = agreed
        self.end = end
