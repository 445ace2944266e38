"""Seeded workloads: which store, in which mode, and what is done to it in which proportion.

Everything is a function of (workload, mode, seed, number of steps). Files are tiny, so that every
kind of file rolls and every path of the store is taken within some dozens of steps.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_core.config import StoreConfig
from broker_core.protocol_codes import FlushDiskType
from tests.crash.history import QueueKey
from tests.crash.store_run import QUEUES, Observer, Step, StoreRun
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk

MODES: Mapping[str, Mapping[str, Any]] = {
    "sync": {},
    "async": {"flush_disk_type": FlushDiskType.ASYNC_FLUSH},
    "pool": {"flush_disk_type": FlushDiskType.ASYNC_FLUSH, "transient_pool_enable": True},
    "sync-pool": {"transient_pool_enable": True},
}

PUTS: Mapping[Step, int] = {StoreRun.put: 8, StoreRun.put_batch: 2, StoreRun.put_together: 1}
TIME: Mapping[Step, int] = {StoreRun.tick: 3, StoreRun.read: 2}


class Workload(NamedTuple):
    """Weights of the steps, and the sizes of the files."""

    weights: Mapping[Step, int]
    log_file_size: int = 2048
    queue_file_size: int = 200
    zero_length_renames: bool = False
    queues: tuple[QueueKey, ...] = QUEUES


WORKLOADS: Mapping[str, Workload] = {
    "puts": Workload({**PUTS, **TIME}),
    "batches": Workload(
        {StoreRun.put_batch: 4, StoreRun.put_together: 3, StoreRun.put: 2, **TIME}, 4096, 400
    ),
    "rows": Workload({StoreRun.put_rows: 5, StoreRun.put: 2, **TIME}, 4096, 400),
    "groups": Workload({StoreRun.put_group: 5, StoreRun.put: 4, **TIME}, 2048, 160),
    "staging": Workload(
        {StoreRun.stage: 4, StoreRun.publish: 4, StoreRun.put: 3, StoreRun.kill: 1, **TIME}
    ),
    "checkpoints": Workload(
        {**PUTS, **TIME, StoreRun.checkpoint: 6, StoreRun.put_group: 1}, 2048, 100
    ),
    "retention": Workload(
        {**PUTS, **TIME, StoreRun.clean: 4, StoreRun.put_group: 1, StoreRun.checkpoint: 1}
    ),
    "tables": Workload(
        {
            **PUTS,
            **TIME,
            StoreRun.save_table: 6,
            StoreRun.delete_topic: 3,
            StoreRun.flush: 1,
            StoreRun.checkpoint: 1,
        },
        zero_length_renames=True,
    ),
    "restarts": Workload(
        {
            **PUTS,
            **TIME,
            StoreRun.reopen: 2,
            StoreRun.kill: 2,
            StoreRun.cut_power: 3,
            StoreRun.put_group: 2,
            StoreRun.publish: 1,
            StoreRun.checkpoint: 1,
            StoreRun.clean: 1,
        },
        4096,
    ),
}

# Few queues, so that a run has few operations and each of them can be failed in every way.
NARROW = Workload({}, queues=(("t0", 0), ("t1", 0)))


def store_config(workload: str, mode: str, **changes: Any) -> StoreConfig:
    """Tiny files, short times."""
    sizes = _workload(workload)
    fields: dict[str, Any] = {
        "commit_log_file_size": sizes.log_file_size,
        "consume_queue_file_size": sizes.queue_file_size,
        "index_hash_slots": 10,
        "index_entries_max": 20,
        "message_size_max": 1024,
        "flush_least_pages": 0,
        "commit_least_pages": 0,
        "consume_queue_flush_least_pages": 0,
        "transient_pool_size": 2,
        "file_reserved_hours": 1,
        "dispatch_slice_size": 1024,
        **MODES[mode],
        **changes,
    }
    return StoreConfig(**fields)


def start_run(
    workload: str,
    mode: str,
    seed: int,
    observer: Observer | None = None,
    disk: SimulatedDisk | None = None,
    **changes: Any,
) -> StoreRun:
    """A run that has not opened its store yet; equal arguments give equal runs."""
    mixed = zlib.crc32(f"{workload} {mode} {seed}".encode())
    chosen = _workload(workload)
    if disk is None:
        renames = chosen.zero_length_renames
        disk = SimulatedDisk(clock=ManualClock(), seed=mixed, zero_length_renames=renames)
    config = store_config(workload, mode, **changes)
    return StoreRun(config, mixed, observer, disk, chosen.queues)


def _workload(name: str) -> Workload:
    return NARROW if name == "narrow" else WORKLOADS[name]


def play(run: StoreRun, workload: str, steps: int) -> None:
    """Open, do `steps` things, close cleanly and open once more."""
    weights = WORKLOADS[workload].weights
    run.open()
    for step in run.rng.choices(list(weights), list(weights.values()), k=steps):
        step(run)
    run.read()
    run.reopen()
    run.close()
