"""Which store of a broker name is the master's when a cluster starts again."""

from __future__ import annotations

from pathlib import Path

from broker_core.broker.replication.persisted_roles import kept_master, member_id, stored_history
from broker_core.replication.epoch_file import save_history
from broker_core.replication.log_epochs import TERM, EpochHistory, LastRole
from broker_core.storage.files.posix_file_system import PosixFileSystem


def store(root: Path, number: int, seen: int, role: LastRole) -> str:
    path = root / str(number)
    path.mkdir()
    file_system = PosixFileSystem(str(path))
    save_history(file_system, EpochHistory(seen=seen, role=role))
    file_system.close()
    return str(path)


def test_the_newest_master_of_all_stores(tmp_path: Path) -> None:
    stores = {
        0: store(tmp_path, 0, TERM, LastRole.MASTER),
        1: store(tmp_path, 1, 3 * TERM, LastRole.SLAVE),
        2: store(tmp_path, 2, 2 * TERM, LastRole.MASTER),
    }
    assert stored_history(stores[1]).role is LastRole.SLAVE
    assert kept_master(stores) == 2, "a replaced master still calls itself one"
    assert kept_master({0: stores[0], 1: stores[1]}) == 0


def test_new_stores_follow_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert kept_master({0: str(tmp_path / "empty")}) == 0


def test_the_first_and_the_promoted_member_swap_their_ids() -> None:
    assert [member_id(number, 2) for number in range(4)] == [2, 1, 0, 3]
    assert [member_id(number, 0) for number in range(3)] == [0, 1, 2]
