"""The end of a log is saved aside and cut, with the power cut at every operation of it (R05)."""

from __future__ import annotations

import random

import pytest

from broker_core.errors import InvalidArgument
from broker_core.protocol_codes import BrokerRole
from broker_core.store.message_store import MessageStore
from broker_core.store.replication.log_cut import ASIDE_DIR, Numbering, save_and_cut
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk
from tests.store.small_store import bodies, new_disk, numbered, open_small, put_all

FILE_SIZE = 4 << 10
KEPT = 11
BODIES = numbered(40, size=200)


def filled() -> tuple[SimulatedDisk, int, int, Numbering]:
    """A closed store of several files, where to cut it, its end."""
    disk = new_disk()
    store = open_small(disk, commit_log_file_size=FILE_SIZE)
    put_all(store, "T", BODIES[:KEPT])
    start = store.log_range[1]
    put_all(store, "T", BODIES[KEPT:])
    put_all(store, "Later", BODIES[:2])
    end, numbering = store.log_range[1], store.replication.next_offsets_at(start)
    store.close()
    return disk, start, end, numbering


def opened(disk: SimulatedDisk, role: BrokerRole = BrokerRole.SLAVE) -> MessageStore:
    return open_small(disk, commit_log_file_size=FILE_SIZE, broker_role=role)


def cut(disk: SimulatedDisk, start: int, end: int, numbering: Numbering) -> str:
    return save_and_cut(disk, FILE_SIZE, start, end, numbering, 1)


def test_what_is_cut_is_saved_and_nothing_of_it_is_seen() -> None:
    disk, start, end, numbering = filled()
    store = opened(disk)
    suffix = b"".join(
        store.replication.log.read(at, min(end - at, FILE_SIZE - at % FILE_SIZE))
        for at in (start, *range(start - start % FILE_SIZE + FILE_SIZE, end, FILE_SIZE))
    )
    epoch = store.epoch
    store.close()
    path = cut(disk, start, end, numbering)
    assert disk.content(path) == suffix
    store = opened(disk, BrokerRole.ASYNC_MASTER)
    assert store.log_range == (0, start)
    assert bodies(store, "T") == BODIES[:KEPT]
    assert store.offsets("Later", 0) == (0, 0)
    # Readers may have seen what is gone.
    assert store.epoch > epoch
    result = store.append(Message("T", b"next"))
    assert (result.position, result.queue_offset) == (start, KEPT)
    assert store.append(Message("Later", b"next")).queue_offset == 0
    store.close()


def test_a_second_cut_at_the_same_place_keeps_the_first_file() -> None:
    disk, start, end, numbering = filled()
    cut(disk, start, end, numbering)
    store = opened(disk, BrokerRole.ASYNC_MASTER)
    put_all(store, "T", BODIES[KEPT:])
    put_all(store, "Later", BODIES[:2])
    assert store.log_range[1] == end
    store.close()
    cut(disk, start, end, numbering)
    assert len(disk.list(ASIDE_DIR)) == 2


def test_positions_outside_the_log_are_refused() -> None:
    disk, start, end, numbering = filled()
    for low, high in ((start, end + 10 * FILE_SIZE), (end, start)):
        with pytest.raises(InvalidArgument):
            cut(disk, low, high, numbering)
    store = opened(disk)
    assert store.log_range[1] == end
    store.close()


def test_power_is_cut_at_every_operation() -> None:
    source, start, end, numbering = filled()
    trial = source.copy()
    before = trial.operation_count
    cut(trial, start, end, numbering)
    operations = trial.operation_count - before
    rng = random.Random(5)
    seen = set()
    for number in range(1, operations + 1):
        disk = source.copy()
        disk.crash_at(disk.operation_count + number)
        with pytest.raises(SimulatedCrash):
            cut(disk, start, end, numbering)
        for state in disk.crash_states(limit=6, rng=rng):
            seen.add(_recovers(disk.reboot(state), start, end, numbering))
    assert seen == {True, False}


def _recovers(disk: SimulatedDisk, start: int, end: int, numbering: Numbering) -> bool:
    """It opens with the whole log or the cut one; asked again, it is cut. True when it was."""
    store = opened(disk)
    found = store.log_range[1]
    if found > start:
        assert bodies(store, "T")[: len(BODIES)] == BODIES[: len(bodies(store, "T"))]
    store.close()
    if found > start:
        cut(disk, start, found, numbering)
    store = opened(disk)
    assert store.log_range == (0, start)
    assert bodies(store, "T") == BODIES[:KEPT]
    assert store.offsets("Later", 0)[1] == 0
    store.close()
    assert any(f"-{end:020d}" in name for name in disk.list(ASIDE_DIR))
    return found == start
