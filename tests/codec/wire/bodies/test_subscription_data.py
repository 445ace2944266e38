"""Tag expressions, and subscriptions as every kind of client writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.json.dialect import emit_json, parse_json
from broker_core.codec.wire.bodies.subscription_data import (
    EXPRESSION_SIZE_MAX,
    SQL92,
    TAGS_MAX,
    SubscriptionData,
    parse_subscription,
    parse_tag_expression,
    subscription_object,
)
from broker_core.errors import InvalidArgument, InvalidSubscription

TAGS = st.text(
    st.characters(codec="utf-8", exclude_characters="|\x00", exclude_categories=["Z", "C"]),
    min_size=1,
    max_size=8,
).filter(lambda tag: tag != "*" and tag.strip() == tag)


@pytest.mark.parametrize("text", [None, "", "*", " * ", "   "])
def test_everything(text: str | None) -> None:
    found = parse_tag_expression("T", text, 5)
    assert found == SubscriptionData("T", "*", (), frozenset(), 5)
    assert found.matches_all
    assert found.is_by_tag


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("TagA", ("TagA",)),
        ("TagA || TagB", ("TagA", "TagB")),
        ("TagA||TagB", ("TagA", "TagB")),
        ("  TagA  ||  || TagA || TagB ||", ("TagA", "TagB")),
        ("a|b", ("a|b",)),
        ("with space || b", ("with space", "b")),
    ],
)
def test_tags(text: str, tags: tuple[str, ...]) -> None:
    found = parse_tag_expression("T", text)
    assert found.tags == tags
    assert found.sub_string == text
    assert not found.matches_all


def test_codes_are_javas() -> None:
    found = parse_tag_expression("T", "TagA || 标签 || polygenelubricants")
    assert found.codes == {2598919, 857175, -2147483648}


@pytest.mark.parametrize("text", ["||", " || ", "|| ||", "\ud800"])
def test_what_names_no_tag_is_refused_with_23(text: str) -> None:
    with pytest.raises(InvalidSubscription) as refused:
        parse_tag_expression("T", text)
    assert refused.value.response_code == 23


def test_limits() -> None:
    tags = [f"t{n}" for n in range(TAGS_MAX + 1)]
    assert len(parse_tag_expression("T", "||".join(tags[1:])).tags) == TAGS_MAX
    with pytest.raises(InvalidSubscription, match=str(TAGS_MAX)):
        parse_tag_expression("T", "||".join(tags))
    with pytest.raises(InvalidSubscription, match=str(TAGS_MAX)):
        parse_subscription({"topic": "T", "subString": "x", "tagsSet": tags})
    with pytest.raises(InvalidSubscription, match=str(EXPRESSION_SIZE_MAX)):
        parse_subscription({"topic": "T", "subString": "x" * (EXPRESSION_SIZE_MAX + 1)})


def test_java() -> None:
    body = (
        b'{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG",'
        b'"subString":"TagA","subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T1"}'
    )
    found = parse_subscription(parse_json(body))
    assert found == SubscriptionData("T1", "TagA", ("TagA",), frozenset({2598919}), 1700000000000)
    assert emit_json(subscription_object(found)) == body


def test_go_sends_codes_as_texts_over_the_wrong_bytes() -> None:
    body = (
        '{"classFilterMode":false,"topic":"T1","subString":"标签","tagsSet":["标签"],'
        '"codeSet":["-1234"],"subVersion":1700000000000,"expressionType":"TAG"}'
    ).encode()
    assert parse_subscription(parse_json(body)).codes == {857175}


def test_go_may_send_null_sets() -> None:
    body = b'{"topic":"T1","subString":"*","tagsSet":null,"codeSet":null,"expressionType":""}'
    assert parse_subscription(parse_json(body)).matches_all


def test_cpp_sends_the_version_as_a_text_and_no_type() -> None:
    body = b'{"topic":"T1","subString":"A || B","subVersion":"1700000000000","tagsSet":["A","B"]}'
    found = parse_subscription(parse_json(body))
    assert (found.version, found.tags, found.expression_type) == (1700000000000, ("A", "B"), "TAG")


def test_tags_are_read_from_the_text_if_no_set_came() -> None:
    found = parse_subscription({"topic": "T", "subString": "A || B"})
    assert found.tags == ("A", "B")
    assert len(found.codes) == 2


def test_an_expression_has_no_tags() -> None:
    found = parse_subscription(
        {"topic": "T", "subString": "a > 1 || b", "expressionType": SQL92, "codeSet": [1]}
    )
    assert (found.sub_string, found.tags, found.codes) == ("a > 1 || b", (), frozenset())
    assert not found.matches_all
    assert not found.is_by_tag


def test_class_filters_let_everything_through() -> None:
    found = parse_subscription({"topic": "T", "subString": "a.B", "classFilterMode": True})
    assert found.matches_all
    assert found.class_filter
    assert found.sub_string == "a.B"


@given(st.lists(TAGS, min_size=1, max_size=5), st.integers(-(2**63), 2**63 - 1))
def test_round_trip(tags: list[str], version: int) -> None:
    subscription = parse_tag_expression("T", " || ".join(tags), version)
    assert subscription.tags == tuple(dict.fromkeys(tags))
    again = parse_subscription(parse_json(emit_json(subscription_object(subscription))))
    assert again == subscription


@given(st.text(max_size=40), st.integers(0, 99))
def test_any_expression_round_trips_or_is_refused(text: str, version: int) -> None:
    try:
        subscription = parse_tag_expression("T", text, version)
    except InvalidSubscription:
        return
    again = parse_subscription(parse_json(emit_json(subscription_object(subscription))))
    assert again == subscription


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        "T",
        {},
        {"topic": 1},
        {"topic": "T", "subString": 1},
        {"topic": "T", "subVersion": "x"},
        {"topic": "T", "subVersion": 1.5},
        {"topic": "T", "subVersion": 1 << 63},
        {"topic": "T", "tagsSet": "A"},
        {"topic": "T", "tagsSet": [1]},
        {"topic": "T", "classFilterMode": "true"},
        {"topic": "T", "expressionType": "S" * 100},
    ],
)
def test_wrong_types_are_refused(found: Any) -> None:
    with pytest.raises(InvalidArgument):
        parse_subscription(found)
