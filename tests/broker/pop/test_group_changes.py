"""Pops follow changes of their group: resets, deletions, other queues, retention, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.pop import retries as pop_retries
from broker_core.broker.pop.ledger_table import IDLE_MS
from broker_core.protocol_codes import PutStatus, RequestCode, ResponseCode
from broker_core.store.writes.put_result import PutResult
from tests.broker.pop.test_processor import fill
from tests.broker.popping_client import PoppingClient
from tests.broker.running_broker import broker_config, running, until
from tests.fakes.held_clock import StoppedClock

Run = Callable[..., Any]


def test_a_reset_brings_everything_again(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 6, queues=1)
            client = PoppingClient(asker)
            before = await client.pop()
            for message in before[:3]:
                assert await client.ack(message) == 0
            reset = await asker.ask(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                topic="T", group="G", timestamp=0, isForce="true",
            )  # fmt: skip
            assert reset.code == 0
            # Handles from before: nothing that is wanted again is done by them.
            assert await client.ack(before[4]) == ResponseCode.NO_MESSAGE
            assert len(await client.pop()) == 6
            # To where it is: what is in flight or done above it comes again all the same.
            reset = await asker.ask(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                topic="T", group="G", timestamp=0, isForce="true",
            )  # fmt: skip
            assert len(await client.pop()) == 6
            assert asker.broker.features.pop.ledgers.in_flight_count == 6

    run_async(scenario())


def test_a_deleted_topic_takes_its_pops_along(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        clock = StoppedClock()
        async with running(broker_config(tmp_path), clock=clock) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 3, queues=1)
            client = PoppingClient(asker)
            first = await client.pop(invisibleTime=50)
            waiting = asyncio.ensure_future(client.answer(pollTime=60_000))
            await until(lambda: len(asker.broker.features.pop.pending) == 1)
            answer = await asker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
            assert answer.code == 0
            assert await client.ack(first[0]) == ResponseCode.TOPIC_NOT_EXIST
            clock.advance(51)
            ledgers = asker.broker.features.pop.ledgers
            await until(lambda: ledgers.in_flight_count == 0)
            await asker.make_topic("T", queues=1)
            await fill(asker, 2, queues=1, start=10)
            found = await waiting
            assert found.code == 0
            assert len(await client.pop()) + len(found.ext["msgOffsetInfo"].split(",")) == 2

    run_async(scenario())


def test_a_deleted_group_begins_again(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 3, queues=1)
            client = PoppingClient(asker)
            assert len(await client.drain()) == 3
            answer = await asker.ask(
                RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G", cleanOffset="true"
            )
            assert answer.code == 0
            assert len(await client.drain()) == 3

    run_async(scenario())


def test_more_and_fewer_queues(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=4)
            await fill(asker, 8)
            client = PoppingClient(asker)
            found = await client.pop()
            await asker.make_topic("T", queues=2)
            for message in found:
                assert await client.ack(message) == 0
            await asker.make_topic("T", queues=6)
            await fill(asker, 6, queues=6)
            assert len(await client.drain()) == 6

    run_async(scenario())


def test_a_start_continues_at_the_offset_of_the_group(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path)
        async with running(config) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 10, queues=1)
            before = await PoppingClient(asker).pop()
            for message in [*before[:3], before[5]]:
                assert await PoppingClient(asker).ack(message) == 0
        async with running(config) as asker:
            client = PoppingClient(asker)
            assert asker.broker.context.offsets.query("G", "T", 0) == 3
            # The client that holds it has outlived the broker: it is not delivered again.
            assert await client.ack(before[7]) == 0
            assert await client.ack(before[1]) == 0
            again = await client.pop()
            assert [m.record.queue_offset for m in again] == [3, 4, 5, 6, 8, 9]

    run_async(scenario())


def test_a_damaged_queue_leaves_the_others_alone(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=2)
            await fill(asker, 8, queues=2)
            store = asker.broker.context.store
            [(position, *_)] = store.units("T", 1, 1, 1)
            segment = store._opened.log.segments.find(position)
            assert segment is not None
            segment.view[position - segment.base + 100] ^= 0xFF
            client = PoppingClient(asker)
            found = await client.drain(maxMsgNums=1, queueId=0)
            assert len(found) == 4
            await fill(asker, 2, queues=2, start=8)
            bodies = {m.body for m in await client.pop(maxMsgNums=1) + await client.pop()}
            assert b"8" in bodies
            # Nothing but damage is said to be damage.
            answer = await client.answer(queueId=1)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "damage" in (answer.remark or "")

    run_async(scenario())


def test_idle_ledgers_are_forgotten(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await fill(asker, 4)
            ledgers = asker.broker.features.pop.ledgers
            for number in range(50):
                await PoppingClient(asker, f"G{number}").drain()
            [kept] = await PoppingClient(asker, "Busy").pop(maxMsgNums=1)
            assert len(ledgers) == 201
            for _, ledger in ledgers:
                ledger.used_at -= IDLE_MS / 1000
            ledgers.drop_idle()
            assert len(ledgers) == 1
            assert await PoppingClient(asker, "G1").pop() == []
            assert await PoppingClient(asker, "Busy").ack(kept) == 0

    run_async(scenario())


def test_lag_is_shown(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 5, queues=1)
            client = PoppingClient(asker)
            found = await client.pop(maxMsgNums=3)
            assert await client.ack(found[0]) == 0
            answer = await asker.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="G")
            text = bytes(answer.body).decode()
            assert '"brokerOffset":5,"consumerOffset":1' in text
            assert '"pullOffset":3' in text

    run_async(scenario())


def test_what_retention_took_is_passed(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 6, queues=1)
            client = PoppingClient(asker)
            assert len(await client.pop(maxMsgNums=2)) == 2
            store = asker.broker.context.store
            queue = store._opened.queues.find(b"T", 0)
            queue.min_offset = 4  # type: ignore[union-attr]
            assert [m.record.queue_offset for m in await client.pop()] == [4, 5]
            assert asker.broker.context.offsets.query("G", "T", 0) == 4

    run_async(scenario())


def test_a_copy_that_slaves_do_not_have_yet(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for and not stored again; after a reset it does not count any more."""
    monkeypatch.setattr(pop_retries, "AGAIN_MS", 300)

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            await fill(asker, 1, queues=1)
            client, store = PoppingClient(asker), asker.broker.context.store
            right, late, asked = store.acknowledged, [True], []

            async def acknowledged(result: PutResult) -> PutResult:
                if late[0] and result.ok:
                    asked.append(result.position)
                    return result._replace(status=PutStatus.FLUSH_SLAVE_TIMEOUT)
                return await right(result)

            monkeypatch.setattr(store, "acknowledged", acknowledged)
            assert len(await client.pop(invisibleTime=50)) == 1
            await until(lambda: len(asked) >= 3)
            assert len(set(asked)) == 1, "one copy, however often it is asked for"
            assert store.offsets("%RETRY%G_T", 0) == (0, 1)
            assert asker.broker.context.offsets.query("G", "T", 0) == 0, (
                "not done before it is safe"
            )
            # An offset reset arrives while the copy is not durable yet.
            [copy] = await client.pop(invisibleTime=60_000)
            assert (copy.handle.topic_type, await client.ack(copy)) == ("1", 0)
            reset = await asker.ask(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="T", group="G", timestamp=0,
                isForce="true",
            )  # fmt: skip
            assert reset.code == 0
            late[0] = False
            [again] = await client.pop(invisibleTime=50)
            assert again.handle.topic_type == "0"
            # Not acknowledged: it needs a copy of its own.
            await until(lambda: store.offsets("%RETRY%G_T", 0) == (0, 2))
            await until(lambda: asker.broker.context.offsets.query("G", "T", 0) == 1)

    run_async(scenario())
