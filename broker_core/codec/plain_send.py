"""Headers of requests to a broker: plain sends without JSON objects, all others as usual.

A `PlainSend` is a whole `RemotingCommand`: its `ext` is decoded when somebody asks for it.
"""

from __future__ import annotations

from typing import Any

from broker_core.codec.frame_parser import HeaderDecoder
from broker_core.codec.plain_send_loops import BATCH, ONE
from broker_core.codec.record_columns import codec_backend, read_plain_send
from broker_core.codec.remoting_command import JSON_HEADER, RemotingCommand, decode_header
from broker_core.protocol_codes import LanguageCode, RequestCode

_ONE_CODE = b'"code":310,'
_BATCH_CODE = b'"code":320,'


class PlainSend(RemotingCommand):
    """SEND_MESSAGE_V2 of one message that needs nothing but to be stored."""

    __slots__ = ("_decoded", "_header", "fields")

    # The same for all: this is made for every message.
    code = int(RequestCode.SEND_MESSAGE_V2)
    flag = 0
    remark = None
    language = LanguageCode.OTHER
    serialize_type = JSON_HEADER

    def __init__(self, header: bytes, fields: tuple[Any, ...]) -> None:
        self.body = b""
        self.opaque = fields[0]
        self.version = fields[1]
        self.fields = fields
        self._header = header
        self._decoded: dict[str, str] | None = None

    @property
    def ext(self) -> dict[str, str]:  # type: ignore[override]
        """The fields by name, for whoever cannot use `fields`."""
        if self._decoded is None:
            self._decoded = decode_header(JSON_HEADER, self._header).ext
        return self._decoded


class PlainBatch(PlainSend):
    """SEND_BATCH_MESSAGE of messages that need nothing but to be stored."""

    __slots__ = ()

    code = int(RequestCode.SEND_BATCH_MESSAGE)


def request_decoder(suffix: bytes) -> HeaderDecoder:
    """A header decoder; property texts of plain sends get `suffix` at their end."""
    if codec_backend() == "python":
        # The general way is faster than reading the header in Python.
        return decode_header

    def decode(serialize_type: int, header: bytes) -> RemotingCommand:
        if serialize_type == JSON_HEADER:
            if _ONE_CODE in header:
                fields = read_plain_send(header, suffix, ONE)
                if fields is not None:
                    return PlainSend(header, fields)
            elif _BATCH_CODE in header:
                fields = read_plain_send(header, b"", BATCH)
                if fields is not None:
                    return PlainBatch(header, fields)
        return decode_header(serialize_type, header)

    return decode
