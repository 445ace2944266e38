"""A slave broker follows a master broker over real sockets."""

from __future__ import annotations

from pathlib import Path

from broker_core.protocol_codes import BrokerRole, PutStatus
from broker_core.store.writes.message import Message
from tests.replication.running_pair import (
    config_of,
    make_topic,
    on_loop,
    pair,
    put,
    running,
    same_log,
    until,
)


@on_loop
async def test_an_empty_slave_copies_everything_and_serves_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        make_topic(master)
        put(master, 3000, size=1000)
        await same_log(master, slave)
        store = slave.context.store
        await until(lambda: store.offsets("T", 0)[1] == 1500)
        assert store.get("T", 1, 7).messages()[0].body.rstrip(b".") == b"15"
        refused = store.append(Message("T", b"x"))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        put(master, 10, first=3000)
        await same_log(master, slave)


@on_loop
async def test_a_slave_continues_after_its_restart(tmp_path: Path) -> None:
    async with pair(tmp_path) as (master, slave):
        put(master, 2000, size=1000)
        await same_log(master, slave)
        await slave.stop()
        put(master, 2000, size=1000, first=2000)
        await slave.start()
        await same_log(master, slave)
        await until(lambda: slave.context.store.offsets("T", 0)[1] == 2000)
        assert slave.role.status()["is_copying"]
        assert master.role.status()["slaves"][0]["broker_id"] == 1


@on_loop
async def test_a_sync_master_waits_for_its_slave(tmp_path: Path) -> None:
    async with pair(tmp_path, BrokerRole.SYNC_MASTER) as (master, slave):
        store = master.context.store
        alone = await store.put(Message("T", b"alone"))
        await until(lambda: slave.role.status()["is_copying"])
        together = await store.put(Message("T", b"together"))
        assert together.status is PutStatus.PUT_OK
        assert slave.context.store.replication.log.end >= together.end_position
        await slave.stop()
        await until(lambda: not master.role.status()["slaves"])
        last = await store.put(Message("T", b"last"))
        assert last.status is PutStatus.SLAVE_NOT_AVAILABLE
        assert store.offsets("T", 0)[1] == 2
        await slave.start()
        await until(lambda: store.offsets("T", 0)[1] == 3)
    assert alone.status in (PutStatus.PUT_OK, PutStatus.SLAVE_NOT_AVAILABLE)


@on_loop
async def test_without_name_servers(tmp_path: Path) -> None:
    async with running(config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, "")) as master:
        put(master, 3000, size=1000)
        address = master.config.ha_address
        ours = config_of(tmp_path / "s", BrokerRole.SLAVE, 1, "", ha_master_address=address)
        async with running(ours) as slave:
            await same_log(master, slave)
            assert slave.context.store.log_range[0] == 0
        # Apache's protocol between two of ours: no handshake, and only the last file.
        classic = config_of(
            tmp_path / "c", BrokerRole.SLAVE, 2, "", ha_master_address=address,
            ha_classic_master=True,
        )  # fmt: skip
        async with running(classic) as slave:
            await same_log(master, slave)
            assert slave.context.store.log_range[0] == 3 << 20
            put(master, 1500, size=1000, first=3000)
            await same_log(master, slave)
        async with running(classic) as slave:
            await until(lambda: slave.role.status()["is_copying"])
            put(master, 10, first=4500)
            await same_log(master, slave)
