"""One socket: decodes and encodes commands, and applies back-pressure.

Everything runs on the event loop. All answers produced in one wake-up leave in one write. A server
stops reading while its peer does not read the answers or has too many requests under way; a client
never stops reading, or both could wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from broker_core.codec.wire.frame_parser import FrameParser, HeaderDecoder
from broker_core.codec.wire.remoting_command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    encode_command,
)
from broker_core.config import RemotingLimits
from broker_core.errors import (
    ConnectionLost,
    InvalidArgument,
    ProtocolViolation,
    RequestTimeout,
    SystemBusy,
)
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.http2_refusal import PREFACE_START, RefusedHttp2
from broker_core.remoting.in_flight import Answer, InFlightRequests
from broker_core.remoting.limits.connection_load import ConnectionLoad
from broker_core.remoting.limits.request_budget import HostLoad, RequestBudget
from broker_core.remoting.limits.unauthenticated_limits import restrict, unrestrict
from broker_core.remoting.liveness import Liveness
from broker_core.runtime.clock import Clock
from broker_core.runtime.limited_log import LimitedLog
from broker_core.runtime.peer_host import peer_address

_log = logging.getLogger(__name__)

# Size of a client's receive buffer; larger bodies of records are received in place.
_RECEIVE_SIZE = 64 << 10
# The event loop is woken when this much of such a body has arrived.
_WOKEN_AT = 256 << 10
_PULLS = frozenset({int(RequestCode.BULK_PULL), int(RequestCode.PULL_MESSAGE)})
# Pieces of output from this size on are written on their own.
_LARGE_PIECE = 128 << 10

# Reasons to pause reading.
_PEER_DOES_NOT_READ = 1
_TOO_MUCH_WORK = 2
_NO_ROOM = 4
# While these hold, silence of the peer is ignored. Not for `_NO_ROOM`: the partial frames that hold
# the memory must time out.
_IGNORES_SILENCE = _PEER_DOES_NOT_READ | _TOO_MUCH_WORK

# Takes a request and the size of its frame; must not raise.
RequestReceived = Callable[["Connection", RemotingCommand, int], None]
# Takes a connection, the received bytes and the start of the next frame. Handles whole frames and
# returns the start of the first one that it leaves. Must not raise.
TakeFrames = Callable[["Connection", bytes, int], int]
# Signs a request before it is written; the request has its id already.
SignRequest = Callable[["Connection", RemotingCommand], None]


def closings_log(clock: Clock) -> LimitedLog:
    """`ConnectionOwner.closings` of one server or client."""
    return LimitedLog(_log, clock.monotonic)


class ConnectionOwner(Protocol):
    """The server or client that a connection belongs to."""

    limits: RemotingLimits
    budget: RequestBudget
    clock: Clock
    # Whether this side is a server, which may pause reading.
    serves: bool
    request_received: RequestReceived
    # None: every request is dispatched on its own.
    take_frames: TakeFrames | None
    # Decodes headers of incoming frames: (serialize type, header) -> command.
    decode_header: HeaderDecoder
    # None: requests are not signed.
    sign_request: SignRequest | None
    new_load: Callable[[RequestBudget, HostLoad], ConnectionLoad]
    # Tells which connections were closed for what their peers did.
    closings: LimitedLog

    def needs_account(self, host: str) -> bool:
        """Whether peers of this host must authenticate."""

    def connection_opened(self, connection: Connection) -> bool:
        """False refuses the connection."""

    def connection_closed(self, connection: Connection) -> None:
        """A connection that was opened has ended."""


class Connection(asyncio.BaseProtocol):
    """Commands in both directions over one transport. Clients use `ClientConnection`."""

    __slots__ = (
        "_close_callbacks",
        "_flush_scheduled",
        "_in_flight",
        "_in_wake_up",
        "_is_write_blocked",
        "_liveness",
        "_load",
        "_loop",
        "_out",
        "_out_size",
        "_owner",
        "_parser",
        "_paused",
        "_sign",
        "_transport",
        "_write_waiters",
        "_written_total",
        "attributes",
        "close_reason",
        "is_closed",
        "peer",
    )

    def __init__(
        self,
        owner: ConnectionOwner,
        loop: asyncio.AbstractEventLoop,
        places_body: Callable[[RemotingCommand, int], bool] | None = None,
    ) -> None:
        limits = owner.limits
        self._owner = owner
        self._loop = loop
        self._parser = FrameParser(
            limits.frame_size_max, limits.header_size_max, owner.decode_header, places_body
        )
        self._in_flight = InFlightRequests(loop)
        self._sign = owner.sign_request
        self._liveness = Liveness(limits, owner.clock.monotonic())
        # Both are set as long as the connection is open.
        self._transport: asyncio.Transport | None = None
        self._load: ConnectionLoad | None = None
        self._close_callbacks: list[Callable[[Connection], object]] = []
        self._paused = 0
        self._in_wake_up = False
        # Output of the current wake-up
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._flush_scheduled = False
        self._written_total = 0
        self._is_write_blocked = False
        self._write_waiters: list[asyncio.Future[None]] = []
        self.peer: tuple[str, int] = ("", 0)
        self.is_closed = False
        self.close_reason = ""
        # State of the layers above for this peer.
        self.attributes: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<connection {self.peer_text}{' closed' if self.is_closed else ''}>"

    @property
    def peer_text(self) -> str:
        """`host:port` as RocketMQ writes it."""
        host, port = self.peer
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        transport = self._transport
        return transport is not None and transport.get_extra_info("ssl_object") is not None

    @property
    def is_writable(self) -> bool:
        """False while too many bytes are unsent, or after the end."""
        return not self.is_closed and not self._is_write_blocked

    @property
    def load(self) -> ConnectionLoad:
        """The share of the budget that the peer's requests use."""
        assert self._load is not None
        return self._load

    # Called by the layers above

    def send(self, command: RemotingCommand) -> None:
        """Queue a command; ignored on a closed connection and for the reply to a oneway.

        A body that is a memoryview must stay valid until the loop's next turn. Raises
        `InvalidArgument` for a command that cannot be written.
        """
        if command.flag & RESPONSE_FLAG:
            if command.flag & ONEWAY_FLAG:
                return
            head = b"" if self.is_closed else self._encode(command)
            self.load.answered(command.opaque)
        else:
            head = b"" if self.is_closed else self._encode(command)
        if not self.is_closed:
            self._queue(head, command.body)

    def send_reply(self, opaque: int, head: bytes, body: bytes | memoryview = b"") -> None:
        """`send` for a response that is encoded already: `head` ends where `body` begins.

        For hot request codes; the request must not be a oneway.
        """
        self.load.answered(opaque)
        if not self.is_closed:
            self._queue(head, body)

    def send_encoded(self, responses: bytes) -> None:
        """Queue encoded responses whose requests are not counted by the load."""
        if not self.is_closed:
            self._queue(responses, b"")

    def begin_request(self, command: RemotingCommand, timeout_ms: float) -> Answer:
        """Send a request; the future gets its answer, `RequestTimeout` or `ConnectionLost`.

        Does not wait for room to write: raises `SystemBusy` when the write buffer is full.
        """
        self._check_open()
        self._check_room()
        answer = self._in_flight.begin(command, timeout_ms, self.peer_text)
        # The peer's requests may depend on this answer, so reading must continue.
        self._resume(_TOO_MUCH_WORK)
        try:
            if self._sign is not None:
                self._sign(self, command)
            self.send(command)
        except InvalidArgument:
            answer.cancel()
            raise
        return answer

    async def request(self, command: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Wait for room to write, send a request and return its answer."""
        if self._is_write_blocked:
            started = self._owner.clock.monotonic()
            await self.writable(timeout_ms)
            timeout_ms -= (self._owner.clock.monotonic() - started) * 1000
        return await self.begin_request(command, max(timeout_ms, 1))

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request without an answer. Raises `ConnectionLost` when closed."""
        self._check_open()
        self._check_room()
        command.flag |= ONEWAY_FLAG
        command.opaque = self._in_flight.next_opaque()
        if self._sign is not None:
            self._sign(self, command)
        self.send(command)

    async def writable(self, timeout_ms: float) -> None:
        """Wait until most of the write buffer is sent.

        Raises `ConnectionLost` or `RequestTimeout`.
        """
        deadline = self._loop.time() + timeout_ms / 1000
        self._check_open()
        # Another waiter may have filled the buffer again.
        while self._is_write_blocked:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._write_waiters.append(waiter)
            done, _ = await asyncio.wait((waiter,), timeout=deadline - self._loop.time())
            self._check_open()
            if not done:
                waiter.cancel()
                raise RequestTimeout(f"{self.peer_text} did not read for {timeout_ms:g} ms")

    def on_close(self, callback: Callable[[Connection], object]) -> None:
        """Call `callback(connection)` once when the connection has ended."""
        if self.is_closed:
            self._loop.call_soon(callback, self)
        else:
            self._close_callbacks.append(callback)

    def close(self, reason: str = "closed here") -> None:
        """Flush, then close."""
        if self._transport is not None and not self._transport.is_closing():
            self.close_reason = self.close_reason or reason
            self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close immediately; queued output is lost."""
        if self._transport is not None and not self.is_closed:
            self.close_reason = self.close_reason or reason
            self._out.clear()
            self._out_size = 0
            self._transport.abort()

    # Called by the owner

    def budget_freed(self) -> None:
        """Check the limits again after a pause."""
        if self.load.may_work:
            # `_take_commands` checks the room for reading again.
            self._resume(_TOO_MUCH_WORK | _NO_ROOM)
        else:
            self._owner.budget.wait(self)

    def recognised(self) -> None:
        """Lift the limits of unauthenticated peers."""
        self.load.recognised(self)
        unrestrict(self._parser, self._owner.limits)

    def replace_transport(self, transport: asyncio.Transport) -> asyncio.Transport | None:
        """Write to another transport from now on; returns the previous one."""
        before, self._transport = self._transport, transport
        return before

    def expire(self, now: float) -> None:
        """Close if the peer is idle, stalled within a frame, or does not read."""
        if self._transport is None or self.is_closed:
            return
        reason = self._liveness.reason_to_close(
            now,
            written_total=self._written_total,
            unsent_size=self._transport.get_write_buffer_size(),
            is_reading=not self._paused & _IGNORES_SILENCE,
            is_busy=self.load.requests + self.load.held.count > 0 or len(self._in_flight) > 0,
        )
        if reason:
            self._owner.closings.info("closing %s: %s", self.peer_text, reason)
            self.abort(reason)

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit or refuse the peer."""
        # Not checked: uvloop's transports have the methods and no common base.
        self._transport = cast(asyncio.Transport, transport)
        self.peer = peer_address(transport.get_extra_info("peername"))
        self._transport.set_write_buffer_limits(high=self._owner.limits.write_buffer_high)
        host_load = self._owner.budget.admit(self.peer[0])
        if host_load is None:
            self.abort("too many connections")
            return
        self._load = self._owner.new_load(self._owner.budget, host_load)
        if self._owner.needs_account(self.peer[0]):
            self._load.is_unauthenticated = True
            restrict(self._parser, self._owner.limits)
        if not self._owner.connection_opened(self):
            self.abort("closing")

    def data_received(self, data: bytes) -> None:
        """Parse commands and dispatch them."""
        if self._load is None:
            return
        self._liveness.last_activity = self._owner.clock.monotonic()
        self._parser.receive_data(data)
        self._take_commands()

    def eof_received(self) -> bool:
        """Close: the peer will not send any more requests or answers."""
        self.close_reason = self.close_reason or "closed by the peer"
        return False

    def pause_writing(self) -> None:
        """Stop reading while the write buffer is full."""
        self._is_write_blocked = True
        self._pause(_PEER_DOES_NOT_READ)

    def resume_writing(self) -> None:
        self._is_write_blocked = False
        self._resume(_PEER_DOES_NOT_READ)
        self._wake_writers()

    def connection_lost(self, error: Exception | None) -> None:
        """Release the budget, fail pending requests and call the close callbacks, once."""
        if self.is_closed:
            return
        self.is_closed = True
        if not self.close_reason:
            self.close_reason = f"lost: {error}" if error is not None else "closed by the peer"
        self._out.clear()
        self._out_size = 0
        self._in_flight.fail_all(f"{self.peer_text}: {self.close_reason}")
        self._wake_writers()
        if self._load is not None:
            self._load.close(self)
            self._owner.connection_closed(self)
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            # Scheduled separately, so that a failing callback does not stop the others.
            self._loop.call_soon(callback, self)

    def _check_open(self) -> None:
        if self.is_closed or self._transport is None or self._transport.is_closing():
            raise ConnectionLost(f"{self.peer_text}: {self.close_reason or 'closed'}")

    def _check_room(self) -> None:
        """A client's callers get `SystemBusy`; a server instead disconnects a slow peer."""
        if self._owner.serves or self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size() + self._out_size
        if unsent + self._owner.limits.frame_size_max > self._owner.limits.write_buffer_max:
            raise SystemBusy(ResponseCode.SYSTEM_BUSY, f"{self.peer_text} does not read")

    def _queue(self, head: bytes, body: bytes | memoryview) -> None:
        self._out.append(head)
        self._out_size += len(head)
        if len(body):
            self._out.append(body)
            self._out_size += len(body)
        if self._out_size >= self._owner.limits.write_buffer_high:
            self._flush()
        elif not self._in_wake_up and not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _encode(self, command: RemotingCommand) -> bytes:
        head = encode_command(command)
        size = len(head) + len(command.body)
        if size > self._parser.frame_size_max:
            raise InvalidArgument(f"a frame of {size} bytes, at most {self._parser.frame_size_max}")
        return head

    def _take_commands(self) -> None:
        parser, load = self._parser, self.load
        request_received, take = self._owner.request_received, self._owner.take_frames
        self._in_wake_up = True
        try:
            while not self._paused:
                if take is not None and parser.offer(take, self):
                    self._liveness.partial_since = None
                    if load.size and self._has_too_much():
                        break
                command = parser.next_command()
                if command is None:
                    break
                self._liveness.partial_since = None
                if command.flag & RESPONSE_FLAG:
                    self._in_flight.complete(command)
                else:
                    request_received(self, command, parser.frame_size)
                    # A request that was answered at once has no load.
                    if load.size and self._has_too_much():
                        break
        except ProtocolViolation as violation:
            begun = parser.pending()
            transport = self._transport if self._owner.serves else None
            if transport is not None and begun.startswith(PREFACE_START):
                self._refuse_http2(transport, begun)
                return
            self._owner.closings.info("closing %s: %s", self.peer_text, violation)
            self.close(f"protocol violation: {violation}")
        else:
            self._note_arrived()
        finally:
            self._in_wake_up = False
            self._flush()

    def _refuse_http2(self, transport: asyncio.Transport, begun: bytes) -> None:
        """Hand the transport to a protocol that refuses calls until `expire` closes it."""
        self.close_reason = "the peer speaks HTTP/2"
        refused = RefusedHttp2(transport, self.peer[0], self.connection_lost)
        transport.set_protocol(refused)
        refused.data_received(begun)

    def _note_arrived(self) -> None:
        """Account for the partial frame in the parser."""
        if self._parser.is_between_frames:
            self._liveness.partial_since = None
            self.load.note_arrived(0, self)
            return
        if self._liveness.partial_since is None:
            self._liveness.partial_since = self._liveness.last_activity
        self.load.note_arrived(self._parser.buffered_size, self)
        if not self.load.may_read(self):
            self._wait_for_budget(_NO_ROOM)

    def _has_too_much(self) -> bool:
        """Whether reading must pause until some requests are answered."""
        if self.load.may_work or len(self._in_flight):
            return False
        self._wait_for_budget(_TOO_MUCH_WORK)
        return bool(self._paused)

    def _wait_for_budget(self, reason: int) -> None:
        if self._owner.serves:
            self._pause(reason)
            self._owner.budget.wait(self)

    def _pause(self, reason: int) -> None:
        if not self._owner.serves or self._transport is None:
            return
        if not self._paused:
            self._transport.pause_reading()
        self._paused |= reason

    def _resume(self, reason: int) -> None:
        if not self._paused & reason:
            return
        if self._paused & _IGNORES_SILENCE:
            self._liveness.restart_partial(self._owner.clock.monotonic())
        self._paused &= ~reason
        if not self._paused:
            # Not directly: this may be called from inside a write.
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        if self._paused or self.is_closed:
            return
        self._take_commands()
        self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _flush(self) -> None:
        self._flush_scheduled = False
        if not self._out or self.is_closed or self._transport is None:
            return
        out, self._out = self._out, []
        self._written_total += self._out_size
        if self._out_size < _LARGE_PIECE:
            self._transport.write(b"".join(out))
        else:
            for data in _joined_but_large(out):
                self._transport.write(data)
        self._out_size = 0
        if self._transport.get_write_buffer_size() > self._owner.limits.write_buffer_max:
            self.abort("the peer does not read")

    def _wake_writers(self) -> None:
        waiters, self._write_waiters = self._write_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _joined_but_large(pieces: list[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Joins small pieces; large ones stay apart, because a copy costs more than a system call."""
    small: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < _LARGE_PIECE:
            small.append(piece)
        else:
            if small:
                yield b"".join(small)
                small = []
            yield piece
    if small:
        yield b"".join(small)


class ClientConnection(Connection, asyncio.BufferedProtocol):
    """Connection of a client. Receives large bodies of records directly into their final buffer."""

    __slots__ = ("_buffer", "_was_answered", "_woken_at")

    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(owner, loop, self._is_records)
        # For all other data.
        self._buffer = memoryview(bytearray(_RECEIVE_SIZE))
        self._woken_at = 1
        self._was_answered = False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive: the rest of a body that is received in place, or a plain buffer."""
        room = self._parser.body_room()
        if room is None:
            return self._buffer
        self._wake_at(min(len(room), _WOKEN_AT))
        return room

    def _wake_at(self, size: int) -> None:
        """Set the low-water mark: the kernel reports data from `size` bytes on, or its end.

        A body is of use only as a whole, and a wake-up costs as much as copying many bytes. With
        TLS the socket is read by OpenSSL, which needs each record as it arrives.
        """
        transport = self._transport
        if size == self._woken_at or transport is None:
            return
        # Other kernels may wait for more bytes than the socket's buffer holds.
        if sys.platform == "linux" and transport.get_extra_info("sslcontext") is None:
            sock = transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        self._woken_at = size

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` were received into the buffer of `get_buffer`."""
        room = self._parser.body_room()
        if room is None:
            self._was_answered = True
            self.data_received(bytes(self._buffer[:nbytes]))
        elif self._load is not None:
            self._liveness.last_activity = self._owner.clock.monotonic()
            self._parser.body_received(nbytes)
            rest = len(room) - nbytes
            # Never more than the rest of the body.
            self._wake_at(min(rest, self._woken_at) if rest else 1)
            self._take_commands()

    def eof_received(self) -> bool:
        self._note_silence()
        return super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._note_silence()
        super().connection_lost(error)

    def _note_silence(self) -> None:
        """A server that requires TLS closes a connection without it, and cannot say why."""
        if not (self.close_reason or self._was_answered or self.is_encrypted):
            self.close_reason = "closed by the peer before any answer: it may require TLS"

    def _is_records(self, command: RemotingCommand, size: int) -> bool:
        """Whether it is a large answer to a pull, whose reader takes any buffer."""
        return (
            size >= _RECEIVE_SIZE
            and command.flag & RESPONSE_FLAG != 0
            and self._in_flight.code_of(command.opaque) in _PULLS
        )
