"""Start and stop by `async with`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_core.client.connection.lifecycle import Lifecycle


class Steps(Lifecycle):
    """Notes its steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    async def start(self) -> None:
        self.steps.append("start")

    async def stop(self) -> None:
        self.steps.append("stop")


def test_an_error_inside_also_stops(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        client = Steps()
        async with client as entered:
            assert entered is client
            assert client.steps == ["start"]
        assert client.steps == ["start", "stop"]
        with pytest.raises(ValueError, match="inside"):
            async with client:
                raise ValueError("inside")
        assert client.steps == ["start", "stop"] * 2

    run_async(scenario())
