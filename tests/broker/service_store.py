"""A store on a simulated disk and a manual clock, for a service that works by the clock.

`restart` and `killed` give the next process of the same service.
"""

from __future__ import annotations

from typing import Any, TypeVar

from broker_core.codec.records.message_record import MessageRecord
from broker_core.config import StoreConfig
from broker_core.store.message_store import MessageStore
from tests.fakes.manual_clock import ManualClock
from tests.fakes.manual_timers import ManualTimers
from tests.fakes.simulated_disk import SimulatedDisk

SMALL: dict[str, Any] = {
    "commit_log_file_size": 64 << 10,
    "consume_queue_file_size": 200 * 20,
    "index_hash_slots": 8,
    "index_entries_max": 64,
}
_S = TypeVar("_S", bound="ServiceStore")


class ServiceStore:
    """`own` are the settings of the service, `settings` those of the store beside `config`."""

    def __init__(
        self,
        disk: SimulatedDisk | None,
        own: dict[str, Any],
        settings: dict[str, Any],
        **config: Any,
    ) -> None:
        self.disk = SimulatedDisk(clock=ManualClock()) if disk is None else disk
        clock = self.disk.clock
        assert isinstance(clock, ManualClock)
        self.clock = clock
        self.settings = settings
        self._own = own
        chosen = StoreConfig(**{**SMALL, **config, **settings})
        self.store = MessageStore.open(self.disk, chosen, clock=clock)
        self.timers = ManualTimers(clock)

    def start(self: _S) -> _S:
        """Begin to work."""
        raise NotImplementedError

    def stop(self) -> None:
        """Clean stop."""
        raise NotImplementedError

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

    def restart(self: _S, **changes: Any) -> _S:
        """Clean stop, and the next process."""
        self.stop()
        return self.successor(self.disk, **changes)

    def killed(self: _S, **changes: Any) -> _S:
        """Only the process is killed; the next one."""
        return self.successor(self.disk.kill(), **changes)

    def successor(self: _S, disk: SimulatedDisk, **changes: Any) -> _S:
        """The next process, on that disk."""
        kind: Any = type(self)
        found: _S = kind(disk, **{**self._own, **self.settings, **changes}).start()
        return found
