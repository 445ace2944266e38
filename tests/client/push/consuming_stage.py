"""A consumption with its queue, listener and brokers, without sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.client.pull.queue_reader import QueueReader, ReadDoors
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.assigned_queue import AssignedQueue
from broker_core.client.push.concurrent import ConcurrentConsumption
from broker_core.client.push.listener_call import ListenerCall
from broker_core.client.push.offset_keeper import MemoryOffsets
from broker_core.client.push.orderly import OrderlyConsumption
from broker_core.client.push.send_back import SendBack
from broker_core.client.push.stats import ConsumeStats
from broker_core.client.push.types import (
    PushSettings,
)
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.protocol_codes import RequestCode
from broker_core.runtime.clock import SystemClock
from tests.client.queue_broker import QUEUE, ScriptedBroker, ScriptedCluster, scripted_cluster

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
