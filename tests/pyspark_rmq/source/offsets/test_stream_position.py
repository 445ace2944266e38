"""Positions as Spark keeps them: the same text for the same position, and nothing lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import MessageQueue, errors
from pyspark_rmq.source.offsets.stream_position import StoreIdentity, StreamOffset

_names = st.text("abcdef-_%", min_size=1, max_size=6)
_queues = st.dictionaries(
    st.builds(MessageQueue, _names, _names, st.integers(0, 1000)),
    st.integers(0, (1 << 63) - 1),
    max_size=8,
)
_offsets = st.builds(
    StreamOffset,
    _queues,
    _queues,
    st.dictionaries(_names, st.builds(StoreIdentity, _names, _names), max_size=3),
    st.dictionaries(_names, st.integers(1, 1 << 30), max_size=3),
    st.booleans(),
    _queues.map(lambda found: {queue: ((0, end), (end, end)) for queue, end in found.items()}),
    st.sampled_from([{}, {"t": {"q": {"1": {"0": [0, 5]}}, "a": {}}}]),
)


@given(_offsets)
def test_round_trip_through_text(offset: StreamOffset) -> None:
    text = json.dumps(offset.to_json())
    found = StreamOffset.from_json(json.loads(text))
    assert found == offset
    assert json.dumps(found.to_json()) == text


@given(_queues)
def test_the_order_of_discovery_does_not_show(queues: dict[MessageQueue, int]) -> None:
    turned = dict(reversed(list(queues.items())))
    one, other = StreamOffset(queues), StreamOffset(turned)
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_queues_are_in_numerical_order() -> None:
    queues = {MessageQueue("t", "b", number): number for number in (10, 9, 1, 2)}
    assert list(StreamOffset(queues).to_json()["queues"]["t"]["b"]) == ["1", "2", "9", "10"]


def test_the_shape() -> None:
    offset = StreamOffset(
        {MessageQueue("t", "b", 0): 5},
        {MessageQueue("t", "b", 0): 3},
        {"b": StoreIdentity("abc", "2"), "apache": StoreIdentity()},
        {"t": 256},
        True,
    )
    assert offset.to_json() == {
        "version": 1,
        "queues": {"t": {"b": {"0": 5}}},
        "begins": {"t": {"b": {"0": 3}}},
        "stores": {"b": {"id": "abc", "epoch": "2"}},
        "rowBytes": {"t": 256},
        "initial": True,
    }


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {},
        {"version": 2, "queues": {}},
        {"version": 1},
        {"version": 1, "queues": []},
        {"version": 1, "queues": {"t": {"b": {"x": 1}}}},
        {"version": 1, "queues": {"t": {"b": {"0": -1}}}},
        {"version": 1, "queues": {"t": {"b": {"0": "1"}}}},
        {"version": 1, "queues": {"t": {"b": {"0": True}}}},
        {"version": 1, "queues": {}, "stores": {"b": {}}},
    ],
)
def test_other_texts_are_refused_with_a_remedy(found: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="checkpoint"):
        StreamOffset.from_json(found)
