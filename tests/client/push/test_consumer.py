"""A push consumer against rare behaviour of a broker."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.consumer import PushConsumer
from broker_core.client.push.types import ConsumeContext
from broker_core.codec.json.dialect import emit_json, parse_json
from broker_core.codec.wire.bodies.heartbeat_data import (
    BROADCASTING,
    FROM_FIRST_OFFSET,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
)
from broker_core.codec.wire.bodies.message_queue import parse_queue_map, queue_map
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, RemoteError
from broker_core.protocol_codes import RequestCode
from tests.client.queue_broker import (
    QUEUE,
    ScriptedBroker,
    ScriptedCluster,
    scripted_cluster,
    stored,
)
from tests.remoting.peers import until

Run = Callable[..., Any]
WAIT_MS = 60_000


class GroupBroker(ScriptedBroker):
    """A broker that also knows a group: its members and its progress."""

    def __init__(self, count: int, first_offset: int = 0) -> None:
        offsets = range(first_offset, first_offset + count)
        super().__init__([stored(offset) for offset in offsets], first_offset)
        self.members: list[str] = []
        self.kept: str | None = None
        self.commits: list[int] = []
        self.offset_refusal = 0
        self.handlers = {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.GET_MAX_OFFSET: lambda c: c.reply(ext={"offset": str(self.max_offset)}),
            RequestCode.GET_MIN_OFFSET: lambda c: c.reply(ext={"offset": str(self.first_offset)}),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda c: c.reply(ext={"offset": "4"}),
            RequestCode.UNREGISTER_CLIENT: lambda c: c.reply(),
        }

    def _list(self, command: RemotingCommand) -> RemotingCommand:
        if not self.members:
            return command.reply(1, "no consumer for this group")
        return command.reply(body=emit_json({"consumerIdList": self.members}))

    def _query(self, command: RemotingCommand) -> RemotingCommand:
        if self.offset_refusal:
            return command.reply(self.offset_refusal, "not now")
        if self.kept is None:
            return command.reply(22, "none")
        return command.reply(ext={"offset": self.kept})

    def _update(self, command: RemotingCommand) -> RemotingCommand:
        self.kept = command.ext["commitOffset"]
        self.commits.append(int(self.kept))
        return command.reply()


class Scene:
    """One consumer of one queue."""

    def __init__(self, found: ScriptedCluster, broker: GroupBroker, consumer: PushConsumer) -> None:
        self.client = found.client
        self.broker = broker
        self.consumer = consumer
        self.seen: list[int] = []

    async def listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        self.seen += [message.queue_offset for message in messages]

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
        """A request of the broker to the client."""
        assert self.broker.connection is not None
        command = RemotingCommand(code, ext, body)
        return await self.broker.connection.request(command, WAIT_MS)


@contextlib.asynccontextmanager
async def scene(
    broker: GroupBroker, is_listed: bool = True, **settings: Any
) -> AsyncIterator[Scene]:
    async with scripted_cluster(broker, offset_persist_interval_ms=20) as found:

        async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            await made.listen(messages, context)

        consumer = PushConsumer(
            found.client, "G", listen, **{"from_where": FROM_FIRST_OFFSET, **settings}
        )
        made = Scene(found, broker, consumer)
        if is_listed:
            broker.members = [found.client.client_id]
        consumer.subscribe("T")
        try:
            await consumer.start()
            yield made
        finally:
            await consumer.stop()


def test_progress_is_handed_over_while_running_and_at_the_end(run_async: Run) -> None:
    broker = GroupBroker(10)

    async def run() -> None:
        async with scene(broker) as found:
            await until(lambda: broker.kept == "10")
            broker.add(stored(10))
            await until(lambda: len(found.seen) == 11)
        assert sorted(found.seen) == list(range(11))
        assert broker.kept == "11"
        codes = [command.code for command in broker.seen]
        assert RequestCode.UNREGISTER_CLIENT in codes

    run_async(run())


@pytest.mark.parametrize(
    ("from_where", "first"), [(FROM_FIRST_OFFSET, 2), (FROM_LAST_OFFSET, 8), (FROM_TIMESTAMP, 4)]
)
def test_where_a_group_without_progress_starts(run_async: Run, from_where: str, first: int) -> None:
    broker = GroupBroker(6, first_offset=2)

    async def run() -> None:
        async with scene(broker, from_where=from_where, from_timestamp_ms=5) as found:
            await until(broker.pulls)
            broker.add(stored(8))
            await until(lambda: 8 in found.seen)
        assert sorted(found.seen) == list(range(first, 9))

    run_async(run())


def test_a_queue_does_not_start_at_a_guess(run_async: Run) -> None:
    """A broker that cannot report progress now does not count as one without progress."""
    broker = GroupBroker(10)
    broker.kept, broker.offset_refusal = "7", 1
    asked = RequestCode.QUERY_CONSUMER_OFFSET

    async def run() -> None:
        async with scene(broker) as found:
            await until(lambda: [c.code for c in broker.seen].count(asked) >= 2)
            assert broker.pulls() == []
            broker.offset_refusal = 0
            await until(lambda: len(found.seen) == 3)
        assert sorted(found.seen) == [7, 8, 9]

    run_async(run())


def test_a_broker_that_has_not_heard_of_this_member_is_asked_again(run_async: Run) -> None:
    broker = GroupBroker(3)

    async def run() -> None:
        async with scene(broker, is_listed=False) as found:
            broker.members = ["another client"]
            lists = RequestCode.GET_CONSUMER_LIST_BY_GROUP
            await until(lambda: [c.code for c in broker.seen].count(lists) >= 2)
            assert broker.pulls() == []
            broker.members = [found.client.client_id]
            await until(lambda: len(found.seen) == 3)
            # Now the broker drops the member: what is being consumed continues.
            broker.members = ["another client"]
            assert (await found.ask(40, consumerGroup="G")).code == 0
            broker.add(stored(3))
            await until(lambda: 3 in found.seen)
            assert QUEUE in found.consumer.rebalance.assigned

    run_async(run())


def test_another_member_takes_the_queue_and_gives_it_back(run_async: Run) -> None:
    broker = GroupBroker(3)

    async def run() -> None:
        async with scene(broker) as found:
            await until(lambda: len(found.seen) == 3)
            # The one queue belongs to the first of two members.
            broker.members = [found.client.client_id, "0.0.0.0@first"]
            await found.ask(40, consumerGroup="G")
            await until(lambda: not found.consumer.rebalance.assigned)
            await until(lambda: broker.kept == "3")
            broker.kept = "5"
            broker.add(*(stored(offset) for offset in range(3, 8)))
            broker.members = [found.client.client_id]
            await found.ask(40, consumerGroup="G")
            await until(lambda: len(found.seen) == 6)
        assert sorted(found.seen) == [0, 1, 2, 5, 6, 7], "from where the other one came to"

    run_async(run())


def test_an_offset_that_is_gone_is_corrected_and_kept(run_async: Run) -> None:
    broker = GroupBroker(5, first_offset=100)
    broker.kept = "40"

    async def run() -> None:
        async with scene(broker) as found:
            await until(lambda: len(found.seen) == 5)
        assert sorted(found.seen) == [100, 101, 102, 103, 104]
        assert broker.commits[0] == 100

    run_async(run())


def test_a_reset_starts_the_queue_again(run_async: Run) -> None:
    broker = GroupBroker(10)

    async def run() -> None:
        async with scene(broker) as found:
            await until(lambda: broker.kept == "10")
            body = emit_json({"offsetTable": queue_map({QUEUE: 4})})
            answer = await found.ask(220, body, topic="T", group="G", timestamp="0", isForce="true")
            assert answer.code == 0
            await until(lambda: len(found.seen) == 16)
            assert sorted(found.seen[10:]) == [4, 5, 6, 7, 8, 9]
            # As C++ clients get it, and of a queue that is not here.
            item = {"brokerName": "broker-a", "offset": 8, "queueId": 0, "topic": "T"}
            other = {**item, "queueId": 9}
            await found.ask(220, emit_json({"offsetTable": [item, other]}), topic="T", group="G")
            await until(lambda: len(found.seen) == 18)
            assert sorted(found.seen[16:]) == [8, 9]
            assert 4 in broker.commits

    run_async(run())


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"offsetTable":7}', b'{"offsetTable":[{"topic":"T"}]}', b"\xff{"]
)
def test_resets_that_make_no_sense_change_nothing(run_async: Run, body: bytes) -> None:
    broker = GroupBroker(3)

    async def run() -> None:
        async with scene(broker) as found:
            await until(lambda: len(found.seen) == 3)
            assert (await found.ask(220, body, topic="T", group="G")).code != 0
            broker.add(stored(3))
            await until(lambda: 3 in found.seen)
        assert sorted(found.seen) == [0, 1, 2, 3]

    run_async(run())


def test_what_brokers_ask(run_async: Run) -> None:
    broker = GroupBroker(3)

    async def run() -> None:
        async with scene(broker) as found:
            await until(lambda: broker.kept == "3")
            status = parse_json((await found.ask(221, topic="T", group="G")).body)
            assert parse_queue_map(status["messageQueueTable"]) == {QUEUE: 3}
            answer = await found.ask(307, consumerGroup="G", jstackEnable="true")
            info = parse_json(answer.body)
            [queue_info] = parse_queue_map(info["mqTable"]).values()
            assert (queue_info["commitOffset"], queue_info["droped"]) == (3, False)
            assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
            assert {s["topic"] for s in info["subscriptionSet"]} == {"T", "%RETRY%G"}
            assert "jstack" in info
            direct = await found.ask(309, stored(77), consumerGroup="G", brokerName="broker-a")
            assert parse_json(direct.body)["consumeResult"] == "CR_SUCCESS"
            assert found.seen[-1] == 77
            assert (await found.ask(309, b"junk", consumerGroup="G")).code != 0
            assert (await found.ask(307, consumerGroup="NOBODY")).code != 0

    run_async(run())


def test_broadcasting_asks_no_broker(run_async: Run) -> None:
    broker = GroupBroker(3)

    async def run() -> None:
        async with scene(broker, model=BROADCASTING) as found:
            await until(lambda: len(found.seen) == 3)
        codes = {command.code for command in broker.seen}
        assert not codes & {14, 15, 38}

    run_async(run())


def test_a_start_that_fails_leaves_nothing_behind(run_async: Run) -> None:
    broker = GroupBroker(3)

    async def run() -> None:
        async with scripted_cluster(broker) as found:

            async def listen(messages: Any, context: Any) -> None:
                raise AssertionError("never called")

            consumer = PushConsumer(found.client, "G", listen)
            with pytest.raises(InvalidArgument, match="no subscription"):
                await consumer.start()
            broker.handlers[RequestCode.CHECK_CLIENT_CONFIG] = lambda c: c.reply(23, "no SQL here")
            consumer.subscribe("T", "a >", expression_type="SQL92")
            with pytest.raises(RemoteError, match="no SQL here"):
                await consumer.start()
            assert not found.client.groups.consumers
            with pytest.raises(InvalidArgument):
                consumer.subscribe("not a topic!")

    run_async(run())
