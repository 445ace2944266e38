"""Attributes of topics and groups: the text of a request, and what it changes."""

from __future__ import annotations

import pytest

from broker_core.broker.tables.config_attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    changed_attributes,
    parse_attribute_changes,
)
from broker_core.errors import InvalidArgument


def test_texts() -> None:
    assert parse_attribute_changes("") == {}
    assert parse_attribute_changes("+message.type= FIFO, -queue.type") == {
        "+message.type": "FIFO",
        "-queue.type": "",
    }


@pytest.mark.parametrize("text", ["message.type=FIFO", "+message.type", "-a=b", "+a=1,+a=2", ","])
def test_texts_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_attribute_changes(text)


def test_changes() -> None:
    made = changed_attributes(None, {"+message.type": "FIFO"}, TOPIC_ATTRIBUTES)
    assert made == {"message.type": "FIFO"}
    assert changed_attributes(made, {"-message.type": ""}, TOPIC_ATTRIBUTES) == {}
    assert changed_attributes(None, {"priority.factor": "100"}, GROUP_ATTRIBUTES) == {
        "priority.factor": "100"
    }


def test_unknown_attributes_of_another_broker_may_stay() -> None:
    kept = {"other": "x"}
    assert changed_attributes(kept, {"+other": "x"}, TOPIC_ATTRIBUTES) == kept
    with pytest.raises(InvalidArgument, match="'other' is unknown"):
        changed_attributes(kept, {"+other": "y"}, TOPIC_ATTRIBUTES)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"+cleanup.policy": "COMPACTION"}, "give DELETE"),
        ({"-message.type": ""}, "cannot be removed"),
    ],
)
def test_changes_of_a_new_topic_that_are_refused(changes: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        changed_attributes(None, changes, TOPIC_ATTRIBUTES)


def test_a_range_is_named_by_its_ends() -> None:
    with pytest.raises(InvalidArgument, match="give 0 to 100"):
        changed_attributes(None, {"+priority.factor": "101"}, GROUP_ATTRIBUTES)
