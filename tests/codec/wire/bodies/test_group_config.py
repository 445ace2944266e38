"""Group settings as JSON objects: RocketMQ's keys, and those we do not know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.json.dialect import emit_json, parse_json
from broker_core.codec.wire.bodies.group_config import (
    EXTRA_DEPTH_MAX,
    EXTRA_SIZE_MAX,
    GroupConfig,
    group_config_object,
    group_table_object,
    parse_group_config,
    parse_group_table,
)
from broker_core.errors import InvalidArgument

NEWER = (
    b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
    b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
    b'"groupName":"g1","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
    b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
    b'"whichBrokerWhenConsumeSlowly":1}'
)
EXTRA = st.dictionaries(
    st.text(min_size=1, max_size=6).map(lambda key: f"x{key}"),
    st.recursive(
        st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=6,
    ),
    max_size=3,
)


def test_a_group_of_4_9_is_the_protocols_text() -> None:
    assert emit_json(group_config_object(GroupConfig("CG"))) == (
        b'{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"groupName":"CG","notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )


def test_a_group_of_5_comes_back_as_it_was() -> None:
    group = parse_group_config(parse_json(NEWER))
    assert group.name == "g1"
    assert group.extra["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert emit_json(group_config_object(group)) == NEWER


def test_a_known_key_cannot_hide_among_the_unknown() -> None:
    group = GroupConfig("g", extra={"groupName": "other", "new": 1})
    assert group_config_object(group)["groupName"] == "g"


@given(
    st.booleans(),
    st.booleans(),
    st.integers(0, 100),
    st.integers(-1, 100),
    st.integers(0, 2**63 - 1),
    EXTRA,
)
def test_tables_round_trip(
    enable: bool, notify: bool, queues: int, times: int, broker: int, extra: dict[str, Any]
) -> None:
    groups = (
        GroupConfig("a", enable, not enable, enable, queues, times, broker, 3, notify, extra),
        GroupConfig("b"),
    )
    table = parse_json(emit_json(group_table_object(groups)))
    assert parse_group_table(table) == groups


def test_a_group_may_take_its_name_from_its_key() -> None:
    assert parse_group_table({"g": {}}) == (GroupConfig("g"),)


def test_unknown_keys_are_bounded() -> None:
    deep: Any = 1
    for _ in range(EXTRA_DEPTH_MAX):
        deep = {"a": [deep]}
    for extra in ({"x": "y" * EXTRA_SIZE_MAX}, {"x": deep}):
        with pytest.raises(InvalidArgument, match="unknown fields"):
            parse_group_config({"groupName": "g", **extra})


@pytest.mark.parametrize(
    "fields",
    [
        {"groupName": 5},
        {"consumeEnable": 1},
        {"retryQueueNums": -1},
        {"retryQueueNums": 1 << 31},
        {"retryMaxTimes": -2},
        {"retryMaxTimes": "16"},
        {"brokerId": -1},
        {"whichBrokerWhenConsumeSlowly": 1.5},
        {"notifyConsumerIdsChangedEnable": None, "consumeBroadcastEnable": "true"},
    ],
)
def test_wrong_types_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        parse_group_config({"groupName": "g", **fields})


def test_a_group_without_a_name_has_an_empty_one() -> None:
    assert parse_group_config({}).name == ""
