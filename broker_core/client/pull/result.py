"""The result of a pull. Every field is validated: brokers are not trusted (S24)."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.json.fields import I64_MAX, whole_number
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, RemoteError, UnexpectedAnswer
from broker_core.protocol_codes import ResponseCode

BROKER_ID_MAX: Final = 1 << 31


class PullStatus(enum.Enum):
    """Outcomes that are not errors."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MESSAGE"
    """The offset is the end of the queue."""
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    """None of the messages that the broker examined matched: continue at `next_offset`."""
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    """The offset is outside of the queue; `next_offset` is the nearest valid one."""


_STATUS_OF_CODE: Final = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MESSAGE,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MESSAGE,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class PullResult(NamedTuple):
    """One answer; `records` are the raw stored records, `messages` the decoded ones."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = 0
    records: bytes | memoryview = b""
    messages: Sequence[ReceivedMessage] = ()
    from_master: bool = True
    """Only a master knows the real ends of its queues."""
    is_bulk: bool = False


def parse_pull_answer(answer: RemotingCommand, asked_offset: int) -> PullResult:
    """Raises `RemoteError` for a refusal and `UnexpectedAnswer` for an invalid answer.

    Without a suggested broker (our bulk pulls have none) the next pull goes to the master.
    """
    status = _STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise RemoteError.for_code(answer.code, answer.remark)
    if answer.ext.get("offsetDelta", "0") != "0":
        raise UnexpectedAnswer("this is a queue of a static topic (5.x), which cannot be read")
    next_offset = _number(answer, "nextBeginOffset")
    result = PullResult(
        status,
        next_offset,
        _number(answer, "minOffset", -1),
        _number(answer, "maxOffset", -1),
        _number(answer, "suggestWhichBrokerId", 0, BROKER_ID_MAX, default=0),
        answer.body if status is PullStatus.FOUND else b"",
    )
    if status is PullStatus.FOUND:
        if not len(answer.body):
            raise UnexpectedAnswer("the broker reported messages but sent none")
        if next_offset <= asked_offset:
            raise UnexpectedAnswer(
                f"messages from offset {asked_offset} on, but next offset {next_offset}"
            )
    elif status is PullStatus.NO_MATCHED_MESSAGE and next_offset < asked_offset:
        raise UnexpectedAnswer(
            f"no match from offset {asked_offset} on, but next offset {next_offset}"
        )
    return result


def _number(
    answer: RemotingCommand,
    name: str,
    least: int = 0,
    most: int = I64_MAX,
    default: int | None = None,
) -> int:
    text = answer.ext.get(name)
    if text is None:
        if default is not None:
            return default
        raise UnexpectedAnswer(f"the answer to a pull has no {name}")
    try:
        return whole_number(text, name, least, most)
    except InvalidArgument as error:
        raise UnexpectedAnswer(f"the answer to a pull: {error}") from None
