"""Files of a log that is opened."""

from __future__ import annotations

import pytest

from broker_core.errors import CorruptStore, StoreUnusable
from broker_core.storage.state.recovery import (
    check_files_present,
    list_log,
    remove_old_files,
)
from tests.store.small_store import new_disk

SIZE = 16 << 10


class TestFiles:
    def test_names_are_checked(self) -> None:
        for name in ("x", "0" * 19, "0" * 21, "0000000000000000000x", "٠" * 20):
            disk = new_disk()
            disk.put(f"commitlog/{name}", b"")
            with pytest.raises(StoreUnusable):
                list_log(disk, SIZE, None)

    def test_files_below_the_log_start_are_removed(self) -> None:
        disk = new_disk()
        for number in range(4):
            disk.put(f"commitlog/{number * SIZE:020d}", b"")
        found = list_log(disk, SIZE, 2 * SIZE)
        assert found.bases == [2 * SIZE, 3 * SIZE]
        assert len(found.old) == 2
        remove_old_files(disk, found.old)
        assert len(disk.files()) == 2

    @pytest.mark.parametrize(
        ("numbers", "log_start", "durable"),
        [
            ([], None, 0),
            ([0, 1, 2], None, 0),
            ([5, 6], None, 0),
            ([0, 1], 0, 2 * SIZE),
            ([3, 4], 3 * SIZE, 4 * SIZE + 7),
            ([], 0, 0),
            ([], 2 * SIZE, 2 * SIZE),
        ],
    )
    def test_complete_logs(self, numbers: list[int], log_start: int | None, durable: int) -> None:
        check_files_present([n * SIZE for n in numbers], SIZE, log_start, durable)

    @pytest.mark.parametrize(
        ("numbers", "log_start", "durable", "missing"),
        [
            ([0, 2], None, 0, 1),
            ([1, 2], 0, SIZE, 0),
            ([], 0, 1, 0),
            ([0, 1], 0, 2 * SIZE + 1, 2),
            ([3, 4, 6], 3 * SIZE, 4 * SIZE, 5),
        ],
    )
    def test_logs_with_a_missing_file(
        self, numbers: list[int], log_start: int | None, durable: int, missing: int
    ) -> None:
        with pytest.raises(CorruptStore, match=f"{missing * SIZE:020d}") as caught:
            check_files_present([n * SIZE for n in numbers], SIZE, log_start, durable)
        assert caught.value.position == missing * SIZE
