"""A staging file that changes after its verification is refused; broker and log are not
affected."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import SinkClient, errors
from broker_core.broker.sink.staging_verification import StagingVerification
from broker_core.codec.records.staged_block import BlockEncoder, StagedPart
from broker_core.codec.wire.bodies.sink_messages import BatchIdentity
from broker_core.storage.log.group_writer import GroupWriter
from broker_core.store.message_store import MessageStore
from tests.broker.running_broker import Asker, broker_config, records, running
from tests.client.sink.test_staging_file import Neighbour
from tests.codec.codec_backends import batch_of

Run = Callable[..., Any]
BODY = b"x" * 10_000
# More than is read at once, in several log files.
ROWS = 400


def who(batch: int = 0) -> BatchIdentity:
    return BatchIdentity("S", batch, "run-1")


async def staged(sink: SinkClient, batch: int = 0) -> StagedPart:
    writer = await sink.stage(who(batch), "broker-a")
    assert writer.is_local
    for _ in range(ROWS // 100):
        await writer.append(batch_of(*[BODY] * 100, queues=((b"Alpha", 0),)))
    return await writer.seal()


async def counts(asker: Asker) -> tuple[int, int]:
    found = []
    for topic in ("Alpha", "Bravo"):
        answer = await asker.ask(30, topic=topic, queueId=0)
        found.append(int(answer.ext["offset"]))
    return found[0], found[1]


def file_of(root: Path, part: StagedPart) -> Path:
    return root / "staging" / part.staging_id


def rewritten(file: Path) -> None:
    """The records are for another topic now; heads and times are as they were."""
    before = file.stat()
    data = bytearray(file.read_bytes())
    at = 0
    while (at := data.find(b"Alpha", at)) >= 0:
        data[at : at + 5] = b"Bravo"
        at += 5
    # Table of the block, which the broker compares with its queues.
    at = 0
    while (at := data.find(b"RMQU", at)) >= 0:
        size = int.from_bytes(data[at + 4 : at + 8], "big")
        table = data[at + 28 : at + 28 + size]
        data[at + 28 : at + 28 + size] = table.replace(b"Bravo", b"Alpha")
        at += 28 + size
    with file.open("r+b") as opened:
        opened.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def damaged(file: Path) -> None:
    before = file.stat()
    with file.open("r+b") as opened:
        opened.seek(before.st_size // 2)
        opened.write(b"?" * 100)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


async def refused_and_well(asker: Asker, sink: SinkClient, part: StagedPart) -> None:
    """The publication is refused, and nothing else has suffered."""
    store = asker.broker.context.store
    with pytest.raises(errors.StagingRefused):
        await sink.publish(who(), [part])
    assert not store.fenced
    assert await counts(asker) == (0, 0)
    # What is staged anew is published, and ordinary messages are taken.
    await asker.send("Alpha", b"plain")
    again = await sink.publish(who(), [await staged(sink)])
    assert not again.is_repeat
    assert again.offsets["broker-a"]["Alpha"][0] == (1, ROWS + 1)


@pytest.mark.parametrize("change", [rewritten, damaged, cut, emptied])
@pytest.mark.parametrize("when", ["after the proof", "before the append", "after the header"])
def test_a_changed_file_is_refused(
    change: Callable[[Path], None],
    when: str,
    tmp_path: Path,
    run_async: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if change in (cut, emptied) and when != "after the proof" and not _in_own_process():
        # A map of such a file ends the process: not this one.
        _in_process(change.__name__, when)
        return

    verification: list[StagingVerification] = []
    make_verification = StagingVerification.__init__

    def made(self: StagingVerification, *arguments: Any) -> None:
        make_verification(self, *arguments)
        verification.append(self)

    monkeypatch.setattr(StagingVerification, "__init__", made)

    async def scenario() -> None:
        # Over several log files, or within one, where two threads write.
        size = 1 << 20 if change in (damaged, emptied) else 16 << 20
        config = broker_config(tmp_path, mappedFileSizeCommitLog=str(size))
        async with running(config) as asker:
            await asker.make_topic("Alpha")
            await asker.make_topic("Bravo")
            async with Neighbour(asker) as sink:
                part = await staged(sink)
                # The broker has looked at every record, and would not again.
                await verification[0].verified([part._replace(broker_name="")])
                todo = [lambda: change(file_of(tmp_path, part))]
                if when == "after the proof":
                    todo.pop()()
                owner, name = (
                    (MessageStore, "append_group")
                    if when == "before the append"
                    else (GroupWriter, "write")
                )
                real = getattr(owner, name)

                def changed_before(self: Any, *arguments: Any) -> Any:
                    if todo and arguments[0]:
                        todo.pop()()
                    return real(self, *arguments)

                monkeypatch.setattr(owner, name, changed_before)
                await refused_and_well(asker, sink, part)
                assert not todo
        # What was taken back is not there after a restart either.
        async with running(config) as asker:
            assert await counts(asker) == (ROWS + 1, 0)
            found = records(await asker.pull("Alpha", 0, maxMsgNums=3))
            assert [message.body for message in found] == [b"plain", BODY, BODY]

    run_async(scenario())


def _in_own_process() -> bool:
    return "STAGING_TEST_CHILD" in os.environ


def _in_process(change: str, when: str) -> None:
    name = f"{__file__}::test_a_changed_file_is_refused[{when}-{change}]"
    environment = {**os.environ, "STAGING_TEST_CHILD": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]


def test_a_block_that_takes_much_memory_is_refused(tmp_path: Path, run_async: Run) -> None:
    """A block is read in one piece: a writer on this machine must not choose its size freely."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("Alpha")
            async with Neighbour(asker) as sink:
                writer = await sink.stage(who(), "broker-a")
                assert writer._file is not None
                writer._file._encoder = BlockEncoder(80 << 20)
                bodies = [bytes(1 << 20)] * 70
                await writer.append(batch_of(*bodies, queues=((b"Alpha", 0),)))
                with pytest.raises(errors.StagingRefused, match="too large"):
                    await writer.seal()

    run_async(scenario())
