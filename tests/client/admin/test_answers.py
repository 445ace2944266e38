"""Answers of brokers that cannot be parsed."""

from __future__ import annotations

import pytest

from broker_core.client.admin.answers import answer_object, read_answer
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, UnexpectedAnswer


def test_an_object() -> None:
    assert answer_object("a:1", RemotingCommand(0, {}, b'{"x": 1}')) == {"x": 1}


@pytest.mark.parametrize(
    ("body", "text"), [(b"[1]", "a:1 answered list"), (b"{", "the answer of a:1 is malformed")]
)
def test_a_body_that_is_no_object_is_an_error(body: bytes, text: str) -> None:
    with pytest.raises(UnexpectedAnswer, match=text):
        answer_object("a:1", RemotingCommand(0, {}, body))


def test_errors_of_a_parser_name_the_sender() -> None:
    def refuse(count: int, *, name: str) -> int:
        raise InvalidArgument(f"{name} is {count}")

    with pytest.raises(UnexpectedAnswer, match="the answer of b:2 is malformed: rows is 3"):
        read_answer("b:2", refuse, 3, name="rows")
    assert read_answer("b:2", int, "7") == 7
