"""Which extensions a broker supports: asked once, then cached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.client.connection.capabilities import NO_CAPABILITIES, BrokerCapabilities
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, UnexpectedAnswer
from broker_core.protocol_codes import ResponseCode

Run = Callable[..., Any]
OURS = {"bulkPull": "1", "sink": "1", "storeId": "s", "run": "r"}


class Remoting:
    """Answers with `code` and `fields`, or does not answer."""

    def __init__(self, code: int = ResponseCode.SUCCESS, **fields: str) -> None:
        self.code = code
        self.fields = fields
        self.asked: list[dict[str, str]] = []
        self.is_down = False

    async def request(self, address: str, command: RemotingCommand, timeout_ms: float) -> Any:
        self.asked.append(dict(command.ext))
        await asyncio.sleep(0)
        if self.is_down:
            raise ConnectionLost("down")
        return RemotingCommand(self.code, self.fields)


def capabilities(remoting: Any) -> BrokerCapabilities:
    return BrokerCapabilities(remoting, 1_000)


def test_callers_share_one_request(run_async: Run) -> None:
    async def scenario() -> None:
        remoting = Remoting(**OURS)
        known = capabilities(remoting)
        found = await asyncio.gather(*(known.of("a:1") for _ in range(5)))
        assert len(remoting.asked) == 1
        assert {(one.bulk_pull, one.sink, one.store_id) for one in found} == {(True, True, "s")}
        assert (await known.of("a:1")).run == "", "the run is not cached"
        assert len(remoting.asked) == 1
        known.forget("a:1")
        assert not known.is_known("a:1")

    run_async(scenario())


def test_another_product_has_none_and_is_not_asked_again(run_async: Run) -> None:
    async def scenario() -> None:
        remoting = Remoting(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        known = capabilities(remoting)
        assert [await known.of("a:1") for _ in range(2)] == [NO_CAPABILITIES] * 2
        assert len(remoting.asked) == 1

    run_async(scenario())


def test_a_busy_broker_is_asked_again(run_async: Run) -> None:
    async def scenario() -> None:
        remoting = Remoting(ResponseCode.SYSTEM_BUSY)
        known = capabilities(remoting)
        assert await known.of("a:1") == NO_CAPABILITIES
        remoting.code, remoting.fields = ResponseCode.SUCCESS, OURS
        assert (await known.of("a:1")).sink

    run_async(scenario())


def test_a_failure_is_raised_and_not_remembered(run_async: Run) -> None:
    async def scenario() -> None:
        remoting = Remoting(**OURS)
        known = capabilities(remoting)
        remoting.is_down = True
        with pytest.raises(ConnectionLost):
            await known.of("a:1")
        remoting.is_down = False
        assert (await known.of("a:1")).bulk_pull

    run_async(scenario())


def test_the_run_of_a_log_is_not_cached(run_async: Run) -> None:
    async def scenario() -> None:
        remoting = Remoting(**OURS)
        known = capabilities(remoting)
        assert (await known.ask("a:1", "before")).run == "r"
        assert remoting.asked == [{"run": "before"}]

    run_async(scenario())


def test_an_impossible_frame_size(run_async: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(UnexpectedAnswer, match="frameSizeMax"):
            await capabilities(Remoting(frameSizeMax="-1")).of("a:1")

    run_async(scenario())
