"""Progress of groups: never backwards, never past the end, old or new after a power cut."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.tables.offset_table import OFFSETS_FILE, RESET_SETTLES_MS, OffsetTable
from broker_core.errors import DiskFailed, InvalidArgument, LimitReached, StoreUnusable
from tests.broker.broker_tables import offset_table
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

APACHE = b"""{
\t"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1690000000000},
\t"groupTopicMap":{"g1":["TopicTest"]},
\t"offsetTable":{
\t\t"TopicTest@g1":{0:12,1:7},
\t\t"%RETRY%g1@g1":{0:3
\t\t}
\t}
}"""


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


@pytest.fixture
def table(disk: SimulatedDisk) -> OffsetTable:
    return offset_table(disk)


class TestCommits:
    def test_the_newest_is_kept(self, table: OffsetTable) -> None:
        assert table.query("g", "T", 0) is None
        assert table.commit("g", "T", 0, 0)
        assert table.query("g", "T", 0) == 0
        assert table.commit("g", "T", 0, 5)
        assert table.query("g", "T", 0) == 5
        assert table.query("g", "T", 1) is None
        assert table.query("other", "T", 0) is None

    def test_a_commit_never_goes_back(self, table: OffsetTable) -> None:
        table.commit("g", "T", 0, 5)
        for offset in (5, 4, 0):
            assert not table.commit("g", "T", 0, offset)
        assert table.query("g", "T", 0) == 5

    def test_a_reset_does(self, table: OffsetTable) -> None:
        table.commit("g", "T", 0, 5)
        table.reset("g", "T", 0, 2)
        assert table.query("g", "T", 0) == 2
        assert not table.commit("g", "T", 0, 1)
        assert table.commit("g", "T", 0, 3)
        table.reset("new", "T", 7, 9)
        assert table.query("new", "T", 7) == 9

    def test_a_reset_that_waits_for_a_pull_ignores_commits_until_then(
        self, table: OffsetTable
    ) -> None:
        table.commit("g", "T", 0, 5)
        assert not table.has_resets
        table.reset("g", "T", 0, 2, until_pulled=True)
        assert table.has_resets
        assert not table.commit("g", "T", 0, 8), "its consumer was not notified yet"
        assert table.commit("g", "T", 1, 8)
        assert table.take_reset("g", "T", 1, 8) is None
        assert table.take_reset("g", "T", 0, 8) == 2
        assert not table.commit("g", "T", 0, 8), "it is notified, and commits what it had once more"
        assert table.take_reset("g", "T", 0, 8) is None, "notified once"
        assert not table.commit("g", "T", 0, 8)
        assert table.take_reset("g", "T", 0, 2) is None
        assert not table.has_resets
        assert table.commit("g", "T", 0, 3)

    def test_a_member_that_has_the_offset_is_not_notified(self, table: OffsetTable) -> None:
        table.commit("g", "T", 0, 5)
        table.reset("g", "T", 0, 2, until_pulled=True)
        assert table.take_reset("g", "T", 0, 2) is None
        assert not table.has_resets
        assert table.commit("g", "T", 0, 3)

    def test_commits_are_accepted_again_when_no_member_follows(
        self, table: OffsetTable, disk: SimulatedDisk
    ) -> None:
        clock: Any = disk.clock
        table.commit("g", "T", 0, 5)
        table.reset("g", "T", 0, 2, until_pulled=True)
        assert table.take_reset("g", "T", 0, 8) == 2
        clock.advance(RESET_SETTLES_MS - 1)
        assert not table.commit("g", "T", 0, 8)
        clock.advance(1)
        assert table.commit("g", "T", 0, 8)
        assert not table.has_resets

    def test_a_second_reset_replaces_the_first(self, table: OffsetTable) -> None:
        table.reset("g", "T", 0, 5, until_pulled=True)
        table.reset("g", "T", 0, 2, until_pulled=True)
        assert table.take_reset("g", "T", 0, 9) == 2
        table.reset("g", "T", 0, 5, until_pulled=True)
        table.reset("g", "T", 0, 4)
        assert not table.has_resets

    def test_nothing_lies_past_the_end(self, disk: SimulatedDisk) -> None:
        ends = {("T", 0): 10}
        table = offset_table(disk, end_offset=lambda topic, queue: ends.get((topic, queue), 0))
        assert table.commit("g", "T", 0, 10)
        for queue_id, offset in ((0, 11), (0, 1 << 62), (0, -1), (1, 1), (1, -1)):
            assert not table.commit("g", "T", queue_id, offset)
            with pytest.raises(InvalidArgument, match="outside"):
                table.reset("g", "T", queue_id, offset)
        assert table.queues_of("g", "T") == {0: 10}
        ends["T", 0] = 11
        assert table.commit("g", "T", 0, 11)

    @pytest.mark.parametrize("queue_id", [-1, 1 << 31])
    def test_queues_that_cannot_exist(self, table: OffsetTable, queue_id: int) -> None:
        for call in (table.commit, table.reset):
            with pytest.raises(InvalidArgument, match="cannot exist"):
                call("g", "T", queue_id, 1)
        assert len(table) == 0

    def test_limits(self, disk: SimulatedDisk) -> None:
        table = offset_table(disk, offsets_max=2)
        table.commit("g", "T", 0, 1)
        table.commit("g", "T", 1, 1)
        for group, topic, queue_id in (("g", "T", 2), ("g", "U", 0), ("h", "T", 0)):
            with pytest.raises(LimitReached, match="offsetsMax"):
                table.commit(group, topic, queue_id, 1)
            with pytest.raises(LimitReached):
                table.reset(group, topic, queue_id, 1)
        assert table.commit("g", "T", 1, 2)
        assert (len(table), table.topics_of("g"), table.groups_of("T")) == (2, {"T"}, {"g"})
        table.remove_group("g")
        assert table.commit("h", "U", 0, 1)

    @pytest.mark.parametrize(
        ("group", "topic"), [("../g", "T"), ("g", "../T"), ("", "T"), ("g", "")]
    )
    def test_names_become_part_of_a_file(self, table: OffsetTable, group: str, topic: str) -> None:
        with pytest.raises(InvalidArgument):
            table.commit(group, topic, 0, 1)
        assert len(table) == 0


class TestLists:
    def test_groups_of_a_topic_and_topics_of_a_group(self, table: OffsetTable) -> None:
        table.commit("g", "T", 0, 1)
        table.commit("g", "U", 0, 2)
        table.commit("h", "T", 3, 4)
        assert table.topics_of("g") == {"T", "U"}
        assert table.groups_of("T") == {"g", "h"}
        assert table.queues_of("h", "T") == {3: 4}
        assert table.topics_of("x") == table.groups_of("x") == set()
        copy = table.queues_of("h", "T")
        copy[3] = 99
        assert table.query("h", "T", 3) == 4

    def test_forgetting(self, table: OffsetTable) -> None:
        for group in ("g", "h"):
            for topic in ("T", "U"):
                for queue_id in (0, 1):
                    table.commit(group, topic, queue_id, 5)
        table.reset("g", "T", 0, 1, until_pulled=True)
        table.remove_topic("T")
        assert (len(table), table.groups_of("T"), table.has_resets) == (4, set(), False)
        assert table.commit("g", "T", 0, 1), "another topic of the same name starts anew"
        table.remove_group("g")
        assert (len(table), table.topics_of("g")) == (2, set())
        table.remove_group("g")
        table.remove_topic("nowhere")


class TestFile:
    def test_only_changes_are_written(self, table: OffsetTable, disk: SimulatedDisk) -> None:
        assert not table.save()
        assert not disk.exists(OFFSETS_FILE)
        table.commit("g", "T", 0, 5)
        assert table.save()
        count = disk.operation_count
        table.commit("g", "T", 0, 5)
        table.commit("g", "T", 0, 4)
        table.reset("g", "T", 0, 5)
        assert not table.save()
        assert disk.operation_count == count

    def test_it_is_apaches_shape(self, table: OffsetTable, disk: SimulatedDisk) -> None:
        table.commit("g1", "TopicTest", 0, 12)
        table.commit("g1", "TopicTest", 1, 7)
        table.save()
        found = json.loads(disk.content(OFFSETS_FILE))
        assert found["offsetTable"] == {"TopicTest@g1": {"0": 12, "1": 7}}
        assert found["dataVersion"]["counter"] == 1

    def test_a_file_of_apache_is_read(self, disk: SimulatedDisk) -> None:
        disk.put(OFFSETS_FILE, APACHE)
        table = offset_table(disk)
        assert table.queues_of("g1", "TopicTest") == {0: 12, 1: 7}
        assert table.query("g1", "%RETRY%g1", 0) == 3
        assert (len(table), table.version.counter, table.has_unsaved) == (3, 3, False)

    def test_what_lies_past_the_log_is_cut_when_it_is_loaded(self, disk: SimulatedDisk) -> None:
        disk.put(OFFSETS_FILE, APACHE)
        table = offset_table(disk, end=9)
        assert table.queues_of("g1", "TopicTest") == {0: 9, 1: 7}
        assert table.has_unsaved
        assert table.save()
        assert offset_table(disk).queues_of("g1", "TopicTest") == {0: 9, 1: 7}

    def test_changes_during_a_write_are_written_next_time(
        self, table: OffsetTable, disk: SimulatedDisk
    ) -> None:
        table.commit("g", "T", 0, 1)
        unsaved = table.unsaved()
        assert unsaved is not None
        table.commit("g", "T", 0, 2)
        table.write(unsaved)
        table.written(unsaved)
        assert offset_table(disk).query("g", "T", 0) == 1
        assert table.save()
        assert offset_table(disk).query("g", "T", 0) == 2
        assert not table.has_unsaved

    def test_a_failed_write_stays_unsaved(self, table: OffsetTable, disk: SimulatedDisk) -> None:
        table.commit("g", "T", 0, 1)
        table.save()
        table.commit("g", "T", 0, 2)
        disk.fail(disk.operation_count + 1, errno.ENOSPC)
        with pytest.raises(DiskFailed):
            table.save()
        assert table.has_unsaved
        assert table.query("g", "T", 0) == 2
        assert table.save()
        assert offset_table(disk).query("g", "T", 0) == 2

    def test_names_that_cannot_be_are_left_out(self, disk: SimulatedDisk) -> None:
        names = ["a/b@g", "T@../g", "T", "@", "T@", "@g", "T@g@h", "T@g", "%LMQ%a/b@g"]
        content = {"offsetTable": {name: {"0": 1} for name in names}}
        disk.put(OFFSETS_FILE, json.dumps(content).encode())
        assert offset_table(disk).as_object()["offsetTable"] == {"T@g": {0: 1}}

    @pytest.mark.parametrize(
        "offsets", [[], {"T@g": []}, {"T@g": {"x": 1}}, {"T@g": {"0": "1"}}, {"T@g": {"0": 1.5}}]
    )
    def test_a_file_of_another_shape_is_refused_and_stays(
        self, disk: SimulatedDisk, offsets: Any
    ) -> None:
        disk.put(OFFSETS_FILE, json.dumps({"offsetTable": offsets}).encode())
        tree = disk.tree()
        with pytest.raises(StoreUnusable, match=r"consumerOffset\.json"):
            offset_table(disk)
        assert disk.tree() == tree

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["g", "h"]),
                st.sampled_from(["T", "%RETRY%g"]),
                st.integers(0, 3),
                st.integers(0, 50),
                st.booleans(),
            ),
            max_size=30,
        )
    )
    def test_it_is_a_dictionary_of_maxima_that_survives(self, steps: list[Any]) -> None:
        disk = new_disk()
        table = offset_table(disk)
        model: dict[tuple[str, str, int], int] = {}
        for group, topic, queue_id, offset, is_reset in steps:
            key = (group, topic, queue_id)
            if is_reset:
                table.reset(*key, offset)
                model[key] = offset
            else:
                assert table.commit(*key, offset) == (offset > model.get(key, -1))
                model[key] = max(offset, model.get(key, 0))
        for found in (table, _saved(table, disk)):
            assert len(found) == len(model)
            assert {key: found.query(*key) for key in model} == model

    def test_every_power_cut_leaves_one_of_the_last_two_states(self) -> None:
        for zero_length_renames in (False, True):
            disk = new_disk(zero_length_renames=zero_length_renames)
            table = offset_table(disk)
            seen = set()

            def power_fails(_: int, disk: SimulatedDisk = disk, seen: set[Any] = seen) -> None:
                for state in list(disk.crash_states(24)):
                    seen.add(offset_table(disk.reboot(state)).query("g", "T", 0))

            disk.on_operation = power_fails
            for offset in (1, 2, 3):
                table.commit("g", "T", 0, offset)
                table.save()
                assert seen == {offset, offset - 1 or None}
                seen.clear()


def _saved(table: OffsetTable, disk: SimulatedDisk) -> OffsetTable:
    table.save()
    return offset_table(disk.reboot())
