"""Answers of a SYNC_MASTER to producers, for every kind of send."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.broker.broker import Broker
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.protocol_codes import BrokerRole, FlushDiskType, ResponseCode
from tests.broker.running_broker import Asker
from tests.broker.send.test_processor import batch_item
from tests.patient_client import patient_client
from tests.replication.running_pair import PATIENCE_MS, make_topic, on_loop, pair, until


async def codes(asker: Asker) -> list[int]:
    """The answers to a plain send, one with properties, a batch."""
    batch = batch_item(b"1") + batch_item(b"2")
    return [
        (await asker.send("T", b"plain")).code,
        (await asker.send("T", b"planned", text="WAIT\x01true\x02DELAY\x010\x02")).code,
        (await asker.send("T", batch, code=320, m="true")).code,
    ]


async def copying(master: Broker, slave: Broker) -> None:
    await until(lambda: slave.role.status()["is_copying"])
    await until(lambda: master.role.status()["slaves"])


@pytest.mark.parametrize("flush", FlushDiskType)
def test_statuses(tmp_path: Path, flush: FlushDiskType) -> None:
    @on_loop
    async def scenario() -> None:
        of_broker = {"store": {"flush_disk_type": flush}}
        async with pair(
            tmp_path, BrokerRole.SYNC_MASTER, of_master=of_broker, of_slave=of_broker
        ) as (master, slave):
            make_topic(master)
            await copying(master, slave)
            client = patient_client()
            asker = Asker(master, client)
            try:
                assert await codes(asker) == [ResponseCode.SUCCESS] * 3
                assert slave.context.store.log_range == master.context.store.log_range
                ends = master.context.store.log_range[1]
                # Connected, and deaf: what it reports does not arrive.
                link = slave.role._client._link  # type: ignore[union-attr]
                link._session.report = lambda now: b""  # type: ignore[union-attr,method-assign]
                # Now, and not before: a disk may take longer than this.
                acks = master.context.store.writes.acks.puts
                acks._slaves._timeout_s = 1.0  # type: ignore[union-attr]
                assert await codes(asker) == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 3
                assert master.context.store.dispatched_position == ends
                await slave.stop()
                await until(lambda: not master.role.status()["slaves"])
                assert await codes(asker) == [ResponseCode.SLAVE_NOT_AVAILABLE] * 3
                await slave.start()
                # All of them are stored, and shown once the slave has them.
                await until(lambda: master.context.store.offsets("T", 0)[1] == 12)
            finally:
                await client.close()

    scenario()


@on_loop
async def test_a_producer_of_ours_and_bulk_sends(tmp_path: Path) -> None:
    async with pair(tmp_path, BrokerRole.SYNC_MASTER) as (master, slave):
        make_topic(master)
        await copying(master, slave)
        names = master.config.name_servers
        async with (
            ClientInstance(ClientConfig(names, request_timeout_ms=PATIENCE_MS)) as client,
            Producer(client, "P") as producer,
        ):
            for number in range(50):
                await producer.send(OutgoingMessage("T", b"%d" % number))
            await producer.send_batch([OutgoingMessage("T", b"b%d" % n) for n in range(10)])
            log = slave.context.store.replication.log
            assert log.end == master.context.store.replication.log.end
