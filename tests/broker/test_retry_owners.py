"""Two groups may share a retry topic, because names may contain the separator."""

from __future__ import annotations

import pytest

from broker_core.broker.retry_owners import RetryOwner, RetryOwners
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.pop_handle import FIRST_POP_TIME, ORIGIN_GROUP
from tests.broker.broker_tables import group_table, offset_table, topic_table
from tests.store.small_store import new_disk


def owners(*groups: str, topics: tuple[str, ...] = ("x",)) -> RetryOwners:
    disk = new_disk()
    tables = topic_table(disk), group_table(disk), offset_table(disk)
    for name in topics:
        tables[0].put(TopicConfig(name, 1, 1))
    for name in groups:
        tables[1].put(GroupConfig(name))
    return RetryOwners(*tables)


def text(**properties: str) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


POPPED_BY_A = text(**{FIRST_POP_TIME: "1", ORIGIN_GROUP: "a"})
POPPED_BY_B = text(**{FIRST_POP_TIME: "1", ORIGIN_GROUP: "b"})
SENT_BACK = text(TAGS="t")


def test_a_name_with_one_reading_needs_no_filter() -> None:
    assert owners("a").filter("a", "%RETRY%a") is None
    assert owners("a").filter("a", "orders") is None
    assert owners("a").others("a", "%RETRY%a_x") == []


def test_the_group_of_the_whole_name_gets_what_was_sent_back() -> None:
    found = owners("a", "a_x").filter("a_x", "%RETRY%a_x")
    assert found is not None
    assert found.accepts(SENT_BACK)
    assert not found.accepts(POPPED_BY_A)


def test_the_group_that_pops_gets_what_it_popped() -> None:
    found = owners("a", "a_x").filter("a", "%RETRY%a_x")
    assert found is not None
    assert found.accepts(POPPED_BY_A)
    assert not found.accepts(POPPED_BY_B)
    assert not found.accepts(SENT_BACK)


def test_other_owners_are_named_for_access_control() -> None:
    assert owners("a", "a_x").others("a", "%RETRY%a_x") == [RetryOwner("a_x")]


def test_all_owners_of_a_retry_topic() -> None:
    assert owners("a", "a_x").all_of("%RETRY%a_x") == [RetryOwner("a_x"), RetryOwner("a", "x")]
    assert owners("a").all_of("orders") == []


def test_the_group_of_a_popped_message() -> None:
    def popped(*groups: str, topic: str = "%RETRY%a_x", **properties: str) -> list[RetryOwner]:
        return owners(*groups).popped(topic, properties)

    by_a = {FIRST_POP_TIME: "1", ORIGIN_GROUP: "a"}
    assert popped("a", "a_x", **by_a) == [RetryOwner("a", "x")]
    assert popped(**by_a) == [RetryOwner("a", "x")]
    # Without its group it may belong to each of them.
    unnamed = [RetryOwner("a_x"), RetryOwner("a", "x")]
    assert popped("a", "a_x", **{FIRST_POP_TIME: "1"}) == unnamed
    # Sent back, or in a topic that is no retry topic.
    assert popped("a", "a_x", TAGS="t") == []
    assert popped("a", topic="%RETRY%a", **by_a) == []
    assert popped("a", topic="orders", **by_a) == []


@pytest.mark.parametrize("answer", [True, False])
def test_an_inner_filter_decides_as_well(answer: bool) -> None:
    class Inner:
        cost = 5

        def accepts(self, property_text: bytes, /) -> bool:
            return answer

    found = owners("a").filter("a", "%RETRY%a_x", Inner())
    assert found is not None
    assert found.cost == 6
    assert found.accepts(POPPED_BY_A) is answer
