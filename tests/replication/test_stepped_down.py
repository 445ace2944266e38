"""The broker id of a master that has stepped down: persisted and unique."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

from broker_core.broker.broker import Broker
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.protocol_codes import BrokerRole
from tests.replication.running_pair import (
    config_of,
    name_server,
    on_loop,
    put,
    running,
    same_log,
    until,
)


@contextlib.asynccontextmanager
async def promoted(root: Path) -> AsyncIterator[tuple[Broker, BrokerConfig, BrokerConfig]]:
    """Slave 2, which is the master now; the old master and slave 1 as they were, not running."""
    async with name_server() as address:
        old, slave, new = (
            config_of(root / str(number), role, number, address)
            for number, role in enumerate((BrokerRole.ASYNC_MASTER, *2 * (BrokerRole.SLAVE,)))
        )
        async with running(new) as master:
            async with running(old) as before, running(slave) as other:
                put(before, 10)
                await same_log(before, master)
                await same_log(before, other)
            await master.promote()
            put(master, 10, first=10)
            yield master, old, slave


async def follows(master: Broker, slave: Broker) -> None:
    # It may be started again on the way.
    await until(lambda: slave._features and slave.role.status().get("is_copying"))
    await same_log(master, slave)


def ids(master: Broker) -> list[int]:
    """Of the slaves that copy from it."""
    return sorted(s["broker_id"] for s in master.role.status()["slaves"])


@on_loop
async def test_the_id_is_the_same_after_a_restart(tmp_path: Path) -> None:
    async with promoted(tmp_path) as (master, old, slave):
        async with running(slave), running(old) as broker:
            await follows(master, broker)
            assert broker.config.broker_id == 2
        # Slave 1 is away, so its id looks free.
        async with running(old) as broker:
            await follows(master, broker)
            assert broker.config.broker_id == 2
        async with running(dataclasses.replace(old, name_servers=())) as broker:
            assert broker.config.broker_id == 2


@on_loop
async def test_a_slave_that_was_away_gets_its_id_back(tmp_path: Path) -> None:
    async with promoted(tmp_path) as (master, old, slave), running(old) as broker:
        await follows(master, broker)
        assert broker.config.broker_id == 1
        async with running(slave) as other:
            # The name servers tell the old master that another broker has it.
            await until(lambda: broker.config.broker_id == 2)
            await follows(master, other)
            await follows(master, broker)
            assert ids(master) == [1, 2]
            assert broker.role.status()["stepped_down"]


@on_loop
async def test_an_id_that_the_master_refuses_is_given_up(tmp_path: Path) -> None:
    async with promoted(tmp_path) as (master, old, slave):
        async with running(old) as broker:
            await follows(master, broker)
            assert broker.config.broker_id == 1
        async with running(slave) as other:
            await follows(master, other)
            alone = dataclasses.replace(
                old, name_servers=(), ha_master_address=master.config.ha_address
            )
            async with running(alone) as broker:
                await until(lambda: broker.config.broker_id == 2)
                await follows(master, broker)
                assert ids(master) == [1, 2]
