"""Signed requests that were recorded, changed or redirected are rejected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.codec.wire.frame_parser import FrameParser
from broker_core.codec.wire.remoting_command import RemotingCommand, decode_header
from broker_core.codec.wire.request_signature import rocketmq_signature
from broker_core.errors import NoPermission
from broker_core.protocol_codes import RequestCode
from tests.access.access_files import (
    ADMIN,
    READER,
    WRITER,
    signer,
)
from tests.broker.protected_cluster import cluster, make_topic
from tests.broker.running_broker import UNIQUE, until
from tests.codec.wire_frames import frame_bytes


async def exchange(address: str, *frames: bytes) -> list[RemotingCommand]:
    """Send raw frames on a connection of their own; the answers to them."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    parser = FrameParser(1 << 24, 1 << 20, decode_header)
    answers: list[RemotingCommand] = []
    writer.write(b"".join(frames))
    while len(answers) < len(frames):
        data = await asyncio.wait_for(reader.read(1 << 16), 120)
        assert data
        parser.receive_data(data)
        while (command := parser.next_command()) is not None:
            answers.append(command)
    writer.close()
    await writer.wait_closed()
    return answers


class Recorder:
    """Stands where a connection stands when a request is signed."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}


def signed(account: dict[str, Any], command: RemotingCommand, *, strict: bool = True) -> bytes:
    """The bytes of a signed request; without `strict` as a Java client makes them."""
    recorder: Any = Recorder()
    if strict:
        signer(account)(recorder, command)
    else:
        command.ext["AccessKey"] = account["accessKey"]
        secret = account["secretKey"].encode()
        command.ext["Signature"] = rocketmq_signature(secret, command.ext, command.body)
    return frame_bytes(command)


def send_command(topic: str = "T") -> RemotingCommand:
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": f"UNIQ_KEY\x01{UNIQUE}\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"body", opaque=9)


def test_a_strict_request_passes_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            address = found.broker.address
            frame = signed(WRITER, send_command())
            first, again = await exchange(address, frame, frame)
            assert (first.code, again.code) == (0, 16)
            (elsewhere,) = await exchange(address, frame)
            assert elsewhere.code == 16
            assert "another connection" in (elsewhere.remark or "")
            assert found.broker.context.store.offsets("T", 0)[1] == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "forge",
    [
        # Another code: what was meant as a look-up becomes a deletion.
        lambda command: setattr(command, "code", int(RequestCode.DELETE_TOPIC_IN_BROKER)),
        lambda command: setattr(command, "opaque", 10),
        lambda command: setattr(command, "body", b"other"),
        # The border between two fields moves.
        lambda command: command.ext.update(b="T\x31", c="BW102"),
        lambda command: command.ext.update(zusatz="x"),
        lambda command: command.ext.pop("h"),
        lambda command: command.ext.update(AccessKey="admin-key"),
    ],
)
def test_a_forged_strict_request_is_refused(tmp_path: Path, forge: Any) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            command = send_command()
            signed(WRITER, command)
            forge(command)
            (answer,) = await exchange(found.broker.address, frame_bytes(command))
            assert answer.code == 16
            assert found.broker.context.store.offsets("T", 0)[1] == 0

    asyncio.run(scenario())


def test_old_signatures_can_be_repeated_unless_the_server_is_strict(tmp_path: Path) -> None:
    """The weakness of RocketMQ's signature, shown, and what refuses it."""

    async def scenario(strict: str, expected: list[int]) -> None:
        async with cluster(tmp_path / strict, aclStrictSignature=strict) as found:
            await make_topic(found)
            frame = signed(WRITER, send_command(), strict=False)
            answers = await exchange(found.broker.address, frame, frame)
            assert [answer.code for answer in answers] == expected
            if strict == "true":
                assert "RmqAuth" in (answers[0].remark or "")

    for strict in ("false", "true"):
        (tmp_path / strict).mkdir()
    asyncio.run(scenario("false", [0, 0]))
    asyncio.run(scenario("true", [16, 16]))


def test_administration_in_the_open_needs_the_strict_signature(tmp_path: Path) -> None:
    """From another machine without TLS; here the peer only claims to be elsewhere."""

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            gate: Any = found.broker._security._gate  # type: ignore[union-attr]

            class Elsewhere(Recorder):
                peer = ("203.0.113.7", 1)
                is_encrypted = False
                load = SimpleNamespace(is_unauthenticated=False)

                def on_close(self, callback: Any) -> None:
                    pass

            def ask(account: dict[str, Any], code: int, *, strict: bool, encrypted: bool) -> None:
                command = RemotingCommand(code, {"topic": "T", "queueId": "0"}, opaque=1)
                signed(account, command, strict=strict)
                peer = Elsewhere()
                peer.is_encrypted = encrypted
                gate._check(peer, command)

            config = RequestCode.GET_BROKER_CONFIG
            with pytest.raises(NoPermission, match="needs TLS"):
                ask(ADMIN, config, strict=False, encrypted=False)
            ask(ADMIN, config, strict=False, encrypted=True)
            ask(ADMIN, config, strict=True, encrypted=False)
            ask(READER, RequestCode.GET_MAX_OFFSET, strict=False, encrypted=False)

    asyncio.run(scenario())


def test_a_message_named_by_its_position_needs_its_topic(tmp_path: Path) -> None:
    """Neither a look by id nor a send back shows a reader what is in another topic."""

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            await make_topic(found, "U")
            store = found.broker.context.store
            async with found.client(ADMIN) as client:
                producer = Producer(client, "PG")
                await producer.start()
                for topic in ("U", "T"):
                    await producer.send(OutgoingMessage(topic, b"hello"))
                await producer.stop()
            await until(lambda: store.offsets("T", 0)[1] == 1)
            positions = {}
            for topic in ("U", "T"):
                entry = store.get(topic, 0, 0, 1).messages()[0]
                positions[topic] = str(entry.physical_offset)
            for topic, allowed in (("T", True), ("U", False)):
                seen = await found.ask(READER, 33, offset=positions[topic])
                assert (seen.code == 0) is allowed
                assert (b"hello" in bytes(seen.body)) is allowed
                back = await found.ask(
                    READER, 36, group="G", offset=positions[topic], delayLevel="0", originTopic="T"
                )
                assert (back.code == 16) is not allowed, back.remark

    asyncio.run(scenario())
