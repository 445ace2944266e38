"""Messages after the listener: done, retried, given up; one at a time if ordered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker_core.client.pull.queue_reader import QueueReader, ReadDoors
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.assigned_queue import AssignedQueue
from broker_core.client.push.concurrent import ConcurrentConsumption, split_by_verdict
from broker_core.client.push.listener_call import ListenerCall
from broker_core.client.push.offset_keeper import MemoryOffsets
from broker_core.client.push.orderly import OrderlyConsumption
from broker_core.client.push.send_back import SendBack
from broker_core.client.push.stats import ConsumeStats
from broker_core.client.push.types import (
    LEVEL_DEAD_LETTER,
    ConsumeContext,
    ConsumeStatus,
    PushSettings,
)
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.heartbeat_data import BROADCASTING
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidConfig
from broker_core.protocol_codes import RequestCode
from broker_core.runtime.clock import SystemClock
from tests.client.queue_broker import QUEUE, ScriptedBroker, ScriptedCluster, scripted_cluster
from tests.fakes.manual_clock import ManualClock
from tests.remoting.peers import until

Run = Callable[..., Any]


class Stage:
    """A consumption with one queue in it, and the broker that takes messages back."""

    def __init__(self, found: ScriptedCluster, listener: Any, clock: Any, **settings: Any) -> None:
        client = found.client
        self.broker = found.broker
        self.clock = clock
        self.settings = PushSettings(**settings)
        self.keeper = MemoryOffsets()
        self.listener = ListenerCall(listener, 4, "test")
        send_back = SendBack(client, "G", 16)
        kind = OrderlyConsumption if self.settings.orderly else ConcurrentConsumption
        self.consumption = kind(
            self.settings, self.listener, self.keeper, send_back, ConsumeStats(clock), clock
        )
        doors = ReadDoors(client.remoting, client.routes, client.capabilities)
        reader = QueueReader(doors, QUEUE, "G", SubscriptionData("T"))
        self.assigned = AssignedQueue(reader, 0)
        self.assigned.locked_at = clock.monotonic()
        self.consumption.begin(self.assigned)

    def give(self, *offsets: int) -> None:
        messages = [
            ReceivedMessage(
                MessageRecord("T", 0, b"m%d" % n, queue_offset=n, physical_offset=100 + n), QUEUE
            )
            for n in offsets
        ]
        self.assigned.backlog.add(messages, offsets[-1] + 1)
        self.consumption.fetched(self.assigned)

    @property
    def progress(self) -> int | None:
        return self.keeper.noted(QUEUE)

    def sent_back(self) -> list[dict[str, str]]:
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        return [command.ext for command in self.broker.seen if command.code == code]


def play(run_async: Run, listener: Any, work: Any, clock: Any = None, **settings: Any) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker([])
        broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda command: command.reply()
        async with scripted_cluster(broker) as found:
            stage = Stage(found, listener, clock or SystemClock(), **settings)
            try:
                await work(stage)
            finally:
                stage.assigned.leave()
                await stage.consumption.stop(1_000)
                stage.listener.close()

    run_async(scenario())


def test_progress_waits_for_the_slowest(run_async: Run) -> None:
    gate = asyncio.Event()

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        if messages[0].queue_offset == 1:
            await gate.wait()

    async def work(stage: Stage) -> None:
        stage.give(0, 1, 2, 3)
        await until(lambda: stage.assigned.backlog.count == 1)
        assert stage.progress == 1
        gate.set()
        await until(lambda: stage.progress == 4)

    play(run_async, listen, work)


@pytest.mark.parametrize("answer", [ConsumeStatus.LATER, "yes", True, 0])
def test_what_is_not_done_goes_back_first(run_async: Run, answer: object) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        context.delay_level = 5
        return answer

    async def work(stage: Stage) -> None:
        stage.give(0)
        await until(lambda: stage.progress == 1)
        [back] = stage.sent_back()
        assert (back["offset"], back["group"], back["delayLevel"]) == ("100", "G", "5")
        assert back["maxReconsumeTimes"] == "16"

    play(run_async, listen, work)


def test_a_batch_that_is_partly_done(run_async: Run) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        context.succeeded = 2
        return ConsumeStatus.LATER

    async def work(stage: Stage) -> None:
        stage.give(0, 1, 2)
        await until(lambda: stage.progress == 3)
        assert [back["offset"] for back in stage.sent_back()] == ["102"]

    play(run_async, listen, work, batch_size=10)


def test_a_message_that_nobody_takes_back_holds_progress(run_async: Run) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        return ConsumeStatus.LATER if messages[0].queue_offset == 0 else None

    async def work(stage: Stage) -> None:
        stage.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda c: c.reply(1, "no")
        stage.give(0, 1)
        await until(lambda: stage.sent_back() and stage.assigned.backlog.count == 1)
        assert stage.progress in (None, 0)
        [message] = stage.assigned.backlog._held.values()
        await until(lambda: message.reconsume_times == 1)

    play(run_async, listen, work)


def test_a_record_that_is_gone_is_sent_as_a_copy(run_async: Run) -> None:
    """The broker cannot copy what has expired."""
    sent: list[RemotingCommand] = []

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        return ConsumeStatus.LATER

    async def work(stage: Stage) -> None:
        def take(command: RemotingCommand) -> RemotingCommand:
            sent.append(command)
            ext = {"msgId": "0A", "queueId": "0", "queueOffset": "0"}
            return command.reply(ext=ext)

        routes = stage.consumption._send_back._client.routes
        routes._templates["%RETRY%G"] = (QUEUE._replace(topic="%RETRY%G"),)
        stage.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda c: c.reply(1, "gone")
        stage.broker.handlers[RequestCode.SEND_MESSAGE_V2] = take
        stage.give(0)
        await until(lambda: stage.progress == 1)
        [command] = sent
        assert (command.ext["b"], command.ext["j"], command.ext["l"]) == ("%RETRY%G", "1", "16")
        assert bytes(command.body) == b"m0"
        assert "RETRY_TOPIC\x01T\x02" in command.ext["i"]
        assert "DELAY\x013\x02" in command.ext["i"]

    play(run_async, listen, work)


def test_broadcasting_has_no_retries(run_async: Run) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        raise ValueError("on purpose")

    async def work(stage: Stage) -> None:
        stage.give(0, 1)
        await until(lambda: stage.progress == 2)
        assert stage.sent_back() == []

    play(run_async, listen, work, model=BROADCASTING)


def test_so_many_calls_at_once_and_not_more(run_async: Run) -> None:
    running, most, done = 0, 0, 0

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        done += 1

    async def work(stage: Stage) -> None:
        stage.give(*range(50))
        await until(lambda: done == 50)
        assert most == 7

    play(run_async, listen, work, concurrency=7)


def test_functions_run_on_threads(run_async: Run) -> None:
    threads: set[int] = set()

    def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        threads.add(threading.get_ident())

    async def work(stage: Stage) -> None:
        stage.give(*range(10))
        await until(lambda: stage.progress == 10)
        assert threading.get_ident() not in threads

    play(run_async, listen, work)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_dropped_queue_counts_no_more(run_async: Run, orderly: bool) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        entered.set()
        await gate.wait()

    async def work(stage: Stage) -> None:
        stage.give(0, 1)
        await entered.wait()
        stage.assigned.drop()
        gate.set()
        await stage.consumption.stop(1_000)
        assert stage.progress is None

    play(run_async, listen, work, orderly=orderly)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_stop_waits_for_the_call_under_way(run_async: Run, orderly: bool) -> None:
    gate, entered = asyncio.Event(), asyncio.Event()
    calls = 0

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        nonlocal calls
        calls += 1
        entered.set()
        await gate.wait()

    async def work(stage: Stage) -> None:
        stage.give(0, 1, 2)
        await entered.wait()
        stage.assigned.leave()
        stopping = asyncio.ensure_future(stage.consumption.stop(60_000))
        await asyncio.sleep(0)
        assert not stopping.done()
        gate.set()
        await stopping
        assert (calls, stage.progress) == (1, 1)

    play(run_async, listen, work, orderly=orderly, concurrency=1)


def test_in_order_and_again_before_the_next(run_async: Run) -> None:
    seen: list[tuple[int, int]] = []

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        [message] = messages
        seen.append((message.queue_offset, message.reconsume_times))
        context.suspend_ms = 1
        if message.queue_offset == 1 and message.reconsume_times < 2:
            raise ValueError("not yet")
        return None

    async def work(stage: Stage) -> None:
        stage.give(0, 1, 2)
        await until(lambda: stage.progress == 3)
        assert seen == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
        assert stage.sent_back() == []

    play(run_async, listen, work, orderly=True)


def test_in_order_and_given_up(run_async: Run) -> None:
    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        context.suspend_ms = 1
        return ConsumeStatus.LATER if messages[0].queue_offset == 0 else None

    async def work(stage: Stage) -> None:
        stage.give(0, 1)
        await until(lambda: stage.progress == 2)
        [back] = stage.sent_back()
        assert back["delayLevel"] == str(LEVEL_DEAD_LETTER)

    play(run_async, listen, work, orderly=True, max_reconsume_times=3)


def test_nothing_is_consumed_without_a_fresh_lock(run_async: Run) -> None:
    seen: list[int] = []
    clock = ManualClock()

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        seen.append(messages[0].queue_offset)

    async def work(stage: Stage) -> None:
        clock.advance(30_000)
        stage.give(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert seen == []
        stage.assigned.locked_at = clock.monotonic()
        stage.assigned.changed.set()
        await until(lambda: seen == [0])

    play(run_async, listen, work, clock, orderly=True)


def test_split() -> None:
    messages = [
        ReceivedMessage(MessageRecord("T", 0, b"", queue_offset=n), QUEUE) for n in range(3)
    ]
    context = ConsumeContext(QUEUE)
    assert split_by_verdict(messages, ConsumeStatus.SUCCESS, context) == (messages, [])
    assert split_by_verdict(messages, ConsumeStatus.LATER, context) == ([], messages)
    for succeeded, done in ((1, 1), (9, 3), (-4, 0)):
        context.succeeded = succeeded
        assert len(split_by_verdict(messages, ConsumeStatus.LATER, context)[0]) == done


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "SOME"},
        {"from_where": "HERE"},
        {"batch_size": 0},
        {"concurrency": True},
        {"suspend_ms": -1},
        {"offsets_directory": "somewhere"},
    ],
)
def test_settings_are_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(changes))):
        PushSettings(**changes)
