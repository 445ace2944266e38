"""Cuts the end of a closed store's log and saves it in a file first.

The order keeps the store usable after a crash at any step: the bytes are durable in a file of their
own; the state no longer covers them; the queues are marked for a rebuild; then the log is cut. An
interrupted cut leaves the whole log, and the caller repeats it.
"""

from __future__ import annotations

from typing import Final

from broker_core.errors import InvalidArgument
from broker_core.storage.derived.dispatch_checkpoint import DispatchCheckpoint, save_checkpoint
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.log.segment_file import Segment
from broker_core.storage.state.lock_and_abort_files import mark_running, take_lock
from broker_core.storage.state.recovery import (
    cut_log,
    list_log,
    open_segments,
    plan_cut,
    remove_old_files,
)
from broker_core.storage.state.store_state import StoreStateFile

ASIDE_DIR: Final = "unconfirmed"
_COPY_SIZE: Final = 1 << 20

Numbering = tuple[tuple[bytes, int, int], ...]


def save_and_cut(
    file_system: FileSystem,
    file_size: int,
    start: int,
    end: int,
    numbering: Numbering,
    process_id: int,
) -> str:
    """Move the log's bytes `[start, end)` to a file below the root; its path.

    `numbering` has the next offset of each queue at `start`, for queues that keep no entry.
    """
    lock = take_lock(file_system)
    try:
        state_file = StoreStateFile.load(file_system)
        if state_file is None:
            raise InvalidArgument("the directory holds no store of ours")
        state = state_file.state
        try:
            bases, old_files = list_log(file_system, file_size, state.log_start)
            remove_old_files(file_system, old_files)
            if not bases or not bases[0] <= start <= end <= bases[-1] + file_size:
                raise InvalidArgument(f"the log has no bytes [{start}, {end})")
            segments = open_segments(
                file_system, bases, file_size, 0, watermark_known=True, clean=False
            )
            try:
                path = _save(file_system, segments, start, end)
                # The next open checks and rebuilds everything, as after a crash.
                mark_running(file_system, process_id)
                lowered = min(state.durable_position, start)
                # Readers may have seen the removed bytes.
                changed = state._replace(durable_position=lowered, epoch=state.epoch + 1)
                state_file.write(changed, sync=True)
                checkpoint = DispatchCheckpoint(
                    state.store_id, bases[0], bases[0], 0, (), (), numbering
                )
                save_checkpoint(file_system, checkpoint)
                plan = plan_cut([segment.base for segment in segments], file_size, start)
                segments = cut_log(file_system, segments, plan)
            finally:
                for segment in segments:
                    segment.retire()
        finally:
            state_file.close()
    finally:
        lock.close()
    return path


def _save(file_system: FileSystem, segments: list[Segment], start: int, end: int) -> str:
    file_system.make_dir(ASIDE_DIR)
    taken = set(file_system.list(ASIDE_DIR))
    number = next(n for n in range(len(taken) + 1) if _name(start, end, n) not in taken)
    path = f"{ASIDE_DIR}/{_name(start, end, number)}"
    aside = f"{path}.tmp"
    if file_system.exists(aside):
        file_system.unlink(aside)
    file = file_system.create(aside)
    try:
        for segment in segments:
            low = max(start - segment.base, 0)
            high = min(end - segment.base, segment.size)
            while low < high:
                data = segment.file.read(low, min(_COPY_SIZE, high - low))
                file.write(segment.base + low - start, data)
                low += len(data)
        file.sync()
    finally:
        file.close()
    file_system.rename(aside, path)
    file_system.sync_dir(ASIDE_DIR)
    file_system.sync_dir("")
    return path


def _name(start: int, end: int, number: int) -> str:
    return f"{start:020d}-{end:020d}" + (f".{number}" if number else "")
