"""Orderly consumption: in each queue a failed message is retried before the next one.

Each queue has one task, so its listener calls never overlap. The listener is called only while the
lock on the queue is valid, and the lock is released only after the last call has ended.
"""

from __future__ import annotations

import asyncio
import logging

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.assigned_queue import AssignedQueue
from broker_core.client.push.concurrent import split_by_verdict
from broker_core.client.push.listener_call import ListenerCall
from broker_core.client.push.offset_keeper import OffsetKeeper
from broker_core.client.push.send_back import SendBack
from broker_core.client.push.stats import ConsumeStats
from broker_core.client.push.types import LEVEL_DEAD_LETTER, ConsumeContext, PushSettings
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)

# Poll interval of a queue without a valid lock; a new lock also wakes it.
_LOCK_LOOK_S = 1.0


class OrderlyConsumption:
    """The consuming tasks of one consumer's queues."""

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
        self._turns = asyncio.Semaphore(settings.concurrency)
        self._tasks: dict[AssignedQueue, asyncio.Task[None]] = {}

    def begin(self, assigned: AssignedQueue) -> None:
        """Start to consume a queue."""
        task = asyncio.ensure_future(self._run(assigned))
        self._tasks[assigned] = task
        task.add_done_callback(_report)

    def fetched(self, assigned: AssignedQueue) -> None:
        """Wake the task of the queue."""
        assigned.changed.set()

    async def ended(self, assigned: AssignedQueue) -> None:
        """Wait until the last listener call of a leaving queue has ended."""
        task = self._tasks.get(assigned)
        if task is not None:
            await asyncio.wait((task,))
            self._tasks.pop(assigned, None)

    async def stop(self, wait_ms: float) -> None:
        """Wait up to `wait_ms` for the calls under way; their queues are leaving already."""
        tasks = set(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=wait_ms / 1000)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self._tasks.clear()

    async def _run(self, assigned: AssignedQueue) -> None:
        while not assigned.is_leaving:
            if not assigned.is_locked(self._clock.monotonic(), self._settings):
                await assigned.wait_for_change(_LOCK_LOOK_S)
                continue
            messages = assigned.backlog.take(self._settings.batch_size)
            if not messages:
                await assigned.wait_for_change()
                continue
            await self._consume(assigned, messages)

    async def _consume(self, assigned: AssignedQueue, messages: list[ReceivedMessage]) -> None:
        context = ConsumeContext(assigned.queue)
        async with self._turns:
            if assigned.is_leaving or not assigned.is_locked(
                self._clock.monotonic(), self._settings
            ):
                assigned.backlog.give_back(messages)
                return
            started = self._clock.monotonic()
            verdict = await self._listener.call(messages, context)
        seconds = self._clock.monotonic() - started
        assigned.last_consume_ms = self._clock.wall_ms()
        if assigned.is_dropped:
            return
        done, failed = split_by_verdict(messages, verdict.status, context)
        self._stats.consumed(messages[0].topic, len(done), len(failed), seconds)
        given_up = [message for message in failed if await self._gave_up(message)]
        again = [message for message in failed if message not in given_up]
        if self._settle(assigned, [*done, *given_up], again):
            await self._suspend(assigned, context.suspend_ms / 1000)

    def _settle(
        self,
        assigned: AssignedQueue,
        done: list[ReceivedMessage],
        again: list[ReceivedMessage],
    ) -> bool:
        """Acknowledge `done`. Returns whether messages must be retried."""
        if assigned.is_dropped:
            return False
        self._keeper.note(assigned.queue, assigned.backlog.acknowledge(done))
        for message in again:
            message.reconsume_times += 1
        assigned.backlog.give_back(again)
        assigned.changed.set()
        return bool(again)

    async def _gave_up(self, message: ReceivedMessage) -> bool:
        """Whether a message reached the retry limit and was moved to the dead-letter queue."""
        most = self._settings.reconsume_times_max
        if most is None or message.reconsume_times < most:
            return False
        if not self._settings.is_clustering:
            _log.warning("dropped after %d tries: %s", most, message)
            return True
        return await self._send_back.send(message, LEVEL_DEAD_LETTER)

    async def _suspend(self, assigned: AssignedQueue, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not assigned.is_leaving and (left := until - loop.time()) > 0:
            await assigned.wait_for_change(left)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("consuming in order failed", exc_info=error)
