"""One of two masters of one term continues; a slave that heard of a promotion follows it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core.broker.broker import Broker
from broker_core.broker.replication.master_discovery import find_newer_master
from broker_core.broker.replication.persisted_roles import stored_history
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.protocol_codes import BrokerRole, PutStatus
from broker_core.replication.log_epochs import TERM
from broker_core.store.writes.message import Message
from tests.interop.loopback_ports import free_ports
from tests.replication.running_pair import (
    config_of,
    name_server,
    on_loop,
    put,
    running,
    same_log,
    until,
)
from tests.replication.test_promotion import bodies


def set_aside(broker: Broker, name: str) -> bytes:
    """What a cut has moved out of the log."""
    return Path(broker.config.store_root, "unconfirmed", name).read_bytes()


@contextlib.asynccontextmanager
async def started(*configs: BrokerConfig) -> AsyncIterator[list[Broker]]:
    """Brokers that the test stops and starts; all are stopped at the end."""
    brokers = [Broker(config) for config in configs]
    try:
        for broker in brokers:
            await broker.start()
        yield brokers
    finally:
        for broker in brokers:
            await broker.stop()


@on_loop
async def test_exactly_one_of_two_masters_of_one_term_continues(tmp_path: Path) -> None:
    """Each slave is promoted while the other one is down, so neither has heard of the other."""
    async with name_server() as address:
        configs = [
            config_of(tmp_path / str(number), role, number, address)
            for number, role in enumerate((BrokerRole.ASYNC_MASTER, *2 * (BrokerRole.SLAVE,)))
        ]
        async with started(*configs) as (first, one, two):
            put(first, 10)
            store_id = first.context.identity.store_id
            for slave in (one, two):
                await same_log(first, slave)
                await until(lambda slave=slave: slave.context.identity.store_id == store_id)  # type: ignore[misc]
            await two.stop()
            await first.stop()
            assert await one.promote() == 2 * TERM
            put(one, 4, first=100)
            await one.stop()
            await two.start()
            assert await two.promote() == 2 * TERM
            put(two, 6, first=200)
            await one.start()
            rivals = (one, two)
            await until(
                lambda: (
                    all(broker._features is not None for broker in rivals)
                    and [broker.config.is_master for broker in rivals].count(True) == 1
                )
            )
            new, old = (one, two) if one.config.is_master else (two, one)
            await until(lambda: old._features and old.role.status()["saved_aside"])
            await until(lambda: old._features and old.role.status().get("is_copying"))
            await same_log(new, old)
            assert new.config.is_master
            assert new.role.epoch // TERM == 3
            assert old.role.status()["stepped_down"]
            ours, theirs = (100, 200) if new is one else (200, 100)
            assert b"%d" % ours in bodies(new)
            assert b"%d" % theirs not in bodies(new)
            # What only the other one had is kept beside its log.
            (name,) = old.role.status()["saved_aside"]
            saved = set_aside(old, name)
            count = 6 if new is one else 4
            assert all(b"%d..." % n in saved for n in range(theirs, theirs + count))


@on_loop
async def test_two_groups_of_one_name_do_not_replace_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server() as address:
        one, two = (
            config_of(
                tmp_path / str(n), BrokerRole.ASYNC_MASTER, 0, address, register_period_ms=60_000
            )
            for n in range(2)
        )
        # Each has begun a log of its own before the name servers could tell it of the other.
        async with running(dataclasses.replace(two, name_servers=())):
            pass
        async with running(one) as first, running(two) as second:
            assert (first.role.epoch, second.role.epoch) == (TERM, TERM + 1)
            store_id = first.context.identity.store_id
            # The second one has registered last.
            found = await find_newer_master(first.config, first.role.history, None, store_id)
            assert found is None
            assert "neither was promoted after the other: stop one of them" in caplog.text


@on_loop
async def test_a_slave_that_heard_of_a_promotion_follows_no_older_master(
    tmp_path: Path,
) -> None:
    """Otherwise the old master acknowledges with it what the promoted broker then overrules."""
    (ha_port,) = free_ports(1)
    async with name_server() as address:
        master = config_of(
            tmp_path / "0", BrokerRole.SYNC_MASTER, 0, address, ha_listen_port=ha_port
        )
        slave = config_of(tmp_path / "1", BrokerRole.SLAVE, 1, address)
        # It looks for its master at one address only, so it never meets the promoted one.
        other = config_of(
            tmp_path / "2",
            BrokerRole.SLAVE,
            2,
            address,
            ha_master_address=f"127.0.0.1:{ha_port}",
        )
        async with started(master, slave, other) as (old, promoted, witness):
            for broker in (promoted, witness):
                await until(lambda broker=broker: broker.role.status().get("is_copying"))  # type: ignore[misc]
            result = await old.context.store.put(Message("T", b"with slaves"))
            assert result.status is PutStatus.PUT_OK
            for broker in (promoted, witness):
                await same_log(old, broker)
            await old.stop()
            epoch = await promoted.promote(BrokerRole.SYNC_MASTER)
            # It is durable before the promoted broker serves anything.
            assert stored_history(witness.config.store_root).seen == epoch
            await promoted.stop()
            await old.start()
            assert old.config.is_master
            await until(lambda: "the slave has seen" in witness.role.status()["problem"])
            result = await old.context.store.put(Message("T", b"alone"))
            assert result.status is PutStatus.SLAVE_NOT_AVAILABLE
            # The promoted broker returns and is followed; what was not acknowledged is set aside.
            await promoted.start()
            await until(lambda: old._features and old.role.status()["saved_aside"])
            await until(lambda: old._features and old.role.status().get("is_copying"))
            await same_log(promoted, old)
            assert bodies(promoted) == [b"with slaves"]


@on_loop
async def test_a_promotion_is_above_every_epoch_that_a_member_knows(tmp_path: Path) -> None:
    async with name_server() as address:
        configs = [
            config_of(tmp_path / str(number), role, number, address)
            for number, role in enumerate((BrokerRole.ASYNC_MASTER, *2 * (BrokerRole.SLAVE,)))
        ]
        async with started(*configs) as (master, slave, other):
            put(master, 10)
            await same_log(master, slave)
            await master.stop()
            # A promotion that did not take place.
            assert other.role.expect_epoch(7 * TERM) == 7 * TERM
            assert await slave.promote() == 8 * TERM
            assert stored_history(other.config.store_root).seen == 8 * TERM
            await until(lambda: other.role.status().get("is_copying"))
            await same_log(slave, other)
