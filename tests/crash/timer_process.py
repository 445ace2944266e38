"""A process that stores timer messages and delivers them until it is killed, and its judge.

`python -m tests.crash.timer_process ROOT MODE FIRST_NUMBER`: prints `ready`, then the number of
every message that was acknowledged. `... ROOT many COUNT SOON`: COUNT messages that wait for a day
and SOON that come within seconds; prints what that costs as JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from broker_core.broker.scheduled.timer_delivery import TimerDelivery
from broker_core.broker.scheduled.timer_message import is_recall, recalled_key, timer_form
from broker_core.broker.scheduled.timer_progress import TIMER_PROGRESS_FILE
from broker_core.broker.scheduled.timer_runs import RUNS_DIR
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.topic_name import TIMER_TOPIC
from broker_core.config import StoreConfig
from broker_core.protocol_codes import FlushDiskType
from broker_core.runtime.clock import SystemClock
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

BATCH = 20
RECALLED_EVERY = 50
DAY_MS = 86_400_000
_FLUSH = {"sync": FlushDiskType.SYNC_FLUSH, "async": FlushDiskType.ASYNC_FLUSH}


def now_ms() -> int:
    return SystemClock().wall_ms()


class _Broker:
    """Store and delivery on the running loop."""

    def __init__(self, root: Path, mode: str, file_size: int = 4 << 20) -> None:
        config = StoreConfig(
            commit_log_file_size=file_size,
            consume_queue_file_size=20_000,
            index_hash_slots=10_000,
            index_entries_max=100_000,
            flush_disk_type=_FLUSH[mode],
            # A disk that is busy with other things may take its time.
            sync_flush_timeout_ms=120_000,
            page_cache_busy_timeout_ms=120_000,
        )
        self.store = MessageStore.open(root, config)
        self.files = PosixFileSystem(root)
        self.delivery = TimerDelivery(
            store=self.store,
            file_system=self.files,
            clock=SystemClock(),
            reserved_hours=72,
        )

    async def start(self) -> None:
        await self.store.start()
        self.delivery.start()

    def append(self, number: int, due_ms: int) -> PutResult:
        waiting = timer_form("T", 0, b"UNIQ_KEY\x01k%d\x02" % number, due_ms)
        host = self.store.store_host
        return self.store.append_text(*waiting[:2], b"%d" % number, waiting.text, born_host=host)

    def close(self) -> None:
        self.delivery.stop()
        self.store.close()
        self.files.close()


async def serve(root: Path, mode: str, number: int) -> None:
    """Store without end, and take one of fifty back."""
    broker = _Broker(root, mode)
    await broker.start()
    sys.stdout.write("ready\n")
    while True:
        numbers = range(number, number + BATCH)
        appended = [broker.append(n, now_ms() + 200 + n * 37 % 900) for n in numbers]
        results = [await broker.store.acknowledged(result) for result in appended]
        assert all(result.ok for result in results)
        sys.stdout.write("".join(f"{n}\n" for n in numbers))
        sys.stdout.flush()
        if number % RECALLED_EVERY == 0:
            broker.delivery.recall("T", f"k{number}", now_ms() + 1)
        number += BATCH
        # Not faster than they can be delivered.
        while broker.delivery.pending_count > 2_000:
            await _turn()
        await _turn()


async def _turn(seconds: float = 0.002) -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(seconds, future.set_result, None)
    await future


async def check_delivered(root: Path, mode: str, acknowledged: set[int]) -> tuple[list[str], int]:
    """Deliver what is pending, then compare; problems, and how many messages were stored."""
    broker = _Broker(root, mode)
    await broker.start()
    while broker.delivery.pending_count or broker.delivery.queue_behind:
        await _turn()
    store = broker.store
    store.flush()
    records = _records(store, TIMER_TOPIC)
    recalls = [r for r in records if is_recall(r.property_text)]
    taken = {~r.prepared_transaction_offset for r in recalls if r.prepared_transaction_offset}
    # Recalled before they could be read: by their key.
    keys = {recalled_key(r.property_text)[1] for r in recalls if not r.prepared_transaction_offset}
    taken |= {r.physical_offset for r in records if r.properties.get("UNIQ_KEY") in keys}
    waiting = [r for r in records if not is_recall(r.property_text)]
    copies = Counter(record.body for record in _records(store, "T"))
    problems = [
        f"{r.body!r} delivered {copies[r.body]} times"
        for r in waiting
        if copies[r.body] != (r.physical_offset not in taken)
    ]
    known = {int(record.body) for record in waiting}
    problems += [f"{body!r} was never stored" for body in copies if int(body) not in known]
    problems += [f"{number} is lost" for number in sorted(acknowledged - known)]
    broker.close()
    return problems, len(waiting)


def _records(store: MessageStore, topic: str) -> list[MessageRecord]:
    offset, high = store.offsets(topic, 0)
    found: list[MessageRecord] = []
    while offset < high:
        result = store.get(topic, 0, offset, 1_000, size_max=1 << 24)
        found += result.messages()
        offset = result.next_offset
    return found


async def many(root: Path, count: int, soon: int) -> dict[str, float]:
    """What it costs when many wait."""
    broker = _Broker(root, "async", 64 << 20)
    await broker.start()
    before_mb = _memory_mb()
    started = time.monotonic()
    for number in range(count):
        broker.append(number, now_ms() + DAY_MS + number * 7_919 % DAY_MS)
        if number % 200 == 0:
            await _turn(0)
    while broker.delivery.queue_behind:
        await _turn()
    stored_s = time.monotonic() - started
    # Later than it takes to store them.
    begin_ms = now_ms() + 1_000 + int(3_000 * soon * stored_s / count)
    for number in range(soon):
        broker.append(count + number, begin_ms + number // 2)
        if number % 200 == 0:
            await _turn(0)
    while broker.delivery.delivered_count < soon:
        await _turn(0.01)
    late = sorted(
        record.store_timestamp - int(record.properties["TIMER_OUT_MS"])
        for record in _records(broker.store, "T")
    )
    figures: dict[str, float] = {
        "stored_s": stored_s,
        "memory_mb": _memory_mb() - before_mb,
        "delivered": broker.delivery.delivered_count,
        "early_ms": -late[0],
        "late_p50_ms": late[len(late) // 2],
        "late_p99_ms": late[len(late) * 99 // 100],
        "late_max_ms": late[-1],
        "pending_after": broker.delivery.pending_count,
    }
    broker.close()
    figures["start_s"], _ = await _start(root)
    _remove_timer_files(root)
    figures["rebuild_s"], figures["rebuilt_pending"] = await _start(root)
    return {name: round(value, 3) for name, value in figures.items()}


def _remove_timer_files(root: Path) -> None:
    for path in [*(root / RUNS_DIR).iterdir(), *root.glob(f"{TIMER_PROGRESS_FILE}*")]:
        path.unlink()


async def _start(root: Path) -> tuple[float, int]:
    broker = _Broker(root, "async", 64 << 20)
    await broker.store.start()
    started = time.monotonic()
    broker.delivery.start()
    taken = time.monotonic() - started
    pending = broker.delivery.pending_count
    broker.close()
    return taken, pending


def _memory_mb() -> float:
    """What this process itself has allocated; mapped files belong to the kernel's cache."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if sys.argv[2] == "many":
        found = asyncio.run(many(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])))
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
