"""Queues as objects, as raw map keys, and in the bodies that lock them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.json.dialect import emit_json, parse_json
from broker_core.codec.wire.bodies.message_queue import (
    QUEUE_ID_MAX,
    MessageQueue,
    QueueLockRequest,
    encode_lock_request,
    encode_locked_queues,
    parse_lock_request,
    parse_locked_queues,
    parse_queue,
    parse_queue_map,
    queue_map,
    queue_object,
)
from broker_core.errors import InvalidArgument, MalformedJson

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=10
) | st.sampled_from(["T1", "%RETRY%g", 'quote"d', "a:b{c}"])
QUEUES = st.builds(MessageQueue, NAMES, NAMES, st.integers(0, QUEUE_ID_MAX))


def test_a_queue_is_the_protocols_text() -> None:
    assert emit_json(queue_object(MessageQueue("T1", "broker-a", 3))) == (
        b'{"brokerName":"broker-a","queueId":3,"topic":"T1"}'
    )


def test_a_map_keyed_by_queues_has_raw_keys_without_spaces() -> None:
    table = {MessageQueue("T1", "b", 0): 123, MessageQueue("T1", "b", 1): 456}
    assert emit_json({"offsetTable": queue_map(table)}) == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T1"}:123,'
        b'{"brokerName":"b","queueId":1,"topic":"T1"}:456}}'
    )


def test_keys_that_are_texts_are_read_too() -> None:
    body = (
        rb'{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":7,\"topic\":\"T\"}":1,'
        rb'{ "topic" : "T", "queueId" : 8, "brokerName" : "b" } : 2}}'
    )
    assert parse_queue_map(parse_json(body)["offsetTable"]) == {
        MessageQueue("T", "b", 7): 1,
        MessageQueue("T", "b", 8): 2,
    }
    assert parse_queue_map(None) == {}


def test_queues_sort_as_rebalancing_needs_them() -> None:
    ordered = [
        MessageQueue("A", "b", 9),
        MessageQueue("B", "a", 2),
        MessageQueue("B", "a", 10),
        MessageQueue("B", "b", 0),
    ]
    assert sorted([ordered[2], ordered[0], ordered[3], ordered[1]]) == ordered


def test_a_lock_request_is_the_protocols_text() -> None:
    request = QueueLockRequest("10.0.0.9@1", "CG", (MessageQueue("T1", "broker-a", 0),))
    body = encode_lock_request(request)
    assert body == (
        b'{"clientId":"10.0.0.9@1","consumerGroup":"CG","mqSet":[{"brokerName":"broker-a",'
        b'"queueId":0,"topic":"T1"}],"onlyThisBroker":false}'
    )
    assert parse_lock_request(body) == request


def test_go_leaves_the_last_field_out() -> None:
    queue = b'{"topic":"T","brokerName":"b","queueId":1}'
    go = b'{"consumerGroup":"CG","clientId":"c","mqSet":[%b]}' % queue
    assert parse_lock_request(go) == QueueLockRequest("c", "CG", (MessageQueue("T", "b", 1),))


def test_an_answer_without_any_queue_is_still_an_object() -> None:
    assert encode_locked_queues([]) == b'{"lockOKMQSet":[]}'
    assert parse_locked_queues(b'{"lockOKMQSet":[]}') == parse_locked_queues(b"{}") == frozenset()


@given(st.dictionaries(QUEUES, st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_maps_round_trip(table: dict[MessageQueue, int]) -> None:
    parsed = parse_json(emit_json({"m": queue_map(table)}))
    assert parse_queue_map(parsed["m"]) == table


@given(NAMES, NAMES, st.lists(QUEUES, max_size=4), st.booleans())
def test_lock_bodies_round_trip(
    client: str, group: str, queues: list[MessageQueue], only: bool
) -> None:
    request = QueueLockRequest(client, group, tuple(queues), only)
    assert parse_lock_request(encode_lock_request(request)) == request
    assert parse_locked_queues(encode_locked_queues(queues)) == frozenset(queues)


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        "T",
        {},
        {"topic": "T"},
        {"topic": "T", "queueId": -1},
        {"topic": "T", "queueId": 1 << 31},
        {"topic": "T", "queueId": "1"},
        {"topic": "T", "queueId": True},
        {"topic": 1, "queueId": 1},
        {"topic": "T", "queueId": 1, "brokerName": 5},
    ],
)
def test_what_is_no_queue_is_refused(found: Any) -> None:
    with pytest.raises(InvalidArgument):
        parse_queue(found)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"clientId":"c"}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":{}}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":[1]}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":[{}]}',
        b'{"clientId":"c","consumerGroup":"g","onlyThisBroker":1}',
    ],
)
def test_broken_lock_bodies_are_refused(body: bytes) -> None:
    with pytest.raises((InvalidArgument, MalformedJson)):
        parse_lock_request(body)


@pytest.mark.parametrize("found", [[], "x", {"x": 1}, {'{"queueId":1}': 1}, {"[]": 1}])
def test_broken_maps_are_refused(found: Any) -> None:
    with pytest.raises((InvalidArgument, MalformedJson)):
        parse_queue_map(found)
