"""Which member of a broker is asked for the next messages."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.client.pull.queue_reader import QueueReader
from broker_core.client.pull.request import PullRequest
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import BrokerNotExist, ConnectionLost
from broker_core.protocol_codes import ResponseCode

Run = Callable[..., Any]


class Cluster:
    """Members of broker-a by id; those in `down` cannot be reached."""

    def __init__(self, *ids: int) -> None:
        self.members = {number: f"host:{number}" for number in ids}
        self.down: set[int] = set()
        self.suggested = "0"
        self.asked: list[str] = []
        self.refreshed = 0

    def reader(self) -> QueueReader:
        routes = SimpleNamespace(
            brokers=lambda: {"broker-a": self.members} if self.members else {},
            refresh_soon=self._refresh,
            route=self._route,
        )
        doors: Any = SimpleNamespace(
            remoting=SimpleNamespace(request=self._request), routes=routes, capabilities=None
        )
        queue = MessageQueue("T", "broker-a", 0)
        return QueueReader(doors, queue, "g", parse_tag_expression("T", "TagA"))

    def _refresh(self, topic: str) -> None:
        self.refreshed += 1

    async def _route(self, topic: str, refresh: bool) -> None:
        self.refreshed += 1

    async def _request(self, address: str, command: RemotingCommand, timeout_ms: int) -> Any:
        self.asked.append(address)
        if int(address.rpartition(":")[2]) in self.down:
            raise ConnectionLost(f"{address} is down")
        fields = {
            "nextBeginOffset": "5",
            "minOffset": "0",
            "maxOffset": "5",
            "suggestWhichBrokerId": self.suggested,
        }
        return RemotingCommand(ResponseCode.PULL_NOT_FOUND, fields)


def test_the_answer_suggests_the_next_member(run_async: Run) -> None:
    async def scenario() -> None:
        cluster = Cluster(0, 1)
        reader = cluster.reader()
        cluster.suggested = "1"
        assert (await reader.pull(PullRequest(5))).from_master
        assert not (await reader.pull(PullRequest(5))).from_master
        assert cluster.asked == ["host:0", "host:1"]

    run_async(scenario())


def test_another_member_answers_for_one_that_is_down(run_async: Run) -> None:
    async def scenario() -> None:
        cluster = Cluster(0, 1, 2)
        cluster.down = {0, 1}
        await cluster.reader().pull(PullRequest(5))
        assert cluster.asked == ["host:0", "host:1", "host:2"]
        assert cluster.refreshed == 2

    run_async(scenario())


def test_the_last_error_is_raised_and_the_master_is_next(run_async: Run) -> None:
    async def scenario() -> None:
        cluster = Cluster(0, 1)
        cluster.down = {0, 1}
        reader = cluster.reader()
        with pytest.raises(ConnectionLost, match="host:1 is down"):
            await reader.pull(PullRequest(5))
        cluster.down = set()
        await reader.pull(PullRequest(5))
        assert cluster.asked[-1] == "host:0"

    run_async(scenario())


def test_a_broker_without_a_route(run_async: Run) -> None:
    async def scenario() -> None:
        cluster = Cluster()
        with pytest.raises(BrokerNotExist, match="broker-a"):
            await cluster.reader().pull(PullRequest(5))
        assert cluster.refreshed == 1

    run_async(scenario())
