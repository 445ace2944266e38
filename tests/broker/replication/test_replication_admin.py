"""Which slave may be promoted, and the reported replication status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.admin.replication import Member, chosen_slave
from broker_core.codec.json.dialect import parse_json
from broker_core.errors import InvalidArgument, PromotionRefused
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.replication.log_epochs import TERM
from tests.broker.running_broker import broker_config, running
from tests.broker.slave_pair import slave_pair


def _member(broker_id: int, role: str = "SLAVE", epoch: int = 1, log_end: int = 100) -> Member:
    status = {"role": role, "epoch": epoch, "log_end": log_end}
    return Member(broker_id, f"10.0.0.{broker_id}:10911", status)


def _silent(broker_id: int) -> Member:
    return Member(broker_id, f"10.0.0.{broker_id}:10911", {}, "could not be reached")


def test_the_slave_with_the_most_is_taken() -> None:
    members = [_silent(0), _member(1, log_end=90), _member(2), _member(3, log_end=80)]
    assert chosen_slave(members, None, force=False).broker_id == 2
    # A longer log of an older epoch is not more.
    members.append(_member(4, epoch=0, log_end=500))
    assert chosen_slave(members, None, force=False).broker_id == 2
    assert chosen_slave(members, 2, force=False).broker_id == 2


def test_what_could_lose_messages_is_refused() -> None:
    master = _member(0, "SYNC_MASTER")
    for members, wanted, text in (
        ([master, _member(1)], None, "stop it first"),
        ([_silent(0)], None, "no slave answers"),
        ([_member(1, log_end=90), _member(2)], 1, "slave 2 at 10.0.0.2:10911 has more"),
        ([_member(1), _silent(2)], None, "slave 2 .* does not answer"),
    ):
        with pytest.raises(PromotionRefused, match=text):
            chosen_slave(members, wanted, force=False)
    with pytest.raises(InvalidArgument, match="id 7"):
        chosen_slave([_member(1)], 7, force=True)
    assert chosen_slave([master, _member(1, log_end=90), _member(2)], 1, force=True).broker_id == 1


def test_status_and_refusals(run_async: Callable[..., Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path) as pair:
            for side, role in ((pair.master, "ASYNC_MASTER"), (pair.slave, "SLAVE")):
                answer = await side.ask(RequestCode.REPLICATION_STATUS)
                status = parse_json(bytes(answer.body))
                assert (status["broker_name"], status["role"]) == ("broker-a", role)
            # As `mqadmin haStatus` asks.
            answer = await pair.master.ask(RequestCode.GET_BROKER_HA_STATUS)
            found = parse_json(bytes(answer.body))
            assert found["master"] is True and found["inSyncSlaveNums"] == 1
            [slave] = found["haConnectionInfo"]
            assert slave["diff"] == 0 and slave["inSync"] is True
            answer = await pair.slave.ask(RequestCode.GET_BROKER_HA_STATUS)
            found = parse_json(bytes(answer.body))
            assert found["master"] is False
            assert found["haClientRuntimeInfo"]["isActivated"] is True
            refused = await pair.master.ask(RequestCode.PROMOTE_BROKER)
            assert refused.code != 0 and "already" in (refused.remark or "")
            refused = await pair.slave.ask(RequestCode.PROMOTE_BROKER, brokerRole="SLAVE")
            assert refused.code != 0 and "ASYNC_MASTER" in (refused.remark or "")
            # A promotion is announced: a slave notes it, a master only answers.
            known = pair.master.broker.role.history.seen
            for epoch, name, text in (
                ("x", "broker-a", "is not the number of an epoch"),
                (str(1 << 63), "broker-a", "is not the number of an epoch"),
                ("1", "broker-b", "this is broker 'broker-a'"),
            ):
                refused = await pair.slave.ask(
                    RequestCode.EXPECT_EPOCH, brokerName=name, epoch=epoch
                )
                assert refused.code != 0 and text in (refused.remark or "")
            fields = {"brokerName": "broker-a", "epoch": str(5 * TERM)}
            answer = await pair.master.ask(RequestCode.EXPECT_EPOCH, **fields)
            assert answer.ext["epoch"] == str(known) == str(pair.master.broker.role.history.seen)
            answer = await pair.slave.ask(RequestCode.EXPECT_EPOCH, **fields)
            assert answer.ext["epoch"] == fields["epoch"]
            history = pair.slave.broker.role.history
            assert history.seen == 5 * TERM and history.epochs
            # A slave changes nothing of its own.
            refused = await pair.slave.ask(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                topic="Mine", readQueueNums=1, writeQueueNums=1, perm=6,
            )  # fmt: skip
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "slave" in (refused.remark or "")

    run_async(scenario())


def test_an_order_that_is_not_carried_out_is_answered_with_the_reason(
    run_async: Callable[..., Any], tmp_path: Path
) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, brokerRole="SLAVE", brokerId="1")
        async with running(config) as slave:
            refused = await slave.ask(RequestCode.PROMOTE_BROKER)
            assert refused.code != 0 and "never copied" in (refused.remark or "")
            done = asyncio.Event()

            async def other() -> None:
                await done.wait()

            assert slave.broker._changes.soon(other)
            refused = await slave.ask(RequestCode.PROMOTE_BROKER)
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "try again" in (refused.remark or "")
            done.set()

    run_async(scenario())
