"""Changes by tools: coalesced into one write, in order, atomic on disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.tables.new_topics import NewTopics
from broker_core.broker.tables.table_changes import TableChanges
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.errors import DiskFailed, LimitReached, RmqError
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.broker_tables import topic_table
from tests.broker.running_broker import Asker, broker_config, records, running
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk

Run = Callable[..., Any]


class Ground:
    def __init__(self, **settings: Any) -> None:
        self.disk: SimulatedDisk = new_disk()
        self.topics: TopicTable = topic_table(self.disk, **settings)
        self.new = NewTopics(self.topics, self.disk.clock)
        self.changes: TableChanges[TopicConfig] = self.new.changes
        self.told: list[list[str]] = []
        self.topics.on_change(lambda changed: self.told.append([topic.name for topic in changed]))

    async def put(self, name: str, queues: int = 4) -> None:
        await self.changes.change([name], lambda: {name: TopicConfig(name, queues, queues)})

    async def delete(self, name: str, after: Callable[[], object] = lambda: None) -> None:
        await self.changes.change([name], lambda: {name: None}, after)

    def queues_of(self, name: str) -> int | None:
        """In memory, which must be what is on disk."""
        found, stored = self.topics.find(name), topic_table(self.disk).find(name)
        assert found == stored
        return None if found is None else found.read_queue_count


def test_all_kinds_of_changes_are_one_write(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        await asyncio.gather(*(ground.put(f"T{number}") for number in range(500)))
        assert (ground.changes.write_count, len(ground.told)) == (1, 1)
        made = ground.new.make("Made", "TBW102", 4)
        assert made is not None
        changes = [ground.put(f"T{number}", 2) for number in range(100)]
        deletions = [ground.delete(f"T{number}") for number in range(100, 500)]
        await asyncio.gather(made, *changes, *deletions)
        assert ground.changes.write_count == 2
        assert ground.queues_of("Made") == 4
        assert ground.queues_of("T99") == 2
        assert ground.queues_of("T100") is None
        # Listeners are called for new entries and for deletions.
        assert [len(names) for names in ground.told[1:]] == [101, 0]

    run_async(scenario())


def test_changes_of_one_name_take_turns(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        seen: list[int | None] = []

        async def grow() -> None:
            def one_more() -> dict[str, TopicConfig | None]:
                found = ground.topics.find("T")
                count = 1 if found is None else found.read_queue_count + 1
                return {"T": TopicConfig("T", count, count)}

            await ground.changes.change(["T"], one_more)
            seen.append(ground.queues_of("T"))

        await asyncio.gather(*(grow() for _ in range(5)))
        assert sorted(filter(None, seen)) == [1, 2, 3, 4, 5]
        making = ground.new.make("U", "TBW102", 4)
        assert making is not None
        await asyncio.gather(ground.delete("U"), making)
        assert ground.queues_of("U") is None

    run_async(scenario())


def test_what_hangs_on_a_deletion_happens_in_the_same_turn(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        await ground.put("T")
        forgotten: list[bool] = []

        def fails() -> None:
            forgotten.append(ground.topics.find("T") is None)
            raise DiskFailed("its files cannot be removed")

        other = asyncio.ensure_future(ground.put("Other"))
        with pytest.raises(DiskFailed, match="its files"):
            await ground.delete("T", fails)
        # Only the caller gets the error.
        await other
        assert forgotten == [True]
        assert (ground.queues_of("T"), ground.queues_of("Other")) == (None, 4)

    run_async(scenario())


def test_a_table_that_cannot_be_written_changes_nothing(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground()
        await ground.put("Old")
        calls: list[str] = []
        changes = [
            asyncio.ensure_future(ground.put("New")),
            asyncio.ensure_future(ground.put("Old", 9)),
            asyncio.ensure_future(ground.delete("Old2", lambda: calls.append("called"))),
        ]
        await asyncio.sleep(0)
        ground.disk.fail(ground.disk.operation_count + 1, errno.ENOSPC)
        for change in changes:
            with pytest.raises(RmqError):
                await change
        ground.disk.fail(-1, 0)
        assert calls == []
        assert (ground.queues_of("New"), ground.queues_of("Old")) == (None, 4)
        await ground.put("New")
        assert ground.queues_of("New") == 4

    run_async(scenario())


def test_limits_count_what_is_on_its_way(run_async: Run) -> None:
    async def scenario() -> None:
        ground = Ground(topics_max=len(Ground().topics) + 3)
        outcomes = await asyncio.gather(
            *(ground.put(f"T{number}") for number in range(5)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [type(None)] * 3 + [LimitReached] * 2

    run_async(scenario())


async def ordered(asker: Asker, topic: str, code: int, **more: Any) -> int:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", **more,
    }  # fmt: skip
    return (await asker.ask(code, **fields)).code


def test_hundreds_of_orders_write_few_tables(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            tables = asker.broker.context
            make, delete = RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER
            names = [f"T{number}" for number in range(300)]
            assert set(await asyncio.gather(*(ordered(asker, n, make) for n in names))) == {0}
            assert all(tables.topics.find(name) is not None for name in names)
            assert set(await asyncio.gather(*(ordered(asker, n, delete) for n in names))) == {0}
            assert not any(tables.topics.find(name) for name in names)
            assert tables.new_topics.changes.write_count < 60
            assert await ordered(asker, "T", make, perm=99) == ResponseCode.INVALID_PARAMETER

    run_async(scenario(), limit_s=300)


def test_a_topic_that_is_deleted_while_it_is_sent_to(tmp_path: Path, run_async: Run) -> None:
    """What is stored after the deletion is there, and nothing from before it."""

    async def scenario() -> None:
        delete = RequestCode.DELETE_TOPIC_IN_BROKER
        async with running(broker_config(tmp_path)) as asker:
            for _ in range(10):
                # The topic is there, so that the deletion is what others wait for.
                assert (await asker.send("T", b"before", e=0)).code == 0
                deleting = asyncio.ensure_future(ordered(asker, "T", delete))
                sends: list[asyncio.Future[Any]] = []
                while not deleting.done() or len(sends) < 10:
                    send = asker.send("T", b"%d" % len(sends), e=0)
                    sends.append(asyncio.ensure_future(send))
                    await asyncio.sleep(0)
                last = await asker.send("T", b"%d" % len(sends), e=0)
                answers = [*await asyncio.gather(*sends), last]
                assert {answer.code for answer in answers} == {0}
                offsets = [int(answer.ext["queueOffset"]) for answer in answers]
                # From here on it is another topic of that name, in the order of the sends.
                assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
                answer = await asker.ask(RequestCode.GET_MIN_OFFSET, topic="T", queueId=0)
                low = int(answer.ext["offset"])
                # Offsets go on. Some sends were before the deletion, and the last one was not.
                assert offsets[0] <= low <= offsets[-1]
                kept = records(await asker.pull("T", offset=low, maxMsgNums=32))
                bodies = [int(bytes(record.body)) for record in kept]
                assert bodies == list(range(low - offsets[0], len(offsets)))[:32]
                assert await ordered(asker, "T", delete) == 0

    run_async(scenario(), limit_s=300)
