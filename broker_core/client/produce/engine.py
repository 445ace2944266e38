"""Drives sends through their attempts (queue, connection, answer, retry) without a task per send.

    waiting ─► window ─► attempt ─► answer ─► result
                 ▲          │ │
                 └─ retry ──┘ └─► gate: one task per topic without a route or address without a
                                  connection, for all sends that need it

Owns every send between the call and its result. A window limits the sends in flight; it shrinks
when a broker is busy. Sends with a key go through the lane of their queue one at a time, so that
they are stored in the order of the calls.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

from broker_core.client.connection.instance import ClientInstance
from broker_core.client.connection.topic_queues import Queues
from broker_core.client.produce.failures import described, is_worth_another_try
from broker_core.client.produce.pending_send import PendingSend
from broker_core.client.produce.queue_choice import Turn, queue_for_key
from broker_core.client.produce.result import STATUS_OF_CODE, SendStatus
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    InvalidArgument,
    NotAcknowledged,
    RemoteError,
    RequestTimeout,
    RmqError,
    SystemBusy,
    TopicNotExist,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import ResponseCode

_WINDOW_MIN: Final = 8
_BUSY_PAUSE_S: Final = (0.01, 0.5)
_RETRY_PAUSE_S: Final = 0.1
# One burst of refusals shrinks the window once.
_SHRINK_PAUSE_S: Final = 0.05
# How long other brokers are preferred to one that rejected a message.
_SHUN_S: Final = 5.0
_STOPPED: Final = "the producer was stopped before the answer came; the message may be stored"

# Kind ("route", "connect", "drain") and the topic or address it is for.
Gate = tuple[str, str]


class SendEngine:
    """The sends of one producer."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        *,
        in_flight_max: int,
        in_flight_size_max: int,
        waiting_max: int,
        waiting_size_max: int,
        accepted: frozenset[SendStatus],
    ) -> None:
        self._client = client
        self._routes = client.routes
        self._remoting = client.remoting
        self._clock = client.clock
        self._group = group
        self._in_flight_max = in_flight_max
        self._in_flight_size_max = in_flight_size_max
        self._waiting_max = waiting_max
        self._waiting_size_max = waiting_size_max
        self._accepted = accepted
        self._window = in_flight_max
        self._shrunk_at = 0.0
        # Topic → brokers that failed it → until when others are preferred
        self._shunned: dict[str, dict[str, float]] = {}
        self._active: set[PendingSend] = set()
        self._active_size = 0
        self._waiting: deque[PendingSend] = deque()
        self._waiting_size = 0
        self._is_pumping = False
        self._is_closed = False
        self._turns: dict[str, Turn] = {}
        self._lanes: dict[MessageQueue, deque[PendingSend]] = {}
        self._gates: dict[Gate, list[PendingSend]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_waiters: list[asyncio.Future[None]] = []

    @property
    def unfinished(self) -> int:
        """Sends without a result yet."""
        return len(self._active) + len(self._waiting)

    def submit(self, request: PendingSend) -> None:
        """Send as soon as the window has room. Raises `SystemBusy` when too many sends wait."""
        if self._is_closed:
            raise ConnectionLost("the producer is stopped")
        if not self._waiting and self._has_room(request):
            self._begin(request)
            return
        if (
            len(self._waiting) >= self._waiting_max
            or self._waiting_size + request.size > self._waiting_size_max
        ):
            raise SystemBusy(
                ResponseCode.SYSTEM_BUSY,
                f"{len(self._waiting)} sends with {self._waiting_size} bytes wait already"
                f" (waiting_max {self._waiting_max}, waiting_size_max {self._waiting_size_max});"
                " await results before sending more",
            )
        self._waiting.append(request)
        self._waiting_size += request.size
        if not self._active:
            self._pump()

    def choose_queue(self, topic: str, queues: Queues) -> MessageQueue:
        """The next queue in turn."""
        return self._turn(topic).choose(queues)

    def queue_count(self, topic: str) -> int:
        """The known number of writable queues of a topic."""
        return len(self._routes.published(topic))

    async def idle(self) -> None:
        """Wait until every send has its result."""
        while self.unfinished:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    async def close(self) -> None:
        """Fail all unfinished sends."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # A task that is cancelled before its first step does not remove its gate.
        self._gates.clear()
        self._lanes.clear()
        waiting, self._waiting = self._waiting, deque()
        self._waiting_size = 0
        for request in list(self._active):
            self._settle(request, ConnectionLost(_STOPPED))
        for request in waiting:
            if not request.future.done():
                request.future.set_exception(ConnectionLost("the producer was stopped"))
        self._wake_idle()

    # The window

    def _has_room(self, request: PendingSend) -> bool:
        # A single send always has room, even a large one.
        return not self._active or (
            len(self._active) < self._window
            and self._active_size + request.size <= self._in_flight_size_max
        )

    def _begin(self, request: PendingSend) -> None:
        self._active.add(request)
        self._active_size += request.size
        request.deadline = self._clock.monotonic() + request.timeout_s
        self._attempt(request)

    def _pump(self) -> None:
        """Begin waiting sends. Not re-entrant: a send that fails immediately calls this again."""
        if self._is_pumping or self._is_closed:
            return
        self._is_pumping = True
        try:
            while self._waiting and self._has_room(self._waiting[0]):
                request = self._waiting.popleft()
                self._waiting_size -= request.size
                if not request.future.done():
                    self._begin(request)
        finally:
            self._is_pumping = False
        self._wake_idle()

    def _shrink(self) -> None:
        now = self._clock.monotonic()
        if now >= self._shrunk_at + _SHRINK_PAUSE_S:
            self._shrunk_at = now
            self._window = max(_WINDOW_MIN, self._window // 2)

    # One attempt

    def _attempt(self, request: PendingSend) -> None:
        request.timer = None
        if request.future.done() or self._is_closed:
            self._settle(request, ConnectionLost(_STOPPED))
            return
        queues = self._routes.published(request.topic)
        gate = ("route", request.topic)
        if not queues or gate in self._gates:
            find = partial(self._routes.publish_queues, request.topic)
            self._wait_at_gate(gate, find, request)
            return
        if request.lane_key is not None and not request.in_lane:
            self._join_lane(request, queue_for_key(queues, request.lane_key))
            return
        queue = request.fixed_queue
        if queue is None:
            avoid = self._to_avoid(request.topic) if self._shunned else ()
            queue = self._turn(request.topic).choose(queues, avoid)
        self._attempt_at(request, queue)

    def _attempt_at(self, request: PendingSend, queue: MessageQueue) -> None:
        if request.future.done() or self._is_closed:
            self._settle(request, ConnectionLost(_STOPPED))
            return
        request.queue = queue
        try:
            self._send_to(request, queue)
        except InvalidArgument as error:
            self._settle(request, error)
        except RmqError as error:
            self._failed(request, error)

    def _send_to(self, request: PendingSend, queue: MessageQueue) -> None:
        address = self._routes.broker_address(queue.broker_name)
        left_ms = (request.deadline - self._clock.monotonic()) * 1000
        if left_ms <= 0:
            raise RequestTimeout(f"no answer within {request.timeout_s * 1000:g} ms")
        connection = self._remoting.connection_to(address)
        to_connect, to_drain = ("connect", address), ("drain", address)
        if connection is None or to_connect in self._gates:
            connect = partial(self._remoting.connect, address, request.timeout_s * 1000)
            self._wait_at_gate(to_connect, connect, request)
        elif not connection.is_writable or to_drain in self._gates:
            drain = partial(connection.writable, request.timeout_s * 1000)
            self._wait_at_gate(to_drain, drain, request)
        else:
            answer = connection.begin_request(request.command(self._group, queue), left_ms)
            request.was_sent = True
            answer.add_done_callback(partial(self._answered, request, queue))

    def _answered(
        self, request: PendingSend, queue: MessageQueue, answer: asyncio.Future[RemotingCommand]
    ) -> None:
        if request.future.done():
            self._end(request)
            return
        if answer.cancelled():
            self._settle(request, ConnectionLost("the request was cancelled"))
            return
        error = answer.exception()
        if error is not None:
            assert isinstance(error, RmqError)
            self._failed(request, error)
            return
        response = answer.result()
        status = STATUS_OF_CODE.get(response.code)
        if status is None:
            self._failed(request, RemoteError.for_code(response.code, response.remark))
            return
        try:
            result = request.read_answer(queue, response)
        except UnexpectedAnswer as unexpected:
            self._settle(request, unexpected)
            return
        if self._window < self._in_flight_max:
            self._window += 1
        if self._routes.is_template(request.topic):
            # The broker has just created the topic: replace the template by its real route.
            self._routes.refresh_soon(request.topic)
        if status is SendStatus.SEND_OK or status in self._accepted:
            self._settle(request, result)
        else:
            text = f"{queue.broker_name} answered {status.value} for topic {request.topic}"
            self._settle(request, NotAcknowledged(f"{text}: stored, but not safe", result))

    # After a failure

    def _failed(self, request: PendingSend, error: RmqError) -> None:
        """Retry or give up."""
        if isinstance(error, SystemBusy):
            self._shrink()
            pause_s = min(_BUSY_PAUSE_S[0] * 2**request.busy_times, _BUSY_PAUSE_S[1])
            request.busy_times += 1
            # Jitter, so that the sends do not all come back together.
            self._again_or(request, pause_s * (0.5 + random.random() / 2), error)
            return
        self._routes.refresh_soon(request.topic)
        if request.queue is not None:
            until = self._clock.monotonic() + _SHUN_S
            self._shunned.setdefault(request.topic, {})[request.queue.broker_name] = until
        if request.fixed_queue is not None or not is_worth_another_try(error):
            self._settle(request, described(error, request))
            return
        request.attempts_left -= 1
        if request.attempts_left <= 0:
            self._settle(request, described(error, request))
            return
        avoid = self._to_avoid(request.topic)
        queues = self._routes.published(request.topic)
        is_elsewhere = any(queue.broker_name not in avoid for queue in queues)
        self._again_or(request, 0 if is_elsewhere else _RETRY_PAUSE_S, error)

    def _to_avoid(self, topic: str) -> Collection[str]:
        shunned = self._shunned.get(topic)
        if shunned is None:
            return ()
        now = self._clock.monotonic()
        for broker in [name for name, until in shunned.items() if until <= now]:
            del shunned[broker]
        if not shunned:
            del self._shunned[topic]
        return shunned.keys()

    def _again_or(self, request: PendingSend, pause_s: float, error: RmqError) -> None:
        """Retry after a pause if the deadline allows; otherwise fail with `error`."""
        if self._clock.monotonic() + pause_s >= request.deadline:
            self._settle(request, described(error, request))
            return
        loop = asyncio.get_running_loop()
        request.timer = loop.call_later(pause_s, self._attempt, request)

    def _settle(self, request: PendingSend, outcome: object) -> None:
        future = request.future
        if not future.done():
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._end(request)

    def _end(self, request: PendingSend) -> None:
        if request.timer is not None:
            request.timer.cancel()
        if request not in self._active:
            return
        self._active.remove(request)
        self._active_size -= request.size
        if request.in_lane:
            self._leave_lane(request)
        if self._waiting or self._idle_waiters:
            self._pump()

    def _wake_idle(self) -> None:
        if not self.unfinished:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # Gates

    def _wait_at_gate(
        self, key: Gate, open_gate: Callable[[], Awaitable[object]], request: PendingSend
    ) -> None:
        # Also if the gate has just opened: earlier sends go first, to keep the order of a queue.
        waiting = self._gates.get(key)
        if waiting is None:
            self._gates[key] = waiting = []
            task = asyncio.ensure_future(self._open_gate(key, open_gate))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting.append(request)
        left_s = request.deadline - self._clock.monotonic()
        loop = asyncio.get_running_loop()
        request.timer = loop.call_later(max(left_s, 0), self._gate_expired, key, request)

    async def _open_gate(self, key: Gate, open_gate: Callable[[], Awaitable[object]]) -> None:
        error: RmqError | None = None
        try:
            await open_gate()
        except RmqError as failure:
            error = failure
        finally:
            requests = self._gates.pop(key)
        for request in requests:
            if request.timer is not None:
                request.timer.cancel()
            if error is None and request.queue is not None and key[0] != "route":
                # Keep the chosen queue: choosing again would skip other queues.
                self._attempt_at(request, request.queue)
            elif error is None:
                self._attempt(request)
            elif isinstance(error, BrokerNotExist | TopicNotExist) or request.queue is None:
                # No route, so no broker to retry on.
                self._settle(request, error)
            else:
                self._failed(request, error)

    def _gate_expired(self, key: Gate, request: PendingSend) -> None:
        waiting = self._gates.get(key, [])
        if request in waiting:
            waiting.remove(request)
        text = (
            f"topic {request.topic}: no connection or route within {request.timeout_s * 1000:g} ms"
        )
        self._settle(request, RequestTimeout(text))

    # Lanes

    def _join_lane(self, request: PendingSend, queue: MessageQueue) -> None:
        request.in_lane = True
        request.fixed_queue = queue
        lane = self._lanes.setdefault(queue, deque())
        lane.append(request)
        if len(lane) == 1:
            self._attempt(request)

    def _leave_lane(self, request: PendingSend) -> None:
        queue = request.fixed_queue
        lane = self._lanes.get(queue) if queue is not None else None
        if lane is None or queue is None:
            return
        was_first = lane[0] is request
        lane.remove(request)
        if not lane:
            del self._lanes[queue]
        elif was_first:
            following = lane[0]
            # Its timeout starts with its turn.
            following.deadline = self._clock.monotonic() + following.timeout_s
            asyncio.get_running_loop().call_soon(self._attempt, following)

    def _turn(self, topic: str) -> Turn:
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = Turn(random.randrange(1 << 16))
        return turn
