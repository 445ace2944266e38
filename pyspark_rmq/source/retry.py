"""Which errors are worth a retry, and the pause before it."""

from __future__ import annotations

import asyncio

from broker_core import errors


def is_passing(error: errors.RmqError) -> bool:
    """Whether a retry may succeed: servers also refuse requests while they start."""
    if error.retriable or isinstance(error, errors.UnexpectedAnswer):
        return True
    is_refusal = isinstance(error, errors.NoPermission | errors.RequestNotSupported)
    return isinstance(error, errors.RemoteError) and not is_refusal


async def pause(seconds: float) -> None:
    """Wait on the client's event loop."""
    await asyncio.sleep(seconds)
