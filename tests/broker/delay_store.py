"""A store with delayed messages and their delivery, on a simulated disk and a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.broker.scheduled.delay_progress import DELAY_OFFSETS_FILE
from broker_core.broker.scheduled.delayed_delivery import DelayedDelivery
from broker_core.broker.scheduled.delayed_message import delayed
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.topic_name import SCHEDULE_TOPIC
from broker_core.config import delay_levels_ms
from broker_core.runtime.worker import InlineWorker
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.writes.message import Message
from broker_core.store.writes.put_result import PutResult
from tests.broker.service_store import ServiceStore
from tests.fakes.simulated_disk import SimulatedDisk

LEVELS = "1s 5s 10s 30s"


class DelayStore(ServiceStore):
    """One broker's delay machinery; `restart` and `killed` give its successors."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        levels: str = LEVELS,
        save_interval_ms: int = 1_000,
        **settings: Any,
    ) -> None:
        made_with = {"levels": levels, "save_interval_ms": save_interval_ms}
        super().__init__(disk, made_with, settings, message_delay_level=levels)
        self.levels = levels
        self.table = JsonTable(self.disk, DELAY_OFFSETS_FILE)
        self.stats = BrokerStats(self.clock)
        self.delivery = DelayedDelivery(
            store=self.store,
            table=self.table,
            clock=self.clock,
            levels=delay_levels_ms(levels),
            stats=self.stats,
            save_interval_ms=save_interval_ms,
            timers=self.timers,
            worker=InlineWorker(),
        )

    def start(self) -> DelayStore:
        self.delivery.start()
        return self

    def delay(self, body: bytes, level: int, topic: str = "T", **fields: Any) -> PutResult:
        """Store a delayed message; it is durable when this returns."""
        count = len(delay_levels_ms(self.levels))
        result = self.store.append(delayed(Message(topic, body, **fields), level, count))
        assert result.ok, result
        self.store.flush()
        return result

    def advance_until(self, is_true: Callable[[], bool], step_ms: float = 1, most: int = 60_000):
        """Time passes until something is true; how much of it."""
        passed = 0.0
        while not is_true():
            assert passed < most
            self.advance(step_ms)
            passed += step_ms
        return passed

    def delayed_records(self) -> list[MessageRecord]:
        """Everything in the delay topic, delivered or not."""
        queues = [q for topic, q in self.store.queues() if topic == SCHEDULE_TOPIC]
        return [record for q in queues for record in self.records(SCHEDULE_TOPIC, q)]

    def stop(self) -> None:
        """Clean stop."""
        self.delivery.stop()
        self.store.close()
