"""A process that delays messages and delivers them until it is killed, and the judge of its store.

Run as `python -m tests.crash.delay_process ROOT MODE FIRST_NUMBER`: prints `ready`, then the number
of every message whose send was acknowledged.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

from broker_core.broker.scheduled.delay_progress import DELAY_OFFSETS_FILE
from broker_core.broker.scheduled.delayed_delivery import DelayedDelivery
from broker_core.broker.scheduled.delayed_message import delayed
from broker_core.codec.wire.topic_name import SCHEDULE_TOPIC
from broker_core.config import StoreConfig, delay_levels_ms
from broker_core.protocol_codes import FlushDiskType
from broker_core.runtime.clock import SystemClock
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message

LEVELS = "0s 1s"
BATCH = 20
_FLUSH = {"sync": FlushDiskType.SYNC_FLUSH, "async": FlushDiskType.ASYNC_FLUSH}


class _Broker:
    """Store and delivery on the running loop."""

    def __init__(self, root: Path, mode: str) -> None:
        config = StoreConfig(
            commit_log_file_size=4 << 20,
            consume_queue_file_size=20_000,
            index_hash_slots=1_000,
            index_entries_max=10_000,
            message_delay_level=LEVELS,
            flush_disk_type=_FLUSH[mode],
            # A disk that is busy with other things may take its time.
            sync_flush_timeout_ms=120_000,
            page_cache_busy_timeout_ms=120_000,
        )
        self.store = MessageStore.open(root, config)
        self._files = PosixFileSystem(root)
        self.delivery = DelayedDelivery(
            store=self.store,
            table=JsonTable(self._files, DELAY_OFFSETS_FILE),
            clock=SystemClock(),
            levels=delay_levels_ms(LEVELS),
            save_interval_ms=300,
        )

    async def start(self) -> None:
        await self.store.start()
        self.delivery.start()

    def close(self) -> None:
        self.delivery.stop()
        self.store.close()
        self._files.close()


async def serve(root: Path, mode: str, number: int) -> None:
    """Delay messages without end."""
    broker = _Broker(root, mode)
    await broker.start()
    sys.stdout.write("ready\n")
    while True:
        numbers = range(number, number + BATCH)
        results = await asyncio.gather(
            *(broker.store.put(delayed(Message("T", b"%d" % n), 1 + n % 2, 2)) for n in numbers)
        )
        assert all(result.ok for result in results)
        sys.stdout.write("".join(f"{n}\n" for n in numbers))
        sys.stdout.flush()
        number += BATCH
        # Not faster than they can be delivered.
        while broker.delivery.pending_count > 2_000:
            await _turn()
        await _turn()


async def _turn() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.002, future.set_result, None)
    await future


async def check_delivered(root: Path, mode: str, acknowledged: set[int]) -> tuple[list[str], int]:
    """Deliver what is pending, then compare; problems, and how many messages were delayed."""
    broker = _Broker(root, mode)
    await broker.start()
    while broker.delivery.pending_count:
        await _turn()
    store = broker.store
    store.flush()
    waiting = [body for queue_id in (0, 1) for body in _bodies(store, SCHEDULE_TOPIC, queue_id)]
    copies = Counter(_bodies(store, "T", 0))
    problems = [f"{body!r} delivered {copies[body]} times" for body in waiting if copies[body] != 1]
    problems += [f"{body!r} was never delayed" for body in copies.keys() - set(waiting)]
    known = {int(body) for body in waiting}
    problems += [f"{number} is lost" for number in sorted(acknowledged - known)]
    broker.close()
    return problems, len(waiting)


def _bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    offset, high = store.offsets(topic, queue_id)
    found: list[bytes] = []
    while offset < high:
        result = store.get(topic, queue_id, offset, 1_000, size_max=1 << 24)
        found += [message.body for message in result.messages()]
        offset = result.next_offset
    return found


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
