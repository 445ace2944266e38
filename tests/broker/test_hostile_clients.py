"""Clients that impersonate others: attacks on a running broker, with accounts and without."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.codec.wire.bodies.heartbeat_data import HeartbeatData, encode_heartbeat
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from tests.access.access_files import ADMIN, signer, write_access_file
from tests.broker.running_broker import (
    TIMEOUT_MS,
    UNIQUE,
    Asker,
    broker_config,
    running,
    until,
)
from tests.patient_client import patient_client

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
QUICK = {"transactionTimeOut": "100", "transactionCheckInterval": "100"}


def account(name: str, **permissions: Any) -> dict[str, Any]:
    return {"accessKey": name, "secretKey": f"secret-of-{name}", **permissions}


SENDER = account("sender", topicPerms=["T=PUB", f"{REPLY_TOPIC}=PUB"])
# The same rights, and another account.
COLLEAGUE = account("colleague", topicPerms=["T=PUB"])
STRANGER = account("stranger", topicPerms=["U=PUB|SUB"], groupPerms=["G=SUB"])
EVERYONE = (SENDER, COLLEAGUE, STRANGER, ADMIN)


class Client:
    """A connection of an account that answers what the broker asks, and remembers it."""

    def __init__(self, broker: Broker, who: dict[str, Any] | None) -> None:
        self.received: list[RemotingCommand] = []
        self._broker = broker
        self._client = patient_client(
            request_handler=self._handle, sign_request=signer(who) if who else None
        )
        self.asker = Asker(broker, self._client)

    def _handle(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        self.received.append(RemotingCommand(command.code, dict(command.ext), bytes(command.body)))
        return command.reply()

    async def join(self, client_id: str, group: str = "PG") -> RemotingCommand:
        body = encode_heartbeat(HeartbeatData(client_id, (group,)))
        command = RemotingCommand(RequestCode.HEART_BEAT, {}, body)
        return await self._client.request(self._broker.address, command, TIMEOUT_MS)

    async def close(self) -> None:
        await self._client.close()

    def has_seen(self, body: bytes) -> bool:
        return any(body in bytes(command.body) for command in self.received)


@contextlib.asynccontextmanager
async def protected(tmp_path: Path, **properties: str) -> AsyncIterator[Asker]:
    file = write_access_file(tmp_path / "access.json", *EVERYONE)
    config = broker_config(tmp_path / "store", aclEnable="true", accessFile=str(file), **properties)
    async with running(config) as asker:
        yield asker


async def reply(client: Client, to: str, body: bytes) -> RemotingCommand:
    text = f"UNIQ_KEY\x01{UNIQUE}\x02REPLY_TO_CLIENT\x01{to}\x02"
    return await client.asker.send(REPLY_TOPIC, body, text, code=325)


def test_half_messages_are_shown_to_accounts_that_may_send_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with protected(tmp_path, **QUICK) as found:
            clients = [Client(found.broker, who) for who in (ADMIN, STRANGER, SENDER, COLLEAGUE)]
            admin, stranger, sender, colleague = clients
            await admin.asker.make_topic("T")
            await admin.asker.make_topic("U")
            assert (await stranger.join("stranger")).code == 0
            text = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01{}\x02"
            sent = await sender.asker.send("T", b"of T", text.format("K1"), f=4)
            assert sent.code == 0, sent.remark
            # What the stranger may send itself, it is asked about: rounds have passed by then.
            for number in range(3):
                key = f"U{number}"
                sent = await stranger.asker.send("U", key.encode(), text.format(key), f=4)
                assert sent.code == 0, sent.remark
                await until(lambda key=key: stranger.has_seen(key.encode()))
            assert not stranger.has_seen(b"of T")
            # It waits for a producer that may be asked.
            assert (await colleague.join("colleague")).code == 0
            await until(lambda: colleague.has_seen(b"of T"))
            assert not stranger.has_seen(b"of T")
            assert not colleague.has_seen(b"U0")
            # Rights that are taken away count at once.
            file = tmp_path / "access.json"
            write_access_file(file, SENDER, {**COLLEAGUE, "topicPerms": []}, STRANGER, ADMIN)
            security = found.broker._security
            assert security is not None and security._gate is not None
            gate = security._gate
            await until(lambda: not gate.accounts.accounts["colleague"].topics)
            colleague.received.clear()
            asked = found.broker.features.transactions.check.asked_count
            await until(lambda: found.broker.features.transactions.check.asked_count > asked + 5)
            assert not colleague.has_seen(b"of T")
            for client in clients:
                await client.close()

    asyncio.run(scenario())


def test_without_accounts_any_producer_of_the_group_is_checked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **QUICK)) as found:
            await found.make_topic("T")
            client = Client(found.broker, None)
            assert (await client.join("any")).code == 0
            text = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01K\x02"
            assert (await found.send("T", b"half", text, f=4)).code == 0
            await until(lambda: client.has_seen(b"half"))
            await client.close()

    asyncio.run(scenario())


def test_the_client_id_of_another_account_steals_no_reply(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with protected(tmp_path) as found:
            victim, thief, replier = (
                Client(found.broker, who) for who in (COLLEAGUE, STRANGER, SENDER)
            )
            assert (await victim.join("victim")).code == 0
            refused = await thief.join("victim")
            assert refused.code == ResponseCode.NO_PERMISSION
            assert "another account" in (refused.remark or "")
            assert (await reply(replier, "victim", b"for the victim")).code == 0
            assert victim.has_seen(b"for the victim")
            assert not thief.received
            # The victim comes again before its old connection is known to be gone.
            again = Client(found.broker, COLLEAGUE)
            assert (await again.join("victim")).code == 0
            assert (await reply(replier, "victim", b"second")).code == 0
            assert again.has_seen(b"second")
            assert not victim.has_seen(b"second")
            for client in (victim, thief, replier, again):
                await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("comes_back", [True, False])
def test_without_accounts_a_live_client_keeps_its_id(tmp_path: Path, comes_back: bool) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as found:
            victim, thief, replier = (Client(found.broker, None) for _ in range(3))
            assert (await victim.join("victim")).code == 0
            assert (await thief.join("victim", "OTHER")).code == 0
            assert (await reply(replier, "victim", b"for the victim")).code == 0
            assert victim.has_seen(b"for the victim")
            assert not thief.received
            if comes_back:
                await thief.close()
                await until(lambda: not found.broker.context.clients.producers("OTHER"))
                again = Client(found.broker, None)
                assert (await again.join("victim")).code == 0
                await victim.close()

                def is_new() -> bool:
                    owner = found.broker.context.clients.producer_by_client_id("victim")
                    members = found.broker.context.clients.producers("PG")
                    return len(members) == 1 and owner is members[0].connection

                await until(is_new)
                assert (await reply(replier, "victim", b"second")).code == 0
                assert again.has_seen(b"second")
                await again.close()
            for client in (victim, thief, replier):
                await client.close()

    asyncio.run(scenario())
