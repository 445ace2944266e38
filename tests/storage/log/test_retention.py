"""The retention plan, and its execution: files are hidden before they are removed."""

from __future__ import annotations

import pytest

from broker_core.protocol_codes import GetStatus
from broker_core.storage.files.file_system import DiskUsage
from broker_core.storage.log.retention import (
    HOUR_MS,
    AgedFile,
    RetentionLimits,
    plan_retention,
    used_percent,
)
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import bodies, new_disk, numbered, open_small, put_all

LIMITS = RetentionLimits(72, frozenset((4,)), 75, 85, 90, True, 10)
OLD, YOUNG = 72 * HOUR_MS, 72 * HOUR_MS - 1


def files(*ages: int) -> list[AgedFile]:
    return [AgedFile(n * 100, n * 100 + 100, ms) for n, ms in enumerate(ages)]


@pytest.mark.parametrize(
    ("used", "usable", "percent"),
    [(0, 0, 0), (0, 10, 0), (1, 99, 1), (1, 999, 1), (75, 25, 75), (751, 249, 76), (10, 0, 100)],
)
def test_used_space_is_rounded_up(used: int, usable: int, percent: int) -> None:
    assert used_percent(used, usable) == percent


@pytest.mark.parametrize(
    ("hour", "used", "manual", "deletes"),
    [
        (4, 10, False, "expired"),
        (5, 10, False, "nothing"),
        (5, 10, True, "expired"),
        (5, 75, False, "nothing"),
        (5, 76, False, "expired"),
        (5, 85, False, "expired"),
        (5, 86, False, "everything"),
        (5, 91, False, "everything"),
        (5, 100, False, "everything"),
    ],
)
def test_what_is_deleted_when(hour: int, used: int, manual: bool, deletes: str) -> None:
    log = files(OLD, OLD, YOUNG, OLD, YOUNG)
    plan = plan_retention(log, hour, used, LIMITS, manual=manual)
    expected = {"nothing": 0, "expired": 200, "everything": 400}[deletes]
    assert plan.delete_before == expected, "oldest first, up to the first file that must stay"
    assert bool(plan.reason) == (expected > 0)


@pytest.mark.parametrize(
    ("used", "flag"), [(0, False), (85, False), (86, None), (90, None), (91, True), (100, True)]
)
def test_the_disk_full_flag(used: int, flag: bool | None) -> None:
    assert plan_retention([], 5, used, LIMITS).disk_full is flag


def test_the_last_file_stays_and_a_round_is_limited() -> None:
    assert plan_retention(files(OLD), 4, 99, LIMITS).delete_before == 0
    assert plan_retention([], 4, 99, LIMITS).delete_before == 0
    many = files(*[OLD] * 50)
    assert plan_retention(many, 4, 10, LIMITS).delete_before == 1_000
    assert plan_retention(many, 4, 99, LIMITS).delete_before == 1_000


def test_without_force_only_expired_files_go() -> None:
    gentle = LIMITS._replace(forcibly=False)
    plan = plan_retention(files(OLD, YOUNG, YOUNG), 5, 99, gentle)
    assert (plan.delete_before, plan.disk_full) == (100, True)


def test_levels_are_clamped_as_apache_does() -> None:
    high = LIMITS._replace(forcible_ratio=99, warning_ratio=99)
    plan = plan_retention(files(YOUNG, YOUNG), 5, 91, high)
    assert (plan.delete_before, plan.disk_full) == (100, True)
    low = LIMITS._replace(forcible_ratio=1, warning_ratio=1)
    assert plan_retention(files(YOUNG, YOUNG), 5, 30, low).delete_before == 0
    assert plan_retention(files(YOUNG, YOUNG), 5, 36, low).disk_full is True


class TestCleaning:
    """On a whole store: files of 16 KiB, twelve messages of 4 KB in four files."""

    def filled(self, **settings: object) -> tuple[MessageStore, SimulatedDisk]:
        disk = new_disk()
        store = open_small(disk, **settings)
        put_all(store, "T", numbered(12, 4_000), keys="k")
        put_all(store, "Other", [b"x"])
        assert store.log_range[0] == 0
        return store, disk

    def test_expired_files_go_with_their_queue_and_index_entries(self) -> None:
        store, disk = self.filled()
        assert store.clean(manual=True) == 0, "nothing has expired"
        disk.clock.advance(72 * HOUR_MS)
        start = store.clean(manual=True)
        assert start == store.log_range[0] == 3 * (16 << 10)
        left = [path for path in disk.files() if path.startswith("commitlog/")]
        assert left[0] == f"commitlog/{start:020d}"
        low, high = store.offsets("T", 0)
        assert (low, high) == (9, 12)
        assert bodies(store, "T") == numbered(3, 4_000, first=9)
        result = store.get("T", 0, 0)
        assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 9)
        assert len(store.query("T", "k")) == 3
        assert store.message_at(0) is None
        assert store.offset_by_time("T", 0, 0) == 9
        assert bodies(store, "Other") == [b"x"]

    def test_a_queue_whose_records_are_all_gone_keeps_its_numbers(self) -> None:
        store, disk = self.filled()
        put_all(store, "Late", numbered(12, 4_000))
        disk.clock.advance(72 * HOUR_MS)
        store.clean(manual=True)
        assert store.offsets("T", 0) == (12, 12)
        result = store.get("T", 0, 12)
        assert result.status is GetStatus.OFFSET_OVERFLOW_ONE
        store.close()
        again = open_small(disk)
        assert again.offsets("T", 0) == (12, 12)
        assert again.put_now(Message("T", b"next")).queue_offset == 12
        assert bodies(again, "T") == [b"next"]

    def test_the_result_survives_close_and_kill(self) -> None:
        for end in ("close", "kill"):
            store, disk = self.filled()
            disk.clock.advance(72 * HOUR_MS)
            start = store.clean(manual=True)
            if end == "close":
                store.close()
            again = open_small(disk.kill())
            assert again.log_range[0] == start
            assert bodies(again, "T") == numbered(3, 4_000, first=9)
            assert len(again.query("T", "k")) == 3
            assert again.put_now(Message("T", b"next")).queue_offset == 12

    def test_forced_by_space(self) -> None:
        store, disk = self.filled()
        disk.reported_usage = DiskUsage(86, 14)
        assert store.clean() == 3 * (16 << 10)
        assert bodies(store, "T") == numbered(3, 4_000, first=9)

    def test_the_clock_starts_it(self) -> None:
        store, disk = self.filled(delete_when="00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;"
                                  "17;18;19;20;21;22;23")  # fmt: skip
        disk.clock.advance(72 * HOUR_MS)
        store.scheduler.tick()
        assert store.log_range[0] == 3 * (16 << 10)

    def test_a_damaged_queue_file_does_not_stop_it(self) -> None:
        """Raising the minimum reads queue units; a bad checksum there must be healed, not fatal."""
        store, disk = self.filled()
        store.close()
        path = next(p for p in disk.files() if p.startswith("consumequeue/T/0/"))
        disk.flip(path, 8 * 25)
        store = open_small(disk)
        disk.clock.advance(72 * HOUR_MS)
        assert store.clean(manual=True) == 3 * (16 << 10)
        assert store.offsets("T", 0) == (9, 12)
        assert bodies(store, "T") == numbered(3, 4_000, first=9)
        store.close()
        again = open_small(disk)
        assert bodies(again, "T") == numbered(3, 4_000, first=9)
