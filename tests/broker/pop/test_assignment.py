"""Queue assignment by the broker, over all brokers of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.broker.pop.assignment import AssignmentProcessor
from broker_core.codec.json.dialect import emit_json, parse_json
from broker_core.codec.wire.bodies.heartbeat_data import ConsumerData, HeartbeatData
from broker_core.codec.wire.bodies.route_data import QueueData, TopicRoute
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import LanguageCode, RequestCode, ResponseCode
from tests.broker.admin_broker import AdminBroker
from tests.broker.broker_tables import OpenConnection

ASK = RequestCode.QUERY_ASSIGNMENT


@pytest.fixture
def broker() -> Iterator[AdminBroker]:
    asked = AdminBroker()
    asked.topics.put(TopicConfig("T", 4, 4))
    asked.topics.put(TopicConfig("WriteOnly", 4, 4, perm=2))
    for name in ("a", "b"):
        beat = HeartbeatData(name, (), (ConsumerData("g"),))
        asked.clients.heartbeat(OpenConnection(), beat, LanguageCode.JAVA, 0)
    yield asked
    asked.close()


def body(member: str = "a", **changes: Any) -> bytes:
    fields = {
        "topic": "T",
        "consumerGroup": "g",
        "clientId": member,
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
        **changes,
    }
    return emit_json({name: value for name, value in fields.items() if value is not None})


def shares(answer: RemotingCommand) -> list[tuple[str, int]]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    rows = parse_json(answer.body)["messageQueueAssignments"]
    assert all(row["mode"] == "PULL" for row in rows)
    return [(row["messageQueue"]["brokerName"], row["messageQueue"]["queueId"]) for row in rows]


def test_members_share_the_queues(broker: AdminBroker) -> None:
    assert shares(broker.ask(ASK, body("a"))) == [("broker-a", 0), ("broker-a", 1)]
    assert shares(broker.ask(ASK, body("b"))) == [("broker-a", 2), ("broker-a", 3)]
    circle = broker.ask(ASK, body("b", strategyName="AVG_BY_CIRCLE"))
    assert shares(circle) == [("broker-a", 1), ("broker-a", 3)]


def test_a_client_outside_the_group_gets_no_queue(broker: AdminBroker) -> None:
    assert shares(broker.ask(ASK, body("stranger"))) == []
    assert shares(broker.ask(ASK, body("a", consumerGroup="none"))) == []


def test_broadcasting_assigns_all_queues_to_every_member(broker: AdminBroker) -> None:
    assert len(shares(broker.ask(ASK, body("stranger", messageModel="BROADCASTING")))) == 4


def popping(broker: AdminBroker, shared: int, mode: str = "POP") -> None:
    asked = {"topic": "T", "consumerGroup": "g", "mode": mode, "popShareQueueNum": shared}
    assert broker.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, emit_json(asked)).code == 0


def pops(broker: AdminBroker, member: str, **changes: Any) -> list[int]:
    answer = broker.ask(ASK, body(member, **changes))
    rows = parse_json(answer.body)["messageQueueAssignments"]
    assert all(row["mode"] == "POP" for row in rows)
    return sorted(row["messageQueue"]["queueId"] for row in rows)


def test_members_that_pop_go_to_whole_brokers(broker: AdminBroker) -> None:
    for shared in (0, -1, 1, 9):
        popping(broker, shared)
        assert pops(broker, "a") == pops(broker, "b") == [-1]
    assert pops(broker, "stranger") == []
    everything = broker.ask(ASK, body("a", messageModel="BROADCASTING"))
    assert len(shares(everything)) == 4
    # What members send back is pulled.
    broker.topics.put(TopicConfig("%RETRY%g", 1, 1))
    assert shares(broker.ask(ASK, body("a", topic="%RETRY%g"))) == [("broker-a", 0)]
    popping(broker, 0, "PULL")
    assert shares(broker.ask(ASK, body("a"))) == [("broker-a", 0), ("broker-a", 1)]


def test_members_that_pop_share_with_some(broker: AdminBroker) -> None:
    for name in ("c", "d"):
        beat = HeartbeatData(name, (), (ConsumerData("g"),))
        broker.clients.heartbeat(OpenConnection(), beat, LanguageCode.JAVA, 0)
    popping(broker, 1)
    assert [pops(broker, name) for name in "abcd"] == [[0, 1], [1, 2], [2, 3], [0, 3]]
    popping(broker, 2)
    assert pops(broker, "d") == [0, 1, 3]
    popping(broker, 3)
    assert pops(broker, "d") == [-1]
    # More members than queues: each gets one all the same.
    broker.topics.put(TopicConfig("T", 2, 2))
    popping(broker, 1)
    assert [pops(broker, name) for name in "abcd"] == [[0], [1], [0], [1]]


def test_topics_without_readable_queues(broker: AdminBroker) -> None:
    assert shares(broker.ask(ASK, body("a", topic="Unknown"))) == []
    assert shares(broker.ask(ASK, body("a", topic="WriteOnly"))) == []


def test_queues_of_all_brokers_count(broker: AdminBroker) -> None:
    async def route(topic: str) -> TopicRoute | None:
        queues = (QueueData("broker-b", 2, 2, 6), QueueData("broker-a", 4, 4, 6))
        return TopicRoute((), (*queues, QueueData("broker-c", 9, 9, 2))) if topic == "T" else None

    processor = AssignmentProcessor(
        broker_name="broker-a", topics=broker.topics, clients=broker.clients, route=route
    )
    broker.handlers.update(processor.handlers())
    assert shares(broker.ask(ASK, body("a"))) == [("broker-a", n) for n in range(3)]
    assert shares(broker.ask(ASK, body("b"))) == [("broker-a", 3), ("broker-b", 0), ("broker-b", 1)]
    # The name servers do not know everything at once.
    broker.topics.put(TopicConfig("Young", 2, 2))
    assert shares(broker.ask(ASK, body("b", topic="Young"))) == [("broker-a", 1)]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]",
        b"{",
        body("a", strategyName="MINE"),
        body("a", strategyName=None),
        body("a", topic=None),
    ],
)
def test_invalid_requests_are_refused(broker: AdminBroker, bad: bytes) -> None:
    assert broker.ask(ASK, bad).code == ResponseCode.INVALID_PARAMETER
