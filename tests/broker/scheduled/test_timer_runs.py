"""Waiting timer entries in memory and in sorted files."""

from __future__ import annotations

import random

import pytest

from broker_core.broker.scheduled.timer_runs import (
    PendingTimers,
    entry_position,
    entry_wake_ms,
    is_recall_entry,
    merged_run,
    recall_entry,
    remove_run_files,
    wake_entry,
)
from broker_core.errors import CorruptStore
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk


def timers(disk: SimulatedDisk) -> PendingTimers:
    disk.make_dir("timerruns")
    return PendingTimers(disk)


def spilled(pending: PendingTimers, entries: list[int]) -> None:
    for entry in entries:
        pending.add(entry)
    pending.spill()
    for run in pending.runs:
        if not run.is_written:
            run.write()
            run.written()


def all_of(pending: PendingTimers) -> list[int]:
    return [pending.take() for _ in range(len(pending))]


def test_the_parts_of_an_entry() -> None:
    entry, recall = wake_entry(1_000, 77), recall_entry(1_000, 77)
    assert (entry_wake_ms(entry), entry_position(entry)) == (1_000, 77)
    assert (entry_wake_ms(recall), entry_position(recall)) == (1_000, 77)
    assert not is_recall_entry(entry)
    assert is_recall_entry(recall)
    assert recall < entry < wake_entry(1_000, 78) < recall_entry(1_001, 0)


def test_entries_come_in_order_from_memory_and_files() -> None:
    numbers = random.Random(1).sample(range(100_000), 300)
    entries = [wake_entry(number, number) for number in numbers]
    pending = timers(new_disk())
    spilled(pending, entries[:100])
    spilled(pending, entries[100:200])
    for entry in entries[200:]:
        pending.add(entry)
    assert (len(pending), pending.fresh_count, len(pending.runs)) == (300, 100, 2)
    assert pending.head() == min(entries)
    assert all_of(pending) == sorted(entries)
    assert pending.head() is None


def test_runs_go_on_where_their_cursors_are() -> None:
    disk = new_disk()
    pending = timers(disk)
    spilled(pending, [wake_entry(n, n) for n in range(10)])
    assert [entry_position(pending.take()) for _ in range(4)] == [0, 1, 2, 3]
    states = [run.state for run in pending.runs]
    pending.close()
    again = PendingTimers(disk)
    assert again.take_over(states)
    assert [entry_position(entry) for entry in all_of(again)] == [4, 5, 6, 7, 8, 9]
    again.close()


def test_a_damaged_run_is_not_taken_over() -> None:
    disk = new_disk()
    pending = timers(disk)
    spilled(pending, [wake_entry(n, n) for n in range(10)])
    (run,) = pending.runs
    state = run.state
    pending.close()
    disk.flip(run.path, 5)
    again = PendingTimers(disk)
    assert not again.take_over([state])
    assert len(again) == 0


def test_merged_runs_keep_what_is_left() -> None:
    disk = new_disk()
    pending = timers(disk)
    spilled(pending, [wake_entry(n, n) for n in range(0, 20, 2)])
    spilled(pending, [wake_entry(n, n) for n in range(1, 20, 2)])
    assert [entry_position(pending.take()) for _ in range(3)] == [0, 1, 2]
    states = [run.state for run in pending.runs]
    merged = merged_run(disk, pending.new_number(), states)
    assert entry_position(pending.take()) == 3, "taken while the files were merged"
    pending.replace(states, merged)
    assert len(pending.runs) == 1
    assert [entry_position(entry) for entry in all_of(pending)] == list(range(4, 20))
    remove_run_files(disk, frozenset())


def test_a_file_that_is_too_short_is_damage() -> None:
    disk = new_disk()
    pending = timers(disk)
    spilled(pending, [wake_entry(n, n) for n in range(10)])
    (run,) = pending.runs
    run.close()
    disk.truncate(run.path, 16)
    with pytest.raises(CorruptStore, match="too short"):
        run.read(0, 10)
    run.close()
