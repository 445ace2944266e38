"""The fields of pull requests."""

from __future__ import annotations

from broker_core.client.pull.request import (
    ANSWER_TIMEOUT_MS,
    HELD_ANSWER_TIMEOUT_MS,
    PullRequest,
    bulk_pull_command,
    pull_command,
)
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.protocol_codes import (
    PULL_COMMIT_OFFSET,
    PULL_HAS_SUBSCRIPTION,
    PULL_MAY_SUSPEND,
    RequestCode,
)

QUEUE = MessageQueue("T", "broker-a", 3)
ALL = parse_tag_expression("T", "*")


def test_a_plain_pull() -> None:
    command = pull_command(PullRequest(7), QUEUE, "g", ALL, to_master=True)
    assert command.code == RequestCode.PULL_MESSAGE
    assert command.ext["queueId"] == "3"
    assert command.ext["queueOffset"] == "7"
    assert command.ext["sysFlag"] == str(PULL_HAS_SUBSCRIPTION)
    assert command.ext["subscription"] == "*"
    assert "maxMsgBytes" not in command.ext
    assert PullRequest(7).timeout_ms == ANSWER_TIMEOUT_MS


def test_an_offset_is_committed_at_a_master_only() -> None:
    request = PullRequest(7, suspend_ms=1_000, commit_offset=5, size_max=9)
    at_master = pull_command(request, QUEUE, "g", ALL, to_master=True).ext
    flags = PULL_HAS_SUBSCRIPTION | PULL_MAY_SUSPEND
    assert at_master["sysFlag"] == str(flags | PULL_COMMIT_OFFSET)
    assert (at_master["commitOffset"], at_master["maxMsgBytes"]) == ("5", "9")
    at_slave = pull_command(request, QUEUE, "g", ALL, to_master=False).ext
    assert at_slave["sysFlag"] == str(flags)
    assert at_slave["commitOffset"] == "0"
    assert request.timeout_ms == 1_000 + HELD_ANSWER_TIMEOUT_MS


def test_a_bulk_pull() -> None:
    command = bulk_pull_command(PullRequest(7, 100), QUEUE, "g", 1 << 20)
    assert command.code == RequestCode.BULK_PULL
    assert command.ext["maxBytes"] == str(1 << 20)
    assert command.ext["maxCount"] == "100"
    assert "suspendTimeoutMillis" not in command.ext
    held = bulk_pull_command(PullRequest(7, suspend_ms=500), QUEUE, "g", 1)
    assert held.ext["suspendTimeoutMillis"] == "500"
