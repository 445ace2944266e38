"""Groups that heartbeats make: one write for many, on disk before the answer."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.tables.new_groups import NewGroups
from broker_core.broker.tables.new_topics import NewTopics
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.errors import DiskFailed, LimitReached, RmqError
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.broker_tables import group_table, topic_table
from tests.broker.running_broker import Asker, broker_config, running, until
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

Run = Callable[..., Any]


class Ground:
    def __init__(self, groups_max: int = 50_000, topics_max: int = 50_000) -> None:
        self.disk: SimulatedDisk = new_disk()
        self.topics = topic_table(self.disk, topics_max=topics_max)
        self.groups = group_table(self.disk, groups_max=groups_max)
        self.new_topics = NewTopics(self.topics, self.disk.clock)
        self.new = NewGroups(self.groups, self.new_topics, self.disk.clock)


def beat(*groups: str, client_id: str = "c") -> bytes:
    consumers = tuple(
        ConsumerData(group, subscriptions=(SubscriptionData("T", version=1),)) for group in groups
    )
    return encode_heartbeat(HeartbeatData(client_id, (), consumers))


async def heartbeat(asker: Asker, *groups: str) -> int:
    return (await asker.ask(RequestCode.HEART_BEAT, beat(*groups))).code


def test_many_groups_are_one_write_of_each_table(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        makings = [making for number in range(1_000) for making in ground.new.make(f"G{number}")]
        makings += ground.new.make("G0")
        assert ground.groups.find("G0") is None, "not before it is on disk"
        await asyncio.gather(*makings)
        assert (ground.new.changes.write_count, ground.new_topics.changes.write_count) == (1, 1)
        groups, topics = group_table(ground.disk), topic_table(ground.disk)
        for number in range(1_000):
            assert groups.find(f"G{number}") is not None
            assert topics.find(f"%RETRY%G{number}") is not None
        assert ground.new.make("G0") == []

    run_async(scenario())


def test_a_table_that_cannot_be_written_makes_none(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        makings = ground.new.make("A") + ground.new.make("B")
        ground.disk.fail(ground.disk.operation_count + 1, errno.ENOSPC, sticky=True)
        for making in makings:
            with pytest.raises(RmqError):
                await making
        assert (ground.groups.find("A"), ground.topics.find("%RETRY%A")) == (None, None)

    run_async(scenario())


def test_limits_count_what_is_on_its_way(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground(groups_max=len(Ground().groups) + 1)
        makings = ground.new.make("A")
        with pytest.raises(LimitReached):
            ground.new.make("B")
        await asyncio.gather(*makings)
        assert ground.groups.find("A") is not None
        ground.groups.set_auto_create(False)
        assert ground.new.make("C") == []

    run_async(scenario())


def test_hundreds_of_new_groups_write_few_tables(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            beats = [heartbeat(asker, f"A{number}", f"B{number}") for number in range(300)]
            assert set(await asyncio.gather(*beats)) == {0}
            tables = asker.broker.context
            for number in range(300):
                for name in (f"A{number}", f"B{number}"):
                    assert tables.groups.find(name) is not None
                    assert tables.topics.find(f"%RETRY%{name}") is not None
                    assert tables.clients.consumer_ids(name) == ["c"]
            assert tables.groups.version.counter < 60, "one change for many groups"
            assert tables.topics.version.counter < 60

    run_async(scenario(), limit_s=300)


def test_requests_without_room_are_refused(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            room = len(asker.broker.context.groups) + 1
        async with running(broker_config(tmp_path, groupsMax=str(room))) as asker:
            assert await heartbeat(asker, "A", "B") == ResponseCode.SYSTEM_ERROR
            assert asker.broker.context.groups.find("A") is not None
            assert asker.broker.context.clients.consumer_ids("A") == ["c"]
            assert asker.broker.context.clients.consumer_ids("B") == []
            assert await heartbeat(asker, "A") == 0

    run_async(scenario())


@pytest.mark.parametrize("kind", ["pull", "bulk", "ends", "pop"])
def test_reads_of_hundreds_of_new_groups_write_few_tables(
    kind: str, tmp_path: Path, run_async: Run
) -> None:
    """Each is answered, takes no request slot afterwards, and can be held."""

    async def read(asker: Asker, group: str, **more: Any) -> int:
        if kind == "bulk":
            asked: dict[str, Any] = {"offset": 0}
            code: int = RequestCode.BULK_PULL
        elif kind == "ends":
            asked, code = {}, RequestCode.TOPIC_ENDS
        elif kind == "pop":
            asked = {"maxMsgNums": 1, "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0}
            asked |= {"initMode": 0}
            code = RequestCode.POP_MESSAGE
        else:
            asked = {"queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0}
            asked |= {"subVersion": 0, "subscription": "*", "suspendTimeoutMillis": 0}
            code = RequestCode.PULL_MESSAGE
        asked |= {"consumerGroup": group, "topic": "T", "queueId": 0, **more}
        return (await asker.ask(code, **asked)).code

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await asker.send("T", b"x")
            groups = asker.broker.context.groups
            before = groups.version.counter
            reads = [read(asker, f"G{number}") for number in range(300)]
            assert set(await asyncio.gather(*reads)) == {0}
            assert all(groups.find(f"G{number}") is not None for number in range(300))
            assert groups.version.counter - before < 60, "one change for many groups"
            await until(lambda: asker.broker.server.budget.requests == 0)
            # A missing topic is an error as before, and so is a bad name of a group.
            assert await read(asker, "I", topic="Missing") == ResponseCode.TOPIC_NOT_EXIST
            assert await read(asker, "not a name") not in (0, ResponseCode.TOPIC_NOT_EXIST)
        async with running(broker_config(tmp_path)) as asker:
            assert asker.broker.context.groups.find("G299") is not None

    run_async(scenario(), limit_s=300)


def test_a_pull_of_a_new_group_can_be_held(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            asked = {"sysFlag": 6, "suspendTimeoutMillis": 60_000}
            held = [
                asyncio.ensure_future(asker.pull("T", 0, consumerGroup=f"G{number}", **asked))
                for number in range(20)
            ]
            pending = asker.broker.features.pull.pending
            await until(lambda: len(pending) == 20)
            await asker.send("T", b"news")
            for answer in await asyncio.gather(*held):
                assert answer.code == 0
            assert len(pending) == 0
            budget = asker.broker.server.budget
            await until(lambda: budget.requests + budget.held.count == 0)

    run_async(scenario())


def test_a_group_that_cannot_be_written_fails_its_pull(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            groups = asker.broker.context.groups

            def fail() -> None:
                raise DiskFailed("no disk")

            monkeypatch.setattr(groups, "save", fail)
            answer = await asker.pull("T", 0, consumerGroup="New")
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no disk")
            assert groups.find("New") is None
            monkeypatch.undo()
            assert (await asker.pull("T", 0, consumerGroup="New")).code != ResponseCode.SYSTEM_ERROR
            assert groups.find("New") is not None

    run_async(scenario())
