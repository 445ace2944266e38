"""A slave's copy of its master's tables: what is copied, when, and what is never reverted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.broker.replication.metadata_copy import (
    SLAVE_COMMITS_FILE,
    CopiedTables,
    SlaveMetadata,
)
from broker_core.broker.scheduled.delay_progress import DELAY_OFFSETS_FILE
from broker_core.broker.transactions.progress import TRANSACTION_PROGRESS_FILE
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.wire.bodies.sink_messages import BATCH_NOTE, BatchIdentity, SinkNote
from broker_core.codec.wire.topic_name import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC
from broker_core.errors import InvalidArgument, RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.runtime.clock import SystemClock
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.writes.message import Message
from tests.broker.running_broker import Asker, broker_config
from tests.patient_client import patient_client
from tests.remoting.peers import until


class Copied:
    """A master, and the tables of a slave beside a log that tests fill by hand."""

    def __init__(self, master: Asker, slave: Asker, metadata: SlaveMetadata, root: Path) -> None:
        self.master = master
        self.slave = slave
        self.metadata = metadata
        self.root = root

    async def fill(self, *sides: Asker, count: int = 5, topic: str = "T") -> None:
        """The same messages in one or both logs, queue 0."""
        for side in sides:
            for _ in range(count):
                answer = await side.send(topic)
                assert answer.code == 0, answer.remark

    def table(self, name: str) -> Any:
        with contextlib.closing(PosixFileSystem(str(self.root / "slave"))) as disk:
            return JsonTable(disk, name).load()


@contextlib.asynccontextmanager
async def copied(tmp_path: Path) -> AsyncIterator[Copied]:
    master = Broker(broker_config(tmp_path / "master"))
    slave = Broker(broker_config(tmp_path / "slave"))
    client = patient_client()
    disk = PosixFileSystem(str(tmp_path / "slave"))
    await master.start()
    await slave.start()
    context, features = slave.context, slave.features
    # Not this broker's own: it is a master, for tests that write its log by hand.
    features.scheduled.delayed.stop()
    features.transactions.service.stop()
    tables = CopiedTables(
        context.topics, context.groups, context.offsets, features.sink.batches, context.modes,
        context.identity,
        JsonTable(disk, DELAY_OFFSETS_FILE), JsonTable(disk, TRANSACTION_PROGRESS_FILE),
        JsonTable(disk, SLAVE_COMMITS_FILE),
    )  # fmt: skip
    metadata = SlaveMetadata(
        broker_name="broker-a", store=context.store, tables=tables,
        master_address=lambda: master.address, log_id=lambda: "another log", clock=SystemClock(),
    )  # fmt: skip
    # What `start` does, without the timer.
    context.offsets.changes_since(context.offsets.change_count)
    metadata._committed_here = context.offsets.change_count
    try:
        yield Copied(Asker(master, client), Asker(slave, client), metadata, tmp_path)
    finally:
        await metadata.stop()
        await client.close()
        await slave.stop()
        await master.stop()
        disk.close()


@pytest.fixture
def scenario(run_async: Callable[..., Any], tmp_path: Path) -> Callable[..., None]:
    """Run a test with a fresh pair."""

    def run(test: Callable[[Copied], Any]) -> None:
        async def body() -> None:
            async with copied(tmp_path) as pair:
                await test(pair)

        run_async(body())

    return run


async def _commit(side: Asker, offset: int, group: str = "CG", topic: str = "T") -> None:
    answer = await side.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup=group, topic=topic, queueId=0, commitOffset=offset,
    )  # fmt: skip
    assert answer.code == 0, answer.remark


async def _group(side: Asker, name: str = "CG") -> None:
    await side.pull(consumerGroup=name)


def _offset(side: Asker, group: str = "CG", topic: str = "T") -> int | None:
    return side.broker.context.offsets.query(group, topic, 0)


def test_topics_and_groups_become_the_masters(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        await pair.master.make_topic("Orders", queues=3)
        await pair.slave.make_topic("Extra")
        await _group(pair.master, "READERS")
        await pair.metadata.copy_once()
        ours, theirs = pair.slave.broker.context, pair.master.broker.context
        assert ours.topics.all() == theirs.topics.all()
        assert ours.topics.version == theirs.topics.version
        assert ours.groups.all() == theirs.groups.all()
        assert ours.topics.find("Extra") is None
        # A change of the master, and one that a consumer made here, are both seen.
        await pair.master.make_topic("Orders", queues=5)
        await _group(pair.slave, "CAME_HERE")
        await pair.metadata.copy_once()
        orders = ours.topics.find("Orders")
        assert orders is not None and orders.read_queue_count == 5
        assert ours.groups.find("CAME_HERE") is None

    scenario(test)


def test_modes_of_groups_are_copied(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        await pair.master.make_topic("T")
        body = b'{"consumerGroup":"g","mode":"POP","popShareQueueNum":3,"topic":"T"}'
        assert (await pair.master.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body)).code == 0
        await pair.metadata.copy_once()
        assert pair.slave.broker.context.modes.find("T", "g") == ("POP", 3)
        # As Apache's slaves ask for it, and as our slave of an Apache master does.
        answer = await pair.master.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        groups = parse_json(bytes(answer.body))["messageRequestModeMap"]["T"]
        assert groups == {"g": parse_json(body)}
        assert (await pair.master.ask(401, body.replace(b"POP", b"PULL"))).code == 0
        pair.metadata._is_apache = True
        await pair.metadata.copy_once()
        assert pair.slave.broker.context.modes.find("T", "g") == ("PULL", 3)

    scenario(test)


def test_nothing_is_sent_twice(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        await pair.fill(pair.master, pair.slave)
        await _group(pair.master)
        await _commit(pair.master, 2)
        tokens: dict[str, Any] = {}
        for expected in (True, False):
            answer = await pair.master.ask(29920, brokerName="broker-a", **tokens)
            assert answer.code == 0
            tokens = {name: text for name, text in answer.ext.items() if name != "logId"}
            assert bool(parse_json(bytes(answer.body))) is expected
        await _commit(pair.master, 3)
        answer = await pair.master.ask(29920, brokerName="broker-a", **tokens)
        content = parse_json(bytes(answer.body))
        assert list(content) == ["offsets"]
        assert content["offsets"]["offsetTable"] == {"T@CG": {"0": 3}}

    scenario(test)


def test_offsets_go_forward_only_and_follow_a_reset(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        await pair.fill(pair.master, pair.slave)
        await _group(pair.master)
        await _commit(pair.master, 4)
        await pair.metadata.copy_once()
        assert _offset(pair.slave) == 4
        # A master that lost its last seconds knows less; here that is no reason to go back.
        pair.master.broker.context.offsets._groups["CG"]["T"][0] = 2
        pair.metadata._tokens.pop("offsets")
        await pair.metadata.copy_once()
        assert _offset(pair.slave) == 4
        # Read by a request: that counts as one.
        pair.master.broker.context.offsets.reset("CG", "T", 0, 1)
        await pair.metadata.copy_once()
        assert _offset(pair.slave) == 1

    scenario(test)


def test_offsets_wait_for_the_log(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        await pair.fill(pair.master, count=6)
        await pair.fill(pair.slave, count=2)
        await _group(pair.master)
        await _commit(pair.master, 5)
        await pair.metadata.copy_once()
        assert _offset(pair.slave) == 2
        await pair.fill(pair.slave, count=4)
        # Nothing changed at the master, and still.
        await pair.metadata.copy_once()
        assert _offset(pair.slave) == 5

    scenario(test)


def test_commits_at_the_slave_reach_a_master_that_is_back(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        await pair.fill(pair.master, pair.slave)
        await _group(pair.master)
        await _commit(pair.master, 1)
        await pair.metadata.copy_once()
        await _commit(pair.slave, 4)
        await pair.metadata.copy_once()
        assert (_offset(pair.master), _offset(pair.slave)) == (4, 4)
        # And is not notified again, when the group has gone on at the master and was reset there.
        pair.master.broker.context.offsets.reset("CG", "T", 0, 0)
        await pair.metadata.copy_once()
        assert (_offset(pair.master), _offset(pair.slave)) == (0, 0)

    scenario(test)


def test_delay_progress_waits_for_the_log(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        await pair.fill(pair.master)
        delayed = pair.master.broker.features.scheduled.delayed
        assert delayed._progress is not None
        delayed._progress.advance(0, 3)
        before = pair.table(DELAY_OFFSETS_FILE)
        await pair.metadata.copy_once()
        assert pair.table(DELAY_OFFSETS_FILE) == before
        store = pair.slave.broker.context.store
        while store.log_range[1] < pair.master.broker.context.store.log_range[1]:
            await pair.fill(pair.slave, count=1)
        store.flush()
        await pair.metadata.copy_once()
        found = pair.table(DELAY_OFFSETS_FILE)
        assert found["offsetTable"] == {"1": 3}
        assert found["storeId"] == store.store_id

    scenario(test)


def test_ended_transactions_wait_for_the_log(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        half, group = TRANSACTION_HALF_TOPIC, TRANSACTION_GROUP
        ours, theirs = pair.slave.broker.context, pair.master.broker.context
        for member in (ours, theirs):
            for number in range(3):
                member.store.append(Message(half, b"half %d" % number, queue_id=0))
        await until(lambda: theirs.store.offsets(half, 0)[1] == ours.store.offsets(half, 0)[1] == 3)
        # Their ends are behind them in the master's log, and not here yet.
        await pair.fill(pair.master)
        theirs.offsets.reset(group, half, 0, 3)
        await pair.metadata.copy_once()
        await pair.metadata.copy_once()
        assert ours.offsets.query(group, half, 0) is None
        await pair.fill(pair.slave)
        while ours.store.log_range[1] < theirs.store.log_range[1]:
            await pair.fill(pair.slave, count=1)
        ours.store.flush()
        await pair.metadata.copy_once()
        assert ours.offsets.query(group, half, 0) == 3

    scenario(test)


def test_sinks_are_copied_and_settled(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        theirs = pair.master.broker.features.sink.batches
        ours = pair.slave.broker.features.sink.batches
        identity = BatchIdentity("s", 7, "run", "content", "", False)
        theirs.enter(SinkNote(BATCH_NOTE, identity), 0, 100, 200, 1)
        await pair.metadata.copy_once()
        assert ours.status("s") == theirs.status("s")
        assert ours.status("s").batch == 7
        # The log here never got that batch: once this broker decides, it was not published.
        await pair.metadata.finish()
        assert ours.status("s").batch == -1

    scenario(test)


def test_topics_that_only_the_log_knows(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        await pair.fill(pair.slave, topic="Late")
        topics = pair.slave.broker.context.topics
        await pair.metadata.copy_once()
        assert topics.find("Late") is None
        await pair.metadata.finish()
        found = topics.find("Late")
        assert found is not None and found.read_queue_count == 1

    scenario(test)


def test_a_deleted_topic_goes_with_its_messages_only_if_the_log_is_the_same(
    scenario: Callable[..., None],
) -> None:
    async def test(pair: Copied) -> None:
        await pair.fill(pair.master, pair.slave)
        await pair.metadata.copy_once()
        await pair.master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        await pair.metadata.copy_once()
        slave = pair.slave.broker.context
        assert slave.topics.find("T") is None
        assert slave.store.offsets("T", 0) == (0, 5)
        await pair.fill(pair.master)
        await pair.metadata.copy_once()
        same = pair.master.broker.role.history.current
        assert same is not None
        pair.metadata._log_id = lambda: same.owner
        await pair.master.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        await pair.metadata.copy_once()
        assert slave.store.offsets("T", 0) == (5, 5)

    scenario(test)


def test_a_master_of_another_name_is_refused(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        answer = await pair.master.ask(29920, brokerName="broker-b")
        assert answer.code != 0 and "broker-b" in (answer.remark or "")
        pair.metadata._broker_name = "broker-b"
        with pytest.raises((RemoteError, InvalidArgument)):
            await pair.metadata.copy_once()

    scenario(test)


def test_what_a_slave_of_apache_asks_for(scenario: Callable[..., None]) -> None:
    async def test(pair: Copied) -> None:
        await pair.fill(pair.master)
        await _group(pair.master)
        await _commit(pair.master, 3)
        delayed = pair.master.broker.features.scheduled.delayed
        assert delayed._progress is not None
        delayed._progress.advance(2, 0)
        for code, field, expected in (
            (43, "offsetTable", {"T@CG": {"0": 3}}),
            (45, "offsetTable", {"3": 0}),
            (61, "timingCount", {}),
            (402, "messageRequestModeMap", {}),
        ):
            answer = await pair.master.ask(code)
            assert answer.code == ResponseCode.SUCCESS
            assert parse_json(bytes(answer.body))[field] == expected
        for code, field in ((21, "topicConfigTable"), (201, "subscriptionGroupTable")):
            answer = await pair.master.ask(code)
            assert answer.code == ResponseCode.SUCCESS and field in parse_json(bytes(answer.body))

    scenario(test)
