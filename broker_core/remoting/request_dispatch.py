"""Calls the request handler and sends its result. The only place where errors become responses.

RmqError        its `response_code`, with its text as remark
anything else   SYSTEM_ERROR; details are logged, the peer only gets the error's type
oneway          never answered
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.config import RemotingLimits
from broker_core.errors import RmqError
from broker_core.protocol_codes import ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.limits.request_budget import RequestBudget

_log = logging.getLogger(__name__)

_REMARK_MAX = 1024

# A command is the answer; None means that the handler answers later with
# `connection.send(command.reply(…))`; an awaitable gives either.
Result = RemotingCommand | None
Handler = Callable[[Connection, RemotingCommand], "Result | Awaitable[Result]"]
# Handles whole frames itself. Takes the connection, the received bytes, the start of the next frame
# and the allowed number of requests; returns the start of the first frame that it leaves.
FrameHandler = Callable[[Connection, bytes, int, int], int]


class RequestDispatcher:
    """Runs the handler of one server or client."""

    def __init__(
        self,
        handler: Handler,
        limits: RemotingLimits,
        budget: RequestBudget,
        frame_handler: FrameHandler | None = None,
    ) -> None:
        self.handler = handler
        self._frame_handler = frame_handler
        self._limits = limits
        self._budget = budget
        self._tasks: set[asyncio.Future[Result]] = set()
        # Set when the server stops: further requests are refused.
        self.is_stopping = False

    def take_frames(self, connection: Connection, data: bytes, start: int) -> int:
        """Pass frames to the frame handler, within the limits of `dispatch`."""
        load, limits = connection.load, self._limits
        count_max = min(
            limits.requests_max - self._budget.requests,
            limits.connection_requests_max - load.requests,
        )
        if self.is_stopping or count_max <= 0 or (load.size and not load.may_work):
            return start
        assert self._frame_handler is not None
        try:
            return self._frame_handler(connection, data, start, count_max)
        except Exception as error:  # noqa: BLE001 - the frames are then handled one by one
            _log.error(
                "handling a burst of %s failed; its frames are handled one by one",
                connection.peer_text,
                exc_info=error,
            )
            return start

    def dispatch(self, connection: Connection, command: RemotingCommand, frame_size: int) -> None:
        """Handle a request from a frame of `size` bytes."""
        load = connection.load
        if (
            self.is_stopping
            or self._budget.requests >= self._limits.requests_max
            or load.requests >= self._limits.connection_requests_max
            # Rare: reading is paused before this happens.
            or (load.size and not load.may_work)
        ):
            self._refuse(connection, command)
            return
        cost = load.begin(frame_size)
        is_oneway = command.is_oneway
        if not is_oneway:
            load.hold(command.opaque, cost)
        result: Result | asyncio.Future[Result]
        try:
            result = self._start(connection, command)
        except Exception as error:  # noqa: BLE001 - any failure of a handler must be answered
            result = failure_reply(connection, command, error)
        if isinstance(result, asyncio.Future):
            held = cost if is_oneway else load.unhold(command.opaque)
            self._tasks.add(result)
            result.add_done_callback(partial(self._finish, connection, command, held))
        elif is_oneway:
            load.end(cost)
        elif result is not None:
            send_or_explain(connection, command, result)

    def _start(
        self, connection: Connection, command: RemotingCommand
    ) -> Result | asyncio.Future[Result]:
        result = self.handler(connection, command)
        if result is None or isinstance(result, RemotingCommand):
            return result
        return asyncio.ensure_future(result)

    async def cancel_all(self) -> None:
        """Cancel running handlers and wait for them."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _finish(
        self,
        connection: Connection,
        command: RemotingCommand,
        cost: int | None,
        task: asyncio.Future[Result],
    ) -> None:
        self._tasks.discard(task)
        result: Result
        if task.cancelled():
            result = command.reply(ResponseCode.SYSTEM_ERROR, "the request was cancelled")
        elif (error := task.exception()) is not None:
            result = failure_reply(connection, command, error)
        else:
            result = task.result()
        if result is None and not command.is_oneway and cost is not None:
            # The handler answers later.
            connection.load.hold(command.opaque, cost)
            return
        if result is not None and not command.is_oneway:
            send_or_explain(connection, command, result)
        if cost is not None:
            connection.load.end(cost)

    def _refuse(self, connection: Connection, command: RemotingCommand) -> None:
        if command.is_oneway:
            return
        if self.is_stopping:
            code, remark = ResponseCode.SERVICE_NOT_AVAILABLE, "the server is shutting down"
        else:
            code, remark = ResponseCode.SYSTEM_BUSY, "[OVERLOAD] too many requests, try later"
        connection.send(command.reply(code, remark))


def handle_later(
    connection: Connection,
    command: RemotingCommand,
    handler: Callable[[Connection, RemotingCommand], Result],
) -> None:
    """Run the rest of a handler that has returned None, and answer if it has not."""
    result: Result
    try:
        result = handler(connection, command)
    except Exception as error:  # noqa: BLE001 - any failure of a handler must be answered
        result = failure_reply(connection, command, error)
    if result is not None and not command.is_oneway:
        send_or_explain(connection, command, result)


def failure_reply(
    connection: Connection, command: RemotingCommand, error: BaseException
) -> RemotingCommand:
    """The response for an error of a handler."""
    if isinstance(error, RmqError):
        remark = str(error)[:_REMARK_MAX] or type(error).__name__
        return command.reply(error.response_code, remark)
    _log.error("request %d of %s failed", command.code, connection.peer_text, exc_info=error)
    return command.reply(
        ResponseCode.SYSTEM_ERROR, f"internal error ({type(error).__name__}), see the server's log"
    )


def send_or_explain(
    connection: Connection, command: RemotingCommand, answer: RemotingCommand
) -> None:
    """Send `answer`, or the reason why it cannot be encoded."""
    try:
        connection.send(answer)
    except RmqError as error:
        _log.warning("the answer to request %d cannot be sent: %s", command.code, error)
        connection.send(command.reply(ResponseCode.SYSTEM_ERROR, str(error)[:_REMARK_MAX]))
