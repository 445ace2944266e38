"""Decoding of request headers: plain sends without building JSON objects, all others as usual.

A `PlainSend` is a complete `RemotingCommand`; its `ext` is decoded on first access.
"""

from __future__ import annotations

from typing import Any

from broker_core.codec.native import codec_backend, read_plain_send
from broker_core.codec.wire.frame_parser import HeaderDecoder
from broker_core.codec.wire.remoting_command import JSON_HEADER, RemotingCommand, decode_header
from broker_core.protocol_codes import LanguageCode, RequestCode

_ONE = int(RequestCode.SEND_MESSAGE_V2)
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_ONE_CODE = b'"code":%d,' % _ONE
_BATCH_CODE = b'"code":%d,' % _BATCH


class PlainSend(RemotingCommand):
    """SEND_MESSAGE_V2 of one message that only needs to be stored."""

    __slots__ = ("_decoded", "_header", "fields")

    # Class attributes, since an instance is created for every message.
    code = _ONE
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
        """All fields by name; `fields` has the parsed ones."""
        if self._decoded is None:
            self._decoded = decode_header(JSON_HEADER, self._header).ext
        return self._decoded


class PlainBatch(PlainSend):
    """SEND_BATCH_MESSAGE of messages that only need to be stored."""

    __slots__ = ()

    code = _BATCH


def request_decoder(suffix: bytes) -> HeaderDecoder:
    """A header decoder; property texts of plain sends get `suffix` at their end."""
    if codec_backend() == "python":
        # The general decoder is faster than `read_plain_send` in Python.
        return decode_header

    def decode(serialize_type: int, header: bytes) -> RemotingCommand:
        if serialize_type == JSON_HEADER:
            if _ONE_CODE in header:
                fields = read_plain_send(header, suffix, _ONE)
                if fields is not None:
                    return PlainSend(header, fields)
            elif _BATCH_CODE in header:
                fields = read_plain_send(header, b"", _BATCH)
                if fields is not None:
                    return PlainBatch(header, fields)
        return decode_header(serialize_type, header)

    return decode
