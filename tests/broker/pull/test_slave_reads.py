"""Reading from slaves: which consumers are redirected, what a slave answers, and that no offset
moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.replication import metadata_copy as slave_metadata
from broker_core.broker.replication.metadata_copy import SLAVE_COMMITS_FILE
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.consumer import PushConsumer
from broker_core.client.push.types import ConsumeContext
from broker_core.codec.wire.bodies.heartbeat_data import FROM_FIRST_OFFSET
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.running_broker import Asker, records
from tests.broker.slave_pair import SlavePair, slave_pair
from tests.remoting.peers import until

RunAsync = Callable[..., Any]
SUSPEND = 2 | 4


async def _fill(side: Asker, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        answer = await side.send("T", b"m%d" % number)
        assert answer.code == 0, answer.remark


def _content(path: Path) -> bytes:
    """Of a file that is being replaced now and then, and then is not there for a moment."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def _master_gone(pair: SlavePair) -> None:
    await pair.master.broker.stop()
    metadata = pair.slave.broker.features.replication.slave_metadata
    assert metadata is not None
    await until(lambda: not metadata.master_is_there)


def test_the_master_is_asked_about_a_new_topic_at_once(
    run_async: RunAsync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path) as pair:
            # No periodic request from here on.
            monkeypatch.setattr(slave_metadata, "CHANGES_INTERVAL_MS", 10_000_000)
            metadata = pair.slave.broker.features.replication.slave_metadata
            assert metadata is not None
            before = metadata.copied_ms
            await until(lambda: metadata.copied_ms > before)
            await _fill(pair.master, 1)
            await pair.copied()
            assert pair.slave.broker.context.topics.find("T") is not None
            answer = await pair.slave.pull("T")
            assert len(records(answer)) == 1

    run_async(scenario())


def test_a_slave_has_the_same_messages(run_async: RunAsync, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path) as pair:
            await _fill(pair.master, 20)
            await pair.copied()
            ours, theirs = [await side.pull("T") for side in (pair.slave, pair.master)]
            assert len(records(ours)) == 20
            assert bytes(ours.body) == bytes(theirs.body)
            refused = await pair.slave.send("T")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            # And nothing was made on the way.
            refused = await pair.slave.send("Unknown")
            assert refused.code != 0
            assert pair.slave.broker.context.topics.find("Unknown") is None

    run_async(scenario())


def test_readers_far_behind_are_sent_to_the_slave(run_async: RunAsync, tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
        async with slave_pair(tmp_path, **settings) as pair:
            await _fill(pair.master, 3)
            await pair.copied()
            # Of one message, more has come since; the last one is the newest there is.
            first = await pair.master.pull("T", maxMsgNums=1)
            assert first.ext["suggestWhichBrokerId"] == "1"
            at_slave = await pair.slave.pull("T", maxMsgNums=1)
            assert at_slave.ext["suggestWhichBrokerId"] == "1"

    run_async(scenario())


def test_without_slave_reads_no_reader_is_sent_to_a_slave(
    run_async: RunAsync, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path, accessMessageInMemoryMaxRatio="0") as pair:
            await _fill(pair.master, 3)
            answer = await pair.master.pull("T", maxMsgNums=1)
            assert answer.ext["suggestWhichBrokerId"] == "0"

    run_async(scenario())


def test_a_slave_sends_readers_back(run_async: RunAsync, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path, slaveReadEnable="true") as pair:
            await _fill(pair.master, 3)
            await pair.copied()
            found = await pair.slave.pull("T")
            assert found.code == 0 and len(records(found)) == 3
            assert found.ext["suggestWhichBrokerId"] == "0"
            # Nothing new: back to the master, soon though not at once.
            held = await pair.slave.pull(
                "T", offset=3, sysFlag=SUSPEND, suspendTimeoutMillis=60_000
            )
            assert held.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert held.ext["suggestWhichBrokerId"] == "0"
            assert held.ext["nextBeginOffset"] == "3"

    run_async(scenario())


def test_a_slave_moves_no_consumer(run_async: RunAsync, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path) as pair:
            await _fill(pair.master, 3)
            await pair.copied()
            await _master_gone(pair)
            # Further than the slave has come, and a queue that it has never seen.
            for queue, offset in ((0, 8), (1, 5)):
                answer = await pair.slave.pull("T", queue=queue, offset=offset)
                assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                assert answer.ext["nextBeginOffset"] == str(offset)
            ended = await pair.slave.pull("T", offset=3)
            assert ended.code == ResponseCode.PULL_NOT_FOUND

    run_async(scenario())


def test_a_slave_that_may_correct_offsets_does(run_async: RunAsync, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path, offsetCheckInSlave="true") as pair:
            await _fill(pair.master, 3)
            await pair.copied()
            await _master_gone(pair)
            answer = await pair.slave.pull("T", offset=8)
            assert answer.code == ResponseCode.PULL_OFFSET_MOVED
            assert answer.ext["nextBeginOffset"] == "3"

    run_async(scenario())


def test_a_pull_at_a_slave_commits_nothing(run_async: RunAsync, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path) as pair:
            await _fill(pair.master, 3)
            await pair.copied()
            await pair.slave.pull("T", sysFlag=1 | 4, commitOffset=2)
            assert pair.slave.broker.context.offsets.query("CG", "T", 0) is None

    run_async(scenario())


def test_our_consumer_goes_to_the_slave_and_comes_back(run_async: RunAsync, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path, slaveReadEnable="true") as pair:
            await _fill(pair.master, 100)
            await pair.copied()
            seen: list[bytes] = []

            async def listen(messages: Sequence[ReceivedMessage], _: ConsumeContext) -> None:
                seen.extend(message.body for message in messages)

            config = ClientConfig((pair.name_server,), route_poll_interval_ms=200)
            async with ClientInstance(config) as client:
                consumer = PushConsumer(
                    client, "READERS", listen, from_where=FROM_FIRST_OFFSET, suspend_ms=500,
                    pull_count=5,
                )  # fmt: skip
                consumer.subscribe("T")
                await consumer.start()
                await until(lambda: len(seen) >= 20)
                await _master_gone(pair)
                await until(lambda: len(set(seen)) == 100)
                await consumer.stop()
            at_slave = pair.slave.broker.context.offsets.query("READERS", "T", 0)
            assert at_slave == 100
            # The master comes back with what it knew when it left; the slave knows more.
            await pair.start_master()
            await until(lambda: pair.master.broker.context.offsets.query("READERS", "T", 0) == 100)
            await _fill(pair.master, 10, first=100)
            async with ClientInstance(config) as client:
                consumer = PushConsumer(
                    client, "READERS", listen, from_where=FROM_FIRST_OFFSET, suspend_ms=500
                )
                consumer.subscribe("T")
                await consumer.start()
                await until(lambda: len(set(seen)) == 110)
                await consumer.stop()
            # No loss, no rewind: every message once.
            assert sorted(seen) == sorted(b"m%d" % number for number in range(110))

    run_async(scenario())


def test_commits_go_to_the_slave_while_the_master_is_away(
    run_async: RunAsync, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with slave_pair(tmp_path) as pair:
            await _fill(pair.master, 5)
            await pair.master.pull("T")
            await pair.copied()
            await _master_gone(pair)
            answer = await pair.slave.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup="CG", topic="T", queueId=0, commitOffset=4,
            )  # fmt: skip
            assert answer.code == 0, answer.remark
            # A slave that was restarted in between still has the commit, and hands it over.
            path = tmp_path / "slave" / SLAVE_COMMITS_FILE
            await until(lambda: b"T@CG" in _content(path))
            await pair.slave.broker.stop()
            await pair.start_slave()
            assert pair.slave.broker.context.offsets.query("CG", "T", 0) == 4
            await pair.start_master()
            await pair.copied()
            # Commits that the slave got meanwhile are handed over after the tables are copied.
            await until(lambda: pair.master.broker.context.offsets.query("CG", "T", 0) == 4)
            assert pair.slave.broker.context.offsets.query("CG", "T", 0) == 4
            await until(lambda: _content(path) and b"T@CG" not in _content(path))

    run_async(scenario())
