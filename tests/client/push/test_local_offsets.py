"""Progress of broadcasting consumers in files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.push.local_offsets import LocalOffsets
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import CorruptStore, InvalidArgument, InvalidConfig
from tests.client.queue_broker import QUEUE

OTHER = MessageQueue("T", "broker-a", 1)


Run = Callable[..., Any]


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
