"""How much a sync of one small message writes: its page, not the megabytes around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import Message, MessageStore, StoreConfig

ACCOUNTS = Path("/proc/self/io")
FIRST = 24 << 20
PUTS = 100


def _written() -> int:
    """Bytes of pages that this process has made dirty, as the kernel counts them."""
    for line in ACCOUNTS.read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not count")


@pytest.mark.skipif(not ACCOUNTS.exists(), reason="the kernel keeps no accounts of processes")
def test_a_synced_message_writes_its_page(tmp_path: Path, run_async: Callable[..., Any]) -> None:
    async def scenario() -> float:
        store = MessageStore.open(tmp_path / "store", StoreConfig())
        await store.start()
        try:
            # Read-ahead makes larger pages the further it gets.
            while store.log_range[1] < FIRST:
                puts = [store.put(Message("T", bytes(8_000), queue_id=0)) for _ in range(64)]
                await asyncio.gather(*puts)
            before = _written()
            for _ in range(PUTS):
                await store.put(Message("T", b"small", queue_id=0))
            return (_written() - before) / PUTS
        finally:
            store.close()

    # A page of the log, now and then one of a queue, of the index or of the store's state.
    assert run_async(scenario()) < 16 << 10
