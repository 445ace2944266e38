"""The requests that carry messages, and what their answers say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker_core.client.produce.pending_send import PendingSend, batch_item
from broker_core.client.produce.result import SendResult, SendStatus
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand, encode_command
from broker_core.errors import UnexpectedAnswer

QUEUE = MessageQueue("T", "broker-a", 2)


def _request(unique_ids: str | Sequence[str] = "ID", **options: Any) -> PendingSend:
    loop = asyncio.new_event_loop()
    try:
        text = options.pop("text", "UNIQ_KEY\x01ID\x02")
        return PendingSend(
            "T", b"body", text, unique_ids, loop.create_future(), born_ms=7, **options
        )
    finally:
        loop.close()


def test_a_single_message_is_code_310_with_the_short_names() -> None:
    command = _request(flag=9, sys_flag=1).command("PG", QUEUE)
    assert command.code == 310
    assert command.body == b"body"
    assert command.ext == {
        "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "2", "f": "1", "g": "7", "h": "9",
        "i": "UNIQ_KEY\x01ID\x02", "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip


def test_a_batch_is_code_320_and_has_the_batch_field() -> None:
    command = _request(["A", "B"]).command("PG", QUEUE)
    assert (command.code, command.ext["m"]) == (320, "true")


def test_the_body_of_a_batch_byte_by_byte() -> None:
    """The example of the protocol's description."""
    made = batch_item(b"a", "TAGS\x01A\x02", 0) + batch_item(b"bc", "", 0)
    assert made.hex() == (
        "0000001e" + "00" * 12 + "00000001" + "61" + "0007" + "544147530141" + "02"
        "00000018" + "00" * 12 + "00000002" + "6263" + "0000"
    )  # fmt: skip


def test_long_property_texts_fit_into_a_header_that_servers_accept() -> None:
    text = "a\x01b\x02" * 8_000
    assert len(text) < 32_767
    head = encode_command(_request(text=text).command("PG", QUEUE))
    assert len(head) < 64 << 10


def _answer(code: int = 0, **ext: str) -> RemotingCommand:
    return RemotingCommand(code, {"msgId": "M", "queueId": "2", "queueOffset": "5", **ext})


def test_an_answer_becomes_a_result() -> None:
    found = _request().read_answer(QUEUE, _answer(transactionId="X"))
    assert found == SendResult(SendStatus.SEND_OK, "ID", "M", QUEUE, 5, "X")
    found = _request().read_answer(QUEUE, _answer(12, queueId="3"))
    assert isinstance(found, SendResult)
    assert (found.status, found.queue.queue_id) == (SendStatus.FLUSH_SLAVE_TIMEOUT, 3)


def test_a_batch_answer_becomes_a_result_for_each_message() -> None:
    found = _request(["A", "B"]).read_answer(QUEUE, _answer(msgId="X,Y"))
    assert found == (
        SendResult(SendStatus.SEND_OK, "A", "X", QUEUE, 5),
        SendResult(SendStatus.SEND_OK, "B", "Y", QUEUE, 6),
    )
    # Too few ids: stored all the same.
    found = _request(["A", "B"]).read_answer(QUEUE, _answer(msgId="X"))
    assert [one.offset_msg_id for one in found] == ["", ""]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "ext",
    [
        {},
        {"msgId": "M", "queueId": "0"},
        {"msgId": "M", "queueId": "x", "queueOffset": "1"},
        {"msgId": "M", "queueId": "0", "queueOffset": "-1"},
        {"msgId": "M", "queueId": "-1", "queueOffset": "1"},
        {"msgId": "M", "queueId": "0", "queueOffset": "9" * 5_000},
        {"queueId": "0", "queueOffset": "1"},
    ],
)
def test_answers_that_do_not_say_where(ext: dict[str, str]) -> None:
    with pytest.raises(UnexpectedAnswer, match="broker-a"):
        _request().read_answer(QUEUE, RemotingCommand(0, ext))
