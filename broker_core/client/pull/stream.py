"""Exactly `[start, until)` of one queue, in order, with several requests in flight.

    slots    neighbouring parts of the range, each with a request under way or answered
    window   bytes of answers not yet handed out, and of those expected; bounded, so that a slow
             caller slows the requests down instead of filling the memory

If a request covers only the first part of its slot, the rest becomes a new slot. Transient failures
are retried; missing messages are an error. Without `until` the stream follows the queue without
end, with one request held at its end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Protocol

from broker_core.client.connection.backoff import Backoff, may_pass
from broker_core.client.connection.capabilities import BrokerCapabilities
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.routes import RouteCache
from broker_core.client.pull.plan import CountWidth, OffsetSize, SizeWidth, Width
from broker_core.client.pull.queue_reader import QueueReader, ReadDoors
from broker_core.client.pull.received_message import ReceivedMessage, decode_messages
from broker_core.client.pull.record_run import RecordRun, cut_runs, join_runs
from broker_core.client.pull.request import PullRequest
from broker_core.client.pull.result import PullResult, PullStatus
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.errors import (
    InvalidArgument,
    MalformedRecord,
    OffsetOutOfRange,
    RmqError,
    ServiceNotAvailable,
)
from broker_core.remoting.client import RemotingClient
from broker_core.runtime.clock import Clock

READER_GROUP: Final = "PYSPARK_RMQ_READER"
_COUNT_FIRST: Final = 32
_COUNT_MOST: Final = 1024
_BULK_COUNT_MOST: Final = 1 << 20


class ReadingClient(Protocol):
    """What a stream needs of a `ClientInstance`."""

    config: ClientConfig
    clock: Clock
    remoting: RemotingClient
    routes: RouteCache
    capabilities: BrokerCapabilities


class _Slot:
    """One part of the range, and its one request."""

    __slots__ = ("expected_size", "is_done", "runs", "size", "start", "task", "until")

    def __init__(self, start: int, until: int | None) -> None:
        self.start = start
        self.until = until
        self.task: asyncio.Task[None] | None = None
        self.runs: list[RecordRun] = []
        self.is_done = False
        self.size = 0
        self.expected_size = 0.0


class PullStream:
    """Async iterator of `RecordRun`; use it in `async with`, or `await close()` it.

    `subscription` filters by tags at the broker, by hash only; `messages` also compares the tags. A
    run has no gaps. There are gaps between runs if a filter is used, or if `allow_gaps` accepts
    that records expired before they were read. With `verify=False` the broker may leave it to the
    caller to verify the records, as `RecordRun.columns` does.
    """

    def __init__(
        self,
        client: ReadingClient,
        queue: MessageQueue,
        start: int,
        until: int | None = None,
        *,
        group: str = READER_GROUP,
        subscription: SubscriptionData | None = None,
        buffer_size_max: int = 16 << 20,
        requests_max: int = 16,
        request_size: int = 4 << 20,
        run_size_min: int = 0,
        suspend_ms: int = 15_000,
        retry_limit_ms: float = 60_000,
        allow_gaps: bool = False,
        verify: bool = True,
    ) -> None:
        if start < 0 or (until is not None and until < start):
            raise InvalidArgument(f"offsets {start} to {until} are not a range")
        for name, value in (
            ("buffer_size_max", buffer_size_max),
            ("requests_max", requests_max),
            ("request_size", request_size),
        ):
            if value < 1:
                raise InvalidArgument(f"{name} is {value}: give at least 1")
        subscription = subscription or SubscriptionData(queue.topic)
        doors = ReadDoors(client.remoting, client.routes, client.capabilities)
        self.queue = queue
        self._reader = QueueReader(doors, queue, group, subscription)
        self._clock = client.clock
        self._size_max = client.config.decompressed_size_max
        self._until = until
        self._buffer_size_max = buffer_size_max
        self._requests_max = requests_max
        self._request_size = request_size
        self._run_size_min = run_size_min
        self._suspend_ms = suspend_ms
        self._retry_limit_ms = retry_limit_ms
        self._allow_gaps = allow_gaps or not subscription.matches_all
        self._allow_loss = allow_gaps
        self._verify = verify
        # The plan
        self._slots: deque[_Slot] = deque()
        self._ready: deque[RecordRun] = deque()
        self._planned_until = start
        self._known_max = start
        self._window = 0.0
        self._in_flight = 0
        # Slots without a request.
        self._waiting = 0
        self._width: Width | None = None
        self._offset_size = OffsetSize()
        self._is_closed = False

    async def __aenter__(self) -> PullStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> PullStream:
        return self

    async def __anext__(self) -> RecordRun:
        """The next records. Raises `OffsetOutOfRange`, or why the broker could not be read."""
        joined: list[RecordRun] = []
        size = 0
        while not joined or size < self._run_size_min:
            # A tail may wait without end: return what is there.
            run = await self._next_run(may_wait=not joined or self._until is not None)
            if run is None:
                break
            if joined and run.first_offset != joined[-1].until_offset:
                self._ready.appendleft(run)
                self._window += run.size
                break
            joined.append(run)
            size += run.size
        if not joined:
            raise StopAsyncIteration
        return join_runs(joined)

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """The decoded messages that match the subscription."""
        tags = frozenset(self._reader.subscription.tags)
        async for run in self:
            for message in decode_messages(run.records, self.queue, self._size_max):
                if not tags or message.tags in tags:
                    yield message

    async def close(self) -> None:
        """Cancel the requests under way."""
        self._is_closed = True
        tasks = [slot.task for slot in self._slots if slot.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._slots.clear()
        self._ready.clear()

    # Results

    async def _next_run(self, may_wait: bool) -> RecordRun | None:
        while not self._ready:
            self._top_up()
            if not self._slots:
                return None
            slot = self._slots[0]
            assert slot.task is not None
            if not slot.is_done:
                if not may_wait and not slot.task.done():
                    return None
                await asyncio.wait((slot.task,))
                slot.task.result()
                assert slot.is_done
            self._slots.popleft()
            self._ready.extend(slot.runs)
        run = self._ready.popleft()
        self._window -= run.size
        self._top_up()
        return run

    # Planning

    def _top_up(self) -> None:
        """Begin requests within the limits; the first slot always has one."""
        if self._is_closed:
            return
        if self._waiting:
            for slot in self._slots:
                if slot.task is None and self._may_begin(slot):
                    self._begin(slot)
                    self._waiting -= 1
        while self._may_plan():
            slot = self._plan()
            self._slots.append(slot)
            self._begin(slot)

    def _may_begin(self, slot: _Slot) -> bool:
        return slot is self._slots[0] or self._has_room(self._expected_size(slot))

    def _has_room(self, size: float) -> bool:
        return self._in_flight < self._requests_max and self._window + size <= self._buffer_size_max

    def _expected_size(self, slot: _Slot) -> float:
        count = _COUNT_FIRST if slot.until is None else slot.until - slot.start
        return self._offset_size.expected * count

    def _may_plan(self) -> bool:
        if self._until is not None and self._planned_until >= self._until:
            return False
        if not self._slots:
            # With nothing under way, one request is always allowed unless the caller is behind.
            return not self._ready or self._window < self._buffer_size_max
        if self._width is None:
            # The first answer shows the size of answers and what the broker supports.
            return False
        if self._until is None and self._planned_until >= self._known_max:
            return False
        return self._has_room(self._offset_size.expected * self._width.width)

    def _plan(self) -> _Slot:
        start = self._planned_until
        limit = self._until if self._until is not None else self._known_max
        if self._until is None and start >= limit:
            # The end of the queue: an open slot.
            return _Slot(start, None)
        width = self._width.width if self._width is not None else _COUNT_FIRST
        until = min(start + width, limit)
        self._planned_until = until
        return _Slot(start, until)

    def _begin(self, slot: _Slot) -> None:
        slot.expected_size = self._expected_size(slot)
        self._window += slot.expected_size
        self._in_flight += 1
        slot.task = asyncio.ensure_future(self._fetch(slot))
        slot.task.add_done_callback(_mark_seen)

    # Fetching

    async def _fetch(self, slot: _Slot) -> None:
        try:
            result = await self._answer(slot, self._verify)
            try:
                next_offset = self._cut(slot, result)
            except MalformedRecord:
                if self._verify:
                    raise
                # The broker says which record is damaged.
                result = await self._answer(slot, True)
                next_offset = self._cut(slot, result)
            self._check_gaps(slot, next_offset, result)
            slot.size = sum(run.size for run in slot.runs)
        finally:
            self._window -= slot.expected_size
            self._in_flight -= 1
        self._window += slot.size
        self._learn(slot, result)
        slot.is_done = True
        self._settle(slot, next_offset)
        self._top_up()

    def _cut(self, slot: _Slot, result: PullResult) -> int:
        """Cut the answer into the runs of the slot; returns the offset after them."""
        next_offset = result.next_offset
        if slot.until is not None:
            next_offset = min(next_offset, slot.until)
        slot.runs = cut_runs(result.records, slot.start, next_offset)
        return next_offset

    def _learn(self, slot: _Slot, result: PullResult) -> None:
        self._known_max = max(self._known_max, result.max_offset)
        covered, size = result.next_offset - slot.start, len(result.records)
        self._offset_size.note(covered, size)
        if self._width is None:
            self._width = (
                SizeWidth(self._request_size, _BULK_COUNT_MOST)
                if result.is_bulk
                else CountWidth(_COUNT_FIRST, _COUNT_MOST)
            )
        if slot.until is not None:
            self._width.note(slot.until - slot.start, covered, size)

    def _settle(self, slot: _Slot, next_offset: int) -> None:
        """Make a slot for the part that the answer did not cover, if any."""
        if slot.until is None:
            self._planned_until = next_offset
        elif next_offset < slot.until:
            rest = _Slot(next_offset, slot.until)
            self._slots.insert(self._slots.index(slot) + 1, rest)
            self._waiting += 1
        slot.until = next_offset

    async def _answer(self, slot: _Slot, verify: bool) -> PullResult:
        """An answer that advances the slot; retries with back-off until there is one."""
        backoff = Backoff()
        failing_since: float | None = None
        count = _COUNT_FIRST if slot.until is None else slot.until - slot.start
        suspend_ms = self._suspend_ms if slot.until is None else 0
        request = PullRequest(slot.start, count, self._request_size, suspend_ms, verify=verify)
        while True:
            asked_at = self._clock.monotonic()
            problem: RmqError
            try:
                result = await self._reader.pull_bulk(request)
            except RmqError as error:
                if not may_pass(error):
                    raise
                problem = error
            else:
                moves = result.status is PullStatus.FOUND or result.next_offset > slot.start
                if moves and not self._is_hearsay(result):
                    self._check_not_lost(slot, result)
                    return result
                if slot.until is None and result.status is PullStatus.NO_NEW_MESSAGE:
                    failing_since = None
                    if self._clock.monotonic() - asked_at < 0.1:
                        # This broker does not hold requests: back off.
                        await backoff.wait()
                    continue
                problem = (
                    self._not_there(slot.start, result)
                    if result.from_master
                    else self._not_copied(slot.start, result)
                )
            now = self._clock.monotonic()
            failing_since = asked_at if failing_since is None else failing_since
            if (now - failing_since) * 1000 >= self._retry_limit_ms:
                raise problem
            await backoff.wait()

    def _is_hearsay(self, result: PullResult) -> bool:
        """Whether a slave reports missing offsets, which only its master can decide."""
        is_gone = result.status is PullStatus.OFFSET_ILLEGAL
        return is_gone and not result.from_master and not self._allow_loss

    def _check_not_lost(self, slot: _Slot, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL and not self._allow_loss:
            raise self._not_there(slot.start, result)

    def _check_gaps(self, slot: _Slot, next_offset: int, result: PullResult) -> None:
        if self._allow_gaps:
            return
        expected = slot.start
        for run in slot.runs:
            if run.first_offset != expected:
                break
            expected = run.until_offset
        if expected != next_offset:
            raise self._not_there(expected, result)

    def _not_there(self, offset: int, result: PullResult) -> OffsetOutOfRange:
        return OffsetOutOfRange(self._name, offset, result.min_offset, result.max_offset)

    def _not_copied(self, offset: int, result: PullResult) -> ServiceNotAvailable:
        text = (
            f"{self._name}: offset {offset} is at its master, which is unreachable; the slave has"
            f" {result.min_offset} to {result.max_offset} (exclusive)"
        )
        return ServiceNotAvailable(ServiceNotAvailable.response_code, text)

    @property
    def _name(self) -> str:
        topic, broker_name, queue_id = self.queue
        return f"queue {queue_id} of {topic} on {broker_name}"


def _mark_seen(task: asyncio.Task[None]) -> None:
    """Marks the exception as retrieved: an earlier failure may have been raised instead."""
    if not task.cancelled():
        task.exception()
