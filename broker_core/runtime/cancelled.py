"""Ending a task for sure."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

_AGAIN_S: Final = 0.2


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they are over; what they raise stays with them.

    Before Python 3.12 `asyncio.wait_for` keeps a cancellation to itself that comes in the moment
    in which its own wait is over: whoever cancels once may then wait for ever.
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=_AGAIN_S)
