"""A broker that is busy, or that is killed when a certain request arrives or is done."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from broker_core.codec.wire.frame_parser import FrameParser
from broker_core.codec.wire.remoting_command import RemotingCommand, decode_header
from broker_core.errors import InvalidArgument
from broker_core.fault_injection.disk import DiskFaults
from broker_core.fault_injection.network import NetworkFaults
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler, Result
from broker_core.remoting.server import RemotingServer

_REQUESTS: Final[Mapping[str, frozenset[int]]] = {
    "send": frozenset(
        {
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.BULK_SEND,
            RequestCode.SEND_ONCE,
        }
    ),
    "pull": frozenset(
        {
            RequestCode.PULL_MESSAGE,
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.BULK_PULL,
            RequestCode.LOCAL_RANGE,
        }
    ),
    "stage": frozenset({RequestCode.STAGE_SEAL}),
    "publish": frozenset({RequestCode.SINK_PUBLISH}),
}
_RECEIVED: Final = "received"
_DONE: Final = "done"
_BEFORE_SYNC: Final = "before-sync"
_AFTER_SYNC: Final = "after-sync"

KILL_POINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "send-received": "a send has arrived, nothing is stored",
        "send-done": "its messages are stored, the answer is not sent",
        "pull-received": "a request for messages has arrived",
        "pull-done": "they were read, the answer is not sent",
        "stage-received": "a part of an exactly-once batch is complete, but not sealed",
        "stage-done": "it is sealed, the answer is not sent",
        "publish-received": "an exactly-once batch is about to be published",
        "publish-done": "it is published, the answer is not sent",
        _BEFORE_SYNC: "the broker is about to make messages durable",
        _AFTER_SYNC: "messages are durable and not acknowledged",
    }
)
# Without these a client would be dropped from its group.
_NEVER_BUSY: Final = frozenset({int(RequestCode.HEART_BEAT), int(RequestCode.UNREGISTER_CLIENT)})


def _kill() -> None:
    signal.raise_signal(signal.SIGKILL)


class RequestFaults:
    """The active faults of request handling. Event loop only."""

    def __init__(
        self,
        server: RemotingServer,
        network: NetworkFaults,
        disk: DiskFaults,
        kill: Callable[[], None] = _kill,
    ) -> None:
        self._server = server
        self._network = network
        self._disk = disk
        self._kill = kill
        self._is_busy = False
        self._point = ""
        self._left = 0
        # Requests whose answer kills the broker, by the connection that they came from.
        self._fatal: dict[Connection, int] = {}
        self._parsers: dict[Connection, FrameParser] = {}

    def be_busy(self, on: bool) -> None:
        """Answer SYSTEM_BUSY to every request but heartbeats."""
        self._is_busy = on
        self._changed()

    def kill_at(self, point: str, occurrence: int = 1) -> None:
        """Kill the process when it passes `point` for the `occurrence`-th time; "" ends that."""
        if point and point not in KILL_POINTS:
            raise InvalidArgument(f"no point {point!r:.80}: give one of {', '.join(KILL_POINTS)}")
        self._point, self._left = point, occurrence
        self._fatal.clear()
        self._parsers.clear()
        self._disk.watch_syncs(
            self._passed if point == _BEFORE_SYNC else None,
            self._passed if point == _AFTER_SYNC else None,
        )
        self._network.before_write = self._before_write if point.endswith(_DONE) else None
        self._network.changed()
        self._changed()

    # Inside

    def _changed(self) -> None:
        is_on = self._is_busy or self._point
        self._server.intercept(self._intercepted if is_on else None)

    def _intercepted(self, handler: Handler) -> Handler:
        def handle(connection: Connection, command: RemotingCommand) -> Result | Awaitable[Result]:
            if self._is_busy and command.code not in _NEVER_BUSY:
                return command.reply(ResponseCode.SYSTEM_BUSY, "busy: a fault on purpose")
            request, _, stage = self._point.partition("-")
            if command.code in _REQUESTS.get(request, ()):
                if stage == _RECEIVED:
                    self._passed()
                elif stage == _DONE and self._is_last():
                    self._fatal[connection] = command.opaque
            return handler(connection, command)

        return handle

    def _passed(self) -> None:
        if self._is_last():
            self._kill()

    def _is_last(self) -> bool:
        self._left -= 1
        return self._left == 0

    def _before_write(self, connection: Connection, data: bytes) -> None:
        """Kill before the answer to the chosen request leaves."""
        parser = self._parsers.get(connection)
        if parser is None:
            limits = self._server.limits
            parser = FrameParser(limits.frame_size_max, limits.header_size_max, decode_header)
            self._parsers[connection] = parser
        parser.receive_data(data)
        while (command := parser.next_command()) is not None:
            if command.is_response and self._fatal.get(connection) == command.opaque:
                self._kill()
