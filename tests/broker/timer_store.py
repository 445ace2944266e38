"""A store with timer messages and their delivery, on a simulated disk and a manual clock."""

from __future__ import annotations

from typing import Any

from broker_core.broker.scheduled.timer_delivery import TimerDelivery
from broker_core.broker.scheduled.timer_intake import Recalled
from broker_core.broker.scheduled.timer_message import out_ms, timer_form
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.codec.records.message_properties import encode_properties
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.topic_name import TIMER_TOPIC
from broker_core.runtime.worker import InlineWorker, Worker
from broker_core.store.writes.put_result import PutResult
from tests.broker.service_store import ServiceStore
from tests.fakes.simulated_disk import SimulatedDisk


class TimerStore(ServiceStore):
    """One broker's timer machinery; `restart` and `killed` give its successors."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        hours: int = 72,
        worker: Worker | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(disk, {"hours": hours}, settings, file_reserved_hours=hours)
        self.stats = BrokerStats(self.clock)
        self.delivery = TimerDelivery(
            store=self.store,
            file_system=self.disk,
            clock=self.clock,
            reserved_hours=hours,
            stats=self.stats,
            timers=self.timers,
            worker=worker or InlineWorker(),
        )

    def start(self) -> TimerStore:
        self.delivery.start()
        self.timers.run()
        return self

    def put(self, body: bytes, in_ms: int, *, topic: str = "T", **properties: str) -> PutResult:
        """Store a timer message; it is durable when this returns."""
        result = self.append(body, in_ms, topic=topic, **properties)
        self.store.flush()
        return result

    def append(self, body: bytes, in_ms: int, *, topic: str = "T", **properties: str) -> PutResult:
        """`put` without waiting for the disk."""
        due_ms = self.clock.wall_ms() + in_ms
        given = {"UNIQ_KEY": f"id-{body.decode()}", **properties}
        waiting = timer_form(topic, 0, encode_properties(given), due_ms)
        result = self.store.append_text(
            waiting.topic, waiting.queue_id, body, waiting.text, born_host=self.store.store_host
        )
        assert result.ok, result
        return result

    def recall(self, body: bytes, in_ms: int = 1_000, topic: str = "T") -> Recalled:
        """Take a message back that `put` stored."""
        due_ms = out_ms(self.clock.wall_ms() + in_ms)
        found = self.delivery.recall(topic, f"id-{body.decode()}", due_ms)
        assert found.result.ok
        self.store.flush()
        return found

    def waiting_records(self) -> list[MessageRecord]:
        """Everything in the timer topic, delivered or not."""
        return self.records(TIMER_TOPIC)

    def stop(self) -> None:
        """Clean stop."""
        self.delivery.stop()
        self.store.close()
