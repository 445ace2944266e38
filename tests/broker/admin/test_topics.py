"""Topic requests: creation, refusals, golden bodies, and deletion."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.codec.wire.bodies.route_data import decode_topic_list
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.protocol_codes import RequestCode
from broker_core.storage.files.file_system import FileSystem
from tests.broker.admin_broker import AdminBroker
from tests.broker.broker_tables import topic_table

NEW = {
    "topic": "T1",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "3",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC
DELETE = RequestCode.DELETE_TOPIC_IN_BROKER
SPANS = RequestCode.GET_TOPIC_STATS_INFO


@pytest.fixture
def broker() -> Iterator[AdminBroker]:
    asked = AdminBroker(queues_per_topic_max=64)
    yield asked
    asked.close()


def create(broker: AdminBroker, **fields: str) -> Any:
    return broker.ask(CREATE, **{**NEW, **fields})


def test_a_topic_is_made_stored_and_announced(broker: AdminBroker) -> None:
    before = len(broker.topics)
    assert create(broker).code == 0
    assert broker.topics.find("T1") == TopicConfig("T1", 2, 3, 6)
    assert broker.told == [before + 1]
    assert topic_table(broker.disk).find("T1") == TopicConfig("T1", 2, 3, 6)


def test_a_topic_is_changed(broker: AdminBroker) -> None:
    create(broker)
    version = broker.topics.version
    assert create(broker, readQueueNums="8", writeQueueNums="8", perm="4", order="true").code == 0
    assert broker.topics.find("T1") == TopicConfig("T1", 8, 8, 4, order=True)
    assert broker.topics.version.counter == version.counter + 1


def test_optional_fields_may_be_missing(broker: AdminBroker) -> None:
    answer = broker.ask(CREATE, topic="T1", readQueueNums="1", writeQueueNums="1", perm="6")
    assert answer.code == 0
    assert broker.topics.find("T1") == TopicConfig("T1", 1, 1)


@pytest.mark.parametrize("name", ["%RETRY%G", "%DLQ%G", "ns%T|1-_", "n" * 127])
def test_unusual_names_are_legal(broker: AdminBroker, name: str) -> None:
    assert create(broker, topic=name).code == 0


@pytest.mark.parametrize(
    "name",
    ["", "a b", "../x", "/abs", "a/b", "a\\b", ".", "..", "a\0", "n" * 128, "n" * 10_000,
     "ＴopicＡ", "%", "%%", "NUL", "com1"],
)  # fmt: skip
def test_names_that_cannot_be_are_29(broker: AdminBroker, name: str) -> None:
    before = broker.topics.names()
    assert create(broker, topic=name).code == 29
    assert broker.ask(DELETE, topic=name).code == 29
    assert broker.topics.names() == before
    assert broker.told == []


@pytest.mark.parametrize(
    "name",
    ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
     "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC", "rmq_sys_wheel_timer",
     "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest"],
)  # fmt: skip
def test_topics_of_the_servers_cannot_be_changed_or_deleted(broker: AdminBroker, name: str) -> None:
    before = broker.topics.all()
    for answer in (create(broker, topic=name), broker.ask(DELETE, topic=name)):
        assert answer.code == 29
        assert name in (answer.remark or "")
    assert broker.topics.all() == before


@pytest.mark.parametrize(
    "fields",
    [
        {"readQueueNums": ""},
        {"readQueueNums": "x"},
        {"readQueueNums": "-1"},
        {"readQueueNums": "65"},
        {"writeQueueNums": "2147483648"},
        {"readQueueNums": "0", "writeQueueNums": "0"},
        {"perm": ""},
        {"perm": "-1"},
        {"perm": "8"},
        {"perm": "99999999999999999999"},
        {"topicFilterType": "MANY"},
        {"topicSysFlag": "x"},
        {"order": "maybe"},
        {"attributes": "message.type=FIFO"},
        {"attributes": "+message.type"},
        {"attributes": "+message.type=SOME"},
        {"attributes": "+message.type=FIFO,+message.type=DELAY"},
        {"attributes": "-message.type"},
        {"attributes": "+cleanup.policy=COMPACTION"},
        {"attributes": "+queue.type=BatchCQ"},
        {"attributes": "+anything=1"},
    ],
)
def test_bad_fields_are_29_and_change_nothing(broker: AdminBroker, fields: dict[str, str]) -> None:
    answer = create(broker, **fields)
    assert answer.code == 29
    assert answer.remark
    assert broker.topics.find("T1") is None
    assert broker.told == []


def test_one_kind_of_queue_is_enough(broker: AdminBroker) -> None:
    # Shrinking a topic goes through states like this one.
    assert create(broker, readQueueNums="2", writeQueueNums="0").code == 0


def test_attributes_are_kept_and_removed(broker: AdminBroker) -> None:
    create(broker, attributes="+message.type=FIFO, +queue.type=SimpleCQ")
    assert broker.ask(RequestCode.GET_TOPIC_CONFIG, topic="T1").body == (
        b'{"attributes":{"message.type":"FIFO","queue.type":"SimpleCQ"},"order":false,"perm":6,'
        b'"readQueueNums":2,"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":0,'
        b'"writeQueueNums":3}'
    )
    create(broker, attributes="-queue.type,+message.type=DELAY")
    found = broker.topics.find("T1")
    assert found is not None
    assert found.attributes == {"message.type": "DELAY"}
    create(broker, perm="4")
    found = broker.topics.find("T1")
    assert found is not None
    assert (found.perm, found.attributes) == (4, {"message.type": "DELAY"})


def test_a_list_of_topics(broker: AdminBroker) -> None:
    body = {
        "topicConfigList": [
            {"topicName": "A", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
            {"topicName": "B", "attributes": {"+message.type": "FIFO"}},
        ]
    }
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, json.dumps(body).encode())
    assert answer.code == 0
    assert broker.topics.find("A") == TopicConfig("A", 1, 1)
    expected = TopicConfig("B", 16, 16, attributes={"message.type": "FIFO"})
    assert broker.topics.find("B") == expected
    assert len(broker.told) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"topicConfigList":[]}',
        b'{"topicConfigList":[5]}',
        b'{"topicConfigList":[{"topicName":"A"},{"topicName":"a b"}]}',
        b'{"topicConfigList":[{"topicName":"A"},{"topicName":"TBW102"}]}',
        b'{"topicConfigList":[{"topicName":"A"},{"topicName":"B","readQueueNums":65}]}',
        b'{"topicConfigList":[{"topicName":"A"},{"topicName":"B","perm":9}]}',
    ],
)
def test_a_list_with_one_wrong_topic_makes_none(broker: AdminBroker, body: bytes) -> None:
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
    assert answer.code == 29
    assert broker.topics.find("A") is None


def test_the_limit_of_topics_is_a_clear_answer() -> None:
    broker = AdminBroker(topics_max=12)
    codes = [create(broker, topic=f"T{number}") for number in range(4)]
    assert codes[-1].code != 0
    assert "topicsMax" in (codes[-1].remark or "")
    assert len(broker.topics) == 12
    broker.close()


def test_a_topic_that_cannot_be_stored_is_not_made(broker: AdminBroker) -> None:
    broker.disk.fail(broker.disk.operation_count + 1, errno.ENOSPC)
    assert create(broker).code == 1
    assert broker.topics.find("T1") is None
    assert broker.told == []


# Deleting


def test_deletion_takes_queues_offsets_and_counters(broker: AdminBroker) -> None:
    create(broker)
    create(broker, topic="kept")
    for topic in ("T1", "kept"):
        broker.put(topic, 3)
        broker.offsets.commit("G", topic, 0, 2)
        broker.stats.put(topic, 3, 12)
    assert broker.ask(DELETE, topic="T1").code == 0
    assert broker.topics.find("T1") is None
    assert topic_table(broker.disk).find("T1") is None
    assert broker.store.get("T1", 0, 0).records == b""
    assert broker.offsets.query("G", "T1", 0) is None
    assert broker.stats.stats()["topic_put"].keys() == {"kept"}
    assert broker.told[-1] == len(broker.topics)
    assert len(broker.store.get("kept", 0, 0).messages()) == 3
    assert broker.offsets.query("G", "kept", 0) == 2


def test_a_deleted_topic_can_be_made_again_and_is_empty(broker: AdminBroker) -> None:
    create(broker)
    broker.put("T1", 3)
    broker.ask(DELETE, topic="T1")
    assert broker.ask(SPANS, topic="T1").code == 17
    create(broker)
    low, high = broker.store.offsets("T1", 0)
    assert low == high
    broker.put("T1", 1)
    [message] = broker.store.get("T1", 0, high).messages()
    assert message.queue_offset == high


def test_deleting_an_unknown_topic_succeeds(broker: AdminBroker) -> None:
    # Tools ask every broker of a cluster, whether it has the topic or not.
    assert broker.ask(DELETE, topic="nowhere").code == 0


def test_deletion_completes_what_a_crash_left(broker: AdminBroker) -> None:
    create(broker)
    broker.put("T1", 3)
    broker.offsets.commit("G", "T1", 0, 1)
    broker.topics.delete("T1")
    assert broker.ask(DELETE, topic="T1").code == 0
    assert broker.store.get("T1", 0, 0).records == b""
    assert broker.offsets.groups_of("T1") == set()


def test_a_deletion_that_cannot_be_stored_loses_nothing(broker: AdminBroker) -> None:
    create(broker)
    broker.put("T1", 3)
    broker.offsets.commit("G", "T1", 0, 2)
    broker.disk.fail(broker.disk.operation_count + 1, errno.ENOSPC)
    assert broker.ask(DELETE, topic="T1").code == 1
    assert broker.topics.find("T1") is not None
    assert len(broker.store.get("T1", 0, 0).messages()) == 3
    assert broker.offsets.query("G", "T1", 0) == 2


# Looking


def test_one_topic(broker: AdminBroker) -> None:
    create(broker)
    answer = broker.ask(RequestCode.GET_TOPIC_CONFIG, topic="T1", lo="true")
    assert answer.body == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":2,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":0,"writeQueueNums":3}'
    )
    assert broker.ask(RequestCode.GET_TOPIC_CONFIG, topic="nowhere").code == 17
    assert broker.ask(RequestCode.GET_TOPIC_CONFIG).code == 29


def test_all_topics(broker: AdminBroker) -> None:
    create(broker)
    answer = broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    found = json.loads(answer.body)
    count = len(found["topicConfigTable"])
    assert answer.ext == {"totalTopicNum": str(count)}, "tools of 5.x want one, and see no more"
    assert list(found) == ["dataVersion", "topicConfigTable"]
    assert found["dataVersion"] == {
        "counter": broker.topics.version.counter,
        "stateVersion": 0,
        "timestamp": 1_700_000_000_000,
    }
    assert list(found["topicConfigTable"]) == broker.topics.names()
    assert found["topicConfigTable"]["T1"]["writeQueueNums"] == 3


def test_an_empty_topic_has_a_row_for_every_queue(broker: AdminBroker) -> None:
    create(broker, readQueueNums="1", writeQueueNums="2")
    assert broker.ask(SPANS, topic="T1").body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0},'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T1"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}},"topicPutTps":0.0}'
    )


def test_rows_tell_the_newest_message(broker: AdminBroker) -> None:
    create(broker, readQueueNums="1", writeQueueNums="1")
    broker.put("T1", 3, step_ms=1_000)
    broker.clock.advance(7_000)
    broker.stats.put("T1", 3, 12)
    broker.clock.advance(1_000)
    assert broker.ask(SPANS, topic="T1").body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:'
        b'{"lastUpdateTimestamp":1700000002000,"maxOffset":3,"minOffset":0}},"topicPutTps":0.3}'
    )


def test_rows_after_retention(broker: AdminBroker) -> None:
    create(broker, readQueueNums="1", writeQueueNums="1")
    broker.put("T1", 400)
    file_system: FileSystem = broker.disk
    assert len(file_system.list("commitlog")) > 2
    broker.clock.advance(100 * 3_600_000)
    broker.store.clean(manual=True)
    low, high = broker.store.offsets("T1", 0)
    assert 0 < low < high == 400
    assert f'"maxOffset":400,"minOffset":{low}'.encode() in broker.ask(SPANS, topic="T1").body


def test_system_topics(broker: AdminBroker) -> None:
    create(broker)
    answer = broker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    topics = decode_topic_list(answer.body).topics
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= set(topics)
    assert "T1" not in topics


def test_groups_of_a_topic_are_online_or_have_progress(broker: AdminBroker) -> None:
    create(broker)
    ask = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    assert broker.ask(ask, topic="T1").body == b'{"groupList":[]}'
    broker.put("T1", 3)
    broker.offsets.commit("stored", "T1", 0, 1)
    broker.offsets.commit("both", "T1", 0, 1)
    broker.subscribe("both", "T1")
    broker.subscribe("online", "T1")
    broker.subscribe("elsewhere", "T2")
    assert broker.ask(ask, topic="T1").body == b'{"groupList":["both","online","stored"]}'
