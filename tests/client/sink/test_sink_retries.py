"""Retries of the sink's client: which requests, how long, and which brokers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.sink.client import SinkClient
from broker_core.codec.wire.bodies.sink_messages import COMPLETE
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from tests.broker.sink_store import identity
from tests.client.sink.test_client import (
    NAME,
    RunningCluster,
    rows,
    running_cluster,
    staged,
    two_brokers,
)

Run = Callable[..., Any]
# As a broker says it that is stopped, or that lacks slaves at the moment.
PASSING = (ResponseCode.SYSTEM_ERROR, ResponseCode.FLOW_CONTROL, ResponseCode.GO_AWAY)


class _Refuser:
    """The next requests with these codes are answered with something else, done or not."""

    def __init__(
        self, cluster: RunningCluster, answer: int, is_done: bool, patch: pytest.MonkeyPatch
    ) -> None:
        self.codes: list[int] = []
        router = type(cluster.broker.router)
        handle = router.__call__

        def refuse(this: Any, connection: Connection, command: RemotingCommand) -> Any:
            if command.code not in self.codes:
                return handle(this, connection, command)
            self.codes.remove(command.code)
            refusal = command.reply(answer, "the request was cancelled")
            if not is_done:
                return refusal
            return self._instead(handle(this, connection, command), refusal)

        patch.setattr(router, "__call__", refuse)

    async def _instead(self, doing: Any, refusal: RemotingCommand) -> RemotingCommand:
        if not isinstance(doing, RemotingCommand):
            await doing
        return refusal


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("answer", PASSING)
def test_what_may_pass_is_asked_again(
    answer: int, is_done: bool, tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client() as sink:
            refuser = _Refuser(cluster, answer, is_done, monkeypatch)
            codes = [RequestCode.STAGE_BEGIN, RequestCode.STAGE_SEAL, RequestCode.SINK_PUBLISH]
            refuser.codes = [*codes, *codes, RequestCode.SINK_STATUS]
            part = await staged(sink, identity(0), [b"a", b"b"])
            answered = await sink.publish(identity(0), [part])
            assert answered == (is_done, 0, {NAME: {"T": {0: (0, 2)}}})
            assert (await sink.status("S", NAME)).batch == 0
            assert refuser.codes == []
            assert cluster.bodies() == [b"a", b"b"]

    run_async(scenario())


def test_what_does_not_pass_is_an_error_after_a_while(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client(retry_for_ms=150) as sink:
            refuser = _Refuser(cluster, ResponseCode.SYSTEM_ERROR, False, monkeypatch)
            part = await staged(sink, identity(0), [b"a"])
            refuser.codes = [RequestCode.SINK_PUBLISH] * 1_000
            with pytest.raises(RemoteError, match="the request was cancelled"):
                await sink.publish(identity(0), [part])
            assert 2 <= 1_000 - len(refuser.codes) < 10
            refuser.codes = []
            # What does not pass by itself is not asked for again.
            _Refuser(cluster, ResponseCode.NO_PERMISSION, False, monkeypatch).codes = [
                RequestCode.SINK_PUBLISH
            ]
            with pytest.raises(RemoteError) as refused:
                await sink.publish(identity(0), [part])
            assert refused.value.code == ResponseCode.NO_PERMISSION

    run_async(scenario())


def test_the_next_batch_does_not_complete_the_last_one_again(
    tmp_path: Path, run_async: Run
) -> None:
    """Known while the client exists; each batch has a sink client of its own."""

    async def scenario() -> None:
        async with two_brokers(tmp_path) as brokers, brokers[NAME].client() as first:
            asked: list[tuple[str, str, int]] = []
            for batch in range(3):
                sink = SinkClient(first.client)
                publish = sink._publish

                async def watched(name: str, asking: Any, publish: Any = publish) -> Any:
                    asked.append((name, asking.phase, asking.identity.batch))
                    return await publish(name, asking)

                sink._publish = watched  # type: ignore[method-assign]
                parts = []
                for name in brokers:
                    writer = await sink.stage(identity(batch), name)
                    await writer.append(rows([b"x"]))
                    parts.append(await writer.seal())
                await sink.publish(identity(batch), parts, NAME)
            completed = [(name, batch) for name, phase, batch in asked if phase == COMPLETE]
            assert completed == [("broker-b", batch) for batch in range(3)]

    run_async(scenario())
