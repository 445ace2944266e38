"""What a broker does from time to time: save offsets, forget silent clients, take samples.

Owns one timer and the thread that writes the offset table.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from broker_core.broker.broker_parts import BrokerParts
from broker_core.broker.broker_stats import SAMPLE_INTERVAL_MS
from broker_core.errors import RmqError

_log = logging.getLogger(__name__)

TICK_MS: Final = 1_000
# Clients and locks live for a minute or two: no need to look more often.
EXPIRE_INTERVAL_MS: Final = 10_000
# The log has all of it; saving bounds what the next start has to read there.
SINK_SAVE_INTERVAL_MS: Final = 60_000


class BrokerUpkeep:
    """Event loop only, but for the write itself."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Future[None] | None = None
        now = parts.clock.monotonic()
        self._saved_at = self._expired_at = self._sampled_at = self._sinks_saved_at = now

    def start(self) -> None:
        """Begin."""
        self._schedule()

    async def stop(self) -> None:
        """End; a write that has begun is waited for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._saving is not None:
            await asyncio.wait((self._saving,))

    def tick(self) -> None:
        """Whatever is due."""
        parts = self._parts
        now = parts.clock.monotonic()
        if now - self._expired_at >= EXPIRE_INTERVAL_MS / 1000:
            self._expired_at = now
            parts.clients.expire()
            parts.locks.expire()
            parts.pops.ledgers.drop_idle()
        if now - self._sampled_at >= SAMPLE_INTERVAL_MS / 1000:
            self._sampled_at = now
            parts.stats.sample()
        if now - self._saved_at >= parts.config.offset_flush_interval_ms / 1000:
            self._saved_at = now
            if self._saving is None and parts.offsets.has_unsaved:
                self._saving = asyncio.ensure_future(self._save())
        if now - self._sinks_saved_at >= SINK_SAVE_INTERVAL_MS / 1000 and self._saving is None:
            self._sinks_saved_at = now
            if parts.sinks.has_unsaved:
                self._saving = asyncio.ensure_future(self._save_sinks())

    async def _save(self) -> None:
        offsets = self._parts.offsets
        unsaved = offsets.unsaved()
        try:
            if unsaved is not None:
                await asyncio.to_thread(offsets.write, unsaved)
                offsets.written(unsaved)
        except RmqError as error:
            _log.warning("consumer offsets were not saved, trying again: %s", error)
        finally:
            self._saving = None

    async def _save_sinks(self) -> None:
        sinks = self._parts.sinks
        try:
            unsaved = sinks.unsaved()
            if unsaved is not None:
                await asyncio.to_thread(sinks.write, unsaved)
                sinks.written(unsaved)
        except RmqError as error:
            _log.warning("sink batches were not saved, trying again: %s", error)
        finally:
            self._saving = None

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TICK_MS / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._schedule()
        self.tick()
