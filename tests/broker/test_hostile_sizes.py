"""Requests that try to fill a broker's memory and tables, with accounts."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

from broker_core.access.request_signing import RequestSigner
from broker_core.codec.wire.bodies.heartbeat_data import HEARTBEAT_SIZE_MAX
from broker_core.codec.wire.pop_handle import ACKED_MAX, batch_ack_names, parse_batch_acks
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from tests.access.access_files import READER, WRITER, signer
from tests.broker.protected_cluster import Cluster, cluster, make_topic
from tests.broker.running_broker import TIMEOUT_MS
from tests.patient_client import patient_client

MB = 1_000_000


def ack(bits: bytes, **changes: Any) -> dict[str, Any]:
    fields = {"c": "G", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1}
    return {**fields, "b": base64.b64encode(bits).decode(), **changes}


def batch(*acks: dict[str, Any]) -> bytes:
    body = {"brokerName": "broker-a", "acks": list(acks)}
    return json.dumps(body, separators=(",", ":")).encode()


def test_a_megabyte_of_acknowledgements_is_refused_at_little_cost(tmp_path: Path) -> None:
    body = batch(*[ack(b"\xff" * 12_000)] * 64)
    assert 1_000_000 < len(body) <= 1 << 20

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            await found.ask(READER, RequestCode.CAPABILITIES)
            for who in (READER, WRITER):
                gc.collect()
                tracemalloc.start()
                try:
                    answer = await found.ask(who, RequestCode.BATCH_ACK_MESSAGE, body)
                    peak = tracemalloc.get_traced_memory()[1]
                finally:
                    tracemalloc.stop()
                # Both sides are in this process: a few copies of the body and of its texts.
                assert peak < 40 * MB
                if who is READER:
                    assert f"more than {ACKED_MAX} messages" in (answer.remark or "")
                else:
                    assert answer.code == ResponseCode.NO_PERMISSION

    asyncio.run(scenario())


def test_the_messages_of_a_batch_are_what_its_bits_say() -> None:
    bits = bytes([0b0000_0101, 0, 0b1000_0000])
    name, acks = parse_batch_acks(batch(ack(bits, so=100), ack(b""), ack(b"\x01", c="H", r="1")))
    assert name == "broker-a"
    assert [list(each.offsets) for each in acks] == [[100, 102, 123], [], [0]]
    assert [each.message_count for each in acks] == [3, 0, 1]
    names = batch_ack_names(batch(ack(bits), ack(b"\x01", c="H", r="1")))
    assert names == {("G", "T"), ("H", "%RETRY%H_T")}
    # As many as are allowed, in one or in several.
    half = b"\xff" * (ACKED_MAX // 16)
    assert (
        sum(each.message_count for each in parse_batch_acks(batch(ack(half), ack(half)))[1])
        == ACKED_MAX
    )


def test_authorisation_reads_only_the_names_of_a_batch() -> None:
    """It does not decode the bit sets of messages, so a wrong one is no error here."""
    assert batch_ack_names(batch(ack(b"", b="no base64 %"), ack(b"", b=5))) == {("G", "T")}


def subscription(topic: str, tags: list[str]) -> dict[str, Any]:
    return {"topic": topic, "subString": "||".join(tags), "subVersion": 1}


def heartbeat(*subscriptions: dict[str, Any], group: str = "G") -> bytes:
    consumer = {"groupName": group, "subscriptionDataSet": list(subscriptions)}
    body = {"clientID": "c", "consumerDataSet": [consumer]}
    return json.dumps(body, separators=(",", ":")).encode()


async def memory_after(found: Cluster, bodies: list[bytes]) -> tuple[int, list[RemotingCommand]]:
    """Bytes that are kept while the connection is there, and the answers."""
    client = patient_client(sign_request=signer(READER))
    tracemalloc.start()
    try:
        answers = []
        for body in bodies:
            command = RemotingCommand(RequestCode.HEART_BEAT, {}, body)
            answers.append(await client.request(found.broker.address, command, TIMEOUT_MS))
        gc.collect()
        return tracemalloc.get_traced_memory()[0], answers
    finally:
        tracemalloc.stop()
        await client.close()


def test_heartbeats_keep_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    # Each tag is of its own: nothing is shared.
    many = [
        heartbeat(*(subscription("T", [f"{at}-{n}-{k}" for n in range(1_000)]) for k in range(60)))
        for at in range(2)
    ]

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            assert all(HEARTBEAT_SIZE_MAX // 4 < len(body) < HEARTBEAT_SIZE_MAX for body in many)
            kept, answers = await memory_after(found, many)
            assert kept < 12 * MB
            assert {answer.code for answer in answers} != {0}
            for answer in answers:
                assert "of one client take" in (answer.remark or "")
            too_long = heartbeat(subscription("T", ["x" * 60_000]), group="G" * 10)
            too_long += b" " * HEARTBEAT_SIZE_MAX
            kept, (answer,) = await memory_after(found, [too_long])
            assert f"at most {HEARTBEAT_SIZE_MAX}" in (answer.remark or "")
            _, (answer,) = await memory_after(found, [heartbeat(subscription("T", ["A", "B"]))])
            assert answer.code == 0, answer.remark

    asyncio.run(scenario())


def test_expressions_that_pulls_bring_keep_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            client = patient_client(sign_request=signer(READER))
            fields = {
                "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0",
                "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "subVersion": "0",
                "suspendTimeoutMillis": "0",
            }  # fmt: skip
            # Long headers are for peers that have shown an account.
            hello = RemotingCommand(RequestCode.CAPABILITIES)
            assert (await client.request(found.broker.address, hello, TIMEOUT_MS)).code == 0
            tracemalloc.start()
            try:
                for at in range(150):
                    tags = "||".join(f"{at:05}-{n:06}-{'x' * 30}" for n in range(1_000))
                    command = RemotingCommand(
                        RequestCode.PULL_MESSAGE, {**fields, "subscription": tags}
                    )
                    answer = await client.request(found.broker.address, command, TIMEOUT_MS)
                    assert answer.code == ResponseCode.PULL_NOT_FOUND, answer.remark
                gc.collect()
                kept = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
            await client.close()
            assert kept < 20 * MB

    asyncio.run(scenario())


class ManySessions:
    """Signs each request as if it were the first of its connection."""

    def __init__(self, inner: RequestSigner) -> None:
        self._inner = inner

    def __call__(self, connection: Connection, command: RemotingCommand) -> None:
        connection.attributes.pop("access.session", None)
        self._inner(connection, command)


def test_one_connection_does_not_fill_the_table_of_strict_sessions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            security = found.broker._security
            assert security is not None and security._gate is not None
            sessions = security._gate._sessions
            before = len(sessions)
            client = patient_client(sign_request=ManySessions(signer(READER)))
            answers = [
                await client.request(
                    found.broker.address, RemotingCommand(RequestCode.CAPABILITIES), TIMEOUT_MS
                )
                for _ in range(200)
            ]
            await client.close()
            assert answers[0].code == 0
            assert {answer.code for answer in answers[1:]} == {ResponseCode.NO_PERMISSION}
            assert "another session" in (answers[1].remark or "")
            assert len(sessions) == before + 1
            assert (await found.ask(READER, RequestCode.CAPABILITIES)).code == 0

    asyncio.run(scenario())
