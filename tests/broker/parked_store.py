"""A store with parked messages and their delivery, on a simulated disk and a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.broker.broker_stats import BrokerStats
from broker_core.broker.delay_progress import DELAY_OFFSETS_FILE
from broker_core.broker.delayed_delivery import DelayedDelivery
from broker_core.broker.parked_message import parked
from broker_core.broker.system_topics import SCHEDULE_TOPIC
from broker_core.codec.message_record import MessageRecord
from broker_core.config import StoreConfig, delay_levels_ms
from broker_core.runtime.worker import InlineWorker
from broker_core.storage.json_table import JsonTable
from broker_core.store.message import Message
from broker_core.store.message_store import MessageStore
from broker_core.store.put_result import PutResult
from tests.fakes.manual_clock import ManualClock
from tests.fakes.manual_timers import ManualTimers
from tests.fakes.simulated_disk import SimulatedDisk

LEVELS = "1s 5s 10s 30s"
SMALL: dict[str, Any] = {
    "commit_log_file_size": 64 << 10,
    "consume_queue_file_size": 200 * 20,
    "index_hash_slots": 8,
    "index_entries_max": 64,
    "message_delay_level": LEVELS,
}


class ParkedStore:
    """One broker's delay machinery; `restart` and `killed` give its successors."""

    def __init__(
        self, disk: SimulatedDisk | None = None, *, levels: str = LEVELS, **settings: Any
    ) -> None:
        self.disk = SimulatedDisk(clock=ManualClock()) if disk is None else disk
        clock = self.disk.clock
        assert isinstance(clock, ManualClock)
        self.clock = clock
        self.levels = levels
        self.settings = settings
        config = StoreConfig(**{**SMALL, "message_delay_level": levels, **settings})
        self.store = MessageStore.open(self.disk, config, clock=clock)
        self.timers = ManualTimers(clock)
        self.table = JsonTable(self.disk, DELAY_OFFSETS_FILE)
        self.stats = BrokerStats(clock)
        self.delivery = DelayedDelivery(
            store=self.store,
            table=self.table,
            clock=clock,
            levels=delay_levels_ms(levels),
            stats=self.stats,
            timers=self.timers,
            worker=InlineWorker(),
        )

    def start(self) -> ParkedStore:
        self.delivery.start()
        return self

    def park(self, body: bytes, level: int, topic: str = "T", **fields: Any) -> PutResult:
        """Store a delayed message; it is durable when this returns."""
        count = len(delay_levels_ms(self.levels))
        result = self.store.append(parked(Message(topic, body, **fields), level, count))
        assert result.ok, result
        self.store.flush()
        return result

    def advance(self, ms: float) -> None:
        """Time passes; timers fire on the way."""
        self.timers.advance(ms)

    def advance_until(self, is_true: Callable[[], bool], step_ms: float = 1, most: int = 60_000):
        """Time passes until something is true; how much of it."""
        passed = 0.0
        while not is_true():
            assert passed < most
            self.advance(step_ms)
            passed += step_ms
        return passed

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

    def parked_records(self) -> list[MessageRecord]:
        """Everything in the delay topic, delivered or not."""
        queues = [q for topic, q in self.store.queues() if topic == SCHEDULE_TOPIC]
        return [record for q in queues for record in self.records(SCHEDULE_TOPIC, q)]

    def stop(self) -> None:
        """Clean stop."""
        self.delivery.stop()
        self.store.close()

    def restart(self, **changes: Any) -> ParkedStore:
        """Clean stop, and the next process."""
        self.stop()
        return self.successor(self.disk, **changes)

    def killed(self, **changes: Any) -> ParkedStore:
        """Only the process dies; the next one."""
        return self.successor(self.disk.kill(), **changes)

    def successor(self, disk: SimulatedDisk, **changes: Any) -> ParkedStore:
        """The next process, on that disk."""
        settings = {"levels": self.levels, **self.settings, **changes}
        return ParkedStore(disk, **settings).start()
