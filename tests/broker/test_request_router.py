"""The handler of each request code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker_core.broker.request_router import RequestRouter
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RequestNotSupported

CONNECTION: Any = None


class Named:
    """Answers its codes with its name."""

    def __init__(self, name: str, *codes: int) -> None:
        self._name = name
        self._codes = codes

    def handlers(self) -> Mapping[int, Any]:
        return dict.fromkeys(self._codes, lambda connection, command: self._name)


def test_a_request_goes_to_the_handler_of_its_code() -> None:
    router = RequestRouter([Named("a", 1, 2), Named("b", 3)])
    assert router.codes == {1, 2, 3}
    assert [router(CONNECTION, RemotingCommand(code)) for code in (1, 2, 3)] == ["a", "a", "b"]
    with pytest.raises(RequestNotSupported, match="request type 4"):
        router(CONNECTION, RemotingCommand(4))


def test_a_code_with_two_handlers_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="request code 2 has two handlers"):
        RequestRouter([Named("a", 1, 2), Named("b", 2)])


def test_replaced_handlers_add_no_code() -> None:
    router = RequestRouter([Named("a", 1)], Named("instead", 1, 9).handlers())
    assert router.codes == {1}
    assert router(CONNECTION, RemotingCommand(1)) == "instead"
