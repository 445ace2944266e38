"""Has everything that readers may see made durable, and says when it is, in every flush mode."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.store.message_store import MessageStore


def when_visible_is_durable(
    store: MessageStore, callback: Callable[[BaseException | None], None]
) -> None:
    """Call `callback(None)` once what is visible now is on disk, or with why it never will be.

    With SYNC_FLUSH it is already; with ASYNC_FLUSH the next sync begins now and not after its
    interval. Readers that keep offsets ask this, so that a power cut cannot take what they saw.
    """
    parts = store._open_parts()
    position = parts.dispatcher.position
    if parts.flush.flushed.position < position:
        parts.flush.flush_soon()
    parts.flush.flushed.when(position, callback)
