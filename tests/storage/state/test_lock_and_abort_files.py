"""The lock and the abort file."""

from __future__ import annotations

import pytest

from broker_core.errors import StoreLocked
from broker_core.storage.state.lock_and_abort_files import (
    ended_cleanly,
    mark_running,
    mark_stopped,
    take_lock,
)
from tests.store.small_store import new_disk


class TestLockAndAbortFiles:
    def test_abort_is_there_while_a_store_runs(self) -> None:
        disk = new_disk()
        assert ended_cleanly(disk)
        mark_running(disk, 4711)
        assert disk.content("abort") == b"4711"
        for state in disk.crash_states():
            assert not ended_cleanly(disk.reboot(state))
        mark_running(disk, 4712)
        mark_stopped(disk)
        for state in disk.crash_states():
            assert ended_cleanly(disk.reboot(state))
        mark_stopped(disk)

    def test_the_lock_has_one_owner(self) -> None:
        disk = new_disk()
        lock = take_lock(disk)
        assert disk.content("lock") == b"lock"
        with pytest.raises(StoreLocked):
            take_lock(disk)
        lock.close()
        take_lock(disk).close()
