"""Where a put waits until its bytes are durable, with a deadline."""

from __future__ import annotations

import asyncio

from broker_core.errors import StoreFenced
from broker_core.protocol_codes import PutStatus
from broker_core.runtime.watermark import Watermark


async def durable_status(flushed: Watermark, position: int, timeout_ms: int) -> PutStatus:
    """PUT_OK once `position` is flushed; the bytes stay in the log whatever the answer is."""
    if position <= flushed.position:
        return PutStatus.PUT_OK
    loop = asyncio.get_running_loop()
    future: asyncio.Future[PutStatus] = loop.create_future()

    def settle(failure: BaseException | None) -> None:
        if not future.done():
            future.set_result(PutStatus.PUT_OK if failure is None else _failed(failure))

    def expire() -> None:
        if not future.done():
            future.set_result(PutStatus.FLUSH_DISK_TIMEOUT)

    flushed.when(position, settle)
    timer = loop.call_later(timeout_ms / 1000, expire)
    try:
        return await future
    finally:
        timer.cancel()


def _failed(failure: BaseException) -> PutStatus:
    if isinstance(failure, StoreFenced):
        return PutStatus.UNKNOWN_ERROR
    raise failure
