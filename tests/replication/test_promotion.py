"""A slave becomes the master; the old master comes back as a slave and nothing is merged."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from broker_core.broker.broker import Broker
from broker_core.client.admin.replication import Member, chosen_slave
from broker_core.errors import InvalidArgument, PromotionRefused, ServiceNotAvailable
from broker_core.protocol_codes import BrokerRole, PutStatus
from broker_core.replication.log_epochs import TERM
from broker_core.store.writes.message import Message
from tests.replication.running_pair import (
    config_of,
    log_bytes,
    name_server,
    on_loop,
    pair,
    put,
    running,
    same_log,
    until,
)


def bodies(broker: Broker, queue_id: int = 0, topic: str = "T") -> list[bytes]:
    """Every readable body of a queue."""
    store = broker.context.store
    low, high = store.offsets(topic, queue_id)
    found: list[bytes] = []
    while low < high:
        result = store.get(topic, queue_id, low)
        found += [message.body.rstrip(b".") for message in result.messages()]
        low = result.next_offset
    return found


async def is_copying(slave: Broker) -> None:
    await until(lambda: slave.role.status().get("is_copying"))


@on_loop
async def test_a_promoted_slave_takes_puts_and_the_old_master_follows_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as (old, new):
        put(old, 100)
        await same_log(old, new)
        await new.stop()
        # The slave does not get these.
        put(old, 6, first=100)
        await old.stop()
        await new.start()
        epoch = await new.promote()
        assert epoch == 2 * TERM
        agreed = new.context.store.replication.log.end
        put(new, 20, first=200)
        suffix_end = agreed
        await old.start()
        suffix_end = old.context.store.replication.log.end
        assert not old.config.is_master
        assert old.config.broker_id == 1
        refused = old.context.store.append(Message("T", b"x"))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        # It is stopped and started again on the way.
        await until(lambda: old._features and old.role.status()["saved_aside"])
        await is_copying(old)
        await same_log(new, old)
        (name,) = old.role.status()["saved_aside"]
        assert name == f"{agreed:020d}-{suffix_end:020d}"
        saved = (tmp_path / "master" / "unconfirmed" / name).read_bytes()
        assert b"100..." in saved and b"105..." in saved
        assert f"6 messages, bytes {agreed} to {suffix_end}, were moved to" in caplog.text
        expected = [b"%d" % n for n in (*range(0, 100, 2), *range(200, 220, 2))]
        await until(lambda: bodies(old) == expected)
        assert bodies(new) == expected


@on_loop
async def test_an_old_master_that_runs_on_steps_down(tmp_path: Path) -> None:
    async with name_server() as address:
        old_config = config_of(tmp_path / "a", BrokerRole.ASYNC_MASTER, 0, address)
        new_config = config_of(tmp_path / "b", BrokerRole.SLAVE, 1, address)
        async with running(old_config) as old, running(new_config) as new:
            put(old, 50)
            await same_log(old, new)
            await new.promote()
            put(new, 4, first=50)
            await until(lambda: old._features is not None and not old.config.is_master)
            await until(lambda: old._features is not None and old._role is not None)
            await is_copying(old)
            await same_log(new, old)
            assert old.role.status()["stepped_down"]
            assert new.config.is_master
            with pytest.raises(InvalidArgument):
                await new.promote()
        # It stays a slave, independent of its configuration and of which brokers are up.
        async with running(old_config) as old:
            assert not old.config.is_master
            await old.promote()
            assert old.config.is_master
            put(old, 1)


@on_loop
async def test_a_slave_promoted_by_a_new_configuration(tmp_path: Path) -> None:
    async with pair(tmp_path, BrokerRole.SYNC_MASTER) as (old, new):
        await is_copying(new)
        for number in range(10):
            result = await old.context.store.put(Message("T", b"%d" % number))
            assert result.status is PutStatus.PUT_OK
        await old.stop()
        await new.stop()
        new.config = new.config.with_role(BrokerRole.ASYNC_MASTER, 0)
        await new.start()
        assert new.role.was_promoted
        assert bodies(new) == [b"%d" % n for n in range(10)]
        before = log_bytes(new)
        put(new, 1)
        assert log_bytes(new)[: len(before)] == before


@on_loop
async def test_fast_switches_back_and_forth(tmp_path: Path) -> None:
    async with pair(tmp_path) as (one, two):
        put(one, 10)
        await same_log(one, two)
        for round_number in range(3):
            await one.stop()
            await two.promote()
            put(two, 5, first=100 * (round_number + 1))
            await one.start()
            await is_copying(one)
            await same_log(two, one)
            one, two = two, one
        assert len(bodies(one)) + len(bodies(one, 1)) == 25
        # A slave reads what it has copied a moment later.
        for queue in range(2):
            await until(lambda queue=queue: bodies(two, queue) == bodies(one, queue))  # type: ignore[misc]


@on_loop
async def test_the_longer_slave_is_chosen_though_the_other_one_heard_of_a_newer_epoch(
    tmp_path: Path,
) -> None:
    async with name_server() as address:
        configs = [
            config_of(tmp_path / str(number), role, number, address)
            for number, role in enumerate((BrokerRole.ASYNC_MASTER, *2 * (BrokerRole.SLAVE,)))
        ]
        async with running(configs[1]) as ahead, running(configs[2]) as behind:
            async with running(configs[0]) as master:
                put(master, 10)
                await same_log(master, behind)
                await behind.stop()
                put(master, 10, first=10)
                await same_log(master, ahead)
                history = master.role.history
            await behind.start()
            # The master was started again; it agreed with this slave and died before it sent more.
            restarted = history.begin("again", ahead.context.store.replication.log.end)
            behind.role._learn(restarted.epochs)
            members = [
                Member(broker.config.broker_id, broker.address, broker.role.status())
                for broker in (ahead, behind)
            ]
            assert [member.reach[0] for member in members] == [TERM, TERM]
            assert chosen_slave(members, None, force=False).broker_id == 1
            with pytest.raises(PromotionRefused, match="has more"):
                chosen_slave(members, 2, force=False)


@on_loop
async def test_a_slave_that_never_copied_is_not_promoted_and_continues(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, BrokerRole.SLAVE, 1, "")) as slave:
        features = slave.features
        with pytest.raises(PromotionRefused, match="never copied"):
            await slave.promote()
        # What a request of an administrator comes to.
        with pytest.raises(PromotionRefused, match="never copied"):
            slave.promote_soon(BrokerRole.ASYNC_MASTER)
        assert slave.features is features
        assert not slave.config.is_master


@on_loop
async def test_a_slave_that_cannot_start_as_a_master_stays_a_slave(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"ha_listen_port": taken.getsockname()[1], "listen_host": "127.0.0.1"}
        async with pair(tmp_path, of_slave=settings) as (master, slave):
            put(master, 10)
            await same_log(master, slave)
            with pytest.raises(OSError):
                await slave.promote()
            await until(lambda: slave._features is not None)
            assert not slave.config.is_master
            put(master, 10, first=10)
            await is_copying(slave)
            await same_log(master, slave)


@on_loop
async def test_a_cut_that_comes_during_another_change_is_done_later(tmp_path: Path) -> None:
    async with pair(tmp_path) as (old, new):
        put(old, 10)
        await same_log(old, new)
        await new.stop()
        put(old, 6, first=100)
        await old.stop()
        await new.start()
        await new.promote()
        other_is_done = asyncio.Event()

        async def other() -> None:
            await other_is_done.wait()

        # Before the start: the master is found at once.
        old._changes._change = asyncio.ensure_future(other())
        await old.start()
        await until(lambda: "this one differs from" in old.role.status()["problem"])
        with pytest.raises(ServiceNotAvailable):
            old.promote_soon(BrokerRole.ASYNC_MASTER)
        other_is_done.set()
        await until(lambda: old._features and old.role.status()["saved_aside"])
        await is_copying(old)
        await same_log(new, old)


@on_loop
async def test_readers_notice_a_promoted_slave_that_was_behind_another(tmp_path: Path) -> None:
    """Enough slaves are not all slaves: what was read may be gone, so the log is another one."""
    async with name_server() as address:
        configs = [
            config_of(tmp_path / str(number), role, number, address)
            for number, role in enumerate((BrokerRole.SYNC_MASTER, *2 * (BrokerRole.SLAVE,)))
        ]
        async with running(configs[0]) as master, running(configs[2]) as behind:
            identity = behind.context.identity
            await until(lambda: identity.store_id == master.context.store.store_id)
            async with running(configs[1]) as ahead:
                await is_copying(ahead)
                await behind.stop()
                result = await master.context.store.put(Message("T", b"read by a consumer"))
                assert result.status is PutStatus.PUT_OK
                await until(lambda: bodies(master) == [b"read by a consumer"])
            known = master.context.identity.store_id, master.context.identity.epoch
        new = Broker(configs[2])
        await new.start()
        try:
            await new.promote()
            assert bodies(new) == []
            assert (new.context.identity.store_id, new.context.identity.epoch) != known
        finally:
            await new.stop()
