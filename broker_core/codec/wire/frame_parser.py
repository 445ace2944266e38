"""Splits the bytes of a connection into commands. Uses no socket and no clock.

Lengths are checked as soon as they have arrived and before any memory is allocated for them. Memory
grows with the bytes received, never with the bytes announced. A body is copied once.

Clients, which trust their server, give `places_body`: when it returns True, memory for the whole
body is allocated at once, the socket is read into `body_room`, and nothing is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from broker_core.codec.native import new_buffer
from broker_core.codec.wire.remoting_command import FRAME_HEAD, RemotingCommand, decode_header
from broker_core.errors import ProtocolViolation
from broker_core.protocol_codes import RequestCode

# Serialize type and header -> the command, without its body.
HeaderDecoder = Callable[[int, bytes], RemotingCommand]

T = TypeVar("T")

_SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
SEND_HEADER_FACTOR = 4

_LENGTH = struct.Struct(">I")
_HEAD_SIZE = FRAME_HEAD.size
# What begins other protocols, read as the length of a frame.
_TLS_HANDSHAKE = 0x1603
_HTTP = frozenset(int.from_bytes(word, "big") for word in (b"HTTP", b"GET ", b"POST", b"HEAD"))

# Smaller pieces of a body are merged, so that a peer that sends single bytes does not cost an
# object for each.
_SMALL_PIECE = 4096
_GATHERED_MAX = 64 << 10


class FrameParser:
    """Splits one direction of one connection into commands."""

    __slots__ = (
        "_body",
        "_body_missing",
        "_body_size",
        "_data",
        "_decode",
        "_discards_body",
        "_open",
        "_pieces",
        "_position",
        "frame_size",
        "frame_size_max",
        "header_size_max",
        "keeps_body",
        "places_body",
        "send_header_size_max",
    )

    def __init__(
        self,
        frame_size_max: int = 16 << 20,
        header_size_max: int = 64 << 10,
        decode: HeaderDecoder = decode_header,
        places_body: Callable[[RemotingCommand, int], bool] | None = None,
    ) -> None:
        self.frame_size_max = frame_size_max
        self.header_size_max = header_size_max
        # The header of a send contains the properties, and JSON escapes make it longer. With a
        # larger limit, valid properties are stored, and longer ones are rejected with a response.
        self.send_header_size_max = SEND_HEADER_FACTOR * header_size_max
        self._decode = decode
        # Called with a command whose body has not arrived, and the size of its frame. If it returns
        # False, the body is discarded on arrival and the command is returned without it.
        self.keeps_body: Callable[[RemotingCommand, int], bool] | None = None
        self._discards_body = False
        # Called with a command whose body has not arrived, and the size of that body. If it returns
        # True, the body is received in place and is a read-only memoryview, else it is bytes.
        self.places_body = places_body
        # Size of the last frame that `next_command` returned or began.
        self.frame_size = 0
        self._data = b""
        self._position = 0
        # A command whose header is complete and whose body is not.
        self._open: RemotingCommand | None = None
        self._pieces: list[bytes | bytearray] = []
        # The whole body of that command, if it is received in place.
        self._body: memoryview | None = None
        self._body_size = 0
        self._body_missing = 0

    @property
    def buffered_size(self) -> int:
        """Received bytes that are not yet part of a command."""
        kept = 0 if self._discards_body else self._body_size - self._body_missing
        return len(self._data) - self._position + kept

    @property
    def is_between_frames(self) -> bool:
        """Whether no frame has begun."""
        return self._open is None and self._position == len(self._data)

    def pending(self) -> bytes:
        """Received bytes that no command was made of."""
        return self._data[self._position :]

    def receive_data(self, data: bytes) -> None:
        """Add received bytes; then call `next_command` until it returns None."""
        missing = self._body_missing
        if missing:
            if len(data) <= missing:
                self._keep_piece(data)
                self._body_missing = missing - len(data)
                return
            self._keep_piece(data[:missing])
            self._body_missing = 0
            self._data, self._position = data, missing
        elif self._position == len(self._data):
            self._data, self._position = data, 0
        else:
            self._data = self._data[self._position :] + data
            self._position = 0

    def body_room(self) -> memoryview | None:
        """Where to store the missing bytes of a body; None if it is not received in place."""
        if self._body is None or not self._body_missing:
            return None
        return self._body[self._body_size - self._body_missing :]

    def body_received(self, size: int) -> None:
        """Note that `size` bytes were written to `body_room`; then call `next_command`."""
        self._body_missing -= size

    def offer(self, take: Callable[[T, bytes, int], int], taker: T) -> bool:
        """Offer the buffered bytes to `take(taker, data, start)`, which returns the new start.

        Returns whether it took any frame.
        """
        start = self._position
        if self._open is None and start < len(self._data):
            end = take(taker, self._data, start)
            if end != start:
                self._advance(end)
                return True
        return False

    def next_command(self) -> RemotingCommand | None:
        """The next complete command; None when more bytes are needed.

        Raises `ProtocolViolation`, after which the connection must be closed.
        """
        if self._open is not None:
            return self._finish_open()
        data, start = self._data, self._position
        available = len(data) - start
        if available < _HEAD_SIZE:
            if available >= _LENGTH.size:
                self._check_length(_LENGTH.unpack_from(data, start)[0])
            self._compact()
            return None
        length, word = FRAME_HEAD.unpack_from(data, start)
        self._check_length(length)
        header_size = word & 0xFFFFFF
        self._check_header(length, word >> 24, header_size)
        self.frame_size = 4 + length
        header_end = start + _HEAD_SIZE + header_size
        if header_end > len(data):
            self._compact()
            return None
        command = self._decode(word >> 24, data[start + _HEAD_SIZE : header_end])
        if header_size > self.header_size_max and command.code not in _SENDS:
            raise _too_large(header_size, self.header_size_max)
        frame_end = start + 4 + length
        if frame_end <= len(data):
            if frame_end > header_end:
                command.body = data[header_end:frame_end]
            self._advance(frame_end)
            return command
        self._open = command
        if self.keeps_body is not None:
            self._discards_body = not self.keeps_body(command, self.frame_size)
        self._body_size = self._body_missing = frame_end - header_end
        places = None if self._discards_body else self.places_body
        if places is not None and places(command, self._body_size):
            self._body = new_buffer(self._body_size)
        if header_end < len(data):
            self._keep_piece(data[header_end:])
        self._body_missing = frame_end - len(data)
        self._data, self._position = b"", 0
        return None

    def _check_length(self, length: int) -> None:
        if not 4 <= length <= self.frame_size_max - 4:
            if length >> 16 == _TLS_HANDSHAKE:
                raise ProtocolViolation("the peer began a TLS handshake; TLS is off here")
            if length in _HTTP:
                raise ProtocolViolation("the peer speaks HTTP, not RocketMQ's remoting protocol")
            raise ProtocolViolation(
                f"a frame of {length} bytes; from 4 to {self.frame_size_max - 4} are accepted"
            )

    def _check_header(self, length: int, serialize_type: int, header_size: int) -> None:
        if header_size > length - 4:
            raise ProtocolViolation(f"a header of {header_size} bytes in a frame of {length}")
        if header_size > self.header_size_max and header_size > self.send_header_size_max:
            raise _too_large(header_size, self.header_size_max)
        if serialize_type > 1:
            raise ProtocolViolation(f"serialize type {serialize_type} is neither 0 nor 1")

    def _advance(self, position: int) -> None:
        if position == len(self._data):
            # Releases the chunk.
            self._data, self._position = b"", 0
        else:
            self._position = position

    def _compact(self) -> None:
        """Copy a few leftover bytes, so that they do not keep a whole chunk alive."""
        if self._position:
            self._data = self._data[self._position :]
            self._position = 0

    def _keep_piece(self, data: bytes) -> None:
        pieces = self._pieces
        if self._discards_body:
            return
        if self._body is not None:
            start = self._body_size - self._body_missing
            self._body[start : start + len(data)] = data
            return
        if len(data) >= _SMALL_PIECE:
            pieces.append(data)
        elif pieces and type(pieces[-1]) is bytearray and len(pieces[-1]) < _GATHERED_MAX:
            pieces[-1] += data
        else:
            pieces.append(bytearray(data))

    def _finish_open(self) -> RemotingCommand | None:
        if self._body_missing:
            return None
        command = self._open
        assert command is not None
        if self._body is not None:
            command.body = self._body.toreadonly()
            self._body = None
        else:
            command.body = b"".join(self._pieces)
            self._pieces.clear()
        self._body_size = 0
        self._discards_body = False
        self._open = None
        if self._position == len(self._data):
            self._data, self._position = b"", 0
        return command


def _too_large(header_size: int, header_size_max: int) -> ProtocolViolation:
    return ProtocolViolation(
        f"a header of {header_size} bytes; up to {header_size_max} are accepted"
    )
