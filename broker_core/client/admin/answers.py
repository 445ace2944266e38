"""Parsing of answers to administration requests. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from broker_core.codec.json.dialect import parse_json
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, MalformedJson, UnexpectedAnswer

T = TypeVar("T")
P = ParamSpec("P")


def read_answer(address: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `read`; a parse error becomes `UnexpectedAnswer` with the sender."""
    try:
        return read(*args, **kwargs)
    except (InvalidArgument, MalformedJson) as error:
        raise UnexpectedAnswer(f"the answer of {address} is malformed: {error}") from None


def answer_object(address: str, answer: RemotingCommand) -> Mapping[str, Any]:
    """The JSON object in a body."""
    found = read_answer(address, parse_json, answer.body)
    if not isinstance(found, dict):
        raise UnexpectedAnswer(f"{address} answered {type(found).__name__}, not an object")
    return found
