"""Files that are replaced atomically."""

from __future__ import annotations

import contextlib

from broker_core.storage.files.atomic_file import (
    read_file,
    replace_file,
    replace_file_keeping_backup,
)
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk
from tests.store.small_store import new_disk


class TestReplacement:
    def contents(self, disk: SimulatedDisk, replace: object) -> list[set[str]]:
        """Per crash point, the files that the crash states show under the name and its backup."""
        outcomes = []
        for number in range(1, 30):
            attempt = disk.reboot()
            attempt.crash_at(number)
            with contextlib.suppress(SimulatedCrash):
                replace(attempt, "t", b"new")  # type: ignore[operator]
            for state in attempt.crash_states():
                rebooted = attempt.reboot(state)
                outcomes.append((read_file(rebooted, "t"), read_file(rebooted, "t.bak")))
        return outcomes

    def test_the_old_content_or_the_new_and_nothing_else(self) -> None:
        disk = new_disk()
        replace_file(disk, "t", b"old")
        outcomes = {main for main, _ in self.contents(disk, replace_file)}
        assert outcomes == {b"old", b"new"}

    def test_with_a_backup_one_of_the_two_files_is_always_whole(self) -> None:
        disk = new_disk()
        replace_file_keeping_backup(disk, "t", b"old")
        outcomes = self.contents(disk, replace_file_keeping_backup)
        assert all(b"old" in pair or b"new" in pair for pair in outcomes)
        assert outcomes[-1] == (b"new", b"old")

    def test_a_leftover_of_an_interrupted_attempt(self) -> None:
        disk = new_disk()
        disk.put("t.tmp", b"half")
        replace_file(disk, "t", b"new")
        assert disk.tree() == {"t": b"new"}
        assert read_file(disk, "missing") is None
