"""Retention plan: which commit-log files to delete and why, and whether the disk is full. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HOUR_MS = 3_600_000


class AgedFile(NamedTuple):
    """One commit-log file."""

    base: int
    end: int
    age_ms: int


class RetentionLimits(NamedTuple):
    """Percentages of the partition, hours and counts, from the configuration."""

    reserved_hours: int
    delete_hours: frozenset[int]
    used_ratio_max: int
    forcible_ratio: int
    warning_ratio: int
    forcibly: bool
    files_per_round: int


class RetentionPlan(NamedTuple):
    """Delete whole files below `delete_before`; `disk_full` None leaves the flag as it is."""

    delete_before: int
    disk_full: bool | None
    reason: str


def used_percent(used: int, usable: int) -> int:
    """Rounded up, as RocketMQ does."""
    total = used + usable
    return 0 if total == 0 else -(-used * 100 // total)


def plan_retention(
    files: Sequence[AgedFile],
    local_hour: int,
    used: int,
    limits: RetentionLimits,
    *,
    manual: bool = False,
) -> RetentionPlan:
    """Oldest first and never the last file; expired ones only, unless space forces it."""
    forcible_level = min(max(limits.forcible_ratio, 30), 85)
    warning_level = min(max(limits.warning_ratio, 35), 90)
    forced = limits.forcibly and used > forcible_level
    disk_full: bool | None = None
    if used > warning_level:
        disk_full = True
    elif used <= forcible_level:
        disk_full = False
    start = files[0].base if files else 0
    in_hours = local_hour in limits.delete_hours
    if not (in_hours or manual or forced or used > limits.used_ratio_max):
        return RetentionPlan(start, disk_full, "")
    reason = "the disk is too full" if forced else "its retention time has passed"
    delete_before = start
    for file in files[:-1][: limits.files_per_round]:
        if not forced and file.age_ms < limits.reserved_hours * HOUR_MS:
            break
        delete_before = file.end
    return RetentionPlan(delete_before, disk_full, reason if delete_before > start else "")
