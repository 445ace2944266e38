"""Replication over TLS: what is copied, and which peers are rejected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.errors import InvalidConfig
from broker_core.protocol_codes import BrokerRole
from tests.remoting.certificates import Authority
from tests.replication.running_pair import config_of, on_loop, put, running, same_log, until


def encrypted(authority: Authority, trusted: Authority | None = None) -> dict[str, Any]:
    """The settings of a broker with a certificate of one authority that trusts one."""
    files = authority.issue("server")
    return {
        "ha_tls_enable": True,
        "tls_server_mode": "permissive",
        "tls_server_cert": files.certificate,
        "tls_server_key": files.key,
        "tls_client_enable": True,
        "tls_client_trust": (trusted or authority).path,
    }


def slave_of(master: Broker, root: Path, **settings: Any) -> BrokerConfig:
    address = f"127.0.0.1:{master.config.ha_listen_port}"
    return config_of(root, BrokerRole.SLAVE, 1, "", ha_master_address=address, **settings)


def problem_of(slave: Broker) -> str:
    return str(slave.role.status()["problem"])


@on_loop
async def test_a_log_is_copied(tmp_path: Path) -> None:
    settings = encrypted(Authority(tmp_path))
    async with running(
        config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, "", **settings)
    ) as master:
        put(master, 500)
        async with running(slave_of(master, tmp_path / "s", **settings)) as slave:
            await same_log(master, slave)
            put(master, 500)
            await same_log(master, slave)


@on_loop
async def test_plain_text_gets_nothing(tmp_path: Path) -> None:
    settings = encrypted(Authority(tmp_path))
    async with running(
        config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, "", **settings)
    ) as master:
        put(master, 10)
        async with running(slave_of(master, tmp_path / "s")) as slave:
            await until(lambda: problem_of(slave))
            assert slave.context.store.replication.log.end == 0
        reader, writer = await asyncio.open_connection("127.0.0.1", master.config.ha_listen_port)
        # RocketMQ's slaves begin with their position.
        writer.write(bytes(8))
        answered = await asyncio.wait_for(reader.read(), 60)
        assert len(answered) < 100, "no more than an alert"
        writer.close()


@on_loop
async def test_a_slave_refuses_another_authority_and_a_plain_master(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    ours, others = Authority(tmp_path / "one"), Authority(tmp_path / "two", "others")
    encrypting = config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, "", **encrypted(ours))
    for config in (encrypting, config_of(tmp_path / "p", BrokerRole.ASYNC_MASTER, 0, "")):
        async with running(config) as master:
            put(master, 10)
            unsecured = slave_of(master, tmp_path / f"s{config.ha_tls_enable}",
                                **encrypted(ours, others))  # fmt: skip
            async with running(unsecured) as slave:
                await until(lambda slave=slave: problem_of(slave))  # type: ignore[misc]
                assert slave.context.store.replication.log.end == 0


def test_tls_needs_certificates_for_both_sides(tmp_path: Path) -> None:
    settings = encrypted(Authority(tmp_path))
    BrokerConfig(**settings)
    for missing in ({"tls_server_mode": "disabled"}, {"tls_client_enable": False}):
        changed = {**settings, **missing}
        if "tls_client_enable" in missing:
            changed["tls_client_trust"] = ""
        with pytest.raises(InvalidConfig, match="ha_tls_enable"):
            BrokerConfig(**changed)
