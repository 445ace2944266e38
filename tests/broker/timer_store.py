"""A store with timer messages and their delivery, on a simulated disk and a manual clock."""

from __future__ import annotations

from typing import Any

from broker_core.broker.broker_stats import BrokerStats
from broker_core.broker.system_topics import TIMER_TOPIC
from broker_core.broker.timer_delivery import TimerDelivery
from broker_core.broker.timer_intake import Recalled
from broker_core.broker.timer_message import out_ms, park_timer
from broker_core.codec.message_properties import encode_properties
from broker_core.codec.message_record import MessageRecord
from broker_core.config import StoreConfig
from broker_core.runtime.worker import InlineWorker, Worker
from broker_core.store.message_store import MessageStore
from broker_core.store.put_result import PutResult
from tests.fakes.manual_clock import ManualClock
from tests.fakes.manual_timers import ManualTimers
from tests.fakes.simulated_disk import SimulatedDisk

SMALL: dict[str, Any] = {
    "commit_log_file_size": 64 << 10,
    "consume_queue_file_size": 200 * 20,
    "index_hash_slots": 8,
    "index_entries_max": 64,
}


class TimerStore:
    """One broker's timer machinery; `restart` and `killed` give its successors."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        hours: int = 72,
        worker: Worker | None = None,
        **settings: Any,
    ) -> None:
        self.disk = SimulatedDisk(clock=ManualClock()) if disk is None else disk
        clock = self.disk.clock
        assert isinstance(clock, ManualClock)
        self.clock = clock
        self.hours = hours
        self.settings = settings
        config = StoreConfig(**{**SMALL, "file_reserved_hours": hours, **settings})
        self.store = MessageStore.open(self.disk, config, clock=clock)
        self.timers = ManualTimers(clock)
        self.stats = BrokerStats(clock)
        self.delivery = TimerDelivery(
            store=self.store,
            file_system=self.disk,
            clock=clock,
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
        parked = park_timer(topic, 0, encode_properties(given), due_ms)
        result = self.store.append_text(
            parked.topic, parked.queue_id, body, parked.text, born_host=self.store.store_host
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

    def advance(self, ms: float) -> None:
        """Time passes; timers fire on the way."""
        self.timers.advance(ms)

    def records(self, topic: str = "T", queue_id: int = 0) -> list[MessageRecord]:
        """Every visible message of a queue."""
        low, high = self.store.offsets(topic, queue_id)
        found: list[MessageRecord] = []
        while low < high:
            result = self.store.get(topic, queue_id, low, 1_000, size_max=1 << 24)
            found += result.messages()
            low = result.next_offset
        return found

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """What consumers of a queue would get."""
        return [record.body for record in self.records(topic, queue_id)]

    def waiting_records(self) -> list[MessageRecord]:
        """Everything in the timer topic, delivered or not."""
        return self.records(TIMER_TOPIC)

    def stop(self) -> None:
        """Clean stop."""
        self.delivery.stop()
        self.store.close()

    def restart(self, **changes: Any) -> TimerStore:
        """Clean stop, and the next process."""
        self.stop()
        return self.successor(self.disk, **changes)

    def killed(self, **changes: Any) -> TimerStore:
        """Only the process dies; the next one."""
        return self.successor(self.disk.kill(), **changes)

    def successor(self, disk: SimulatedDisk, **changes: Any) -> TimerStore:
        """The next process, on that disk."""
        settings = {"hours": self.hours, **self.settings, **changes}
        return TimerStore(disk, **settings).start()
