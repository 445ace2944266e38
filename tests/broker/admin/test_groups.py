"""Groups by request, and the progress of a group: golden bodies and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.protocol_codes import RequestCode
from tests.broker.admin_broker import AdminBroker
from tests.broker.broker_tables import group_table

PUT = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
PUT_LIST = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP
ONE = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
PROGRESS = RequestCode.GET_CONSUME_STATS


@pytest.fixture
def broker() -> Iterator[AdminBroker]:
    asked = AdminBroker()
    asked.topics.put(TopicConfig("T1", 2, 2))
    yield asked
    asked.close()


def row(topic: str, queue_id: int, **values: int) -> bytes:
    key = f'{{"brokerName":"broker-a","queueId":{queue_id},"topic":"{topic}"}}'
    return f"{key}:{json.dumps(values, separators=(',', ':'))}".encode()


def test_a_group_is_made_and_stored(broker: AdminBroker) -> None:
    assert broker.ask(PUT, b'{"groupName":"CG"}').code == 0
    assert broker.groups.find("CG") == GroupConfig("CG")
    assert group_table(broker.disk).find("CG") == GroupConfig("CG")
    assert broker.ask(ONE, group="CG").body == (
        b'{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"groupName":"CG","notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )


def test_a_group_is_changed_and_foreign_fields_are_kept(broker: AdminBroker) -> None:
    broker.ask(PUT, b'{"groupName":"CG"}')
    body = (
        b'{"groupName":"CG","consumeEnable":false,"retryMaxTimes":3,"groupSysFlag":0,"x":{"y":1}}'
    )
    assert broker.ask(PUT, body).code == 0
    found = json.loads(broker.ask(ONE, group="CG").body)
    assert (found["consumeEnable"], found["retryMaxTimes"]) == (False, 3)
    assert (found["groupSysFlag"], found["x"]) == (0, {"y": 1})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"groupName":""}',
        b'{"groupName":5}',
        b'{"groupName":"bad group"}',
        b'{"groupName":"../x"}',
        b'{"groupName":"%s"}' % (b"g" * 121),
        b'{"groupName":"CG","retryQueueNums":1025}',
        b'{"groupName":"CG","retryQueueNums":-1}',
        b'{"groupName":"CG","consumeEnable":"yes"}',
        b'{"groupName":"CG"',
    ],
)
def test_bad_groups_are_29(broker: AdminBroker, body: bytes) -> None:
    before = broker.groups.all()
    answer = broker.ask(PUT, body)
    assert answer.code == 29
    assert answer.remark
    assert broker.groups.all() == before


def test_a_list_of_groups_is_all_or_none(broker: AdminBroker) -> None:
    good = b'{"groupConfigList":[{"groupName":"A"},{"groupName":"B"}]}'
    bad = b'{"groupConfigList":[{"groupName":"C"},{"groupName":"b d"}]}'
    assert broker.ask(PUT_LIST, good).code == 0
    assert broker.ask(PUT_LIST, bad).code == 29
    assert broker.ask(PUT_LIST, b'{"groupConfigList":[]}').code == 29
    found = [name for name in "ABC" if broker.groups.find(name) is not None]
    assert found == ["A", "B"]


def test_all_groups(broker: AdminBroker) -> None:
    broker.ask(PUT, b'{"groupName":"CG"}')
    answer = broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    found = json.loads(answer.body)
    count = len(found["subscriptionGroupTable"])
    assert answer.ext == {"totalGroupNum": str(count)}, "tools of 5.x want one, and see no more"
    assert list(found) == ["dataVersion", "forbiddenTable", "subscriptionGroupTable"]
    assert found["forbiddenTable"] == {}
    assert found["dataVersion"]["counter"] == broker.groups.version.counter
    assert {"CG", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"} <= set(found["subscriptionGroupTable"])


def test_attributes_are_set_kept_and_removed(broker: AdminBroker) -> None:
    def asked(attributes: str) -> int:
        body = f'{{"groupName":"CG","attributes":{{{attributes}}}}}'
        return int(broker.ask(PUT, body.encode()).code)

    def attributes() -> Any:
        return json.loads(broker.ask(ONE, group="CG").body)["attributes"]

    for wrong in ('"-priority.factor":""', '"+no.such":"1"', '"+priority.factor":"101"'):
        assert asked(wrong) == 29
    assert broker.groups.find("CG") is None
    assert asked('"+priority.factor":"50"') == 0
    assert attributes() == {"priority.factor": "50"}
    assert asked("") == 0
    assert attributes() == {"priority.factor": "50"}, "other attributes stay"
    assert asked('"priority.factor":"50"') == 0, "as a tool got it"
    assert broker.ask(PUT_LIST, b'{"groupConfigList":[{"groupName":"CG"}]}').code == 0
    assert attributes() == {"priority.factor": "50"}
    assert asked('"-priority.factor":""') == 0
    assert attributes() == {}
    assert asked('"+priority.factor":5') == 29


def test_what_another_broker_gave_a_group_may_be_written_back(broker: AdminBroker) -> None:
    broker.groups.put(GroupConfig("CG", extra={"attributes": {"lite.sub.model": "Exclusive"}}))
    body = '{"groupName":"CG","retryMaxTimes":3,"attributes":{"lite.sub.model":"%s"}}'
    assert broker.ask(PUT, (body % "Exclusive").encode()).code == 0
    assert broker.ask(PUT, (body % "Shared").encode()).code == 29


def test_an_unknown_group_is_shown_as_it_would_be_made_and_not_made_by_asking(
    broker: AdminBroker,
) -> None:
    answer = broker.ask(ONE, group="nobody")
    assert (answer.code, json.loads(answer.body)["groupName"]) == (0, "nobody")
    assert broker.groups.find("nobody") is None
    assert broker.ask(ONE, group="a b").code == 29
    assert broker.ask(ONE).code == 29
    broker.groups.set_auto_create(False)
    assert broker.ask(ONE, group="nobody").code == 26


def test_deletion_keeps_or_takes_the_offsets(broker: AdminBroker) -> None:
    broker.put("T1", 3)
    for group in ("A", "B"):
        broker.ask(PUT, b'{"groupName":"%s"}' % group.encode())
        broker.offsets.commit(group, "T1", 0, 2)
        broker.stats.got(group, "T1", 1, 1)
    assert broker.ask(DELETE, groupName="A").code == 0
    assert broker.ask(DELETE, groupName="B", cleanOffset="true").code == 0
    assert broker.groups.find("A") is None
    assert broker.groups.find("B") is None
    assert broker.offsets.query("A", "T1", 0) == 2
    assert broker.offsets.query("B", "T1", 0) is None
    assert broker.stats.stats()["group_get"] == {}
    assert group_table(broker.disk).find("A") is None


def test_deletions_that_do_nothing(broker: AdminBroker) -> None:
    assert broker.ask(DELETE, groupName="nobody").code == 0
    assert broker.ask(DELETE).code == 29
    assert broker.ask(DELETE, groupName="a b").code == 29
    assert broker.ask(DELETE, groupName="TOOLS_CONSUMER").code == 29
    assert broker.groups.find("TOOLS_CONSUMER") is not None


# Progress


def test_progress_of_every_queue(broker: AdminBroker) -> None:
    broker.put("T1", 5, step_ms=1_000)
    broker.offsets.commit("CG", "T1", 0, 3)
    expected = b'{"consumeTps":0.0,"offsetTable":{%b,%b}}' % (
        row("T1", 0, brokerOffset=5, consumerOffset=3, lastTimestamp=1_700_000_002_000,
            pullOffset=3),
        row("T1", 1, brokerOffset=0, consumerOffset=0, lastTimestamp=0, pullOffset=0),
    )  # fmt: skip
    assert broker.ask(PROGRESS, consumerGroup="CG").body == expected
    assert broker.ask(PROGRESS, consumerGroup="CG", topic="T1").body == expected
    assert broker.ask(PROGRESS, consumerGroup="CG", topicList="T1;nowhere").body == expected


def test_nothing_consumed_is_an_empty_table(broker: AdminBroker) -> None:
    empty = b'{"consumeTps":0.0,"offsetTable":{}}'
    assert broker.ask(PROGRESS, consumerGroup="nobody").body == empty
    assert broker.ask(PROGRESS, consumerGroup="CG", topic="nowhere").body == empty
    assert broker.ask(PROGRESS).code == 29


def test_a_topic_that_was_asked_for_is_shown_without_progress(broker: AdminBroker) -> None:
    broker.put("T1", 2)
    found = broker.ask(PROGRESS, consumerGroup="CG", topic="T1").body
    assert row("T1", 0, brokerOffset=2, consumerOffset=0, lastTimestamp=0, pullOffset=0) in found


def test_topics_that_the_members_have_left_are_not_backlog(broker: AdminBroker) -> None:
    broker.topics.put(TopicConfig("T2", 1, 1))
    for topic in ("T1", "T2"):
        broker.put(topic, 2)
        broker.offsets.commit("CG", topic, 0, 1)

    def topics() -> set[str]:
        body = broker.ask(PROGRESS, consumerGroup="CG").body
        return {name for name in ("T1", "T2") if f'"topic":"{name}"'.encode() in body}

    assert topics() == {"T1", "T2"}
    member = broker.subscribe("CG", "T2")
    assert topics() == {"T2"}
    member.end()
    assert topics() == {"T1", "T2"}


def test_the_rate_is_that_of_all_topics(broker: AdminBroker) -> None:
    broker.topics.put(TopicConfig("T2", 1, 1))
    for topic in ("T1", "T2"):
        broker.put(topic, 2)
        broker.offsets.commit("CG", topic, 0, 1)
        broker.stats.got("CG", topic, 10, 100)
    broker.stats.got("other", "T1", 10, 100)
    broker.clock.advance(10_000)
    body: Any = broker.ask(PROGRESS, consumerGroup="CG").body
    assert body.startswith(b'{"consumeTps":2.0,')


def test_progress_below_what_retention_left(broker: AdminBroker) -> None:
    broker.put("T1", 400)
    broker.offsets.commit("CG", "T1", 0, 1)
    broker.clock.advance(100 * 3_600_000)
    broker.store.clean(manual=True)
    assert broker.store.offsets("T1", 0)[0] > 1
    found = broker.ask(PROGRESS, consumerGroup="CG").body
    assert row("T1", 0, brokerOffset=400, consumerOffset=1, lastTimestamp=0, pullOffset=1) in found
