"""The verdict of recovery: pure, and the same as what opening the store then does."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.config import StoreConfig
from broker_core.errors import CorruptStore, InvalidArgument, StoreLocked
from broker_core.store.message_store import MessageStore
from broker_core.store.opening.verdict import check_directory, check_store
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import SMALL, new_disk, open_small

LOG = "commitlog/00000000000000000000"


def _filled(disk: SimulatedDisk) -> MessageStore:
    store = open_small(disk)
    for number in range(5):
        store.put_now(Message("T", b"%d" % number, keys="k"))
    return store


def test_a_clean_store() -> None:
    disk = new_disk()
    store = _filled(disk)
    end = store.log_range[1]
    store.close()
    tree = disk.tree()
    found = check_store(disk, StoreConfig(**SMALL))
    assert disk.tree() == tree, "nothing is changed"
    assert found.is_sound
    verdict = found.verdict
    assert verdict is not None
    assert (verdict.clean_stop, verdict.trusted) == (True, True)
    assert (verdict.log_end, verdict.checked_from, verdict.end_reason) == (end, end, "")
    assert (verdict.cut.removed, verdict.cut.zeroed) == ((), ())
    assert (found.rebuilt_queues, found.index_rebuilt_from) == ((), None)


def test_after_a_kill_it_is_what_opening_does() -> None:
    disk = new_disk()
    _filled(disk)
    killed = disk.kill()
    tree = killed.tree()
    found = check_store(killed, StoreConfig(**SMALL))
    assert killed.tree() == tree
    verdict = found.verdict
    assert verdict is not None
    assert found.is_sound
    assert not verdict.clean_stop
    with open_small(killed) as store:
        report = store.recovery
        assert (verdict.log_start, verdict.log_end) == store.log_range
        assert verdict.end_reason == report.cut_reason
        assert verdict.dispatched_from == report.dispatched_from
        assert found.index_rebuilt_from == report.index_rebuilt_from


def test_a_torn_record_behind_the_watermark_would_be_cut() -> None:
    disk = new_disk()
    end = _filled(disk).log_range[1]
    killed = disk.kill()
    content = bytearray(killed.content(LOG))
    content[end : end + 12] = content[:12]
    killed.put(LOG, bytes(content))
    found = check_store(killed, StoreConfig(**SMALL))
    assert found.verdict is not None
    assert (found.is_sound, found.verdict.log_end) == (False, end)
    assert found.cut_bytes > 0
    assert found.verdict.end_reason
    assert (LOG.rpartition("/")[2], end) in found.verdict.cut.zeroed
    with open_small(killed) as store:
        assert store.log_range[1] == end
        assert store.recovery.cut_reason == found.verdict.end_reason
    assert check_store(killed, StoreConfig(**SMALL)).is_sound


def test_damage_to_durable_data_is_reported_and_not_cut() -> None:
    disk = new_disk()
    store = _filled(disk)
    store.close()
    disk.put("abort", b"")
    disk.unlink("dispatch_checkpoint")
    content = bytearray(disk.content(LOG))
    content[60] ^= 0xFF
    disk.put(LOG, bytes(content))
    tree = disk.tree()
    found = check_store(disk, StoreConfig(**SMALL))
    assert (found.verdict, found.is_sound) == (None, False)
    assert LOG in found.damage
    assert disk.tree() == tree
    with pytest.raises(CorruptStore, match="durable"):
        open_small(disk)


def test_without_a_checkpoint_all_is_rebuilt() -> None:
    disk = new_disk()
    _filled(disk).close()
    disk.unlink("dispatch_checkpoint")
    found = check_store(disk, StoreConfig(**SMALL))
    assert found.is_sound
    assert found.verdict is not None
    assert found.verdict.rebuilds_all


def test_a_lost_queue_file_is_named() -> None:
    disk = new_disk()
    _filled(disk).close()
    disk.unlink("consumequeue/T/0/00000000000000000000")
    found = check_store(disk, StoreConfig(**SMALL))
    assert found.rebuilt_queues == ("T-0",)
    with open_small(disk) as store:
        assert store.recovery.rebuilt_queues == 1


@pytest.mark.parametrize("files", [1, 3])
def test_the_file_size_is_taken_from_the_files(tmp_path: Path, files: int) -> None:
    root = tmp_path / "s"
    with MessageStore.open(root, StoreConfig(commit_log_file_size=4096)) as store:
        while len(list((root / "commitlog").iterdir())) < files or store.log_range[1] == 0:
            store.put_now(Message("T", bytes(500)))
        end = store.log_range[1]
    verdict = check_directory(str(root)).verdict
    assert verdict is not None
    assert verdict.log_end == end


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s"), pytest.raises(StoreLocked, match="another process"):
        check_directory(str(tmp_path / "s"))
    assert check_directory(str(tmp_path / "s")).is_sound


def test_a_directory_without_a_store(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidArgument):
            check_directory(str(directory))
    assert list(tmp_path.iterdir()) == []
