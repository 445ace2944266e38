"""Many topics are created with few requests, by lists or, at older brokers, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.client.admin.admin import Admin
from broker_core.client.admin.topic_creation import TOPICS_PER_REQUEST
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.json.fields import list_field, object_field
from broker_core.codec.wire.bodies.topic_config import TopicConfig, parse_topic_config
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, RemoteError, RequestTimeout
from broker_core.protocol_codes import RequestCode
from tests.client.scripted_brokers import ScriptedBroker, ScriptedCluster, scripted_cluster

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC
CREATE_LIST = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
COUNT = 1_201


def takes_topics(cluster: ScriptedCluster, broker: ScriptedBroker, *, lists: bool) -> Counter[int]:
    """`broker` registers what it is asked for, like a real one; the number of requests by code."""
    asked: Counter[int] = Counter()
    made: dict[str, TopicConfig] = {}

    def register(command: RemotingCommand, *topics: TopicConfig) -> RemotingCommand:
        asked[command.code] += 1
        made.update((topic.name, topic) for topic in topics)
        cluster.register(broker, *made.values(), version=1 + sum(asked.values()))
        return command.reply()

    def create(command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        readable, writable = int(ext["readQueueNums"]), int(ext["writeQueueNums"])
        return register(command, TopicConfig(ext["topic"], readable, writable, int(ext["perm"])))

    def create_list(command: RemotingCommand) -> RemotingCommand:
        found = object_field({"body": parse_json(command.body)}, "body")
        items = list_field(found, "topicConfigList")
        topics = [parse_topic_config(object_field({"item": item}, "item")) for item in items]
        return register(command, *topics)

    broker.answers[CREATE] = create
    if lists:
        broker.answers[CREATE_LIST] = create_list
    return asked


@pytest.mark.parametrize(
    ("lists", "expected"),
    [(True, {CREATE_LIST: -(-COUNT // TOPICS_PER_REQUEST)}), (False, {CREATE: COUNT})],
)
def test_many_topics_on_every_master(
    run_async: Callable[..., Any], lists: bool, expected: dict[int, int]
) -> None:
    async def scenario() -> None:
        async with scripted_cluster("a", "b") as cluster, Admin(cluster.config()) as admin:
            asked = [takes_topics(cluster, broker, lists=lists) for broker in cluster.brokers]
            await admin.create_topics({f"T{n}": 1 + n % 3 for n in range(COUNT)})
            assert asked == [expected, expected]
            for number in (0, 500, COUNT - 1):
                route = await admin.route(f"T{number}")
                shown = {q.broker_name: q.write_queue_count for q in route.queues}
                assert shown == {"a": 1 + number % 3, "b": 1 + number % 3}

    run_async(scenario())


def test_the_first_refusal_is_raised(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, Admin(cluster.config()) as admin:
            for code in (CREATE, CREATE_LIST):
                cluster.broker.answers[code] = lambda command: command.reply(1, "no more topics")
                with pytest.raises(RemoteError, match="no more topics"):
                    await admin.create_topics({"A": 1, "B": 1})
                del cluster.broker.answers[code]

    run_async(scenario())


def test_a_topic_that_is_not_shown_is_named(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, Admin(cluster.config()) as admin:
            cluster.broker.answers[CREATE_LIST] = lambda command: command.reply()
            with pytest.raises(RequestTimeout, match="topic Hidden was created"):
                await admin.create_topics({"T": 4, "Hidden": 1}, shown_within_ms=120)

    run_async(scenario())


def test_nothing_is_asked_for_an_invalid_topic(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, Admin(cluster.config()) as admin:
            asked = takes_topics(cluster, cluster.broker, lists=True)
            for topics, text in (
                ({"Good": 1, "bad name": 1}, "bad name"),
                ({"Good": 1, "Bad": -1}, "topic Bad: -1 queues"),
            ):
                with pytest.raises(InvalidArgument, match=text):
                    await admin.create_topics(topics)
            await admin.create_topics({})
            assert not asked

    run_async(scenario())


def test_settings_and_attributes_of_all(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster, Admin(cluster.config()) as admin:
            bodies: list[Any] = []

            def take(command: RemotingCommand) -> RemotingCommand:
                bodies.append(parse_json(command.body))
                return command.reply(1, "enough")

            cluster.broker.answers[CREATE_LIST] = take
            with pytest.raises(RemoteError):
                await admin.create_topics(
                    {"A": 1, "B": 2}, perm=4, order=True, attributes={"message.type": "FIFO"}
                )
            [body] = bodies
            assert [topic["topicName"] for topic in body["topicConfigList"]] == ["A", "B"]
            assert body["topicConfigList"][1] == {
                "attributes": {"+message.type": "FIFO"},
                "order": True,
                "perm": 4,
                "readQueueNums": 2,
                "topicFilterType": "SINGLE_TAG",
                "topicName": "B",
                "topicSysFlag": 0,
                "writeQueueNums": 2,
            }

    run_async(scenario())
