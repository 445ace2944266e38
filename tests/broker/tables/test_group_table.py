"""Consumer groups: creation, look-up, change, limits, and a power cut."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from broker_core.broker.tables.group_table import GROUPS_FILE, GroupTable
from broker_core.codec.wire.bodies.group_config import (
    EXTRA_DEPTH_MAX,
    GroupConfig,
    parse_group_config,
)
from broker_core.codec.wire.topic_name import SYSTEM_GROUPS
from broker_core.errors import DiskFailed, InvalidArgument, LimitReached, StoreUnusable
from tests.broker.broker_tables import group_table
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

APACHE = b"""{"dataVersion":{"counter":7,"stateVersion":0,"timestamp":1690000000000},
 "forbiddenTable":{"g1":{"T":4}},
 "subscriptionGroupTable":{"g1":{"attributes":{},"brokerId":0,"consumeBroadcastEnable":false,
  "consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,
  "consumeTimeoutMinute":15,"groupName":"g1","groupRetryPolicy":{"type":"CUSTOMIZED"},
  "groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":2,
  "whichBrokerWhenConsumeSlowly":1}}}"""


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


@pytest.fixture
def table(disk: SimulatedDisk) -> GroupTable:
    return group_table(disk)


def test_system_groups_are_there_from_the_start(table: GroupTable) -> None:
    assert [group.name for group in table.all()] == sorted(SYSTEM_GROUPS)
    assert all(table.is_system(name) for name in SYSTEM_GROUPS)
    assert not table.is_system("CG")


def test_a_group_is_made_when_it_is_first_seen(table: GroupTable, disk: SimulatedDisk) -> None:
    made = table.find_or_create("CG")
    assert made == GroupConfig("CG")
    assert table.find_or_create("CG") is made
    assert table.find("CG") is made
    assert group_table(disk).find("CG") == made


def test_without_auto_creation_only_system_groups_are_made(disk: SimulatedDisk) -> None:
    table = group_table(disk, auto_create=False)
    assert table.find_or_create("CG") is None
    assert table.find_or_create("CID_RMQ_SYS_anything") is not None
    table.put(GroupConfig("CG"))
    assert table.find_or_create("CG") == GroupConfig("CG")


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "/a", "a/b", "a\\b", "a\0", "g" * 121, "gгруппа", "%", "NUL", "a.b"]
)
def test_bad_names(table: GroupTable, disk: SimulatedDisk, name: str) -> None:
    tree = disk.tree()
    with pytest.raises(InvalidArgument):
        table.find_or_create(name)
    with pytest.raises(InvalidArgument):
        table.put(GroupConfig(name))
    assert disk.tree() == tree


def test_changes_move_the_version_and_are_kept(table: GroupTable, disk: SimulatedDisk) -> None:
    before = table.version
    table.put(GroupConfig("CG", retry_times_max=3))
    table.put(GroupConfig("CG", retry_times_max=3))
    assert table.version.counter == before.counter + 1
    table.put(GroupConfig("CG", consume_enable=False, extra={"groupSysFlag": 1}))
    again = group_table(disk)
    assert (again.all(), again.version) == (table.all(), table.version)
    assert table.delete("CG")
    assert not table.delete("CG")
    assert group_table(disk).find("CG") is None


def test_limits(disk: SimulatedDisk) -> None:
    table = group_table(disk, groups_max=len(SYSTEM_GROUPS) + 1)
    table.find_or_create("a")
    with pytest.raises(LimitReached, match="groupsMax"):
        table.find_or_create("b")
    table.put(GroupConfig("a", retry_times_max=1))
    assert len(table) == len(SYSTEM_GROUPS) + 1


def test_a_file_of_apache_is_read_and_written_back_whole(disk: SimulatedDisk) -> None:
    disk.put(GROUPS_FILE, APACHE)
    table = group_table(disk)
    group = table.find("g1")
    assert group is not None
    assert (group.retry_times_max, group.retry_queue_count) == (3, 2)
    assert not group.consume_broadcast_enable
    assert table.forbidden == {"g1": {"T": 4}}
    written = json.loads(disk.content(GROUPS_FILE))
    expected = json.loads(APACHE)
    assert written["subscriptionGroupTable"]["g1"] == expected["subscriptionGroupTable"]["g1"]
    assert written["forbiddenTable"] == expected["forbiddenTable"]
    assert written["dataVersion"]["counter"] == 8


def test_the_deepest_group_that_is_accepted_can_be_loaded_again(disk: SimulatedDisk) -> None:
    deep: Any = 1
    for _ in range(EXTRA_DEPTH_MAX - 1):
        deep = [deep]
    table = group_table(disk)
    table.put(parse_group_config({"groupName": "CG", "x": deep}))
    assert group_table(disk).find("CG") == table.find("CG")


def test_bad_names_in_the_file_are_left_out(disk: SimulatedDisk) -> None:
    groups: dict[str, Any] = {name: {"groupName": name} for name in ("../x", "g" * 121, "good")}
    disk.put(GROUPS_FILE, json.dumps({"subscriptionGroupTable": groups}).encode())
    assert {group.name for group in group_table(disk).all()} == {*SYSTEM_GROUPS, "good"}


@pytest.mark.parametrize("groups", [[], {"g": 1}, {"g": {"retryQueueNums": "x"}}])
def test_a_file_of_another_shape_is_refused_and_stays(disk: SimulatedDisk, groups: Any) -> None:
    disk.put(GROUPS_FILE, json.dumps({"subscriptionGroupTable": groups}).encode())
    tree = disk.tree()
    with pytest.raises(StoreUnusable, match=r"subscriptionGroup\.json"):
        group_table(disk)
    assert disk.tree() == tree


def test_what_is_not_written_did_not_happen(table: GroupTable, disk: SimulatedDisk) -> None:
    table.put(GroupConfig("CG"))
    before = (table.all(), table.version)
    disk.fail(disk.operation_count + 1, errno.EIO, sticky=True)
    for change in (
        lambda: table.put(GroupConfig("CG", retry_times_max=1)),
        lambda: table.find_or_create("other"),
        lambda: table.delete("CG"),
    ):
        with pytest.raises(DiskFailed):
            change()
    assert (table.all(), table.version) == before


def test_every_power_cut_leaves_the_table_before_or_after(
    table: GroupTable, disk: SimulatedDisk
) -> None:
    table.put(GroupConfig("a"))
    seen = set()

    def power_fails(_: int) -> None:
        for state in list(disk.crash_states(32)):
            found = group_table(disk.reboot(state))
            assert found.find("a") == GroupConfig("a")
            seen.add(found.find("b") == GroupConfig("b"))

    disk.on_operation = power_fails
    table.find_or_create("b")
    assert seen == {False, True}
