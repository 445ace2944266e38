"""Progress in memory and in a file."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.push.local_offsets import LocalOffsets
from broker_core.client.push.offset_keeper import BrokerOffsets, MemoryOffsets, NotedOffsets
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import CorruptStore, InvalidArgument, InvalidConfig, RemoteError
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


def test_a_file_keeps_progress(run_async: Run, tmp_path: Path) -> None:
    directory = str(tmp_path / "offsets")

    async def scenario() -> None:
        keeper = LocalOffsets(directory, "G")
        assert await keeper.read(QUEUE) is None
        keeper.note(QUEUE, 4)
        keeper.note(OTHER, 5)
        assert await keeper.persist()
        keeper.put(QUEUE, 1)
        assert await keeper.persist()
        keeper.close()
        again = LocalOffsets(directory, "G")
        assert (await again.read(QUEUE), await again.read(OTHER)) == (1, 5)
        again.close()
        another_group = LocalOffsets(directory, "H")
        assert await another_group.read(QUEUE) is None
        another_group.close()

    run_async(scenario())
    assert (tmp_path / "offsets" / "G.json").is_file()


def test_progress_outlives_a_save_that_is_given_up(run_async: Run, tmp_path: Path) -> None:
    """A consumer that is stopped ends its own timer, perhaps in the middle of a save."""
    queue = MessageQueue("T", "broker-a", 0)

    async def scenario() -> None:
        keeper = LocalOffsets(str(tmp_path), "G")
        held, begun = threading.Event(), asyncio.Event()
        loop, save = asyncio.get_running_loop(), keeper._table.save

        def slow(content: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(begun.set)
            assert held.wait(60)
            save(content)

        keeper._table.save = slow  # type: ignore[method-assign]
        keeper.note(queue, 7)
        timer = asyncio.ensure_future(keeper.persist())
        await begun.wait()
        timer.cancel()
        await asyncio.wait((timer,))
        last = asyncio.ensure_future(keeper.persist())
        await asyncio.sleep(0)
        held.set()
        assert await last
        keeper.close()
        again = LocalOffsets(str(tmp_path), "G")
        assert await again.read(queue) == 7
        again.close()

    run_async(scenario())


def test_one_consumer_for_a_directory(tmp_path: Path) -> None:
    first = LocalOffsets(str(tmp_path), "G")
    with pytest.raises(InvalidConfig, match="another consumer"):
        LocalOffsets(str(tmp_path), "G")
    first.close()
    LocalOffsets(str(tmp_path), "G").close()


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="offsets_directory"):
        LocalOffsets(str(tmp_path / "file"), "G")


@pytest.mark.parametrize("text", ['{"offsets":{"T":{"b":{"0":-1}}}}', '{"offsets":{"T":5}}'])
def test_a_file_that_makes_no_sense(tmp_path: Path, text: str) -> None:
    (tmp_path / "G.json").write_text(text)
    with pytest.raises(InvalidArgument, match="remove the file"):
        LocalOffsets(str(tmp_path), "G")
    # And the directory is free again.
    (tmp_path / "G.json").unlink()
    LocalOffsets(str(tmp_path), "G").close()


def test_a_damaged_file_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "G.json").write_text('{"offsets":')
    with pytest.raises(CorruptStore):
        LocalOffsets(str(tmp_path), "G")
