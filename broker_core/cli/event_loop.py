"""Runs a coroutine on the fastest event loop that is installed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_on_loop(coroutine: Coroutine[Any, Any, T], *, plain: bool = False) -> T:
    """The result of `coroutine`, on uvloop when it is installed; `plain`: on asyncio's own loop."""
    if plain:
        return asyncio.run(coroutine)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    if sys.version_info >= (3, 11):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(coroutine)
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    return asyncio.run(coroutine)
