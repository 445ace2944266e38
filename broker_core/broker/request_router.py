"""Dispatches requests to processors by code. `remoting` turns their exceptions into answers."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Protocol

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RequestNotSupported
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler, Result


class Processor(Protocol):
    """Handles some request codes."""

    def handlers(self) -> Mapping[int, Handler]:
        """Request codes and their handlers."""


class RequestRouter:
    """The handler of a broker's server."""

    def __init__(
        self, processors: Iterable[Processor], instead: Mapping[int, Handler] | None = None
    ) -> None:
        """`instead` replaces handlers of the processors."""
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
        """All request codes that have a handler."""
        return frozenset(self._handlers)

    def __call__(
        self, connection: Connection, command: RemotingCommand
    ) -> Result | Awaitable[Result]:
        handler = self._handlers.get(command.code)
        if handler is None:
            raise RequestNotSupported(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"request type {command.code} not supported",
            )
        return handler(connection, command)
