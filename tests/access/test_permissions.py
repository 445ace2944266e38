"""Which account may do what a rule asks; every rule of a server: `test_broker_rules.py`."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.access.accounts import DENY, PUB, SUB, Account
from broker_core.access.permissions import (
    ADMINS,
    ANY_ACCOUNT,
    BROKERS,
    Role,
    Rule,
    check_permission,
    fields,
    role_of,
    topic_need,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import NoPermission


class NoResources:
    """No topic is a system topic; nothing is named indirectly."""

    def is_system_topic(self, topic: str) -> bool:
        return False


RESOURCES: Any = NoResources()


def account(**changes: Any) -> Account:
    return Account("key", "a secret of enough characters", **changes)


def is_allowed(who: Account, rule: Rule, **ext: str) -> bool:
    try:
        check_permission(who, rule, RemotingCommand(1, ext), RESOURCES)
    except NoPermission:
        return False
    return True


def test_roles_in_order() -> None:
    plain, broker, admin = account(), account(is_broker=True), account(is_admin=True)
    assert [role_of(who) for who in (plain, broker, admin)] == [
        Role.ACCOUNT,
        Role.BROKER,
        Role.ADMIN,
    ]
    for rule, allowed in ((ANY_ACCOUNT, 3), (BROKERS, 2), (ADMINS, 1)):
        assert sum(is_allowed(who, rule) for who in (plain, broker, admin)) == allowed


@pytest.mark.parametrize("name", ["", " T", "T ", "a/b"])
def test_a_name_that_is_none_is_never_covered_by_a_default(name: str) -> None:
    rule = Rule(Role.ACCOUNT, fields(topic="topic", permission=PUB))
    generous = account(default_topic=PUB | SUB)
    assert is_allowed(generous, rule, topic="T")
    assert not is_allowed(generous, rule, topic=name)


def test_a_denied_topic_beats_the_default() -> None:
    rule = Rule(Role.ACCOUNT, fields(topic="topic", permission=PUB))
    who = account(default_topic=PUB | SUB, topics={"T": DENY})
    assert is_allowed(who, rule, topic="U")
    assert not is_allowed(who, rule, topic="T")


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g"])
def test_retries_and_dead_letters_belong_to_their_group(topic: str) -> None:
    assert topic_need(topic, PUB) == ("g", SUB, True)
