"""Access files: accepted and rejected content; no error shows a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_core.access.accounts import DENY, PUB, SUB, parse_accounts
from broker_core.errors import InvalidArgument, MalformedJson, RmqError
from tests.access.access_files import READER

SECRET = "canary-of-the-secret"


def parsed(*accounts: Any, **top: Any) -> Any:
    return parse_accounts(json.dumps({"accounts": list(accounts), **top}).encode())


def account(**changes: Any) -> dict[str, Any]:
    return {"accessKey": "key", "secretKey": SECRET, **changes}


def test_the_defaults_deny() -> None:
    table = parsed(account())
    found = table.accounts["key"]
    assert not found.is_admin
    assert not found.is_broker
    assert found.topic_permission("T", is_system=False) == DENY
    assert found.group_permission("G") == DENY
    assert not found.is_trusted("127.0.0.1")
    assert not table.is_trusted("127.0.0.1")


def test_permissions_by_name_and_by_default() -> None:
    found = parsed(
        account(
            defaultTopicPerm="SUB",
            defaultGroupPerm="PUB|SUB",
            topicPerms=["A=DENY", "B=PUB", "C=PUB|SUB", "D=SUB|PUB", "RMQ_SYS_TRACE_TOPIC=PUB"],
            groupPerms=["G=DENY"],
        )
    ).accounts["key"]
    topics = {name: found.topic_permission(name, is_system=False) for name in "ABCDE"}
    assert topics == {"A": DENY, "B": PUB, "C": PUB | SUB, "D": PUB | SUB, "E": SUB}
    assert found.topic_permission("SCHEDULE_TOPIC_XXXX", is_system=True) == DENY
    assert found.topic_permission("RMQ_SYS_TRACE_TOPIC", is_system=True) == PUB
    assert (found.group_permission("G"), found.group_permission("H")) == (DENY, PUB | SUB)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"admin": "true"}, "admin"),
        ({"defaultTopicPerm": "READ"}, "defaultTopicPerm needs one of"),
        ({"defaultTopicPerm": 1}, "defaultTopicPerm"),
        ({"topicPerms": ["T"]}, "topicPerms needs entries like name=SUB"),
        ({"topicPerms": ["=SUB"]}, "topicPerms needs entries like name=SUB"),
        ({"topicPerms": ["T=SUB", "T=PUB"]}, "twice"),
        ({"topicPerms": "T=SUB"}, "topicPerms"),
        ({"accessKey": ""}, "accessKey"),
        ({"accessKey": "a\nb"}, "accessKey"),
        ({"accessKey": "a" * 257}, "accessKey"),
        ({"secretKey": "short"}, "secretKey"),
        ({"secretKey": 12345678}, "secretKey"),
        ({"whiteRemoteAddress": "everywhere"}, "not an address"),
        ({"Admin": True}, "unknown key"),
    ],
)
def test_a_mistake_refuses_the_whole_file(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as raised:
        parsed(account(accessKey="first"), account(**changes))
    assert "account 2" in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"accounts: []",
        b'{"accounts":[{}]}',
        b'{"accounts":{}}',
        b'{"accounts":[[[[[[[[1]]]]]]]]}',
        b'{"accounts":[],"accounts":[]}',
        b'{"accounts":[{"accessKey":"k","secretKey":"canary-of-the-secret","admin":false,"admin":true}]}',
        b'{"globalWhiteRemoteAddresses":["x"]}',
        b'{"globalWhiteRemoteAddresses":[1]}',
        b'{"globalWhiteRemoteAddresses":"*"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_texts_that_are_no_access_file(text: bytes) -> None:
    with pytest.raises((InvalidArgument, MalformedJson)) as raised:
        parse_accounts(text)
    assert SECRET not in str(raised.value)


def test_the_same_key_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="account 2"):
        parsed(account(), account())


def test_huge_files_are_refused() -> None:
    with pytest.raises(RmqError, match="10001 accounts"):
        parsed(*(account(accessKey=str(number)) for number in range(10_001)))
    with pytest.raises(RmqError, match="at most"):
        parse_accounts(b" " * (9 << 20))


def test_secrets_are_not_shown() -> None:
    table = parsed(account(), READER)
    for shown in (repr(table), str(table), repr(table.accounts["key"]), f"{table.accounts}"):
        assert SECRET not in shown
        assert "canary" not in shown
