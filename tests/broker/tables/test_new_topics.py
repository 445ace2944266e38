"""Topics that sends make: one write for many, none visible before it is on disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.tables.new_topics import NewTopics
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.errors import LimitReached, RmqError
from broker_core.protocol_codes import ResponseCode
from tests.broker.broker_tables import topic_table
from tests.broker.running_broker import broker_config, records, running
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

Run = Callable[..., Any]


class Ground:
    def __init__(self, **settings: Any) -> None:
        self.disk: SimulatedDisk = new_disk()
        self.topics: TopicTable = topic_table(self.disk, **settings)
        self.new = NewTopics(self.topics, self.disk.clock)
        self.told: list[list[str]] = []
        self.topics.on_change(lambda changed: self.told.append([topic.name for topic in changed]))

    def make(self, name: str) -> Any:
        return self.new.make(name, "TBW102", 4)


def test_many_topics_are_one_write(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        makings = [ground.make(f"T{number}") for number in range(1_000)]
        makings += [ground.make("T0"), ground.make("T999")]
        assert ground.topics.find("T0") is None, "not before it is on disk"
        await asyncio.gather(*makings)
        assert ground.new.changes.write_count == 1
        assert [len(names) for names in ground.told] == [1_000]
        again = topic_table(ground.disk)
        assert all(again.find(f"T{number}") is not None for number in range(1_000))
        assert ground.make("T0") is None

    run_async(scenario())


def test_a_table_that_cannot_be_written_makes_none(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        makings = [ground.make("A"), ground.make("B")]
        ground.disk.fail(ground.disk.operation_count + 1, errno.ENOSPC)
        for making in makings:
            with pytest.raises(RmqError):
                await making
        assert (ground.topics.find("A"), ground.topics.find("B"), ground.told) == (None, None, [])
        ground.disk.fail(-1, 0)
        await ground.make("A")
        assert topic_table(ground.disk).find("A") is not None

    run_async(scenario())


def test_topics_that_may_not_be_made(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        assert ground.new.make("T", "NoTemplate", 4) is None
        assert ground.make("SCHEDULE_TOPIC_XXXX") is None
        ground.topics.set_auto_create(False)
        assert ground.make("T") is None
        full = Ground(topics_max=len(ground.topics) + 1)
        making = full.make("T1")
        with pytest.raises(LimitReached):
            full.make("T2")
        await making
        assert full.topics.find("T1") is not None

    run_async(scenario())


def test_a_topic_that_an_administrator_creates_first_is_kept(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        making = ground.make("T")
        template = ground.topics.find("TBW102")
        assert template is not None
        ground.topics.put(template._replace(name="T", read_queue_count=9, perm=6))
        await making
        found = ground.topics.find("T")
        assert found is not None and found.read_queue_count == 9

    run_async(scenario())


def test_sends_to_new_topics_keep_their_order(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            sends = [asker.send(f"T{number % 5}", b"%d" % number, e=0) for number in range(100)]
            answers = await asyncio.gather(*sends)
            assert {answer.code for answer in answers} == {0}
            for topic in range(5):
                found = records(await asker.pull(f"T{topic}", maxMsgNums=32))
                bodies = [int(bytes(record.body)) for record in found]
                assert bodies == list(range(topic, 100, 5))[: len(bodies)]
                assert len(bodies) >= 8

    run_async(scenario())


def test_sends_that_come_while_a_topic_is_made_do_not_overtake(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            # A request that waits for the connection may be overtaken there.
            await asker.send("Connected")
            for topic in (f"T{number}" for number in range(20)):
                sends = []
                # One a turn: some come before the topic is there, some when it just is and those
                # that waited for it are not stored yet.
                while len(sends) < 30:
                    send = asker.send(topic, b"%d" % len(sends), e=0)
                    sends.append(asyncio.ensure_future(send))
                    await asyncio.sleep(0)
                answers = await asyncio.gather(*sends)
                assert [answer.code for answer in answers] == [0] * 30
                offsets = [int(answer.ext["queueOffset"]) for answer in answers]
                assert offsets == list(range(30))

    run_async(scenario())


def test_hundreds_of_new_topics_write_few_tables(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, topicsMax="1000")) as asker:
            answers = await asyncio.gather(*(asker.send(f"T{number}") for number in range(300)))
            assert {answer.code for answer in answers} == {0}
            version = asker.broker.context.topics.version
            assert version.counter < 60, "one change for many topics"
            refused = [await asker.send(f"X{number}") for number in range(3)]
            assert {answer.code for answer in refused} == {0}

    run_async(scenario(), limit_s=300)


def test_a_read_only_broker_makes_none(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, brokerPermission="4")) as asker:
            assert (await asker.send("T")).code == ResponseCode.NO_PERMISSION
            assert asker.broker.context.topics.find("T") is None

    run_async(scenario())
