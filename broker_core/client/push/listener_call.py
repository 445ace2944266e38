"""Calls the user's listener: coroutine functions on the loop, plain functions on threads.

Any exception of a listener means redelivery; it never ends the consumer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.types import ConsumeContext, ConsumeStatus, Listener

_log = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """The outcome of one call."""

    status: ConsumeStatus
    error: Exception | None = None


class ListenerCall:
    """The listener of one consumer, with its thread pool."""

    def __init__(self, listener: Listener, threads: int, name: str) -> None:
        self._listener = listener
        self._is_async = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            getattr(listener, "__call__", None)  # noqa: B004 - the method itself is looked at
        )
        self._pool = None if self._is_async else ThreadPoolExecutor(threads, f"consume-{name}")

    async def call(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> Verdict:
        """Call the listener; an exception becomes `LATER`."""
        try:
            if self._pool is None:
                result = await self._listener(messages, context)
            else:
                loop = asyncio.get_running_loop()
                result = await loop.run_in_executor(self._pool, self._listener, messages, context)
        except Exception as error:  # noqa: BLE001 - a listener may raise anything
            _log.warning("the listener failed on %s", list(messages), exc_info=True)
            return Verdict(ConsumeStatus.LATER, error)
        return Verdict(_status_of(result))

    def close(self) -> None:
        """Start no more calls; does not wait for those under way."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _status_of(result: Any) -> ConsumeStatus:
    if result is None or result is ConsumeStatus.SUCCESS:
        return ConsumeStatus.SUCCESS
    if result is not ConsumeStatus.LATER:
        # Not success: a wrong return value must not lose messages.
        _log.error("a listener returned %r, not a ConsumeStatus or None: taken as LATER", result)
    return ConsumeStatus.LATER
