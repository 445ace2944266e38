"""Pops and replication: slaves serve no pops, a promoted slave continues at the groups' offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.pop.test_processor import fill
from tests.broker.popping_client import Popped, PoppingClient
from tests.broker.running_broker import until
from tests.broker.slave_pair import slave_pair

Run = Callable[..., Any]


def test_a_promoted_slave_continues_the_pops(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path) as pair:
            await pair.master.make_topic("T", queues=1)
            body = b'{"consumerGroup":"G","mode":"POP","popShareQueueNum":0,"topic":"T"}'
            assert (await pair.master.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body)).code == 0
            await fill(pair.master, 10, queues=1)
            client = PoppingClient(pair.master)
            found = await client.pop()
            acknowledged = [*found[:4], found[7]]
            for message in acknowledged:
                assert await client.ack(message) == 0
            # Others come again through the retry topic, and soon.
            for message in found:
                if message not in acknowledged:
                    assert isinstance(await client.change(message, 1), Popped)
            theirs, ours = pair.master.broker.context, pair.slave.broker.context
            await until(lambda: theirs.offsets.query("G", "T", 0) == 10)
            retried = await client.pop(maxMsgNums=2)
            for message in retried:
                assert await client.ack(message) == 0
            await pair.copied()
            retry = ("G", "%RETRY%G_T", 0)
            await until(lambda: ours.offsets.query(*retry) == 2)
            await until(lambda: ours.offsets.query("G", "T", 0) == 10)
            await until(lambda: ours.modes.find("T", "G").mode == "POP")
            there = PoppingClient(pair.slave)
            for code in (200050, 200051, 200052, 200053, 200054, 200151):
                assert (await there.ask(code)).code == ResponseCode.SERVICE_NOT_AVAILABLE, code
            assert (await pair.slave.ask(401, body)).code == ResponseCode.SYSTEM_ERROR
            await pair.master.broker.stop()
            await pair.slave.broker.promote()
            left = await there.drain()
            bodies = {m.body for m in left} | {m.body for m in retried}
            assert bodies == {b"4", b"5", b"6", b"8", b"9"}
            assert len(left) == 3

    run_async(scenario())
