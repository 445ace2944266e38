"""Memory for received bodies: the twin of `block.c`, without its pool."""

from __future__ import annotations

from broker_core.codec.records.record_reasons import BAD_RANGE

__all__ = ["new_buffer"]


def new_buffer(size: int) -> memoryview:
    """Writable memory whose first contents are undefined."""
    if size < 0:
        raise ValueError(BAD_RANGE)
    return memoryview(bytearray(size))
