"""`topics` of an embedded broker or cluster: a dictionary, or an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_core import EmbeddedBroker, EmbeddedCluster
from broker_core.errors import InvalidArgument
from broker_core.notebook.topic_counts import QUEUES_MAX, topic_counts


@pytest.mark.parametrize("made", [EmbeddedBroker, EmbeddedCluster])
@pytest.mark.parametrize(
    ("topics", "meant"),
    [
        (["orders"], '{"orders": 4}'),
        ("orders", '{"orders": 4}'),
        (("a", "b"), '{"a": 4, "b": 4}'),
        ({"orders"}, '{"orders": 4}'),
        (7, '{"orders": 4}'),
    ],
)
def test_names_without_queues_are_refused(
    made: Callable[..., Any], topics: object, meant: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        made(topics=topics)
    assert str(refused.value) == (
        f"topics={topics!r} does not say how many queues each topic has: write topics={meant}\n"
        "See docs/errors.md#embedded-broker-topics"
    )


@pytest.mark.parametrize("made", [EmbeddedBroker, EmbeddedCluster])
@pytest.mark.parametrize("count", [0, -1, True, "4", 1.0, None, QUEUES_MAX + 1])
def test_a_number_of_queues_that_cannot_be(made: Callable[..., Any], count: object) -> None:
    with pytest.raises(InvalidArgument) as refused:
        made(topics={"orders": count})
    assert str(refused.value) == (
        f"topics: 'orders' cannot have {count!r} queues: give 1 to {QUEUES_MAX}"
    )


@pytest.mark.parametrize("made", [EmbeddedBroker, EmbeddedCluster])
@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 128, 7, None])
def test_a_name_that_no_topic_can_have(made: Callable[..., Any], name: Any) -> None:
    with pytest.raises(InvalidArgument) as refused:
        made(topics={"orders": 1, name: 1})
    assert str(refused.value).startswith(f"topics: {name!r}: ")


def test_a_copy_is_returned() -> None:
    given = {"orders": 1, "invoices": QUEUES_MAX}
    found = topic_counts(given)
    assert found == given
    assert found is not given
    assert topic_counts(None) == {}
