"""Reading what brokers answer to questions of administration. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from broker_core.codec.json_dialect import parse_json
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, MalformedJson, UnexpectedAnswer

T = TypeVar("T")


def read_answer(address: str, read: Callable[[], T]) -> T:
    """What `read` returns; an answer that makes no sense is named with its sender."""
    try:
        return read()
    except (InvalidArgument, MalformedJson) as error:
        raise UnexpectedAnswer(f"the answer of {address} makes no sense: {error}") from None


def answer_object(address: str, answer: RemotingCommand) -> Mapping[str, Any]:
    """The JSON object in a body."""
    found = read_answer(address, lambda: parse_json(answer.body))
    if not isinstance(found, dict):
        raise UnexpectedAnswer(f"{address} answered {type(found).__name__}, not an object")
    return found
