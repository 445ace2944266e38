"""A gRPC client that connects to a port of the remoting protocol gets the reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.remoting.http2_refusal import PREFACE, TEXT, Http2Refusal, ViolatedHttp2
from tests.remoting.peers import PATIENT_MS, client, raw_peer, serving, until


def call(address: str) -> grpc.RpcError:
    """The error of one call, as applications see it."""
    with grpc.insecure_channel(address) as channel:
        query = channel.unary_unary(
            "/apache.rocketmq.v2.MessagingService/QueryRoute",
            request_serializer=bytes,
            response_deserializer=bytes,
        )
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as raised:
                query(b"", timeout=PATIENT_MS / 1000)
        return raised.value


def test_a_grpc_client_gets_the_reason(
    run_async: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving() as (server, address), client() as caller:
            with caplog.at_level(logging.INFO, "broker_core.remoting.http2_refusal"):
                error = await asyncio.to_thread(call, address)
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED
            assert error.details() == TEXT
            assert error.details().splitlines() == [
                "this port speaks RocketMQ's remoting protocol, not gRPC: connect the gRPC client"
                " to an Apache RocketMQ proxy (usually port 8081) in front of this broker, or use a"
                " remoting client",
                "See docs/errors.md#grpc-client-on-the-remoting-port",
            ]
            assert [record.getMessage() for record in caplog.records] == [
                f"a gRPC client at 127.0.0.1: {TEXT}"
            ]
            # Its connection is released, and others are served.
            await until(lambda: not server.connections)
            assert (await caller.request(address, RemotingCommand(1), PATIENT_MS)).code == 0

    run_async(scenario())


def test_bytes_may_arrive_one_by_one() -> None:
    settings = bytes.fromhex("000000040000000000")
    ping = bytes.fromhex("000008060000000000") + b"12345678"
    headers = bytes.fromhex("000001010500000003") + b"\x82"
    sent = PREFACE + settings + ping + headers
    whole = Http2Refusal().receive(sent)
    refusal = Http2Refusal()
    assert b"".join(refusal.receive(bytes((byte,))) for byte in sent) == whole
    assert whole.startswith(
        settings
        + bytes.fromhex("000000040100000000")
        + bytes.fromhex("000008060100000000")
        + b"12345678"
    )
    assert b"grpc-status\x0212" in whole


@pytest.mark.parametrize("sent", [b"PRI is not HTTP", PREFACE + b"\xff" * 9])
def test_what_is_not_http_is_closed(run_async: Callable[..., Any], sent: bytes) -> None:
    with pytest.raises(ViolatedHttp2):
        Http2Refusal().receive(sent)

    async def scenario() -> None:
        async with serving() as (server, address), raw_peer(address) as peer:
            peer.send_bytes(sent)
            await until(lambda: not server.connections)

    run_async(scenario())
