"""Delay levels and timer messages: delivered when due, recalled before."""

from __future__ import annotations

from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.request_router import Processor
from broker_core.broker.scheduled.delay_progress import DELAY_OFFSETS_FILE
from broker_core.broker.scheduled.delayed_delivery import DelayedDelivery
from broker_core.broker.scheduled.recall import RecallMessageProcessor
from broker_core.broker.scheduled.timer_delivery import TimerDelivery
from broker_core.broker.settings.broker_config import BrokerConfig


class ScheduledFeature(Feature):
    """`delayed` serves delay levels, `timers` serves timer messages. Only a master delivers."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.delay_table = context.table(DELAY_OFFSETS_FILE)
        self.delayed = DelayedDelivery(
            store=context.store,
            table=self.delay_table,
            clock=context.clock,
            levels=context.delay_levels_ms,
            stats=context.stats,
            save_interval_ms=context.config.delay_offset_flush_interval_ms,
        )
        self.timers = TimerDelivery(
            store=context.store,
            file_system=context.file_system,
            clock=context.clock,
            reserved_hours=context.config.store.file_reserved_hours,
            stats=context.stats,
        )

    def processors(self) -> tuple[Processor, ...]:
        """The handler of recalls."""
        context, config = self._context, self._context.config
        return (
            RecallMessageProcessor(
                store=context.store,
                clock=context.clock,
                topics=context.topics,
                timers=self.timers,
                broker_name=config.broker_name,
                delay_max_ms=config.timer_delay_max_s * 1000,
                is_enabled=config.recall_enable and config.timer_enable,
            ),
        )

    @property
    def is_late(self) -> bool:
        """Whether messages that are due are not delivered yet."""
        return self.delayed.is_late or self.timers.is_late

    def recover(self) -> None:
        """Find the messages that wait and schedule them."""
        self.delayed.start()
        self.timers.start()

    def settings_problem(self, config: BrokerConfig) -> str | None:
        """Waiting timer messages must outlast a shorter retention."""
        hours = config.store.file_reserved_hours
        problem = self.timers.reserve_problem(hours)
        return None if problem is None else f"fileReservedTime={hours}: {problem}"

    def settings_changed(self, config: BrokerConfig) -> None:
        """Apply the retention."""
        self.timers.reconfigure(config.store.file_reserved_hours)

    async def stop(self) -> None:
        """End delivery and save the progress."""
        self.timers.stop()
        self.delayed.stop()
