"""Few open files for many queues."""

from __future__ import annotations

import pytest

from broker_core.storage.derived.queue_files import QueueFiles
from tests.store.small_store import new_disk


def test_files_are_opened_again_on_demand() -> None:
    disk = new_disk()
    files = QueueFiles(disk, open_max=2)
    for name in ("a", "b", "c"):
        files.create(name, 4).write(0, name.encode() * 4)
    for name in ("a", "b", "c", "a"):
        assert files.get(name).read(0, 4) == name.encode() * 4
    files.close()


def test_the_least_recently_used_is_closed() -> None:
    files = QueueFiles(new_disk(), open_max=2)
    first = files.create("a", 1)
    files.create("b", 1)
    assert files.get("a") is first
    files.create("c", 1)
    assert files.get("a") is first, "b was used longer ago"
    files.close()


def test_a_leftover_is_replaced_and_a_missing_file_is_an_error() -> None:
    disk = new_disk()
    files = QueueFiles(disk)
    files.create("a", 4).write(0, b"old!")
    assert files.create("a", 2).read(0, 4) == b"\0\0"
    files.forget("a")
    files.forget("never opened")
    with pytest.raises(FileNotFoundError):
        files.get("missing")
    files.close()
