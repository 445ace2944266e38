"""Requests to the name servers, with fail-over."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_core.client.connection.name_server_client import NameServerClient
from broker_core.codec.wire.bodies.route_data import (
    BrokerData,
    QueueData,
    TopicRoute,
    encode_topic_route,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    ConnectionLost,
    NoPermission,
    RemoteError,
    TopicNotExist,
)
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from tests.interop.java_broker import free_ports
from tests.remoting.peers import client, serving

ROUTE = TopicRoute((BrokerData("c", "a", {0: "h:1", 1: "h:2"}),), (QueueData("a", 2, 2, 6),))


def answering(code: int, body: bytes = b"", remark: str = "") -> Handler:
    def handle(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(code, remark, body=body)

    return handle


@contextlib.asynccontextmanager
async def asking(*handlers: Handler, first: int = 0) -> AsyncIterator[NameServerClient]:
    """A client of name servers with these handlers, which asks number `first` first."""
    async with contextlib.AsyncExitStack() as stack:
        addresses = [(await stack.enter_async_context(serving(one)))[1] for one in handlers]
        remoting = await stack.enter_async_context(client())
        found = NameServerClient(remoting, addresses, 60_000)
        found._current = first
        yield found


def test_a_dead_server_is_passed_over(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving(answering(0, encode_topic_route(ROUTE))) as (_, address):
            [port] = free_ports(1)
            async with client() as remoting:
                servers = NameServerClient(remoting, [f"127.0.0.1:{port}", address], 2_000)
                servers._current = 0
                assert await servers.route("T") == ROUTE

    run_async(scenario())


def test_errors_say_what_the_servers_said(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with asking(answering(17, remark="no T"), answering(1, remark="starting")) as both:
            with pytest.raises(TopicNotExist, match="no T"):
                await both.route("T")
        async with asking(answering(1, remark="starting")) as one:
            with pytest.raises(RemoteError, match="starting"):
                await one.route("T")
        async with asking(answering(16, remark="not you"), answering(17)) as strict:
            with pytest.raises(NoPermission, match="not you"):
                await strict.cluster_info()
        [port] = free_ports(1)
        async with client() as remoting:
            dead = NameServerClient(remoting, [f"127.0.0.1:{port}"], 500)
            with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}"):
                await dead.topic_list()

    run_async(scenario())
