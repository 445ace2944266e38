"""Request codes -> processors. What a processor raises, the remoting room turns into an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Protocol

from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import RequestNotSupported
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler, Result


class Processor(Protocol):
    """Answers one kind of conversation."""

    def handlers(self) -> Mapping[int, Handler]:
        """Codes -> what answers them."""


class RequestRouter:
    """The handler of a broker's server."""

    def __init__(
        self, processors: Iterable[Processor], instead: Mapping[int, Handler] | None = None
    ) -> None:
        """`instead` has answers that come before those of the processors."""
        self._handlers: dict[int, Handler] = {}
        for processor in processors:
            for code, handler in processor.handlers().items():
                if code in self._handlers:
                    raise AssertionError(f"request code {int(code)} has two handlers")
                self._handlers[int(code)] = handler
        for code, handler in (instead or {}).items():
            if code in self._handlers:
                self._handlers[code] = handler

    @property
    def codes(self) -> frozenset[int]:
        """What this broker answers."""
        return frozenset(self._handlers)

    def __call__(
        self, connection: Connection, command: RemotingCommand
    ) -> Result | Awaitable[Result]:
        """Hand a request over."""
        handler = self._handlers.get(command.code)
        if handler is None:
            raise RequestNotSupported(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"request type {command.code} not supported",
            )
        return handler(connection, command)
