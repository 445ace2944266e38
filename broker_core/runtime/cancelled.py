"""Reliable cancellation of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

_AGAIN_S: Final = 0.2


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended; their exceptions are not raised.

    Before Python 3.12 `asyncio.wait_for` swallows a cancellation that arrives just as its own wait
    ends, so a task may have to be cancelled more than once.
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=_AGAIN_S)
