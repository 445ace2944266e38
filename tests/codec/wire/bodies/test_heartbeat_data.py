"""Heartbeats of Java, Go and C++ clients, and ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.heartbeat_data import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_PASSIVELY,
    FROM_FIRST_OFFSET,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
    parse_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData, parse_tag_expression
from broker_core.errors import InvalidArgument, MalformedJson

JAVA = (
    b'{"clientID":"10.0.0.9@4321#98765","consumerDataSet":[{"consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG",'
    b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
    b'"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":1700000000000,'
    b'"tagsSet":["TagA"],"topic":"T1"}],"unitMode":false}],"heartbeatFingerprint":0,'
    b'"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}'
)
TYPES = st.sampled_from([CONSUME_ACTIVELY, CONSUME_PASSIVELY, "CONSUME_POP"])
MODELS = st.sampled_from([CLUSTERING, BROADCASTING])
WHERES = st.sampled_from([FROM_LAST_OFFSET, FROM_FIRST_OFFSET, FROM_TIMESTAMP])
NAMES = st.text("%|aZ09_-", min_size=1, max_size=12)
SUBSCRIPTIONS = st.builds(
    parse_tag_expression, NAMES, st.sampled_from(["*", "A", "A || B", "标签"]), st.integers(0, 9)
)
CONSUMERS = st.builds(
    ConsumerData,
    NAMES,
    TYPES,
    MODELS,
    WHERES,
    st.lists(SUBSCRIPTIONS, max_size=3).map(tuple),
    st.booleans(),
)


def test_java() -> None:
    subscription = SubscriptionData("T1", "TagA", ("TagA",), frozenset({2598919}), 1700000000000)
    expected = HeartbeatData(
        "10.0.0.9@4321#98765", ("PG",), (ConsumerData("CG", subscriptions=(subscription,)),)
    )
    assert parse_heartbeat(JAVA) == expected
    assert parse_heartbeat(memoryview(JAVA)) == expected
    assert encode_heartbeat(expected) == JAVA


def test_go() -> None:
    body = (
        b'{"clientID":"10.0.0.9@123#1","producerDataSet":[],"consumerDataSet":[{"groupName":"CG",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"Clustering",'
        b'"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{'
        b'"classFilterMode":false,"topic":"T1","subString":"*","tagsSet":[],"codeSet":[],'
        b'"subVersion":1700000000000000000,"expressionType":"TAG"}],"unitMode":false}]}'
    )
    (consumer,) = parse_heartbeat(body).consumers
    assert consumer.message_model == CLUSTERING
    assert consumer.consume_from_where == FROM_FIRST_OFFSET
    assert consumer.subscriptions[0].matches_all


def test_cpp_sends_ordinals_and_leaves_empty_sets_out() -> None:
    body = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"CG","consumeFromWhere":5,'
        b'"consumeType":1,"messageModel":0,"subscriptionDataSet":[{"topic":"T","subString":"*",'
        b'"subVersion":"1700000000000"}]}]}'
    )
    assert parse_heartbeat(body) == HeartbeatData(
        "c",
        (),
        (
            ConsumerData(
                "CG",
                CONSUME_PASSIVELY,
                BROADCASTING,
                FROM_TIMESTAMP,
                (SubscriptionData("T", version=1700000000000),),
            ),
        ),
    )


def test_a_producer_alone() -> None:
    body = b'{"clientID":"c","consumerDataSet":null,"producerDataSet":[{"groupName":"PG"}]}'
    assert parse_heartbeat(body) == HeartbeatData("c", ("PG",))


def test_the_second_version_of_heartbeats() -> None:
    body = b'{"clientID":"c","heartbeatFingerprint":-77,"withoutSub":true,"somethingNew":{"a":[1]}}'
    assert parse_heartbeat(body) == HeartbeatData("c", fingerprint=-77, without_sub=True)


def test_a_repeated_object_of_java_is_followed() -> None:
    body = JAVA.replace(
        b'"producerDataSet":[{"groupName":"PG"}]',
        b'"producerDataSet":[{"groupName":"PG"},{"$ref":"$.producerDataSet[0]"}]',
    )
    assert parse_heartbeat(body).producers == ("PG", "PG")


@given(
    st.builds(
        HeartbeatData,
        st.text(min_size=1, max_size=10).filter(lambda text: text.isprintable()),
        st.lists(NAMES, max_size=3).map(tuple),
        st.lists(CONSUMERS, max_size=3).map(tuple),
        st.integers(-(2**31), 2**31 - 1),
        st.booleans(),
    )
)
def test_round_trip(heartbeat: HeartbeatData) -> None:
    assert parse_heartbeat(encode_heartbeat(heartbeat)) == heartbeat


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"{",
        b'{"clientID":5}',
        b'{"clientID":"c","consumerDataSet":{}}',
        b'{"clientID":"c","consumerDataSet":[5]}',
        b'{"clientID":"c","consumerDataSet":[{}]}',
        b'{"clientID":"c","producerDataSet":["PG"]}',
        b'{"clientID":"c","producerDataSet":[{}]}',
        b'{"clientID":"c","withoutSub":"yes"}',
        b'{"clientID":"c","heartbeatFingerprint":NaN}',
        b'{"clientID":"c","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"clientID":"c","x":' + b"9" * 5_000 + b"}",
    ],
)
def test_broken_bodies_are_refused(body: bytes) -> None:
    with pytest.raises((InvalidArgument, MalformedJson)):
        parse_heartbeat(body)


@pytest.mark.parametrize(
    "fields",
    [
        {"consumeType": 3},
        {"consumeType": -1},
        {"messageModel": 2},
        {"messageModel": "two words"},
        {"messageModel": "X" * 65},
        {"consumeFromWhere": 6},
        {"consumeFromWhere": True},
        {"consumeFromWhere": ""},
        {"subscriptionDataSet": {"topic": "T"}},
        {"subscriptionDataSet": [{"topic": None}]},
        {"unitMode": 0},
    ],
)
def test_broken_consumers_are_refused(fields: dict[str, Any]) -> None:
    body = emit_json({"clientID": "c", "consumerDataSet": [{"groupName": "g", **fields}]})
    with pytest.raises(InvalidArgument):
        parse_heartbeat(body)
