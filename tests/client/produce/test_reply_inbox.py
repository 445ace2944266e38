"""Replies are matched with the requests that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from broker_core.client.produce.reply_inbox import ReplyInbox
from broker_core.codec.records import message_properties as names
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RequestTimeout
from broker_core.protocol_codes import RequestCode, ResponseCode

Run = Callable[..., Any]
CONNECTION: Any = None


def reply_to(properties: Mapping[str, str], body: bytes = b"reply") -> RemotingCommand:
    text = f"{names.CORRELATION_ID}\x01{properties[names.CORRELATION_ID]}\x02"
    ext = {"topic": "R", "queueId": "0", "properties": text, "bornHost": "/10.0.0.1:99"}
    return RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, body)


def test_a_reply_completes_its_request_only(run_async: Run) -> None:
    async def scenario() -> None:
        inbox = ReplyInbox()
        with inbox.expect("id", 60_000) as one, inbox.expect("id", 60_000) as other:
            assert one.properties[names.REPLY_TO_CLIENT] == "id"
            answer = inbox.receive(CONNECTION, reply_to(one.properties))
            assert answer.code == ResponseCode.SUCCESS
            message = await one.reply()
            assert message.body == b"reply"
            assert message.born_host == ("10.0.0.1", 99)
            assert not other.future.done()

    run_async(scenario())


def test_a_late_or_repeated_reply_is_answered_with_success(run_async: Run) -> None:
    async def scenario() -> None:
        inbox = ReplyInbox()
        with inbox.expect("id", 60_000) as expected:
            reply = reply_to(expected.properties)
            for _ in range(2):
                assert inbox.receive(CONNECTION, reply).code == ResponseCode.SUCCESS
        assert inbox.receive(CONNECTION, reply).code == ResponseCode.SUCCESS

    run_async(scenario())


def test_no_reply_in_time(run_async: Run) -> None:
    async def scenario() -> None:
        with (
            ReplyInbox().expect("id", 0) as expected,
            pytest.raises(RequestTimeout, match="no reply came within 0 ms"),
        ):
            await expected.reply()

    run_async(scenario())
