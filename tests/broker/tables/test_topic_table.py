"""Topics: creation, look-up, change, limits, and a power cut."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from broker_core.broker.tables.topic_table import TOPICS_FILE, TopicTable
from broker_core.codec.wire.bodies.topic_config import DataVersion, TopicConfig
from broker_core.codec.wire.topic_name import SYSTEM_GROUPS
from broker_core.errors import (
    CorruptStore,
    DiskFailed,
    InvalidArgument,
    LimitReached,
    StoreUnusable,
)
from tests.broker.broker_tables import topic_table
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

# Bare keys, tabs and missing attributes: a file of Apache 4.9.
APACHE = b"""{
\t"dataVersion":{"counter":12,"timestamp":1690000000000},
\t"topicConfigTable":{
\t\t"TopicTest":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"TopicTest","topicSysFlag":0,"writeQueueNums":4},
\t\t"%RETRY%g1":{"perm":6,"readQueueNums":1,"topicName":"%RETRY%g1","writeQueueNums":1}
\t}
}"""
BAD_NAMES = ["", "..", "../x", "/abs", "a/b", "a\\b", ".", "a\0b", "x" * 128, "tоpic", "a.b", "%%",
             "NUL", "com1", "x" * 10_240, "a b", "%2e%2e/"]  # fmt: skip


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


@pytest.fixture
def table(disk: SimulatedDisk) -> TopicTable:
    return topic_table(disk)


class TestSystemTopics:
    def test_they_are_there_from_the_start(self, disk: SimulatedDisk) -> None:
        table = topic_table(disk, cluster_name="C1", broker_name="b-1", default_queue_count=5)
        expected = {
            "TBW102": (5, 7), "SELF_TEST_TOPIC": (1, 6), "BenchmarkTest": (1024, 6),
            "C1": (16, 7), "b-1": (1, 7), "OFFSET_MOVED_EVENT": (1, 6),
            "SCHEDULE_TOPIC_XXXX": (18, 6), "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
            "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6), "C1_REPLY_TOPIC": (1, 6),
            "RMQ_SYS_TRACE_TOPIC": (1, 6), "rmq_sys_wheel_timer": (1, 6),
        }  # fmt: skip
        found = {t.name: (t.read_queue_count, t.perm) for t in table.all()}
        assert found == expected
        assert all(t.read_queue_count == t.write_queue_count for t in table.all())
        assert all(table.is_system(name) for name in table.names())

    def test_without_creation_there_is_no_template(self, disk: SimulatedDisk) -> None:
        topic_table(disk)
        table = topic_table(disk, auto_create=False, trace_topic=False)
        assert table.find("TBW102") is None, "also if the file had one"
        assert topic_table(disk, auto_create=True).find("TBW102") is not None

    def test_which_topics_are_system_topics(self, table: TopicTable) -> None:
        for name in ("TBW102", "rmq_sys_wheel_timer", "DefaultCluster", "broker-a",
                     "TRANS_CHECK_MAX_TIME_TOPIC", "DefaultCluster_REPLY_TOPIC"):  # fmt: skip
            assert table.is_system(name)
        for name in ("T1", "%RETRY%g", "%DLQ%g", "OtherCluster", "rmq"):
            assert not table.is_system(name)

    def test_clients_may_not_write_to_topics_with_records_of_the_broker(
        self, table: TopicTable
    ) -> None:
        for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC",
                     "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
                     "OFFSET_MOVED_EVENT", "rmq_sys_wheel_timer"):  # fmt: skip
            assert table.refuses_sends(name)
            if table.find(name) is None:
                assert table.create_on_send(name, "TBW102", 4) is None
        for name in ("broker-a", "DefaultCluster", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC",
                     "rmq_sys_TRACE_DATA_DefaultRegion", "T1", "%RETRY%g"):  # fmt: skip
            assert not table.refuses_sends(name)

    def test_names_of_system_groups_can_be_groups(self, table: TopicTable) -> None:
        for group in SYSTEM_GROUPS:
            assert table.create_retry(group).name == f"%RETRY%{group}"


class TestCreationOnSend:
    def test_queues_are_the_smaller_of_both_and_inherit_is_not_inherited(
        self, table: TopicTable
    ) -> None:
        assert table.create_on_send("A", "TBW102", 4) == TopicConfig("A", 4, 4, 6)
        assert table.create_on_send("B", "TBW102", 100) == TopicConfig("B", 8, 8, 6)
        assert table.create_on_send("C", "TBW102", 4, 1) == TopicConfig("C", 4, 4, 6, sys_flag=1)
        assert table.create_on_send("D", "TBW102", -5) == TopicConfig("D", 1, 1, 6)
        assert table.create_on_send("E", "DefaultCluster", 100) == TopicConfig("E", 16, 16, 6)

    def test_an_existing_topic_is_left_alone(self, table: TopicTable) -> None:
        made = table.put(TopicConfig("A", 3, 3, 4))
        version = table.version
        assert table.create_on_send("A", "TBW102", 4) is made
        assert table.version == version

    def test_not_without_a_template_that_may_be_inherited_from(self, table: TopicTable) -> None:
        table.put(TopicConfig("plain", 4, 4, 6))
        for template in ("", "nowhere", "plain", "SELF_TEST_TOPIC"):
            assert table.create_on_send("A", template, 4) is None
        assert table.find("A") is None

    def test_not_when_it_is_off_whatever_the_template(self, disk: SimulatedDisk) -> None:
        table = topic_table(disk, auto_create=False)
        for template in ("TBW102", "DefaultCluster", "broker-a"):
            assert table.create_on_send("A", template, 4) is None

    def test_a_retry_topic_has_one_queue_and_needs_no_template(self, disk: SimulatedDisk) -> None:
        table = topic_table(disk, auto_create=False)
        assert table.create_on_send("%RETRY%g", "TBW102", 4) == TopicConfig("%RETRY%g", 1, 1, 6)

    def test_a_retry_topic_is_named_after_a_group(self, table: TopicTable) -> None:
        for name in ("%RETRY%", "%RETRY%" + "g" * 121, "%RETRY%NUL"):
            with pytest.raises(InvalidArgument):
                table.create_on_send(name, "TBW102", 4)

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_bad_names(self, table: TopicTable, disk: SimulatedDisk, name: str) -> None:
        tree = disk.tree()
        with pytest.raises(InvalidArgument):
            table.create_on_send(name, "TBW102", 4)
        with pytest.raises(InvalidArgument):
            table.put(TopicConfig(name, 1, 1))
        assert disk.tree() == tree


class TestRetryAndDeadLetters:
    def test_they_are_made_once(self, table: TopicTable) -> None:
        retry = table.create_retry("g", 2, 2)
        assert retry == TopicConfig("%RETRY%g", 2, 2, 6, sys_flag=2)
        assert table.create_retry("g") is retry
        dead = table.create_dlq("g")
        assert dead == TopicConfig("%DLQ%g", 1, 1, 6)
        assert table.create_dlq("g") is dead

    def test_the_longest_group_has_both(self, table: TopicTable) -> None:
        assert len(table.create_retry("g" * 120).name) == 127
        table.create_dlq("g" * 120)
        with pytest.raises(InvalidArgument):
            table.create_retry("g" * 121)


class TestChanges:
    def test_listeners_are_notified_at_once_and_only_of_changes(self, table: TopicTable) -> None:
        heard: list[list[TopicConfig]] = []
        table.on_change(heard.append)
        topic = table.put(TopicConfig("A", 4, 4))
        assert heard == [[topic]]
        table.put(topic)
        table.create_retry("g")
        assert heard[1:] == [[TopicConfig("%RETRY%g", 1, 1)]]
        assert table.delete("A")
        assert heard[2:] == [[]]
        assert not table.delete("A")
        assert len(heard) == 3

    def test_the_version_moves_with_every_change(self, table: TopicTable) -> None:
        before = table.version
        table.put(TopicConfig("A", 4, 4))
        assert table.version.counter == before.counter + 1
        table.put(TopicConfig("A", 4, 4))
        assert table.version.counter == before.counter + 1
        table.put(TopicConfig("A", 8, 8))
        table.delete("A")
        assert table.version.counter == before.counter + 3

    def test_limits(self, disk: SimulatedDisk) -> None:
        table = topic_table(disk, topics_max=13, queues_per_topic_max=16)
        table.put(TopicConfig("A", 16, 16))
        tree = disk.tree()
        for make in (
            lambda: table.put(TopicConfig("B", 1, 1)),
            lambda: table.create_on_send("B", "TBW102", 4),
            lambda: table.create_retry("g"),
            lambda: table.create_dlq("g"),
        ):
            with pytest.raises(LimitReached, match="topicsMax") as refused:
                make()
            assert refused.value.response_code == 1, "permanent, so never busy"
        assert disk.tree() == tree
        table.put(TopicConfig("A", 1, 1))
        for read, write in ((17, 1), (1, 17), (-1, 1), (0, 0)):
            with pytest.raises(InvalidArgument, match="A"):
                table.put(TopicConfig("A", read, write))
        table.put(TopicConfig("BenchmarkTest", 1024, 1024, 4))
        assert topic_table(disk, topics_max=3).find("A") == TopicConfig("A", 1, 1), "it was there"

    def test_a_million_names_are_refused_in_bounded_memory(self, disk: SimulatedDisk) -> None:
        table = topic_table(disk, topics_max=20)
        refused = 0
        for number in range(5_000):
            try:
                table.create_on_send(f"t{number}", "TBW102", 4)
            except LimitReached:
                refused += 1
        assert (len(table), refused) == (20, 5_000 - 8)


class TestFile:
    def test_it_is_apaches_shape(self, table: TopicTable, disk: SimulatedDisk) -> None:
        table.put(TopicConfig("T1", 8, 4, 6, attributes={"a": "b"}))
        found = json.loads(disk.content(TOPICS_FILE))
        assert found["topicConfigTable"]["T1"] == {
            "attributes": {"a": "b"}, "order": False, "perm": 6, "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG", "topicName": "T1", "topicSysFlag": 0,
            "writeQueueNums": 4,
        }  # fmt: skip
        assert found["dataVersion"]["counter"] == table.version.counter

    def test_a_file_of_apache_is_read(self, disk: SimulatedDisk) -> None:
        disk.put(TOPICS_FILE, APACHE)
        table = topic_table(disk)
        assert table.find("TopicTest") == TopicConfig("TopicTest", 4, 4)
        assert table.find("%RETRY%g1") == TopicConfig("%RETRY%g1", 1, 1)
        assert table.version.counter == 13, "system topics were missing"
        assert topic_table(disk).version == table.version, "and are not any more"

    def test_everything_comes_back(self, table: TopicTable, disk: SimulatedDisk) -> None:
        table.put(TopicConfig("T1", 8, 4, 2, "MULTI_TAG", 3, True, {"a": "b"}))
        table.create_retry("g")
        table.delete("BenchmarkTest")
        again = topic_table(disk)
        assert again.find("T1") == table.find("T1")
        assert again.names() == sorted([*table.names(), "BenchmarkTest"])

    def test_bad_names_in_the_file_are_left_out(self, disk: SimulatedDisk) -> None:
        names = [name for name in BAD_NAMES if "\0" not in name]
        topics = {n: {"topicName": n, "readQueueNums": 1, "writeQueueNums": 1} for n in names}
        topics["good"] = {"topicName": "good", "readQueueNums": 1, "writeQueueNums": 1}
        disk.put(TOPICS_FILE, json.dumps({"topicConfigTable": topics}).encode())
        table = topic_table(disk)
        assert table.find("good") is not None
        assert not set(BAD_NAMES) & set(table.names())

    @pytest.mark.parametrize(
        "content",
        [
            {"topicConfigTable": []},
            {"topicConfigTable": {"T": 5}},
            {"topicConfigTable": {"T": {"topicName": "T", "perm": 99}}},
            {"dataVersion": 5},
        ],
    )
    def test_a_file_of_another_shape_is_refused_and_stays(
        self, disk: SimulatedDisk, content: Any
    ) -> None:
        disk.put(TOPICS_FILE, json.dumps(content).encode())
        tree = disk.tree()
        with pytest.raises(StoreUnusable, match=r"topics\.json"):
            topic_table(disk)
        assert disk.tree() == tree

    def test_a_file_that_cannot_be_read_is_refused_and_stays(self, disk: SimulatedDisk) -> None:
        disk.put(TOPICS_FILE, b"{")
        tree = disk.tree()
        with pytest.raises(CorruptStore):
            topic_table(disk)
        assert disk.tree() == tree

    def test_the_clock_may_go_back_and_the_version_still_moves(
        self, table: TopicTable, disk: SimulatedDisk
    ) -> None:
        before = table.version
        disk.clock.set_wall(5)
        table.put(TopicConfig("A", 1, 1))
        assert table.version == DataVersion(before.counter + 1, 0, 5)


class TestFailingDisk:
    def test_what_is_not_written_did_not_happen(self, disk: SimulatedDisk) -> None:
        table = topic_table(disk)
        table.put(TopicConfig("A", 4, 4))
        heard: list[Any] = []
        table.on_change(heard.append)
        before = (table.all(), table.version)
        disk.fail(disk.operation_count + 1, errno.ENOSPC, sticky=True)
        for change in (
            lambda: table.put(TopicConfig("A", 8, 8)),
            lambda: table.create_on_send("B", "TBW102", 4),
            lambda: table.create_retry("g"),
            lambda: table.delete("A"),
        ):
            with pytest.raises(DiskFailed):
                change()
        assert (table.all(), table.version, heard) == (*before, [])

    def test_every_power_cut_leaves_the_table_before_or_after(self, disk: SimulatedDisk) -> None:
        table = topic_table(disk)
        table.put(TopicConfig("A", 4, 4))
        seen = set()

        def power_fails(_: int) -> None:
            for state in list(disk.crash_states(32)):
                found = topic_table(disk.reboot(state))
                assert found.find("A") == TopicConfig("A", 4, 4)
                seen.add(found.find("B") == TopicConfig("B", 2, 2))

        disk.on_operation = power_fails
        table.put(TopicConfig("B", 2, 2))
        assert seen == {False, True}

    def test_an_acknowledged_topic_survives_every_later_cut(self) -> None:
        disk = new_disk(zero_length_renames=True)
        table = topic_table(disk)
        acknowledged: list[str] = []

        def power_fails(_: int) -> None:
            for state in list(disk.crash_states(16)):
                names = topic_table(disk.reboot(state)).names()
                assert set(acknowledged) <= set(names)

        disk.on_operation = power_fails
        for number in range(4):
            name = f"t{number}"
            table.create_on_send(name, "TBW102", 2)
            acknowledged.append(name)
