"""Periodic work of a broker: saves tables, expires clients and locks, samples the statistics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.sink.batches import SinkBatches
from broker_core.broker.tables.broker_stats import SAMPLE_INTERVAL_MS
from broker_core.errors import RmqError

_log = logging.getLogger(__name__)

TICK_MS: Final = 1_000
# Clients and locks expire after a minute or two; a finer check is not needed.
EXPIRE_INTERVAL_MS: Final = 10_000
# The log has all batches; saving bounds how much of it the next start has to read.
SINK_SAVE_INTERVAL_MS: Final = 60_000


class BrokerUpkeep(Feature):
    """Event loop only; files are written in a thread.

    `drop_idle_pops()` forgets ledgers of groups that have stopped popping.
    """

    def __init__(
        self,
        context: BrokerContext,
        *,
        sinks: SinkBatches,
        drop_idle_pops: Callable[[], object],
    ) -> None:
        self._context = context
        self._sinks = sinks
        self._drop_idle_pops = drop_idle_pops
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Future[None] | None = None
        now = context.clock.monotonic()
        self._saved_at = self._expired_at = self._sampled_at = self._sinks_saved_at = now

    async def start(self) -> None:
        self._schedule()

    async def stop(self) -> None:
        """Stop the timer and wait for a write that has begun."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._saving is not None:
            await asyncio.wait((self._saving,))

    def tick(self) -> None:
        """Do everything that is due."""
        context = self._context
        now = context.clock.monotonic()
        if now - self._expired_at >= EXPIRE_INTERVAL_MS / 1000:
            self._expired_at = now
            context.clients.expire()
            context.locks.expire()
            self._drop_idle_pops()
        if now - self._sampled_at >= SAMPLE_INTERVAL_MS / 1000:
            self._sampled_at = now
            context.stats.sample()
        if now - self._saved_at >= context.config.offset_flush_interval_ms / 1000:
            self._saved_at = now
            if self._saving is None and context.offsets.has_unsaved:
                self._saving = asyncio.ensure_future(self._save())
        if now - self._sinks_saved_at >= SINK_SAVE_INTERVAL_MS / 1000 and self._saving is None:
            self._sinks_saved_at = now
            if self._sinks.has_unsaved:
                self._saving = asyncio.ensure_future(self._save_sinks())

    async def _save(self) -> None:
        offsets = self._context.offsets
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
        sinks = self._sinks
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
