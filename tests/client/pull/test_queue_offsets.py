"""Offset requests of clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_core.client.admin.admin import Admin
from broker_core.client.pull.queue_offsets import LATEST_MS
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    GroupNotExist,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode
from tests.client.scripted_brokers import ScriptedCluster, scripted_cluster


@contextlib.asynccontextmanager
async def administered(*names: str) -> AsyncIterator[tuple[ScriptedCluster, Admin]]:
    async with scripted_cluster(*names) as cluster, Admin(cluster.config()) as admin:
        yield cluster, admin


def answer_with(code: int = 0, body: bytes = b"", **ext: str) -> Callable[..., RemotingCommand]:
    return lambda command: command.reply(code, f"code {code}", ext, body)


def test_a_reset_by_hand_where_brokers_do_none(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with administered() as (cluster, admin):
            committed: list[dict[str, str]] = []

            def commit(command: RemotingCommand) -> RemotingCommand:
                committed.append(command.ext)
                return command.reply()

            answers = cluster.broker.answers
            answers[RequestCode.GET_MAX_OFFSET] = answer_with(offset="9")
            answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = answer_with(offset="4")
            answers[RequestCode.UPDATE_CONSUMER_OFFSET] = commit
            for code in (1, 3, 206):
                answers[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] = answer_with(code)
                latest = await admin.reset_offsets("CG", "T", LATEST_MS)
                assert set(latest.values()) == {9}
                assert len(latest) == 4
                assert set((await admin.reset_offsets("CG", "T", 77)).values()) == {4}
            assert len(committed) == 24
            answers[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] = answer_with(26)
            with pytest.raises(GroupNotExist):
                await admin.reset_offsets("CG", "T", 77)
            for body in (b"{", b'{"offsetTable":5}', b'{"offsetTable":{{"topic":"T"}:1}}'):
                answers[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] = answer_with(0, body)
                with pytest.raises(UnexpectedAnswer, match="broker-a"):
                    await admin.reset_offsets("CG", "T", 77)

    run_async(scenario())
