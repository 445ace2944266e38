"""What may be asked again later, and letting time pass until then."""

from __future__ import annotations

import asyncio

from broker_core import errors


def is_passing(error: errors.RmqError) -> bool:
    """Whether the same question may be answered later: servers also refuse while they start."""
    if error.retriable or isinstance(error, errors.UnexpectedAnswer):
        return True
    is_refusal = isinstance(error, errors.NoPermission | errors.RequestNotSupported)
    return isinstance(error, errors.RemoteError) and not is_refusal


async def pause(seconds: float) -> None:
    """Let time pass on the client's thread."""
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await asyncio.wait((never,), timeout=seconds)
