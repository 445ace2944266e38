"""R10 (RocketMQ #5905, #9705, #3401): a table was empty or garbage after a power cut.

So was its backup; the broker did not start, or consumed everything again.
"""

from __future__ import annotations

import pytest

from broker_core.storage.files.json_table import JsonTable
from tests.crash.planted_bugs import table_in_place
from tests.fakes.simulated_disk import SimulatedDisk
from tests.regress.small_disk_store import new_disk, reboots

PATH = "config/consumerOffset.json"


def _table(number: int) -> dict[str, object]:
    return {"offsetTable": {"orders@group": {"0": number}}, "padding": "z" * 700 * number}


def _save_and_cut(disk: SimulatedDisk, number: int, depth: int) -> int:
    """Save with a power cut before each operation; after it, the same once more."""
    allowed = [_table(number - 1) if number > 1 else None, _table(number)]
    cuts = 0

    def power_fails(_: int) -> None:
        nonlocal cuts
        for after in reboots(disk, 32):
            found = JsonTable(after, PATH).load()
            assert found in allowed, "neither the old table nor the new one"
            cuts += 1
            if depth and cuts % 3 == 0:
                cuts += _save_and_cut(_as_saved(after, found, number), number + 1, depth - 1)

    disk.on_operation = power_fails
    JsonTable(disk, PATH).save(_table(number))
    disk.on_operation = None
    return cuts


def _as_saved(disk: SimulatedDisk, found: object, number: int) -> SimulatedDisk:
    """The broker that came back saves once without trouble, so that the next cut has an old one."""
    if found != _table(number):
        JsonTable(disk, PATH).save(_table(number))
    return disk


def _scenario() -> None:
    for zero_length_renames in (False, True):
        disk = new_disk(zero_length_renames=zero_length_renames)
        cuts = sum(_save_and_cut(disk, number, 1) for number in (1, 2, 3))
        assert cuts > 300


def test_a_table_is_the_old_or_the_new_one() -> None:
    _scenario()


def test_the_scenario_finds_a_table_written_in_place() -> None:
    with table_in_place(), pytest.raises(Exception, match=r"neither|damage"):
        _scenario()
