"""Fills the backlog of a queue by one pull after another, with long polling at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker_core.client.connection.backoff import Backoff
from broker_core.client.pull.consumer import matching
from broker_core.client.pull.received_message import decode_messages
from broker_core.client.pull.request import PullRequest
from broker_core.client.pull.result import PullResult, PullStatus
from broker_core.client.push.assigned_queue import AssignedQueue
from broker_core.client.push.offset_keeper import OffsetKeeper
from broker_core.client.push.stats import ConsumeStats
from broker_core.client.push.types import PushSettings
from broker_core.errors import RemoteError, RmqError
from broker_core.protocol_codes import ResponseCode
from broker_core.runtime.clock import Clock, sleep

_log = logging.getLogger(__name__)

_FLOW_CONTROL_PAUSE_S: Final = 0.02
_LOCK_LOOK_S: Final = 1.0
# An empty answer that arrives sooner was not held by the broker.
_HELD_S: Final = 0.1

Moved = Callable[[AssignedQueue, int], object]


class QueueFetching:
    """The pulls of one consumer.

    `fetched(assigned)` is called for new messages, `moved(assigned, offset)` when the offset is
    outside of the broker's queue and the queue must restart at `offset`.
    """

    def __init__(
        self,
        settings: PushSettings,
        keeper: OffsetKeeper,
        stats: ConsumeStats,
        clock: Clock,
        *,
        decompressed_size_max: int,
        fetched: Callable[[AssignedQueue], object],
        moved: Moved,
    ) -> None:
        self._settings = settings
        self._keeper = keeper
        self._stats = stats
        self._clock = clock
        self._size_max = decompressed_size_max
        self._fetched = fetched
        self._moved = moved

    async def run(self, assigned: AssignedQueue) -> None:
        """Pull until the queue is released."""
        settings = self._settings
        failures = Backoff(500, 3_000)
        while not assigned.is_leaving:
            if not assigned.has_room(settings):
                await assigned.wait_for_change()
            elif not assigned.is_locked(self._clock.monotonic(), settings):
                await assigned.wait_for_change(_LOCK_LOOK_S)
            else:
                await self._fetch(assigned, failures)

    async def _fetch(self, assigned: AssignedQueue, failures: Backoff) -> None:
        settings = self._settings
        committed = self._keeper.noted(assigned.queue) if settings.is_clustering else None
        request = PullRequest(
            assigned.backlog.next_offset,
            settings.pull_count,
            settings.pull_size,
            settings.suspend_ms,
            -1 if committed is None else committed,
        )
        asked_at = self._clock.monotonic()
        try:
            result = await assigned.reader.pull(request)
            seconds = self._clock.monotonic() - asked_at
            self._take(assigned, result, seconds)
        except RmqError as error:
            if isinstance(error, RemoteError) and error.code == ResponseCode.FLOW_CONTROL:
                await sleep(_FLOW_CONTROL_PAUSE_S)
                return
            _log.warning("pull of %s at %d: %s", assigned.queue, request.offset, error)
            await sleep(failures.next_s())
            return
        if result.status is PullStatus.FOUND or result.next_offset > request.offset:
            failures.reset()
        elif result.status is not PullStatus.NO_NEW_MESSAGE or seconds < _HELD_S:
            # An immediate empty answer: back off, to avoid a busy loop.
            await sleep(failures.next_s())

    def _take(self, assigned: AssignedQueue, result: PullResult, seconds: float) -> None:
        assigned.last_pull_ms = self._clock.wall_ms()
        if assigned.is_leaving:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            # A slave may just be behind its master.
            if result.from_master:
                self._moved(assigned, result.next_offset)
            return
        messages = matching(
            decode_messages(result.records, assigned.queue, self._size_max), assigned.subscription
        )
        self._stats.pulled(assigned.queue.topic, len(messages), seconds)
        assigned.backlog.add(messages, result.next_offset)
        # Filtered messages count as acknowledged once all before them are.
        self._keeper.note(assigned.queue, assigned.backlog.committable_offset)
        if messages:
            self._fetched(assigned)
