"""Progress in memory and in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_core.client.push.offset_keeper import BrokerOffsets, MemoryOffsets, NotedOffsets
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RemoteError
from broker_core.protocol_codes import RequestCode
from tests.client.queue_broker import QUEUE, ScriptedBroker, scripted_cluster

OTHER = MessageQueue("T", "broker-a", 1)

Run = Callable[..., Any]


def test_progress_goes_forward_and_a_reset_either_way() -> None:
    noted = NotedOffsets()
    noted.note(QUEUE, 5)
    noted.note(QUEUE, 3)
    assert noted.noted(QUEUE) == 5
    noted.put(QUEUE, 2)
    assert noted.noted(QUEUE) == 2
    noted.forget(QUEUE)
    assert noted.noted(QUEUE) is None


def test_only_what_changed_is_handed_over() -> None:
    noted = NotedOffsets()
    noted.note(QUEUE, 5)
    noted.note(OTHER, 6)
    assert noted.take_changed([QUEUE]) == {QUEUE: 5}
    assert noted.take_changed(None) == {OTHER: 6}
    assert noted.take_changed(None) == {}
    noted.put_back([OTHER, QUEUE])
    noted.forget(QUEUE)
    noted.note(OTHER, 9)
    assert noted.take_changed(None) == {OTHER: 9}


def test_memory(run_async: Run) -> None:
    async def scenario() -> None:
        keeper = MemoryOffsets()
        assert await keeper.read(QUEUE) is None
        keeper.note(QUEUE, 4)
        assert await keeper.persist()
        assert await keeper.read(QUEUE) == 4

    run_async(scenario())


def test_brokers_keep_progress(run_async: Run) -> None:
    broker = ScriptedBroker([])
    kept: dict[str, str] = {}

    def query(command: RemotingCommand) -> RemotingCommand:
        offset = kept.get(command.ext["queueId"])
        return (
            command.reply(22, "none") if offset is None else command.reply(ext={"offset": offset})
        )

    def update(command: RemotingCommand) -> RemotingCommand:
        assert command.ext["consumerGroup"] == "G"
        kept[command.ext["queueId"]] = command.ext["commitOffset"]
        return command.reply()

    broker.handlers = {
        RequestCode.QUERY_CONSUMER_OFFSET: query,
        RequestCode.UPDATE_CONSUMER_OFFSET: update,
    }

    async def scenario() -> None:
        async with scripted_cluster(broker) as found:
            keeper = BrokerOffsets(found.client, "G")
            assert await keeper.read(QUEUE) is None
            keeper.note(QUEUE, 7)
            keeper.note(OTHER, 8)
            assert await keeper.persist([QUEUE])
            assert kept == {"0": "7"}
            assert await keeper.read(QUEUE) == 7
            # What a broker does not take stays due; it is no error of the consumer.
            broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda c: c.reply(1, "no")
            assert not await keeper.persist()
            broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = update
            assert await keeper.persist()
            assert kept == {"0": "7", "1": "8"}
            # A failure to read is not the same as nothing kept: a queue must not start at a guess.
            broker.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda c: c.reply(1, "no")
            with pytest.raises(RemoteError):
                await keeper.read(QUEUE)

    run_async(scenario())
