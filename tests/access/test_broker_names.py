"""Names that accounts of brokers may use, and what happens when the file changes."""

from __future__ import annotations

import logging

import pytest

from broker_core.access.accounts import ANY_BROKER, Account, AccountTable
from broker_core.access.broker_names import BrokerNames
from broker_core.codec.wire.bodies.route_data import QueueData, TopicRoute, encode_topic_route
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import NoPermission
from broker_core.protocol_codes import RequestCode


def broker(key: str, name: str = "") -> Account:
    return Account(key, is_broker=True, broker_name=name)


def table(*accounts: Account) -> AccountTable:
    return AccountTable({account.access_key: account for account in accounts})


def registering(name: str | None) -> RemotingCommand:
    ext = {} if name is None else {"brokerName": name}
    return RemotingCommand(RequestCode.REGISTER_BROKER, ext)


def routes(*names: str) -> RemotingCommand:
    queues = tuple(QueueData(name, 4, 4, 6, 0) for name in names)
    body = encode_topic_route(TopicRoute((), queues))
    return RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"}, body)


class Asked:
    """Requests of accounts at one server."""

    def __init__(self, *accounts: Account, own_name: str = "") -> None:
        self.names = BrokerNames(own_name)
        self.table = table(*accounts)

    def problem(self, key: str, command: RemotingCommand) -> str:
        try:
            self.names.check(self.table.accounts[key], command, self.table)
        except NoPermission as error:
            return str(error)
        return ""

    def may_register(self, key: str, name: str | None) -> bool:
        return not self.problem(key, registering(name))


def test_an_account_with_a_name_uses_no_other() -> None:
    asked = Asked(broker("of-a", "a"))
    assert asked.may_register("of-a", "a")
    assert asked.may_register("of-a", None)
    assert not asked.may_register("of-a", "b")
    assert not asked.may_register("of-a", "")
    assert "'a'" in asked.problem("of-a", registering("b"))


def test_an_account_without_a_name_is_bound_to_the_first(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked(broker("one"), broker("two"))
    with caplog.at_level(logging.WARNING):
        assert asked.may_register("one", "a")
        assert asked.may_register("one", "a")
    [warning] = caplog.messages
    assert "one" in warning and "'a'" in warning and "brokerName" in warning
    assert not asked.may_register("one", "b")
    # The name is taken, and a refusal binds nothing.
    assert not asked.may_register("two", "a")
    assert "brokerName" in asked.problem("two", registering("a"))
    assert asked.may_register("two", "b")


@pytest.mark.parametrize("name", ["", "n" * 256, " a", "a/b", "."])
def test_an_invalid_name_binds_nothing(name: str) -> None:
    asked = Asked(broker("one"))
    assert not asked.may_register("one", name)
    assert asked.may_register("one", None)
    assert asked.may_register("one", "a")


def test_the_name_of_another_account_is_reserved_before_it_is_used() -> None:
    asked = Asked(broker("one"), broker("of-a", "a"))
    assert not asked.may_register("one", "a")
    assert asked.may_register("of-a", "a")


def test_a_star_is_every_name_and_reserves_none() -> None:
    asked = Asked(broker("all", ANY_BROKER), broker("one"))
    assert asked.may_register("all", "a")
    assert asked.may_register("all", "b")
    assert asked.may_register("one", "a")


def test_routes_in_a_body_are_checked_by_name() -> None:
    asked = Asked(broker("of-a", "a"), broker("one"), broker("all", ANY_BROKER))
    assert not asked.problem("of-a", routes("a"))
    assert asked.problem("of-a", routes("a", "b"))
    assert asked.problem("of-a", routes())
    assert asked.problem("one", routes("a"))
    assert not asked.problem("one", routes("b"))
    assert asked.problem("one", routes("c"))
    assert not asked.problem("all", routes("a", "b", "c"))


def test_a_changed_file_drops_bindings() -> None:
    asked = Asked(broker("one"), broker("two"))
    assert asked.may_register("one", "a")
    asked.table = table(broker("one"), broker("two"))
    assert not asked.may_register("two", "a")
    # The first account now has its own name.
    asked.table = table(broker("one", "b"), broker("two"))
    assert asked.may_register("two", "a")
    assert not asked.may_register("two", "b")
    # It is gone, or no broker any more.
    asked.table = table(broker("one"), Account("two"), broker("three"))
    assert asked.may_register("three", "a")
    # The name is given to another one.
    asked.table = table(broker("three"), broker("four", "a"))
    assert not asked.may_register("three", "a")
    assert asked.may_register("four", "a")


def test_a_broker_answers_slaves_of_its_own_name() -> None:
    asked = Asked(
        broker("of-a", "a"), broker("of-b", "b"), broker("one"), broker("all", "*"), own_name="a"
    )
    copying = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert not asked.problem("of-a", copying)
    assert "'b'" in asked.problem("of-b", copying)
    assert asked.problem("of-b", RemotingCommand(RequestCode.METADATA_CHANGES, {"brokerName": "b"}))
    assert asked.problem("of-a", RemotingCommand(RequestCode.METADATA_CHANGES, {"brokerName": "b"}))
    # Its name is that of another account.
    assert "set brokerName" in asked.problem("one", copying)
    assert not asked.problem("all", copying)


def test_a_broker_whose_name_is_in_no_account_answers_slaves_without_a_name() -> None:
    asked = Asked(broker("of-b", "b"), broker("one"), broker("two"), own_name="a")
    copying = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert not asked.problem("one", copying)
    assert not asked.problem("two", copying)
