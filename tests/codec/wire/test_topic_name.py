"""Names that may become directories, and names that must not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.wire.topic_name import (
    SYSTEM_GROUPS,
    group_name_problem,
    is_system_group,
    topic_name_problem,
)


@pytest.mark.parametrize(
    "name",
    ["T", "%RETRY%group", "%DLQ%group", "a|b", "A-b_9", "t" * 127, "%RETRY%" + "g" * 248, "CONS"],
)
def test_good_names(name: str) -> None:
    assert topic_name_problem(name) is None
    assert topic_name_problem(name.encode()) is None


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../x", "/abs", "a/b", "a\\b", "a\0b", "a b", "a\n", "%2e%2e/", "ｔopic",
        "\u0430bc", "t" * 128, "%RETRY%" + "g" * 249, "x" * 10_000, "%", "%%%", "CON", "nul",
        "Com1", "LPT9", "aux", "prn",
    ],
)  # fmt: skip
def test_bad_names(name: str) -> None:
    assert topic_name_problem(name) is not None
    assert topic_name_problem(name.encode()) is not None


def test_group_names_are_shorter() -> None:
    assert group_name_problem("g" * 120) is None
    assert group_name_problem("g" * 121) is not None
    assert group_name_problem("g/../h") is not None


@given(st.text())
def test_accepted_names_are_plain_ascii(name: str) -> None:
    if topic_name_problem(name) is None:
        assert name.isascii()
        assert not {"/", "\\", ".", "\0"} & set(name)


def test_groups_of_the_servers() -> None:
    assert all(map(is_system_group, SYSTEM_GROUPS))
    assert is_system_group("CID_RMQ_SYS_anything")
    assert not is_system_group("CID_orders")
    assert not is_system_group("CG")
