"""RocketMQ's replication frames: bytes in, records out, no sockets.

    slave -> master   report   i64 log position that the slave has reached
    master -> slave   header   i64 log position of the first body byte, i32 body size
                      body     raw log bytes; none in a heartbeat

The two streams of a connection are independent. A body never crosses the end of a log file and
cuts records anywhere.
"""

from __future__ import annotations

import struct
from typing import Final

from broker_core.errors import ReplicationRefused

REPORT: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")
# Above every sensible setting of a master: a larger size is a protocol error.
BODY_SIZE_MAX: Final = 128 << 20

Piece = tuple[int, memoryview]


def encode_report(position: int) -> bytes:
    """The report of a slave."""
    return REPORT.pack(position)


def encode_header(position: int, size: int) -> bytes:
    """The header of a body; alone, with size 0, it is a heartbeat."""
    return HEADER.pack(position, size)


class ReportParser:
    """Cuts a slave's stream into positions, aligned since the start of the connection."""

    def __init__(self) -> None:
        self._rest = b""

    def receive(self, data: bytes | bytearray | memoryview) -> list[int]:
        """The positions that are complete now, oldest first."""
        data = self._rest + bytes(data)
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return [position for (position,) in REPORT.iter_unpack(data[:whole])]


class FrameParser:
    """Cuts a master's stream into pieces of the log, without waiting for whole bodies."""

    def __init__(self) -> None:
        self._head = b""
        self._position = 0
        self._left = 0

    def receive(self, data: memoryview) -> list[Piece]:
        """(position, bytes) in order; a heartbeat is a piece without bytes.

        The pieces are views of `data`. Raises `ReplicationRefused` for a size that no master sends.
        """
        pieces: list[Piece] = []
        at, size = 0, len(data)
        while at < size:
            if self._left == 0:
                wanted = HEADER.size - len(self._head)
                self._head += data[at : at + wanted]
                at += wanted
                if at <= size:
                    pieces += self._take_header()
                continue
            taken = min(self._left, size - at)
            pieces.append((self._position, data[at : at + taken]))
            at += taken
            self._position += taken
            self._left -= taken
        return pieces

    def _take_header(self) -> list[Piece]:
        self._position, self._left = HEADER.unpack(self._head)
        self._head = b""
        if self._position < 0 or not 0 <= self._left <= BODY_SIZE_MAX:
            text = f"a frame of {self._left} bytes at position {self._position}"
            raise ReplicationRefused("protocol", f"the master sent {text}")
        return [] if self._left else [(self._position, memoryview(b""))]
