"""Backlog of all groups, time spans and correction offsets, with the exact bodies tools read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.codec.json.dialect import parse_json
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.admin_broker import AdminBroker

ALL = RequestCode.GET_BROKER_CONSUME_STATS
SPANS = RequestCode.QUERY_CONSUME_TIME_SPAN
CORRECT = RequestCode.QUERY_CORRECTION_OFFSET
MAX = (1 << 63) - 1


@pytest.fixture
def broker() -> Iterator[AdminBroker]:
    asked = AdminBroker()
    asked.topics.put(TopicConfig("T", 2, 2))
    asked.topics.put(TopicConfig("Ordered", 1, 1, order=True))
    yield asked
    asked.close()


def body_of(answer: Any) -> Any:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return parse_json(answer.body)


def test_all_groups_of_a_broker(broker: AdminBroker) -> None:
    for name in ("g1", "g2", "idle"):
        broker.groups.put(GroupConfig(name))
    broker.put("T", 3)
    broker.put("T", 2, queue_id=1)
    broker.put("Ordered", 5)
    broker.offsets.commit("g1", "T", 0, 1)
    broker.offsets.commit("g2", "Ordered", 0, 4)
    found = body_of(broker.ask(ALL, isOrder="false"))
    assert found["brokerAddr"] == broker.config.address
    assert found["totalDiff"] == (3 - 1) + 2 + (5 - 4)
    assert found["totalInflightDiff"] == 0
    assert [list(entry) for entry in found["consumeStatsList"]] == [["g1"], ["g2"]]
    [stats] = found["consumeStatsList"][0]["g1"]
    assert len(stats["offsetTable"]) == 2
    ordered = body_of(broker.ask(ALL, isOrder="true"))
    assert (ordered["totalDiff"], len(ordered["consumeStatsList"])) == (1, 1)


def test_the_body_of_all_groups_byte_for_byte(broker: AdminBroker) -> None:
    broker.groups.put(GroupConfig("g"))
    broker.put("Ordered", 1)
    broker.offsets.commit("g", "Ordered", 0, 1)
    now = broker.clock.wall_ms()
    start = f'{{"brokerAddr":"{broker.config.address}","consumeStatsList":['
    expected = (
        start + '{"g":[{"consumeTps":0.0,"offsetTable":'
        '{{"brokerName":"broker-a","queueId":0,"topic":"Ordered"}:{"brokerOffset":1,'
        f'"consumerOffset":1,"lastTimestamp":{now},"pullOffset":1}}}}}}]}}],"totalDiff":0,'
        '"totalInflightDiff":0}'
    )
    assert bytes(broker.ask(ALL, isOrder="false").body).decode() == expected


def test_time_spans(broker: AdminBroker) -> None:
    start = broker.clock.wall_ms()
    broker.put("T", 3, step_ms=100)
    broker.offsets.commit("g", "T", 0, 2)
    broker.clock.advance(1_000)
    first, empty = body_of(broker.ask(SPANS, topic="T", group="g"))["consumeTimeSpanSet"]
    assert first == {
        "consumeTimeStamp": start + 100,
        "delayTime": 1_000,
        "maxTimeStamp": start + 200,
        "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
        "minTimeStamp": start,
    }
    assert (empty["minTimeStamp"], empty["maxTimeStamp"], empty["delayTime"]) == (0, 0, 0)
    behind = body_of(broker.ask(SPANS, topic="T", group="never"))["consumeTimeSpanSet"][0]
    assert (behind["consumeTimeStamp"], behind["delayTime"]) == (start, 1_200)
    assert broker.ask(SPANS, topic="None", group="g").code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.ask(SPANS, topic="T").code == ResponseCode.INVALID_PARAMETER


def test_correction_is_the_least_of_all_groups(broker: AdminBroker) -> None:
    broker.put("T", 9)
    broker.put("T", 9, queue_id=1)
    for group, first, second in (("a", 5, 7), ("b", 3, 8), ("left-out", 1, 1)):
        broker.offsets.commit(group, "T", 0, first)
        broker.offsets.commit(group, "T", 1, second)
    answer = broker.ask(CORRECT, topic="T", compareGroup="a", filterGroups="left-out,other")
    assert answer.body == b'{"correctionOffsets":{"0":3,"1":7}}'
    # A group that is behind all others needs no correction.
    answer = broker.ask(CORRECT, topic="T", compareGroup="left-out", filterGroups="left-out")
    assert body_of(answer) == {"correctionOffsets": {"0": MAX, "1": MAX}}
    assert body_of(broker.ask(CORRECT, topic="x", compareGroup="y")) == {"correctionOffsets": {}}


def test_consumers_of_each_topic(broker: AdminBroker) -> None:
    broker.put("T", 2)
    broker.offsets.commit("g", "T", 0, 1)
    broker.subscribe("g", "T", "Ordered")
    answer = broker.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="g")
    assert body_of(answer) == {
        "brokerAddr": broker.config.address, "topicList": ["Ordered", "T"]
    }  # fmt: skip
    found = body_of(broker.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g", topic="T"))
    assert (found["group"], found["topic"]) == ("g", "T")
    assert found["subscriptionData"]["subString"] == "*"
    none = broker.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g", topic="X")
    assert none.body == b'{"group":"g","topic":"X"}'


def test_statistics_of_the_last_day(broker: AdminBroker) -> None:
    view = RequestCode.VIEW_BROKER_STATS_DATA
    assert broker.ask(view, statsName="TOPIC_PUT_NUMS", statsKey="T").code == 1
    for _ in range(4):
        broker.stats.put("T", 3, 300)
    found = body_of(broker.ask(view, statsName="TOPIC_PUT_NUMS", statsKey="T"))
    assert found["statsDay"] == {"avgpt": 3.0, "sum": 12, "tps": 12.0}
    assert found.keys() == {"statsMinute", "statsHour", "statsDay"}
    assert broker.ask(view, statsName="NONE", statsKey="T").code == 1
    assert broker.ask(view, statsName="TOPIC_PUT_NUMS").code == ResponseCode.INVALID_PARAMETER


def test_looking_into_a_queue(broker: AdminBroker) -> None:
    look = RequestCode.QUERY_CONSUME_QUEUE
    broker.put("T", 3)
    found = body_of(broker.ask(look, topic="T", queueId="0", index="1", count="10"))
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
    assert len(found["queueData"]) == 2
    assert found["queueData"][0]["eval"] is True
    assert broker.store.record_at(found["queueData"][0]["physicOffset"]) is not None
    offline = body_of(
        broker.ask(look, topic="T", queueId="0", index="0", count="1", consumerGroup="g")
    )
    assert offline["filterData"] == "g@T is not online!"
    broker.subscribe("g", "T")
    online = body_of(
        broker.ask(look, topic="T", queueId="0", index="0", count="1", consumerGroup="g")
    )
    assert online["subscriptionData"]["topic"] == "T"
    past = body_of(broker.ask(look, topic="T", queueId="0", index="99", count="1"))
    assert past["queueData"] == []
    assert broker.ask(look, topic="None", queueId="0").code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.ask(look, topic="T", queueId="-1").code == ResponseCode.INVALID_PARAMETER
