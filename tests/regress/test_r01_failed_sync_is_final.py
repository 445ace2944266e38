"""R01 (RocketMQ #2706, #3129, #9713): a failed sync was swallowed or tried again, and acknowledged.

EIO at a sync with eight senders waiting for it; later syncs would succeed. None of the eight may be
told that its message is stored, and what was told before must be there after the restart.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.errors import CorruptStore
from broker_core.protocol_codes import PutStatus
from tests.crash.planted_bugs import retry_after_error
from tests.fakes.simulated_disk import SimulatedDisk
from tests.regress.small_disk_store import (
    new_disk,
    numbered,
    numbers_in,
    open_store,
    reboots,
    small_config,
)

# A thread syncs, which a busy machine may keep waiting for longer than the default of 5 s.
CONFIG = small_config(commit_log_file_size=8192, sync_flush_timeout_ms=60_000)
BEFORE = range(3)
WAITING = range(3, 11)


async def _send(disk: SimulatedDisk) -> list[int]:
    """Send with a failing disk; returns the numbers that were acknowledged."""
    store = open_store(disk, CONFIG)
    await store.start()
    acknowledged = []
    for number in BEFORE:
        if (await store.put(numbered(number, 300))).ok:
            acknowledged.append(number)
    assert acknowledged == list(BEFORE)
    disk.fail(disk.operation_count + 1, errno.EIO, sticky=True, methods={"sync"})
    results = await asyncio.gather(*(store.put(numbered(n, 300)) for n in WAITING))
    acknowledged += [n for n, result in zip(WAITING, results, strict=True) if result.ok]
    disk._faults.clear()
    refused = await store.put(numbered(99, 300))
    if store.fenced:
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    elif refused.ok:
        acknowledged.append(99)
    store.close()
    return acknowledged


def _scenario(run_async: Callable[..., Any], disks: list[SimulatedDisk]) -> None:
    for disk in disks:
        acknowledged = run_async(_send(disk))
        for after in (*reboots(disk, 64), disk.kill()):
            found = numbers_in(open_store(after, CONFIG))
            assert found[: len(acknowledged)] == acknowledged


def test_nothing_is_acknowledged_after_a_failed_sync(run_async: Callable[..., Any]) -> None:
    _scenario(run_async, [new_disk(seed=seed) for seed in range(4)])


def test_the_scenario_finds_a_store_that_tries_again(run_async: Callable[..., Any]) -> None:
    disks = [new_disk(seed=seed) for seed in range(4)]

    def heal() -> None:
        for disk in disks:
            disk._faults.clear()

    with retry_after_error(between=heal), pytest.raises((AssertionError, CorruptStore)):
        _scenario(run_async, disks)
