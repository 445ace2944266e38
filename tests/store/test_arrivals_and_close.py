"""What listeners may see, and what a close says when its last flush fails."""

from __future__ import annotations

import errno

import pytest

from broker_core.errors import StoreFenced
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedCrash
from tests.store.small_store import new_disk, numbered, open_small, run_of


def test_a_listener_never_finds_a_part_of_a_group() -> None:
    """The group spans several files and slices; the first announcement already sees all of it."""
    seen: list[tuple[int, int]] = []
    with open_small(new_disk(), dispatch_slice_size=1024) as store:
        store.on_arrival(
            lambda _topic, _queue_id, _offset: seen.append(
                (store.offsets("T", 0)[1], store.offsets("T", 1)[1])
            )
        )
        values = numbered(200, 200)
        runs = [run_of(*values, queue_id=0), run_of(*values, queue_id=1)]
        assert store.append_group(runs).ok
        store.flush()
        assert store.log_range[1] > 2 * (16 << 10)
    assert set(seen) == {(200, 200)}


def test_a_close_whose_flush_fails_raises_and_releases_everything() -> None:
    disk = new_disk()
    store = open_small(disk, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    assert store.append(Message("T", b"only in the page cache")).ok
    disk.fail(disk.operation_count + 1, errno.EIO, sticky=True, methods=["sync"])
    with pytest.raises(StoreFenced):
        store.close()
    store.close()
    assert disk.exists("abort")
    with open_small(disk.kill()) as reopened:
        assert not reopened.recovery.clean


def test_a_table_that_was_read_survives_a_power_cut() -> None:
    """A kill anywhere in a save: what the next process reads must stay afterwards."""
    whole = new_disk()
    JsonTable(whole, "config/t.json").save({"value": 1})
    first = whole.operation_count
    JsonTable(whole, "config/t.json").save({"value": 2})
    for cut in range(first + 1, whole.operation_count + 1):
        disk = new_disk()
        JsonTable(disk, "config/t.json").save({"value": 1})
        disk.crash_at(cut)
        with pytest.raises(SimulatedCrash):
            JsonTable(disk, "config/t.json").save({"value": 2})
        survivor = disk.kill()
        read = JsonTable(survivor, "config/t.json").load()
        assert read in ({"value": 1}, {"value": 2})
        for state in survivor.crash_states(64):
            assert JsonTable(survivor.reboot(state), "config/t.json").load() == read, cut
