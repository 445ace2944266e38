"""A store that takes one long group after the other until it is killed.

    python -m tests.crash.group_process DIRECTORY FIRST

    lines out: `open`, then for each group `begun NUMBER` and, once it is durable, `ack NUMBER`

A group has `RUNS` runs, so long that two threads write them, and every row says what it is.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from typing import Final

from broker_core.config import StoreConfig
from broker_core.store.message_store import MessageStore
from tests.store.small_store import run_of

RUNS: Final = 30
ROWS: Final = 500
ROW_SIZE: Final = 1_000
TOPICS: Final = ("even", "odd")
CONFIG: Final = StoreConfig(
    # Groups end in other files than they begin in.
    commit_log_file_size=16 << 20,
    dispatch_checkpoint_interval_ms=50,
    # A machine that pauses in the middle of a put is not one that has no memory left.
    page_cache_busy_timeout_ms=120_000,
    sync_flush_timeout_ms=120_000,
)


def row(group: int, run: int, number: int) -> bytes:
    """A body that only this row can have."""
    return (b"%d %d %d " % (group, run, number)).ljust(ROW_SIZE, b"x")


async def _serve(directory: str, first: int) -> None:
    store = MessageStore.open(directory, CONFIG)
    await store.start()
    _say("open")
    for group in itertools.count(first):
        runs = [
            run_of(*(row(group, run, n) for n in range(ROWS)), topic=TOPICS[run % 2].encode())
            for run in range(RUNS)
        ]
        _say(f"begun {group}")
        result = await store.put_group(runs)
        assert result.ok, result
        _say(f"ack {group}")


def _say(text: str) -> None:
    # One write for one line: a kill leaves whole lines or none.
    os.write(1, f"{text}\n".encode())


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
