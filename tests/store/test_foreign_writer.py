"""A directory that another broker used between two runs of ours, retention included."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker_core import GetStatus, Message, MessageStore, StoreConfig
from broker_core.errors import CorruptStore

CONFIG = StoreConfig(
    commit_log_file_size=4096,
    consume_queue_file_size=200,
    index_hash_slots=10,
    index_entries_max=20,
)
OWN_FILES = ("store_state", "dispatch_checkpoint")


def _fill(directory: Path, count: int) -> None:
    with MessageStore.open(directory, CONFIG) as store:
        for number in range(count):
            assert store.put_now(Message("T", b"%d" % number * 20)).ok


def _first_log_file(directory: Path) -> Path:
    return min((directory / "commitlog").iterdir())


def test_files_that_another_broker_removed_are_no_damage(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    _fill(ours, 60)
    saved = {name: (ours / name).read_bytes() for name in OWN_FILES}
    for name in OWN_FILES:
        (ours / name).unlink()  # another broker does not have them
    _fill(ours, 30)
    for name, content in saved.items():
        (ours / name).write_bytes(content)
    _first_log_file(ours).unlink()
    with MessageStore.open(ours, CONFIG) as store:
        low, high = store.offsets("T", 0)
        assert (store.log_range[0], high) == (4096, 90)
        found = store.get("T", 0, low, 100)
        assert (found.status, found.message_count) == (GetStatus.FOUND, high - low)
        assert store.put_now(Message("T", b"next")).queue_offset == 90
    with MessageStore.open(ours, CONFIG) as store:
        assert store.recovery.clean


def test_a_missing_first_file_of_our_own_is_damage(tmp_path: Path) -> None:
    _fill(tmp_path / "ours", 60)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "ours", copy)
    _first_log_file(copy).unlink()
    with pytest.raises(CorruptStore, match="missing"):
        MessageStore.open(copy, CONFIG)
