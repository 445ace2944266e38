"""Waits for new messages with a long-polling pull at the end of each queue.

A pull that is still held when the wait ends is reused by the next wait, so a broker holds one pull
per queue. With more than `QUEUES_MAX` queues the wait is a plain pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from broker_core import ClientInstance, MessageQueue, PullConsumer, errors
from pyspark_rmq.source.retry import pause

QUEUES_MAX: Final = 64
_HOLD_MS: Final = 15_000
_PAUSE_S: Final = 0.05


class ArrivalWatch:
    """One per query, on the client's event loop."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._consumer = PullConsumer(client, group)
        self._held: dict[MessageQueue, tuple[int, asyncio.Task[bool]]] = {}

    async def wait(self, ends: Mapping[MessageQueue, int], seconds: float) -> bool:
        """Whether one of the queues grew beyond its end within the time."""
        if not ends or len(ends) > QUEUES_MAX:
            await pause(min(seconds, _PAUSE_S))
            return bool(ends)
        tasks = [self._hold(queue, end) for queue, end in ends.items()]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if done and not any(task.result() for task in done):
            # A broker that does not hold pulls or cannot be reached: do not ask again at once.
            await pause(min(seconds, _PAUSE_S))
        return any(task.result() for task in done)

    async def close(self) -> None:
        """Cancel the held pulls."""
        tasks = [task for _, task in self._held.values()]
        self._held.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _hold(self, queue: MessageQueue, end: int) -> asyncio.Task[bool]:
        held = self._held.get(queue)
        if held is not None:
            held_end, task = held
            if held_end == end and not task.done():
                return task
            task.cancel()
        task = asyncio.ensure_future(self._grew(queue, end))
        self._held[queue] = (end, task)
        return task

    async def _grew(self, queue: MessageQueue, end: int) -> bool:
        try:
            result = await self._consumer.pull(queue, end, max_count=1, suspend_ms=_HOLD_MS)
        except errors.RmqError:
            return False
        return result.max_offset > end or bool(result.messages)
