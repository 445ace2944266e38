"""A process that opens and commits transactions until it is killed, and the judge of its store.

Run as `python -m tests.crash.transaction_process ROOT MODE FIRST_NUMBER`: prints `ready`, then the
number of every message whose commit was acknowledged. Every third transaction stays open.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

from broker_core.broker.tables.offset_table import OFFSETS_FILE, OffsetTable
from broker_core.broker.transactions.half_message import half_changes
from broker_core.broker.transactions.progress import TRANSACTION_PROGRESS_FILE
from broker_core.broker.transactions.service import Transactions, Verdict
from broker_core.codec.records.message_properties import change_properties
from broker_core.codec.wire.topic_name import TRANSACTION_HALF_TOPIC
from broker_core.config import StoreConfig
from broker_core.protocol_codes import FlushDiskType
from broker_core.runtime.clock import SystemClock
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.crash.delay_process import _bodies as bodies

BATCH = 20
_FLUSH = {"sync": FlushDiskType.SYNC_FLUSH, "async": FlushDiskType.ASYNC_FLUSH}


class _Broker:
    """Store, offsets and transactions on the running loop."""

    def __init__(self, root: Path, mode: str) -> None:
        config = StoreConfig(
            commit_log_file_size=4 << 20,
            consume_queue_file_size=20_000,
            # Every half is looked up by its key once.
            index_hash_slots=100_000,
            index_entries_max=200_000,
            flush_disk_type=_FLUSH[mode],
            # A disk that is busy with other things may take its time.
            sync_flush_timeout_ms=120_000,
            page_cache_busy_timeout_ms=120_000,
        )
        self.store = MessageStore.open(root, config)
        self._files = PosixFileSystem(root)
        clock = SystemClock()
        self.offsets = OffsetTable(
            JsonTable(self._files, OFFSETS_FILE),
            clock,
            end_offset=lambda topic, queue_id: self.store.offsets(topic, queue_id)[1],
        )
        self.transactions = Transactions(
            store=self.store,
            offsets=self.offsets,
            topics=None,
            table=JsonTable(self._files, TRANSACTION_PROGRESS_FILE),
            clock=clock,
            delay_level_max=18,
        )

    async def start(self) -> None:
        await self.store.start()
        # Not at the very beginning of the log: see the planner of sends.
        await self.store.put(Message("first", b"x"))
        self.transactions.start()

    async def transaction(self, number: int) -> bool:
        """Open one, and commit it unless it is one of those that stay open."""
        body = b"%d" % number
        pairs = {"TRAN_MSG": "true", "UNIQ_KEY": f"K{number}"}
        text = change_properties(b"", pairs | half_changes(pairs, "PG", "T", 0, f"K{number}"))
        half = self.store.append_text(
            TRANSACTION_HALF_TOPIC, 0, body, text,
            born_timestamp=0, born_host=self.store.store_host,
        )  # fmt: skip
        assert (await self.store.acknowledged(half)).ok
        if number % 3 == 0:
            return False
        await self.commit(half.queue_offset)
        return True

    async def commit(self, offset: int) -> None:
        await self.transactions.visible(offset)
        half = self.transactions.half(offset)
        assert half is not None
        ended = self.transactions.end(half, Verdict.COMMIT)
        assert ended.verdict is Verdict.COMMIT
        assert (await self.store.acknowledged(ended.result)).ok

    def close(self) -> None:
        self.transactions.stop()
        self.offsets.save()
        self.store.close()
        self._files.close()


async def serve(root: Path, mode: str, number: int) -> None:
    """Without end."""
    broker = _Broker(root, mode)
    await broker.start()
    sys.stdout.write("ready\n")
    while True:
        numbers = range(number, number + BATCH)
        done = await asyncio.gather(*(broker.transaction(n) for n in numbers))
        sys.stdout.write(
            "".join(f"{n}\n" for n, is_done in zip(numbers, done, strict=True) if is_done)
        )
        sys.stdout.flush()
        broker.offsets.save()
        number += BATCH


async def check_committed(root: Path, mode: str, acknowledged: set[int]) -> tuple[list[str], int]:
    """Commit every half once more, then compare; problems, and how many were still open."""
    broker = _Broker(root, mode)
    await broker.start()
    still_open = broker.transactions.window.open_count
    known = Counter(bodies(broker.store, "T", 0))
    problems = [f"{number} is lost" for number in acknowledged if not known[b"%d" % number]]
    for offset in range(broker.store.offsets(TRANSACTION_HALF_TOPIC, 0)[1]):
        await broker.commit(offset)
    broker.store.flush()
    copies = Counter(bodies(broker.store, "T", 0))
    halves = bodies(broker.store, TRANSACTION_HALF_TOPIC, 0)
    problems += [f"{b!r} committed {copies[b]} times" for b in halves if copies[b] != 1]
    problems += [f"{body!r} was never sent" for body in copies.keys() - set(halves)]
    broker.close()
    return problems, still_open


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
