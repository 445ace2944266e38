"""Answers to a client that speaks gRPC (HTTP/2) to a port of the remoting protocol.

Every call gets the status UNIMPLEMENTED with a text that says what to do. After a closed connection
or a GOAWAY frame, gRPC clients would reconnect endlessly and show no reason.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Final

from broker_core.errors import explained
from broker_core.runtime.limited_log import LimitedLog

_log = logging.getLogger(__name__)
_limited = LimitedLog(_log, lambda: asyncio.get_running_loop().time())

# The beginning of PREFACE; as the length of a remoting frame it would be 1.3 GB.
PREFACE_START: Final = b"PRI "
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

TEXT: Final = explained(
    "this port speaks RocketMQ's remoting protocol, not gRPC: connect the gRPC client to an Apache"
    " RocketMQ proxy (usually port 8081) in front of this broker, or use a remoting client",
    "grpc-client-on-the-remoting-port",
)

_HEADERS, _SETTINGS, _PING = 0x1, 0x4, 0x6
_ACK: Final = 0x1
_END_OF_STREAM_AND_HEADERS: Final = 0x5
_FRAME_HEAD_SIZE: Final = 9
# The largest frame that a client may send before a server allows more.
_FRAME_SIZE_MAX: Final = 16_384
_UNIMPLEMENTED: Final = "12"
_STATUS_200: Final = b"\x88"
_HOSTS_WARNED_MAX: Final = 64

_hosts_warned: set[str] = set()


class ViolatedHttp2(ValueError):
    """The client does not speak HTTP/2 either."""


class Http2Refusal:
    """Bytes in, bytes out: refuses every call of one connection."""

    def __init__(self) -> None:
        self._data = b""
        self._has_preface = False

    def receive(self, data: bytes) -> bytes:
        """What to send for `data`. Raises `ViolatedHttp2`."""
        self._data += data
        answers = b""
        if not self._has_preface:
            if not self._data.startswith(PREFACE[: len(self._data)]):
                raise ViolatedHttp2
            if len(self._data) < len(PREFACE):
                return b""
            self._has_preface = True
            self._data = self._data[len(PREFACE) :]
            answers = _frame(_SETTINGS, 0, 0, b"")
        while len(self._data) >= _FRAME_HEAD_SIZE:
            size = int.from_bytes(self._data[:3], "big")
            if size > _FRAME_SIZE_MAX:
                raise ViolatedHttp2
            end = _FRAME_HEAD_SIZE + size
            if len(self._data) < end:
                break
            kind, flags, stream = struct.unpack_from(">BBI", self._data, 3)
            answers += _answer(kind, flags, stream, self._data[_FRAME_HEAD_SIZE:end])
            self._data = self._data[end:]
        return answers


def _answer(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    if kind == _HEADERS:
        return _frame(_HEADERS, _END_OF_STREAM_AND_HEADERS, stream, _REFUSING_HEADERS)
    if kind == _SETTINGS and not flags & _ACK:
        return _frame(_SETTINGS, _ACK, 0, b"")
    if kind == _PING and not flags & _ACK:
        return _frame(_PING, _ACK, 0, payload)
    return b""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _header(name: str, value: str) -> bytes:
    """A literal header that is not added to the table."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode()
    left = len(data) - 0x7F
    if left < 0:
        return bytes((len(data),)) + data
    head = bytearray((0x7F,))
    while left >= 0x80:
        head.append(left & 0x7F | 0x80)
        left >>= 7
    head.append(left)
    return bytes(head) + data


_REFUSING_HEADERS: Final = (
    _STATUS_200
    + _header("content-type", "application/grpc")
    + _header("grpc-status", _UNIMPLEMENTED)
    + _header("grpc-message", TEXT.replace("%", "%25").replace("\n", "%0A"))
)


class RefusedHttp2(asyncio.Protocol):
    """Replaces the protocol of a remoting connection; `lost` is called at the end."""

    def __init__(
        self, transport: asyncio.Transport, host: str, lost: Callable[[Exception | None], None]
    ) -> None:
        self._transport = transport
        self._lost = lost
        self._refusal = Http2Refusal()
        is_new = host not in _hosts_warned and len(_hosts_warned) < _HOSTS_WARNED_MAX
        _hosts_warned.update([host] if is_new else [])
        _limited.log(
            logging.WARNING if is_new else logging.INFO, "a gRPC client at %s: %s", host, TEXT
        )

    def data_received(self, data: bytes) -> None:
        """Refuse the calls in `data`."""
        try:
            self._transport.write(self._refusal.receive(data))
        except ViolatedHttp2:
            self._transport.close()

    def pause_writing(self) -> None:
        """End: the client does not read its answers."""
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(error)
