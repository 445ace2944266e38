"""Which failed sends are retried, and the text of the final error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.client.produce.failures import described, is_worth_another_try
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import (
    ConnectionLost,
    InvalidArgument,
    MessageTooLarge,
    RemoteError,
    RequestTimeout,
    RmqError,
)
from broker_core.protocol_codes import ResponseCode


def request(*, was_sent: bool, queue: MessageQueue | None = None) -> Any:
    return SimpleNamespace(topic="T", queue=queue, was_sent=was_sent)


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (ConnectionLost("gone"), True),
        (RequestTimeout("late"), True),
        (RemoteError(ResponseCode.SYSTEM_BUSY, "busy"), True),
        (RemoteError(ResponseCode.NO_PERMISSION, "not writable here"), True),
        (RemoteError(ResponseCode.MESSAGE_ILLEGAL, "bad"), False),
        (MessageTooLarge("big"), False),
    ],
)
def test_retries(error: RmqError, retried: bool) -> None:
    assert is_worth_another_try(error) is retried


def test_a_lost_message_that_was_sent_may_be_stored() -> None:
    queue = MessageQueue("T", "broker-a", 1)
    found = described(ConnectionLost("gone"), request(was_sent=True, queue=queue))
    assert type(found) is ConnectionLost
    assert str(found) == "topic T at broker-a: gone; the message may be stored"
    assert str(described(RequestTimeout("late"), request(was_sent=False))) == "topic T: late"


def test_a_refusal_keeps_its_class_and_code() -> None:
    refusal = RemoteError.for_code(ResponseCode.NO_PERMISSION, "no")
    found = described(refusal, request(was_sent=True))
    assert type(found) is type(refusal)
    assert isinstance(found, RemoteError)
    assert found.code == ResponseCode.NO_PERMISSION
    assert "topic T" in str(found)


def test_other_errors_stay_as_they_are() -> None:
    error = InvalidArgument("wrong")
    assert described(error, request(was_sent=False)) is error
