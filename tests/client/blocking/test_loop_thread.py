"""The thread that runs the event loop of synchronous clients."""

from __future__ import annotations

import asyncio
import threading

import pytest

from broker_core.client.blocking.loop_thread import LoopThread, shared_thread
from broker_core.errors import InvalidArgument, RequestTimeout


def test_a_call_from_the_loop_itself_does_not_hang() -> None:
    thread = shared_thread.acquire()
    try:

        async def inside() -> None:
            thread.call(asyncio.sleep(0))

        with pytest.raises(InvalidArgument, match="own thread"):
            thread.call(inside(), 120)
    finally:
        shared_thread.release(thread)


def test_timeouts_cancel() -> None:
    thread = LoopThread()
    try:
        cancelled = threading.Event()

        async def forever() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        with pytest.raises(RequestTimeout, match=r"0\.01 s"):
            thread.call(forever(), 0.01)
        assert cancelled.wait(120)

        async def fails() -> None:
            raise TimeoutError("its own")

        with pytest.raises(TimeoutError, match="its own"):
            thread.call(fails(), 120)
        left = thread.begin(forever())
    finally:
        thread.stop()
    assert left.cancelled()
    with pytest.raises(InvalidArgument, match="ended"):
        thread.call(forever())
