"""Errors on demand, full disks and damage on the simulated disk."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from broker_core.storage.files.file_system import DiskUsage
from tests.fakes.disk_nodes import SECTOR_SIZE
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk


def _after_a_cut(disk: SimulatedDisk, limit: int = 512) -> list[dict[str, bytes]]:
    return [disk.reboot(state).tree() for state in disk.crash_states(limit, random.Random(1))]


def _sectors(*letters: str) -> bytes:
    return b"".join(letter.encode() * SECTOR_SIZE for letter in letters)


def _durable_file(disk: SimulatedDisk, path: str, content: bytes) -> None:
    file = disk.create(path)
    file.write(0, content)
    file.sync()
    file.close()
    disk.sync_dir(path.rpartition("/")[0])


# Errors.


def test_an_error_comes_before_the_effect() -> None:
    calls: list[Callable[[SimulatedDisk], object]] = [
        lambda disk: disk.create("new"),
        lambda disk: disk.open("a"),
        lambda disk: disk.make_dir("d"),
        lambda disk: disk.rename("a", "b"),
        lambda disk: disk.unlink("a"),
    ]
    for call in calls:
        disk = SimulatedDisk()
        disk.make_dir("e")
        _durable_file(disk, "a", b"content")
        before = disk.list("")
        disk.fail(disk.operation_count + 1, errno.EDQUOT)
        with pytest.raises(OSError, match="quota") as error:
            call(disk)
        assert error.value.errno == errno.EDQUOT
        assert disk.list("") == before
        call(disk)


def test_errors_of_files_come_before_the_effect() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"content")
    file = disk.open("a")
    first = disk.operation_count + 1
    disk.fail(first, errno.EIO, sticky=True)
    for call in (
        lambda: file.write(0, b"x"),
        lambda: file.allocate(0, 99),
        lambda: file.resize(1),
        file.buffer,
        file.try_lock,
        file.drop_cache,
    ):
        with pytest.raises(OSError, match="a") as error:
            call()
        assert error.value.errno == errno.EIO
    assert file.read(0, 99) == b"content"


def test_an_error_can_be_kept_to_some_operations() -> None:
    disk = SimulatedDisk()
    disk.fail(1, errno.ENOSPC, sticky=True, methods={"allocate", "write"})
    file = disk.create("a")
    with pytest.raises(OSError, match="space"):
        file.write(0, b"x")
    with pytest.raises(OSError, match="space"):
        file.allocate(0, 10)
    file.sync()


def test_a_store_through_the_map_cannot_fail() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"old")
    file = disk.open("a")
    file.buffer()[:] = b"new"
    disk.fail(disk.operation_count + 1, errno.EIO)
    file.wrote(0, 3)
    file.sync()
    assert _after_a_cut(disk) == [{"a": b"new"}]


def test_a_failed_sync_loses_pages_that_a_second_sync_does_not_write() -> None:
    old, new = bytes(64 * SECTOR_SIZE), b"x" * (64 * SECTOR_SIZE)
    disk = SimulatedDisk(seed=5)
    _durable_file(disk, "a", old)
    file = disk.open("a")
    file.buffer()[:] = new
    file.wrote(0, len(new))
    disk.fail(disk.operation_count + 1, errno.EIO)
    with pytest.raises(OSError, match="a"):
        file.sync()
    assert file.read(0, len(new)) == new
    file.sync()
    (tree,) = _after_a_cut(disk)
    kept = tree["a"].count(b"x") // SECTOR_SIZE
    assert 10 < kept < 54
    # A new process sees the cache; after it was dropped, the truth.
    after = disk.kill()
    reader = after.open("a")
    assert reader.read(0, len(new)) == new
    reader.drop_cache()
    assert reader.read(0, len(new)) == tree["a"]
    # Only what is stored again is written.
    again = disk.kill()
    file = again.open("a")
    file.write(0, b"y" * len(new))
    file.sync()
    assert _after_a_cut(again) == [{"a": b"y" * len(new)}]


def test_a_failed_sync_of_a_longer_file_may_lose_the_length() -> None:
    lengths = set()
    for seed in range(20):
        disk = SimulatedDisk(seed=seed)
        _durable_file(disk, "a", b"1234")
        file = disk.open("a")
        file.write(0, _sectors("x", "x", "x"))
        disk.fail(disk.operation_count + 1, errno.EIO)
        with pytest.raises(OSError, match="a"):
            file.sync()
        file.sync()
        assert file.size == 3 * SECTOR_SIZE
        (tree,) = _after_a_cut(disk)
        lengths.add(len(tree["a"]))
    assert lengths == {4, 3 * SECTOR_SIZE}


def test_a_failed_directory_sync_proves_nothing_later() -> None:
    outcomes = set()
    for seed in range(20):
        disk = SimulatedDisk(seed=seed)
        for name in "ab":
            disk.create(name).sync()
        disk.fail(disk.operation_count + 1, errno.EIO)
        with pytest.raises(OSError, match="rror"):
            disk.sync_dir("")
        disk.sync_dir("")
        assert disk.list("") == ["a", "b"]
        (tree,) = _after_a_cut(disk)
        outcomes.add("".join(tree))
    assert outcomes == {"", "a", "b", "ab"}


def test_reads_can_be_counted_and_fail_too() -> None:
    disk = SimulatedDisk(trace_reads=True)
    disk.put("a", b"content")
    file = disk.open("a")
    disk.fail(2, errno.EIO)
    with pytest.raises(OSError, match="a"):
        file.read(0, 7)
    assert file.read(0, 7) == b"content"
    assert disk.exists("a")
    assert disk.list("") == ["a"]
    assert [op.method for op in disk.operations()] == ["open", "read", "read", "exists", "list"]
    callers = {op.site.caller for op in disk.operations()}
    assert callers == {"test_disk_faults.py:test_reads_can_be_counted_and_fail_too"}


# Space, time, damage.


def test_a_full_disk() -> None:
    disk = SimulatedDisk(space_limit=1_000)
    file = disk.create("a")
    file.allocate(0, 900)
    assert disk.usage() == DiskUsage(900, 100)
    with pytest.raises(OSError, match="a") as error:
        file.allocate(900, 101)
    assert error.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="a") as error:
        file.write(500, bytes(501))
    assert error.value.errno == errno.ENOSPC
    assert file.size == 900
    file.write(900, bytes(100))
    disk.unlink("a")
    disk.create("b").allocate(0, 1_000)
    disk.reported_usage = DiskUsage(99, 1)
    assert disk.usage() == (99, 1)


def test_modification_time_comes_from_the_clock() -> None:
    clock = ManualClock(wall_ms=5_000)
    disk = SimulatedDisk(clock=clock)
    file = disk.create("a")
    assert file.modified_ms() == 5_000
    clock.advance(10)
    file.write(0, b"x")
    assert file.modified_ms() == 5_010
    clock.set_wall(77)
    file.buffer()[:] = b"y"
    file.wrote(0, 1)
    assert disk.reboot().open("a").modified_ms() == 77
    assert clock.monotonic() == 0.01


def test_damage() -> None:
    disk = SimulatedDisk()
    disk.put("d/a", _sectors(*"ab"))
    disk.put("d/b", _sectors(*"cd") + b"tail")
    assert disk.files() == ["d/a", "d/b"]
    disk.flip("d/a", 8 * 3 + 1)
    assert disk.content("d/a")[:5] == b"aaac" + b"a"
    disk.flip("d/a", 8 * 3 + 1)
    disk.swap_pages("d/a", 0, "d/b", 1, size=SECTOR_SIZE)
    assert disk.content("d/a") == _sectors(*"db")
    assert disk.content("d/b") == _sectors(*"ca") + b"tail"
    disk.copy_page("d/a", 1, "d/b", 2, size=SECTOR_SIZE)
    assert disk.content("d/b") == _sectors(*"ca") + b"bbbb"
    disk.truncate("d/a", 3)
    disk.truncate("d/b", 2_000)
    assert disk.content("d/a") == b"ddd"
    assert disk.content("d/b")[1_000:] == b"a" * 24 + b"bbbb" + bytes(972)
    disk.delete("d/a")
    assert _after_a_cut(disk) == [{"d/b": disk.content("d/b")}]
    disk.delete("d")
    assert disk.files() == []
    assert disk.operation_count == 0
