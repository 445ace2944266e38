"""Access to the replication port of a broker with accounts, and where it may listen."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.errors import InvalidConfig, RmqError
from broker_core.protocol_codes import BrokerRole, PutStatus
from broker_core.replication.ha_frames import encode_report
from broker_core.replication.handshake import MAGIC, Hello, Identity, Signing, encode_handshake
from broker_core.store.writes.message import Message
from tests.access.access_files import ACCOUNTS, write_access_file
from tests.replication.running_pair import (
    TIMEOUT_S,
    config_of,
    on_loop,
    put,
    running,
    same_log,
    until,
)

SYNC = BrokerRole.SYNC_MASTER


def protected(tmp_path: Path) -> dict[str, Any]:
    file = write_access_file(tmp_path / "access.json", *ACCOUNTS)
    return {"acl_enable": True, "access_file": str(file)}


def key_file(tmp_path: Path, mode: int = 0o600) -> str:
    path = tmp_path / "ha.key"
    path.write_text("correct horse\n")
    path.chmod(mode)
    return str(path)


def slave_of(master: Broker, root: Path, **settings: Any) -> BrokerConfig:
    address = f"127.0.0.1:{master.config.ha_listen_port}"
    return config_of(root, BrokerRole.SLAVE, 1, "", ha_master_address=address, **settings)


async def answer_to(master: Broker, message: bytes) -> bytes:
    """Everything that the port says to a peer that goes on reporting until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", master.config.ha_listen_port)
    writer.write(message)
    try:
        return await asyncio.wait_for(reader.read(), TIMEOUT_S)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@on_loop
async def test_a_fake_slave_of_a_broker_with_accounts(tmp_path: Path) -> None:
    """It reads nothing and confirms nothing, whichever protocol it speaks."""
    config = config_of(tmp_path / "m", SYNC, 0, "", slave_timeout_ms=500, **protected(tmp_path))
    async with running(config) as master:
        store = master.context.store
        put(master, 3, topic="secret_topic")
        hello = Hello(Identity(config.cluster_name, config.broker_name, 7, "f" * 32), 0)
        for message in (
            encode_report(0),
            encode_report(store.log_range[1]),
            MAGIC + bytes(16) + encode_handshake(hello, Signing()),
        ):
            answered = await answer_to(master, message)
            assert b"secret_topic" not in answered
            assert master.context.store.store_id.encode() not in answered
            assert not master.role.status()["slaves"]
        result = await store.put(Message("T", b"x"))
        assert result.status is PutStatus.SLAVE_NOT_AVAILABLE
        # A slave of ours gets the reason.
        async with running(slave_of(master, tmp_path / "s")) as slave:
            await until(lambda: "haAuthKeyFile" in slave.role.status()["problem"])
            assert slave.context.store.log_range[1] == 0


@on_loop
async def test_with_the_key_slaves_follow_a_broker_with_accounts(tmp_path: Path) -> None:
    keyed = {"ha_auth_key_file": key_file(tmp_path)}
    config = config_of(tmp_path / "m", SYNC, 0, "", **protected(tmp_path), **keyed)
    async with (
        running(config) as master,
        running(slave_of(master, tmp_path / "s", **keyed)) as slave,
    ):
        put(master, 10)
        await same_log(master, slave)
        assert (await master.context.store.put(Message("T", b"x"))).status is PutStatus.PUT_OK
        assert await answer_to(master, encode_report(0)) == b""


@on_loop
async def test_an_open_port_needs_an_explicit_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(
        tmp_path / "m", SYNC, 0, "", ha_allow_without_key=True, **protected(tmp_path)
    )
    with caplog.at_level(logging.WARNING):
        async with running(config) as master:
            put(master, 3)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", master.config.ha_listen_port
            )
            writer.write(encode_report(0))
            assert await asyncio.wait_for(reader.read(100), TIMEOUT_S)
            writer.close()
    assert any("haAllowWithoutKey" in record.getMessage() for record in caplog.records)


def test_a_port_that_others_can_reach_needs_a_key(tmp_path: Path) -> None:
    settings = {"listen_host": "0.0.0.0", "allow_remote": True, **protected(tmp_path)}
    with pytest.raises(InvalidConfig, match="haAuthKeyFile"):
        BrokerConfig(**settings)
    BrokerConfig(**settings, ha_auth_key_file=key_file(tmp_path))
    BrokerConfig(**settings, ha_allow_without_key=True)
    BrokerConfig(**settings, ha_listen_port=-1)
    with pytest.raises(InvalidConfig, match="haAllowWithoutKey"):
        BrokerConfig(ha_auth_key="secret", ha_allow_without_key=True)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    config = config_of(tmp_path / "m", SYNC, 0, "", ha_auth_key_file=key_file(tmp_path, mode))

    async def start() -> None:
        broker = Broker(config)
        try:
            with pytest.raises(RmqError, match=r"haAuthKeyFile.*chmod 600"):
                await broker.start()
        finally:
            await broker.stop()

    asyncio.run(start())
