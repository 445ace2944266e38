"""Requests and their replies, and times and their recall, through our own broker and client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_core import SyncProducer
from broker_core.broker.broker import Broker
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage, property_text
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.request_reply import reply_to
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.consumer import PushConsumer
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.heartbeat_data import FROM_FIRST_OFFSET
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, RemoteError, RequestTimeout, SystemBusy
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.runtime.clock import Clock
from tests.broker.running_broker import broker_config, until, until_registered
from tests.fakes.held_clock import HeldClock

Run = Callable[..., Any]


@contextlib.asynccontextmanager
async def our_cluster(
    tmp_path: Path, clock: Clock | None = None, **properties: str
) -> AsyncIterator[tuple[Broker, str]]:
    server = NameServer()
    name_server = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    broker = Broker(broker_config(tmp_path, namesrvAddr=name_server, **properties), clock=clock)
    await broker.start()
    try:
        await until_registered(server)
        yield broker, name_server
    finally:
        await broker.stop()
        await server.stop(50)


@contextlib.asynccontextmanager
async def replier(
    name_server: str, answer: Callable[[bytes], bytes | None]
) -> AsyncIterator[list[ReceivedMessage]]:
    """A consumer of topic T that answers what it gets."""
    seen: list[ReceivedMessage] = []
    client = ClientInstance(ClientConfig((name_server,)))
    producer = Producer(client, "replier")

    async def listen(messages: Sequence[ReceivedMessage], _: Any) -> None:
        for message in messages:
            seen.append(message)
            body = answer(message.body)
            if body is not None:
                await producer.reply(message, body, properties={"from": "us"})

    # It finds its queues when it has started: nothing that is sent by then may be passed over.
    consumer = PushConsumer(client, "CG", listen, from_where=FROM_FIRST_OFFSET)
    consumer.subscribe("T")
    async with client, producer:
        await consumer.start()
        try:
            yield seen
        finally:
            await consumer.stop()


def test_a_request_gets_its_reply(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            broker.context.topics.create_on_send("T", "TBW102", 4)
            async with (
                Producer(ClientConfig((name_server,)), "PG") as producer,
                replier(name_server, lambda body: body.upper()) as seen,
            ):
                reply = await producer.request(OutgoingMessage("T", b"ping"), timeout_ms=60_000)
                assert reply.body == b"PING"
                assert reply.topic == "DefaultCluster_REPLY_TOPIC"
                (asked,) = seen
                properties = reply.properties
                assert properties["from"] == "us"
                assert properties["MSG_TYPE"] == "reply"
                assert properties["CORRELATION_ID"] == asked.properties["CORRELATION_ID"]
                assert int(properties["PUSH_REPLY_TIME"]) > 0
                assert asked.properties["TTL"] == "60000"
                # Many at once find their own.
                replies = await asyncio.gather(
                    *(
                        producer.request(OutgoingMessage("T", b"m%d" % n), timeout_ms=60_000)
                        for n in range(50)
                    )
                )
                assert [r.body for r in replies] == [b"M%d" % n for n in range(50)]
                empty = await producer.request(OutgoingMessage("T", b"\0"), timeout_ms=60_000)
                assert empty.body == b"\0"
            store = broker.context.store
            assert store.offsets("DefaultCluster_REPLY_TOPIC", 0) == (0, 52)

    run_async(scenario())


def test_empty_replies_and_replies_that_are_not_kept(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        off = {"storeReplyMessageEnable": "false"}
        async with our_cluster(tmp_path, **off) as (broker, name_server):
            broker.context.topics.create_on_send("T", "TBW102", 4)
            async with (
                Producer(ClientConfig((name_server,)), "PG") as producer,
                replier(name_server, lambda _: b""),
            ):
                reply = await producer.request(OutgoingMessage("T", b"x"), timeout_ms=60_000)
                assert reply.body == b""
            assert broker.context.store.offsets("DefaultCluster_REPLY_TOPIC", 0) == (0, 0)

    run_async(scenario())


def test_no_answer(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with (
            our_cluster(tmp_path) as (_, name_server),
            Producer(ClientConfig((name_server,)), "PG") as producer,
        ):
            await producer.send(OutgoingMessage("T", b"first"))
            said = ""
            # On a machine that stands still, the time may be over before the request was sent.
            while "no reply came within 1500 ms" not in said:
                with pytest.raises(RequestTimeout) as told:
                    await producer.request(OutgoingMessage("T", b"x"), timeout_ms=1_500)
                said = str(told.value)
            with pytest.raises(InvalidArgument, match="cannot be a request"):
                await producer.request(OutgoingMessage("T", b"x", delay_ms=5))

    run_async(scenario())


def test_a_late_reply_and_one_without_a_requester(
    tmp_path: Path, run_async: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            broker.context.topics.create_on_send("T", "TBW102", 4)
            async with replier(name_server, lambda _: None) as seen:
                async with Producer(ClientConfig((name_server,)), "PG") as producer:
                    # Connected before the clock of the request runs.
                    await producer.send(OutgoingMessage("T", b"first"))
                    # On a machine that stands still, one may time out before it was sent.
                    asked = None
                    while asked is None:
                        with pytest.raises(RequestTimeout) as told:
                            await producer.request(OutgoingMessage("T", b"x"), timeout_ms=1_000)
                        if "no reply came" in str(told.value):
                            await until(lambda: any(message.body == b"x" for message in seen))
                            asked = next(message for message in seen if message.body == b"x")
                    # The requester still works.
                    with caplog.at_level(logging.INFO):
                        await producer.reply(asked, b"late")
                    assert caplog.text.count("a reply came too late") == 1
                async with Producer(ClientConfig((name_server,)), "PG2") as other:
                    with pytest.raises(RemoteError, match="not found") as refused:
                        await other.reply(asked, b"too late")
                    assert refused.value.code == ResponseCode.SYSTEM_ERROR

    run_async(scenario())


def test_replies_that_a_broker_refuses(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with (
            our_cluster(tmp_path) as (broker, name_server),
            ClientInstance(ClientConfig((name_server,))) as client,
        ):
            fields = {
                "producerGroup": "PG", "topic": "DefaultCluster_REPLY_TOPIC",
                "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
                "sysFlag": "0", "bornTimestamp": "5", "flag": "0", "properties": "",
            }  # fmt: skip
            for properties, text in (
                ("", "REPLY_TO_CLIENT"),
                ("REPLY_TO_CLIENT\x01nobody\x02", "channel of <nobody> not found"),
            ):
                answer = await client.remoting.request(
                    broker.address,
                    RemotingCommand(
                        RequestCode.SEND_REPLY_MESSAGE, {**fields, "properties": properties}
                    ),
                    60_000,
                )
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert text in (answer.remark or "")

    run_async(scenario())


def test_a_message_that_expects_no_reply() -> None:
    record = MessageRecord("T", 0, b"x", b"CLUSTER\x01C\x02")
    with pytest.raises(InvalidArgument, match="expects no reply"):
        reply_to(ReceivedMessage(record, MessageQueue("T", "b", 0)), b"y", {})


def test_the_inbox_has_a_limit(run_async: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker_core.client.produce.reply_inbox.WAITING_MAX", 1)

    async def scenario() -> None:
        client = ClientInstance(ClientConfig(("127.0.0.1:1",)))
        with (
            client.replies.expect("id", 5),
            pytest.raises(SystemBusy, match="wait for their replies"),
            client.replies.expect("id", 5),
        ):
            pass
        with client.replies.expect("id", 5):
            pass

    run_async(scenario())


# Times


def test_a_message_with_a_time_and_its_recall(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        clock = HeldClock()
        async with our_cluster(tmp_path, clock) as (broker, name_server):
            broker.context.topics.create_on_send("T", "TBW102", 1)
            timers = broker.features.scheduled.timers
            async with Producer(ClientConfig((name_server,)), "PG") as producer:
                at_ms = clock.wall_ms() + 400
                first, second = await asyncio.gather(
                    producer.send(OutgoingMessage("T", b"1", deliver_at_ms=at_ms)),
                    producer.send(OutgoingMessage("T", b"2", delay_ms=60_000)),
                )
                assert first.recall_handle
                result = await producer.recall("T", second.recall_handle)
                assert result == (second.msg_id, True)
                store = broker.context.store
                assert store.offsets("T", 0) == (0, 0)
                clock.advance(500)
                await until(lambda: store.offsets("T", 0) == (0, 1))
                assert timers.pending_by_topic == {}
                (record,) = store.get("T", 0, 0).messages()
                assert (record.body, record.store_timestamp >= at_ms) == (b"1", True)
                with pytest.raises(RemoteError, match="timestamp invalid"):
                    await producer.recall("T", first.recall_handle)
                with pytest.raises(InvalidArgument, match="belongs to topic T, not to U"):
                    await producer.recall("U", first.recall_handle)
                with pytest.raises(InvalidArgument, match="recall handle is invalid"):
                    await producer.recall("T", "nonsense")
                with pytest.raises(RemoteError, match="timerMaxDelaySec"):
                    await producer.send(OutgoingMessage("T", b"3", delay_ms=1 << 40))

    run_async(scenario())


def test_many_sends_with_times_are_not_put_into_batches(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            broker.context.topics.create_on_send("T", "TBW102", 1)
            async with Producer(ClientConfig((name_server,)), "PG") as producer:
                named = {"TIMER_DELAY_MS": "60000"}
                results = await asyncio.gather(
                    *(producer.send("T", b"x", properties=named) for _ in range(100)),
                    *(producer.send(OutgoingMessage("T", b"x", delay_ms=9_999)) for _ in range(50)),
                )
                assert all(result.recall_handle for result in results)
                await until(lambda: broker.features.scheduled.timers.pending_count == 150)

    run_async(scenario())


def test_the_sync_faces(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            broker.context.topics.create_on_send("T", "TBW102", 1)

            def work() -> tuple[bytes, bool]:
                with SyncProducer(name_server) as producer:
                    sent = producer.send(OutgoingMessage("T", b"later", delay_ms=60_000))
                    recalled = producer.recall("T", sent.recall_handle)
                    reply = producer.request(OutgoingMessage("T", b"ping"), timeout_ms=60_000)
                    return reply.body, recalled.is_confirmed

            async with replier(name_server, lambda body: body + b"!"):
                loop = asyncio.get_running_loop()
                assert await loop.run_in_executor(None, work) == (b"ping!", True)

    run_async(scenario())


@pytest.mark.parametrize(
    "fields",
    [
        {"deliver_at_ms": 5, "delay_ms": 5},
        {"delay_level": 1, "delay_ms": 5},
        {"delay_ms": -1},
        {"delay_ms": 1.5},
        {"deliver_at_ms": "5"},
        {"deliver_at_ms": True},
        {"deliver_at_ms": 1 << 62},
    ],
)
def test_times_that_are_none(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        property_text(OutgoingMessage("T", b"x", **fields), "id")


def test_how_times_travel() -> None:
    plain = "UNIQ_KEY\x01id\x02WAIT\x01true\x02"
    at = OutgoingMessage("T", b"x", deliver_at_ms=17)
    assert property_text(at, "id") == plain + "TIMER_DELIVER_MS\x0117\x02"
    assert property_text(OutgoingMessage("T", b"x", delay_ms=0), "id") == (
        plain + "TIMER_DELAY_MS\x010\x02"
    )
    assert at.has_time
    assert not OutgoingMessage("T", b"x", properties={"a": "b"}).has_time
