"""Requests of brokers reach the group that they name."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.client.connection.broker_requests import BrokerRequests
from broker_core.client.connection.group_registry import (
    ConsumerRegistration,
    GroupRegistry,
    ProducerRegistration,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RemoteError, RequestNotSupported
from broker_core.protocol_codes import RequestCode

CONNECTION: Any = None


def answers(text: str) -> Any:
    return lambda connection, command: text


def requests(rebalanced: list[str]) -> BrokerRequests:
    registry = GroupRegistry()
    registry.add_producer(
        ProducerRegistration("p", {RequestCode.CHECK_TRANSACTION_STATE: answers("check")})
    )
    registry.add_consumer(
        ConsumerRegistration(
            "c",
            lambda: None,  # type: ignore[arg-type,return-value]
            lambda: rebalanced.append("c"),
            {RequestCode.GET_CONSUMER_RUNNING_INFO: answers("info")},
        )
    )
    return BrokerRequests(registry)


def test_a_change_of_members_makes_its_group_rebalance() -> None:
    rebalanced: list[str] = []
    handle = requests(rebalanced)
    for group in ("c", "another", ""):
        command = RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
        handle(CONNECTION, command)
    assert rebalanced == ["c"]


def test_a_request_for_a_consumer_group() -> None:
    handle = requests([])
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    assert handle(CONNECTION, RemotingCommand(code, {"consumerGroup": "c"})) == "info"
    with pytest.raises(RemoteError, match="consumer group 'x' is not on this client"):
        handle(CONNECTION, RemotingCommand(code, {"consumerGroup": "x"}))


def test_a_check_without_a_readable_message_is_refused() -> None:
    with pytest.raises(RemoteError, match="cannot be read"):
        requests([])(CONNECTION, RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, {}, b"x"))


def test_codes_without_a_group() -> None:
    handle = requests([])
    command = RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    with pytest.raises(RequestNotSupported):
        handle(CONNECTION, command)
    handle.set_handler(command.code, answers("reply"))
    assert handle(CONNECTION, command) == "reply"
    handle.set_handler(command.code, None)
    with pytest.raises(RequestNotSupported):
        handle(CONNECTION, command)
