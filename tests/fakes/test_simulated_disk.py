"""The model of the disk itself: what a cut keeps, what a failed sync loses, and how fast it is."""

from __future__ import annotations

import random

import pytest

from tests.fakes.disk_nodes import SECTOR_SIZE
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk, path_class

Trees = list[dict[str, bytes]]


def _after_a_cut(disk: SimulatedDisk, limit: int = 512) -> Trees:
    return [disk.reboot(state).tree() for state in disk.crash_states(limit, random.Random(1))]


def _sectors(*letters: str) -> bytes:
    return b"".join(letter.encode() * SECTOR_SIZE for letter in letters)


def _durable_file(disk: SimulatedDisk, path: str, content: bytes) -> None:
    file = disk.create(path)
    file.write(0, content)
    file.sync()
    file.close()
    disk.sync_dir(path.rpartition("/")[0])


# Content.


def test_each_sector_is_old_or_new_until_the_sync_returns() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", _sectors("x", "x", "x", "x"))
    file = disk.open("a")
    file.buffer()[0:1024] = _sectors("1", "2")
    file.wrote(0, 1024)
    file.buffer()[1536:1537] = b"4"
    file.wrote(1536, 1537)
    fourth = b"4".ljust(512, b"x")
    expected = {
        first + second + _sectors("x") + last
        for first in (_sectors("x"), _sectors("1"))
        for second in (_sectors("x"), _sectors("2"))
        for last in (_sectors("x"), fourth)
    }
    trees = _after_a_cut(disk)
    assert len(trees) == 8
    assert {tree["a"] for tree in trees} == expected
    file.sync()
    assert _after_a_cut(disk) == [{"a": _sectors("1", "2", "x") + fourth}]


def test_old_is_the_last_synced_content_not_the_last_store() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"synced")
    file = disk.open("a")
    file.write(0, b"second")
    file.write(0, b"third!")
    # And what was in between may have been written back.
    assert {tree["a"] for tree in _after_a_cut(disk)} == {b"synced", b"second", b"third!"}


def test_a_store_that_changes_nothing_is_no_choice() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", _sectors("x", "y"))
    file = disk.open("a")
    file.write(0, _sectors("x"))
    assert len(_after_a_cut(disk)) == 1


def test_stored_bytes_count_before_they_are_declared() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"old")
    disk.open("a").buffer()[:] = b"new"
    assert {tree["a"] for tree in _after_a_cut(disk)} == {b"old", b"new"}


def test_the_length_is_a_choice_of_its_own() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"12345")
    file = disk.open("a")
    file.allocate(0, 1_000)
    assert {len(tree["a"]) for tree in _after_a_cut(disk)} == {5, 1_000}
    file.sync()
    file.resize(3)
    assert {tree["a"][:5] for tree in _after_a_cut(disk)} == {b"123", b"12345"}
    file.sync()
    assert _after_a_cut(disk) == [{"a": b"123"}]


def test_new_sectors_past_the_old_length_need_the_length() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"")
    disk.open("a").write(0, _sectors("1", "2"))
    zeros = bytes(SECTOR_SIZE)
    assert {tree["a"] for tree in _after_a_cut(disk)} == {
        b"",
        zeros + zeros,
        _sectors("1") + zeros,
        zeros + _sectors("2"),
        _sectors("1", "2"),
    }


def test_a_store_to_a_hole_is_an_error_of_the_caller() -> None:
    disk = SimulatedDisk()
    file = disk.create("a")
    file.resize(4096)
    file.buffer()[0:1] = b"x"
    with pytest.raises(AssertionError, match="hole"):
        file.wrote(0, 1)
    file.allocate(0, 1024)
    file.wrote(0, 1024)
    with pytest.raises(AssertionError, match="hole"):
        file.wrote(1023, 1025)
    file.write(1024, bytes(3072))
    file.wrote(0, 4096)


# Names.


def test_a_name_needs_its_directory_and_content_needs_its_name() -> None:
    disk = SimulatedDisk()
    file = disk.create("a")
    file.write(0, b"x")
    file.sync()
    assert _after_a_cut(disk) == [{}, {"a": b"x"}]
    disk.sync_dir("")
    assert _after_a_cut(disk) == [{"a": b"x"}]


def test_a_file_in_a_directory_without_a_durable_name_is_lost() -> None:
    disk = SimulatedDisk()
    disk.make_dir("d")
    _durable_file(disk, "d/a", b"x")
    assert _after_a_cut(disk) == [{}, {"d/a": b"x"}]
    disk.sync_dir("")
    assert _after_a_cut(disk) == [{"d/a": b"x"}]


def test_unlinks_happen_in_any_subset() -> None:
    disk = SimulatedDisk()
    for name in "abc":
        _durable_file(disk, name, b"x")
    for name in "abc":
        disk.unlink(name)
    assert sorted("".join(tree) for tree in _after_a_cut(disk)) == sorted(
        ["", "a", "b", "c", "ab", "ac", "bc", "abc"]
    )
    disk.sync_dir("")
    assert _after_a_cut(disk) == [{}]


def test_a_rename_is_old_or_new_never_neither_never_both() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "table", b"old")
    _durable_file(disk, "table.tmp", b"new")
    disk.rename("table.tmp", "table")
    assert _after_a_cut(disk) == [{"table": b"old", "table.tmp": b"new"}, {"table": b"new"}]
    disk.sync_dir("")
    assert _after_a_cut(disk) == [{"table": b"new"}]


def test_a_rename_of_a_new_file_never_harms_the_target() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "table", b"old")
    file = disk.create("table.tmp")
    file.write(0, b"new")
    file.sync()
    disk.rename("table.tmp", "table")
    assert {tree["table"] for tree in _after_a_cut(disk)} == {b"old", b"new"}


def test_a_chain_of_renames_leaves_one_name() -> None:
    disk = SimulatedDisk()
    disk.make_dir("x")
    disk.make_dir("y")
    disk.sync_dir("")
    _durable_file(disk, "x/1", b"content")
    disk.rename("x/1", "y/2")
    disk.rename("y/2", "x/3")
    disk.rename("x/3", "y/4")
    for tree in _after_a_cut(disk):
        assert list(tree.values()) == [b"content"]
    disk.sync_dir("x")
    for tree in _after_a_cut(disk):
        assert list(tree) in (["x/3"], ["y/4"])
    disk.sync_dir("y")
    assert _after_a_cut(disk) == [{"y/4": b"content"}]


def test_a_name_used_again_is_the_old_file_the_new_one_or_none() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "abort", b"1")
    disk.unlink("abort")
    file = disk.create("abort")
    file.write(0, b"2")
    file.sync()
    assert {tree.get("abort") for tree in _after_a_cut(disk)} == {b"1", b"2", None}


def test_an_unsynced_rename_may_show_an_empty_file_on_request() -> None:
    for profile, expected in ((False, {b"v1", b"v2"}), (True, {b"v1", b"v2", b""})):
        disk = SimulatedDisk(zero_length_renames=profile)
        _durable_file(disk, "tmp", b"v1")
        file = disk.open("tmp")
        file.write(0, b"v2")
        disk.rename("tmp", "table")
        disk.sync_dir("")
        assert {tree["table"] for tree in _after_a_cut(disk)} == expected
        file.sync()
        assert _after_a_cut(disk) == [{"table": b"v2"}]


# Which states are tried.


def test_all_states_are_tried_when_they_are_few() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", bytes(SECTOR_SIZE * 9))
    file = disk.open("a")
    file.write(0, b"x" * SECTOR_SIZE * 9)
    images = [tree["a"] for tree in _after_a_cut(disk, limit=512)]
    assert len(images) == len(set(images)) == 512


def test_many_states_are_sampled() -> None:
    disk = SimulatedDisk()
    old, new = bytes(SECTOR_SIZE * 40), b"x" * SECTOR_SIZE * 40
    _durable_file(disk, "a", old)
    disk.open("a").write(0, new)
    images = [tree["a"] for tree in _after_a_cut(disk, limit=300)]
    assert len(images) == len(set(images)) == 300
    assert images[:2] == [old, new]
    for sector in range(40):
        a, b = sector * SECTOR_SIZE, (sector + 1) * SECTOR_SIZE
        assert new[:a] + old[a:b] + new[b:] in images
        assert old[:a] + new[a:b] + old[b:] in images
    assert images == [tree["a"] for tree in _after_a_cut(disk, limit=300)]
    assert len(_after_a_cut(disk, limit=20)) <= 20


def test_a_state_describes_itself() -> None:
    disk = SimulatedDisk()
    disk.make_dir("d")
    disk.create("d/f").write(0, b"x")
    states = list(disk.crash_states())
    assert "on disk: []" in states[0].describe()
    for text in ("add d/f", "length 0 -> 1 of d/f", "sector 0 of d/f"):
        assert text in states[-1].describe()


def test_states_do_not_depend_on_what_happens_later() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"old")
    file = disk.open("a")
    file.buffer()[:] = b"new"
    states = list(disk.crash_states())
    file.buffer()[:] = b"xyz"
    file.sync()
    disk.unlink("a")
    disk.sync_dir("")
    assert [disk.reboot(state).tree()["a"] for state in states] == [b"old", b"new"]


def test_rebooted_disks_share_no_changes() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"content")
    state = next(disk.crash_states())
    first, second = disk.reboot(state), disk.reboot(state)
    first.open("a").buffer()[:] = b"changed"
    first.unlink("a")
    assert second.tree() == {"a": b"content"}
    assert second.boot_id() == first.boot_id() != disk.boot_id()


# The cut.


def _workload(disk: SimulatedDisk) -> None:
    disk.make_dir("commitlog")
    disk.sync_dir("")
    file = disk.create("commitlog/0")
    file.allocate(0, 4096)
    file.sync()
    disk.sync_dir("commitlog")
    file.buffer()[:5] = b"hello"
    file.wrote(0, 5)
    file.sync()
    file.close()


def test_the_trace_says_what_was_done_where() -> None:
    disk = SimulatedDisk()
    _workload(disk)
    operations = disk.operations()
    assert [(op.number, op.method, op.path) for op in operations] == [
        (1, "make_dir", "commitlog"),
        (2, "sync_dir", ""),
        (3, "create", "commitlog/0"),
        (4, "allocate", "commitlog/0"),
        (5, "sync", "commitlog/0"),
        (6, "sync_dir", "commitlog"),
        (7, "buffer", "commitlog/0"),
        (8, "wrote", "commitlog/0"),
        (9, "sync", "commitlog/0"),
    ]
    caller = "test_simulated_disk.py:_workload"
    assert operations[3].site == ("allocate", "commitlog", caller)
    assert operations[1].site == ("sync_dir", "root", caller)
    assert disk.sites() == {op.site for op in operations}
    assert disk.operation_count == 9
    assert [path_class(p) for p in ("", "checkpoint.tmp", "config/a.json", "lock")] == [
        "root",
        "checkpoint",
        "config",
        "lock",
    ]


def test_the_power_can_be_cut_before_every_operation() -> None:
    for number in range(1, 10):
        disk = SimulatedDisk(crash_at=number)
        with pytest.raises(SimulatedCrash):
            _workload(disk)
        assert disk.operation_count == number - 1
        trees = _after_a_cut(disk)
        assert any(tree == {} for tree in trees) == (number <= 6)
    disk = SimulatedDisk(crash_at=10)
    _workload(disk)
    assert [tree["commitlog/0"][:5] for tree in _after_a_cut(disk)] == [b"hello"]


def test_crash_points_leave_out_what_cannot_differ() -> None:
    disk = SimulatedDisk()
    _workload(disk)
    # Mapping (7) changes nothing, so a cut before 7 is covered by the one before 8.
    assert disk.crash_points() == [1, 2, 3, 4, 5, 6, 8, 9, 10]


def test_the_dead_process_changes_nothing_any_more() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"old")
    file = disk.open("a")
    buffer = file.buffer()
    disk.crash_at(disk.operation_count + 1)
    with pytest.raises(SimulatedCrash):
        file.sync()
    buffer[:] = b"new"
    for call in (file.sync, lambda: file.read(0, 1), lambda: disk.unlink("a")):
        with pytest.raises(SimulatedCrash):
            call()
    file.close()
    assert _after_a_cut(disk) == [{"a": b"old"}]


def test_an_observer_sees_the_disk_before_each_operation() -> None:
    disk = SimulatedDisk()
    seen: list[tuple[int, int]] = []
    disk.on_operation = lambda number: seen.append((number, len(list(disk.crash_states()))))
    _workload(disk)
    again = []
    for number in range(1, 10):
        cut = SimulatedDisk(crash_at=number)
        with pytest.raises(SimulatedCrash):
            _workload(cut)
        again.append((number, len(list(cut.crash_states()))))
    assert seen == again


def test_a_killed_process_leaves_the_cache() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", b"old")
    file = disk.open("a")
    assert file.try_lock()
    file.buffer()[:] = b"new"
    disk.create("b").write(0, b"b")
    disk.rename("b", "c")
    after = disk.kill()
    assert after.boot_id() == disk.boot_id()
    assert after.tree() == {"a": b"new", "c": b"b"}
    assert after.open("a").try_lock()
    file_trees = _after_a_cut(after)
    assert {tree["a"] for tree in file_trees} == {b"old", b"new"}
    assert {tree.get("c") for tree in file_trees} == {None, b"", b"\0", b"b"}
    with pytest.raises(SimulatedCrash):
        file.sync()


def test_an_orderly_restart_keeps_everything() -> None:
    disk = SimulatedDisk()
    disk.create("a").write(0, b"content")
    after = disk.reboot()
    assert after.tree() == {"a": b"content"}
    assert _after_a_cut(after) == [{"a": b"content"}]
    assert after.boot_id() != disk.boot_id()


def test_a_sector_may_hold_what_it_held_between_two_stores() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", _sectors("x", "x"))
    file = disk.open("a")
    for letter in "123":
        file.write(0, _sectors(letter))
    file.write(SECTOR_SIZE, _sectors("y"))
    contents = {disk.reboot(state).content("a") for state in disk.crash_states()}
    assert contents == {
        _sectors(first, second) for first in ("x", "1", "2", "3") for second in ("x", "y")
    }
    # Also when the last store has undone the first one.
    file.write(0, _sectors("x"))
    file.write(SECTOR_SIZE, _sectors("x"))
    contents = {disk.reboot(state).content("a") for state in disk.crash_states()}
    assert _sectors("2", "y") in contents
    file.sync()
    contents = {disk.reboot(state).content("a") for state in disk.crash_states()}
    assert contents == {_sectors("x", "x")}


def test_what_a_mapped_file_held_between_two_stores() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", bytes(2 * SECTOR_SIZE))
    file = disk.open("a")
    view = file.buffer()
    for start in (500, 510):
        view[start : start + 10] = b"y" * 10
        file.wrote(start, start + 10)
    first = {
        disk.reboot(state).content("a")[500:SECTOR_SIZE] for state in disk.crash_states(limit=64)
    }
    assert first == {bytes(12), b"y" * 10 + bytes(2), b"y" * 12}
    del view
    file.close()


def test_middle_versions_are_among_the_states_when_not_all_can_be() -> None:
    disk = SimulatedDisk()
    _durable_file(disk, "a", bytes(40 * SECTOR_SIZE))
    file = disk.open("a")
    file.write(0, b"1" * (40 * SECTOR_SIZE))
    file.write(0, b"2" * (40 * SECTOR_SIZE))
    states = list(disk.crash_states(limit=300))
    contents = [disk.reboot(state).content("a") for state in states]
    assert sum(b"1" in content for content in contents) > 20
    assert any("middle version" in state.describe() for state in states)
