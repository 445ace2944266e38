"""Answers to pulls: the four outcomes, refusals, and answers that must not be trusted."""

from __future__ import annotations

import pytest

from broker_core.client.pull.result import PullStatus, parse_pull_answer
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RemoteError, TopicNotExist, UnexpectedAnswer

FIELDS = {
    "nextBeginOffset": "12",
    "minOffset": "3",
    "maxOffset": "40",
    "suggestWhichBrokerId": "1",
}


def answer(code: int, body: bytes = b"", **changes: str | None) -> RemotingCommand:
    ext = {k: v for k, v in {**FIELDS, **changes}.items() if v is not None}
    return RemotingCommand(code, ext, body)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, PullStatus.FOUND),
        (19, PullStatus.NO_NEW_MESSAGE),
        (20, PullStatus.NO_MATCHED_MESSAGE),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_outcomes(code: int, status: PullStatus) -> None:
    result = parse_pull_answer(answer(code, b"records"), 10)
    assert result.status is status
    assert (result.next_offset, result.min_offset, result.max_offset) == (12, 3, 40)
    assert result.suggested_broker_id == 1
    assert bytes(result.records) == (b"records" if code == 0 else b"")


def test_refusals_are_the_errors_of_their_codes() -> None:
    with pytest.raises(TopicNotExist, match="gone"):
        parse_pull_answer(RemotingCommand(17, remark="gone"), 0)
    with pytest.raises(RemoteError) as raised:
        parse_pull_answer(RemotingCommand(24), 0)
    assert raised.value.code == 24


@pytest.mark.parametrize("name", ["nextBeginOffset", "minOffset", "maxOffset"])
@pytest.mark.parametrize("value", [None, "", "x", "1.5", "9" * 30, "-2"])
def test_fields_are_checked(name: str, value: str | None) -> None:
    with pytest.raises(UnexpectedAnswer, match=name):
        parse_pull_answer(answer(19, **{name: value}), 0)


def test_a_broker_need_not_suggest_another() -> None:
    assert parse_pull_answer(answer(19, suggestWhichBrokerId=None), 0).suggested_broker_id == 0
    with pytest.raises(UnexpectedAnswer):
        parse_pull_answer(answer(19, suggestWhichBrokerId="-1"), 0)


@pytest.mark.parametrize(
    ("code", "body", "asked"),
    [(0, b"", 0), (0, b"records", 12), (0, b"records", 13), (20, b"", 13)],
)
def test_an_answer_must_lead_forward(code: int, body: bytes, asked: int) -> None:
    with pytest.raises(UnexpectedAnswer):
        parse_pull_answer(answer(code, body), asked)


def test_static_topics_are_refused_by_name() -> None:
    with pytest.raises(UnexpectedAnswer, match="static"):
        parse_pull_answer(answer(0, b"records", offsetDelta="7"), 0)
