"""What the scenarios share: a tiny store on a simulated disk and a look at its content."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from broker_core.config import StoreConfig
from broker_core.protocol_codes import FlushDiskType
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}
TOPIC = "orders"


def small_config(**changes: Any) -> StoreConfig:
    """Files that roll after a handful of messages."""
    sizes: dict[str, Any] = {
        "commit_log_file_size": 2048,
        "consume_queue_file_size": 100,
        "index_hash_slots": 8,
        "index_entries_max": 10,
        "message_size_max": 1024,
    }
    return StoreConfig(**{**sizes, **changes})


def new_disk(**changes: Any) -> SimulatedDisk:
    """An empty disk with a clock of its own."""
    return SimulatedDisk(clock=ManualClock(), **changes)


def open_store(disk: SimulatedDisk, config: StoreConfig) -> MessageStore:
    """On the disk's clock."""
    return MessageStore.open(disk, config, clock=disk.clock)


def numbered(number: int, size: int = 100, **fields: Any) -> Message:
    """A message whose body says which one it is."""
    return Message(TOPIC, b"%d:" % number + b"x" * size, keys=f"key{number}", **fields)


def numbers_in(store: MessageStore, start: int = 0) -> list[int]:
    """Which messages a reader gets from an offset on."""
    found: list[int] = []
    while (result := store.get(TOPIC, 0, start, 1_000)).message_count:
        found += [int(message.body.partition(b":")[0]) for message in result.messages()]
        start = result.next_offset
    return found


def reboots(disk: SimulatedDisk, limit: int = 512) -> Iterator[SimulatedDisk]:
    """Every machine that a power cut now may leave."""
    for state in disk.crash_states(limit, random.Random(1)):
        yield disk.reboot(state)
