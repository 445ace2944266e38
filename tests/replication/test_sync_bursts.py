"""Sends that arrive together at a SYNC_MASTER with ASYNC_FLUSH: no SEND_OK before a slave has them.

For masters by configuration, by promotion, and after changed settings.
"""

from __future__ import annotations

from pathlib import Path

from broker_core.broker.broker import Broker
from broker_core.protocol_codes import BrokerRole, RequestCode, ResponseCode
from tests.broker.running_broker import Asker
from tests.broker.send.test_bursts import counted, exchange, joined, pytestmark, send
from tests.patient_client import patient_client
from tests.replication.running_pair import make_topic, on_loop, pair, same_log, until

__all__ = ["counted", "pytestmark"]

COUNT = 40


async def burst(broker: Broker, counted: list[int]) -> set[int]:
    """The codes of many sends that came with one write, and were taken as one."""
    client = patient_client()
    asker = Asker(broker, client)
    try:
        first = await asker.send("T", b"makes the topic ready")
        counted.clear()
        sends = joined(*(send(number) for number in range(1, COUNT + 1)))
        answers = await exchange(asker, sends, COUNT)
        assert counted, "nothing was taken together"
        return {first.code, *(answer.code for answer in answers.values())}
    finally:
        await client.close()


async def change(broker: Broker, settings: bytes) -> None:
    client = patient_client()
    answer = await Asker(broker, client).ask(RequestCode.UPDATE_BROKER_CONFIG, settings)
    assert answer.code == 0, answer.remark
    await client.close()


def test_no_burst_is_acknowledged_without_a_slave(tmp_path: Path, counted: list[int]) -> None:
    @on_loop
    async def scenario() -> None:
        async with pair(tmp_path, BrokerRole.SYNC_MASTER) as (old, new):
            make_topic(old)
            await until(lambda: new.role.status()["is_copying"])
            assert await burst(old, counted) == {ResponseCode.SUCCESS}
            assert new.context.store.log_range == old.context.store.log_range
            # Connected, and deaf: what it reports does not arrive.
            link = new.role._client._link  # type: ignore[union-attr]
            link._session.report = lambda now: b""  # type: ignore[union-attr,method-assign]
            acks = old.context.store.writes.acks.puts
            acks._slaves._timeout_s = 0.2  # type: ignore[union-attr]
            assert await burst(old, counted) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            for settings in (b"brokerPermission=4\n", b"brokerPermission=6\n"):
                await change(old, settings)
            assert await burst(old, counted) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            await same_log(old, new)
            await until(lambda: new.context.topics.find("T") is not None)
            await old.stop()
            await new.promote(BrokerRole.SYNC_MASTER)
            assert await burst(new, counted) == {ResponseCode.SLAVE_NOT_AVAILABLE}
            await new.stop()
            new.config = new.config.with_role(BrokerRole.ASYNC_MASTER, 0)
            await new.start()
            assert await burst(new, counted) == {ResponseCode.SUCCESS}

    scenario()
