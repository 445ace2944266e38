"""Small JSON texts that are expensive to process, sent to running servers and clients."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.connection.name_server_client import NameServerClient
from broker_core.codec.json import references as json_references
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RmqError
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from tests.access.access_files import BROKER, READER, signer
from tests.broker.protected_cluster import cluster
from tests.broker.running_broker import TIMEOUT_MS
from tests.patient_client import patient_client
from tests.remoting.peers import serving

LINKS = 2_000


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each path that a reference was followed by."""
    found: list[str] = []
    original = json_references._Resolver._at

    def counted(self: Any, path: str) -> Any:
        found.append(path)
        return original(self, path)

    monkeypatch.setattr(json_references._Resolver, "_at", counted)
    return found


def chain(**known: Any) -> bytes:
    """30 KB: each name refers to the next one."""
    links: dict[str, Any] = {f"n{at}": {"$ref": f"$.n{at + 1}"} for at in range(LINKS)}
    return json.dumps({**known, **links, f"n{LINKS}": []}, separators=(",", ":")).encode()


def repeated(count: int) -> bytes:
    """A group with many subscriptions, and references that make many groups of it."""
    consumer = {
        "groupName": "G",
        "subscriptionDataSet": [{"topic": "T", "subString": "*"}] * count,
    }
    again = [{"$ref": "$.consumerDataSet[0]"}] * count
    heartbeat = {"clientID": "c", "consumerDataSet": [consumer, *again]}
    return json.dumps(heartbeat, separators=(",", ":")).encode()


def test_a_heartbeat_of_references_does_not_keep_a_broker_busy(
    tmp_path: Path, look_ups: list[str]
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            answer = await found.ask(READER, RequestCode.HEART_BEAT, chain(clientID="c"))
            # Once by the accounts, and once by the table of clients if it gets there.
            assert len(look_ups) <= 2 * LINKS
            assert answer.code != 0
            assert "leads through more than" in (answer.remark or "")
            assert (await found.ask(READER, RequestCode.CAPABILITIES)).code == 0

    asyncio.run(scenario())


def test_references_do_not_multiply_the_groups_of_a_heartbeat(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            body = repeated(400)
            assert len(body) < 64 << 10
            answer = await found.ask(READER, RequestCode.HEART_BEAT, body)
            assert answer.code != 0
            assert "references unfold" in (answer.remark or "")

    asyncio.run(scenario())


def test_a_registration_of_references_does_not_keep_a_name_server_busy(
    tmp_path: Path, look_ups: list[str]
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            look_ups.clear()
            client = patient_client(sign_request=signer(BROKER))
            ext = {
                "brokerName": "broker-a", "brokerAddr": "127.0.0.1:1", "clusterName": "c",
                "haServerAddr": "127.0.0.1:2", "brokerId": "0",
            }  # fmt: skip
            command = RemotingCommand(RequestCode.REGISTER_BROKER, ext, chain())
            answer = await client.request(found.name_server, command, TIMEOUT_MS)
            await client.close()
            assert len(look_ups) <= 2 * LINKS
            assert answer.code != 0
            assert "leads through more than" in (answer.remark or "")

    asyncio.run(scenario())


def test_a_route_of_references_does_not_keep_a_client_busy(look_ups: list[str]) -> None:
    def hostile(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(0, body=chain(brokerDatas=[], queueDatas=[]))

    async def scenario() -> None:
        async with serving(hostile) as (_, address):
            client = patient_client()
            with pytest.raises(RmqError, match="leads through more than"):
                await NameServerClient(client, (address,), TIMEOUT_MS).route("T")
            await client.close()
            assert len(look_ups) <= 2 * LINKS

    asyncio.run(scenario())
