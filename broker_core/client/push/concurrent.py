"""Concurrent consumption, without order: a failed message is redelivered later as a copy.

A consumed message is acknowledged; progress advances when all messages before it are acknowledged.
A failed message is sent back to the broker first and then acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.assigned_queue import AssignedQueue
from broker_core.client.push.listener_call import ListenerCall
from broker_core.client.push.offset_keeper import OffsetKeeper
from broker_core.client.push.send_back import SendBack
from broker_core.client.push.stats import ConsumeStats
from broker_core.client.push.types import ConsumeContext, ConsumeStatus, PushSettings
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)

# Delay before the listener is called again for a message that could not be sent back.
_TRY_AGAIN_S: Final = 5.0

Messages = Sequence[ReceivedMessage]


class ConcurrentConsumption:
    """Calls of one consumer's listener, at most `settings.concurrency` at a time."""

    def __init__(
        self,
        settings: PushSettings,
        listener: ListenerCall,
        keeper: OffsetKeeper,
        send_back: SendBack,
        stats: ConsumeStats,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._keeper = keeper
        self._send_back = send_back
        self._stats = stats
        self._clock = clock
        self._pending: deque[tuple[AssignedQueue, Messages]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_stopping = False

    def begin(self, assigned: AssignedQueue) -> None:
        """Nothing to do: `fetched` begins the calls."""

    def fetched(self, assigned: AssignedQueue) -> None:
        """Consume new messages of the backlog."""
        while messages := assigned.backlog.take(self._settings.batch_size):
            self._pending.append((assigned, messages))
        self._start_more()

    async def ended(self, assigned: AssignedQueue) -> None:
        """Returns at once: another member may consume messages under way again."""

    async def stop(self, wait_ms: float) -> None:
        """Wait up to `wait_ms` for the calls under way; start no more."""
        self._is_stopping = True
        self._pending.clear()
        for timer in self._timers:
            timer.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=wait_ms / 1000)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _start_more(self) -> None:
        pending, running = self._pending, self._running
        while pending and len(running) < self._settings.concurrency and not self._is_stopping:
            assigned, messages = pending.popleft()
            if assigned.is_dropped:
                continue
            task = asyncio.ensure_future(self._consume(assigned, messages))
            running.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("consuming failed", exc_info=error)
        self._start_more()

    async def _consume(self, assigned: AssignedQueue, messages: Messages) -> None:
        context = ConsumeContext(assigned.queue)
        started = self._clock.monotonic()
        verdict = await self._listener.call(messages, context)
        seconds = self._clock.monotonic() - started
        assigned.last_consume_ms = self._clock.wall_ms()
        if assigned.is_dropped:
            return
        done, failed = split_by_verdict(messages, verdict.status, context)
        self._stats.consumed(messages[0].topic, len(done), len(failed), seconds)
        left = await self._hand_back(failed, context) if failed else []
        if left:
            self._try_again_later(assigned, left)
        self._acknowledge(assigned, [m for m in messages if m not in left])

    async def _hand_back(self, failed: Messages, context: ConsumeContext) -> Messages:
        """Send messages back. Returns those that no broker accepted."""
        if not self._settings.is_clustering:
            # Broadcasting has no retry topic: a retry would go to every member.
            _log.warning("dropped, because broadcasting consumers have no retries: %s", failed)
            return []
        sent = await asyncio.gather(
            *(self._send_back.send(message, context.delay_level) for message in failed)
        )
        return [message for message, is_sent in zip(failed, sent, strict=True) if not is_sent]

    def _acknowledge(self, assigned: AssignedQueue, messages: Messages) -> None:
        # The queue may have been reassigned while messages were sent back.
        if assigned.is_dropped:
            return
        self._keeper.note(assigned.queue, assigned.backlog.acknowledge(messages))
        assigned.changed.set()

    def _try_again_later(self, assigned: AssignedQueue, messages: Messages) -> None:
        for message in messages:
            message.reconsume_times += 1

        def again() -> None:
            self._timers.discard(timer)
            if not assigned.is_dropped:
                self._pending.append((assigned, messages))
                self._start_more()

        timer = asyncio.get_running_loop().call_later(_TRY_AGAIN_S, again)
        self._timers.add(timer)


def split_by_verdict(
    messages: Messages, status: ConsumeStatus, context: ConsumeContext
) -> tuple[Messages, Messages]:
    """(consumed, failed)."""
    if status is ConsumeStatus.SUCCESS:
        return messages, []
    done = max(0, min(context.succeeded or 0, len(messages)))
    return messages[:done], messages[done:]
