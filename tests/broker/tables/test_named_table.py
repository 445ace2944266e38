"""What topics and groups share: a change is on disk, or it did not happen."""

from __future__ import annotations

import errno

import pytest

from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.errors import DiskFailed
from tests.broker.broker_tables import group_table
from tests.store.small_store import new_disk


def test_several_changes_are_one_write_and_one_version() -> None:
    table = group_table(new_disk())
    before = table.version
    table.change({"a": GroupConfig("a"), "b": GroupConfig("b")})
    assert table.find("a") is not None
    assert table.version.counter == before.counter + 1
    table.change({"a": None, "c": GroupConfig("c")})
    assert {"b", "c"} <= set(table.names())
    assert table.find("a") is None
    assert table.names() == sorted(table.names())


def test_a_change_that_cannot_be_written_is_undone() -> None:
    disk = new_disk()
    table = group_table(disk)
    table.put(GroupConfig("a", retry_times_max=3))
    before = table.all(), table.version
    disk.fail(disk.operation_count + 1, errno.EIO, sticky=True)
    with pytest.raises(DiskFailed):
        table.change({"a": None, "b": GroupConfig("b")})
    assert (table.all(), table.version) == before


def test_deleting_what_is_not_there() -> None:
    table = group_table(new_disk())
    assert not table.delete("nothing")
    table.put(GroupConfig("a"))
    assert table.delete("a")
    assert table.find("a") is None
