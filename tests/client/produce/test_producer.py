"""A producer against every kind of answer: what counts as sent, and what is retried."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.result import SendResult, SendStatus
from broker_core.codec.records.compression import decompress_body
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    InvalidArgument,
    MessageTooLarge,
    NoPermission,
    NotAcknowledged,
    RemoteError,
    RequestTimeout,
    RmqError,
    SystemBusy,
    TopicNotExist,
    UnexpectedAnswer,
)
from tests.client.scripted_brokers import (
    HANG_UP,
    SILENCE,
    ScriptedCluster,
    scripted_cluster,
)
from tests.fakes.held_clock import StoppedClock
from tests.fakes.manual_clock import ManualClock
from tests.remoting.peers import until

M = OutgoingMessage
PATIENCE_MS = 60_000


@contextlib.asynccontextmanager
async def sending(
    *names: str, config: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[ScriptedCluster, Producer]]:
    """A cluster and a producer of it."""
    async with (
        scripted_cluster(*names) as cluster,
        Producer(cluster.config(**(config or {})), "PG", **options) as producer,
    ):
        yield cluster, producer


def test_a_send_says_where_the_message_is(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending() as (cluster, producer):
            result = await producer.send("T", b"hello", tags="A", keys="k", properties={"x": "y"})
            assert result.status is SendStatus.SEND_OK
            assert (result.queue.topic, result.queue.broker_name) == ("T", "broker-a")
            assert result.queue_offset == 0
            [command] = cluster.broker.sends
            assert command.body == b"hello"
            found = cluster.broker.properties()
            assert found["UNIQ_KEY"] == result.msg_id
            assert (found["TAGS"], found["KEYS"], found["x"]) == ("A", "k", "y")

    run_async(scenario())


def test_queues_are_used_in_turn(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending("broker-a", "broker-b") as (_, producer):
            results = [await producer.send("T", b"x") for _ in range(8)]
            assert len({result.queue for result in results}) == 8

    run_async(scenario())


def test_only_send_ok_is_success(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending() as (cluster, producer):
            statuses = {10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE"}
            for code, name in {**statuses, 12: "FLUSH_SLAVE_TIMEOUT"}.items():
                cluster.broker.script.append(code)
                with pytest.raises(NotAcknowledged, match=name) as caught:
                    await producer.send("T", b"x")
                assert isinstance(caught.value.result, SendResult)
                assert caught.value.result.status.value == name
                assert caught.value.retriable
        accepted = {SendStatus.SLAVE_NOT_AVAILABLE}
        async with sending(accept_statuses=accepted) as (cluster, producer):
            cluster.broker.script.extend([11, 12])
            assert (await producer.send("T", b"x")).status is SendStatus.SLAVE_NOT_AVAILABLE
            with pytest.raises(NotAcknowledged):
                await producer.send("T", b"x")

    run_async(scenario())


@pytest.mark.parametrize("failure", [1, 14, 16, 17, 204, 205, 1500, HANG_UP])
def test_another_broker_is_tried_with_the_same_id(
    run_async: Callable[..., Any], failure: int | str
) -> None:
    async def scenario() -> None:
        # A broker that failed is left out for some seconds, by a clock that stands still here.
        async with (
            scripted_cluster("broker-a", "broker-b") as cluster,
            ClientInstance(cluster.config(), clock=ManualClock()) as client,
            Producer(client, "PG") as producer,
        ):
            bad, good = cluster.brokers
            bad.always = failure
            for _ in range(8):
                result = await producer.send("T", b"x")
                assert result.queue.broker_name == "broker-b"
            # One send finds out; the others go where it works.
            assert len(bad.sends) == 1
            ids = [good.properties(number)["UNIQ_KEY"] for number in range(8)]
            assert ids.count(bad.properties()["UNIQ_KEY"]) == 1

    run_async(scenario())


@pytest.mark.parametrize(
    ("code", "kind"), [(13, RemoteError), (26, RemoteError), (29, RemoteError), (3, RemoteError)]
)
def test_other_refusals_are_final(
    run_async: Callable[..., Any], code: int, kind: type[RmqError]
) -> None:
    async def scenario() -> None:
        async with sending("broker-a", "broker-b") as (cluster, producer):
            for broker in cluster.brokers:
                broker.always = code
            with pytest.raises(kind, match=rf"topic T at broker-.: refused with {code}"):
                await producer.send("T", b"x")
            assert len(cluster.sends()) == 1

    run_async(scenario())


def test_retries_end(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending("broker-a", "broker-b", retries=2) as (cluster, producer):
            for broker in cluster.brokers:
                broker.always = 16
            with pytest.raises(NoPermission, match="topic T"):
                await producer.send("T", b"x")
            assert len(cluster.sends()) == 3
        async with sending(retries=0) as (cluster, producer):
            cluster.broker.always = 17
            with pytest.raises(TopicNotExist):
                await producer.send("T", b"x")
            assert len(cluster.sends()) == 1

    run_async(scenario())


def test_a_named_queue_is_tried_once(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending("broker-a", "broker-b") as (cluster, producer):
            queue = MessageQueue("T", "broker-a", 3)
            result = await producer.send("T", b"x", queue=queue)
            assert result.queue == queue
            cluster.broker.always = HANG_UP
            with pytest.raises(ConnectionLost, match="may be stored"):
                await producer.send("T", b"x", queue=queue)
            assert len(cluster.sends()) == 2
            with pytest.raises(BrokerNotExist, match="elsewhere"):
                await producer.send("T", b"x", queue=MessageQueue("T", "elsewhere", 0))
            with pytest.raises(InvalidArgument, match="topic Other"):
                producer.send("T", b"x", queue=MessageQueue("Other", "broker-a", 0))

    run_async(scenario())


def test_a_busy_broker_gets_time(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending(retries=0) as (cluster, producer):
            cluster.broker.script.extend([2] * 5)
            result = await producer.send("T", b"x")
            assert result.status is SendStatus.SEND_OK
            assert len(cluster.broker.sends) == 6
            assert len({send.ext["i"] for send in cluster.broker.sends}) == 1

    run_async(scenario())


def test_a_broker_that_stays_busy_until_the_deadline(run_async: Callable[..., Any]) -> None:
    clock = StoppedClock()

    def busy_at_the_deadline(command: RemotingCommand) -> RemotingCommand:
        clock.advance(PATIENCE_MS)
        return command.reply(2, "refused with 2")

    async def scenario() -> None:
        async with (
            scripted_cluster() as cluster,
            ClientInstance(cluster.config(), clock=clock) as client,
            Producer(client, "PG", retries=0) as producer,
        ):
            cluster.broker.script.extend([2, 2, busy_at_the_deadline])
            with pytest.raises(SystemBusy, match="topic T at broker-a"):
                await producer.send("T", b"x", timeout_ms=PATIENCE_MS)
            assert len(cluster.broker.sends) == 3

    run_async(scenario())


def test_the_window_shrinks_under_refusals_and_grows_again(run_async: Callable[..., Any]) -> None:
    clock = StoppedClock()

    async def scenario() -> None:
        async with (
            scripted_cluster() as cluster,
            ClientInstance(cluster.config(), clock=clock) as client,
            Producer(client, "PG", in_flight_max=64, coalesce=False) as producer,
        ):
            # It shrinks again only after a pause, which a stopped clock makes certain.
            clock.advance(1_000)
            cluster.broker.script.extend([2] * 20)
            results = await asyncio.gather(*(producer.send("T", b"x") for _ in range(300)))
            assert len(results) == 300
            assert producer._engine._window == 64
            clock.advance(1_000)
            cluster.broker.script.extend([2])
            await producer.send("T", b"x")
            assert producer._engine._window == 33, "halved, and one success"

    run_async(scenario())


def test_silence_ends_with_the_timeout(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending() as (cluster, producer):
            await producer.send("T", b"x")
            cluster.broker.always = SILENCE
            left = len(cluster.broker.sends)
            # On a machine that stands still, its time may be over before it has left.
            while len(cluster.broker.sends) == left:
                with pytest.raises(RequestTimeout) as told:
                    await producer.send("T", b"x", timeout_ms=100)
            assert "may be stored" in str(told.value)

    run_async(scenario())


def test_a_broker_that_is_away(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending("broker-a", "broker-b") as (cluster, producer):
            await producer.publish_queues("T")
            await cluster.brokers[0].stop()
            results = [await producer.send("T", b"x") for _ in range(6)]
            assert {result.queue.broker_name for result in results} == {"broker-b"}
            await cluster.brokers[1].stop()
            with pytest.raises(ConnectionLost) as caught:
                await producer.send("T", b"x")
            assert "may be stored" not in str(caught.value)
            # Both come back at their ports, and are found without a new route.
            for broker in cluster.brokers:
                await broker.start()

            async def works() -> bool:
                with contextlib.suppress(RmqError):
                    return bool(await producer.send("T", b"x"))
                return False

            while not await works():
                pass

    run_async(scenario())


def test_no_name_server_no_topic(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending() as (cluster, producer):
            with pytest.raises(TopicNotExist, match="does not exist"):
                await producer.send("Unknown", b"x")
            await producer.send("T", b"x")
            await cluster.server.stop(50)
            await producer.send("T", b"x")
            with pytest.raises(ConnectionLost, match="name servers"):
                await producer.send("Another", b"x")

    run_async(scenario())


def test_a_new_topic_is_made_by_the_first_send(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        template = (TopicConfig("TBW102", 8, 8, 7),)
        async with (
            scripted_cluster(topics=template) as cluster,
            Producer(cluster.config(), "PG") as producer,
        ):
            result = await producer.send("New", b"x")
            assert result.queue.queue_id < 4
            [command] = cluster.broker.sends
            assert (command.ext["c"], command.ext["d"]) == ("TBW102", "4")

    run_async(scenario())


def test_large_bodies_are_compressed_and_too_large_ones_refused(
    run_async: Callable[..., Any],
) -> None:
    async def scenario() -> None:
        async with sending(config={"body_size_max": 10_000}) as (cluster, producer):
            await producer.send("T", b"a" * 4_095)
            await producer.send("T", b"a" * 4_096)
            await producer.send("T", b"")
            plain, packed, empty = cluster.broker.sends
            assert (plain.ext["f"], len(plain.body)) == ("0", 4_095)
            assert packed.ext["f"] == "1"
            assert decompress_body(packed.body, 1, 10_000) == b"a" * 4_096
            assert decompress_body(empty.body, int(empty.ext["f"]), 10) == b""
            await producer.send("T", b"a" * 10_000)
            with pytest.raises(MessageTooLarge, match="10001 bytes is over the limit of 10000"):
                producer.send("T", b"a" * 10_001)
            # Compression that gains nothing is left out.
            await producer.send("T", bytes(range(256)) * 2 + b"")
        async with sending(config={"compress_from_size": 0}) as (cluster, producer):
            await producer.send("T", b"a" * 5_000)
            assert cluster.broker.sends[0].ext["f"] == "0"

    run_async(scenario())


def test_bad_arguments_are_raised_at_once(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending() as (cluster, producer):
            for topic in ("", "a b", "x" * 128, "../x", "ä"):
                with pytest.raises(InvalidArgument, match="topic"):
                    producer.send(topic, b"x")
            with pytest.raises(InvalidArgument, match="encode the text"):
                producer.send("T", "text")  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="flag"):
                producer.send(M("T", b"x", flag=1 << 40))
            with pytest.raises(InvalidArgument, match="sharding_key"):
                producer.send_ordered(M("T", b"x"))
            assert not cluster.broker.sends
        with pytest.raises(InvalidArgument, match="not started"):
            producer.send("T", b"x")

    run_async(scenario())


def test_batches_are_stored_as_a_whole(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending() as (cluster, producer):
            results = await producer.send_batch([M("T", b"%d" % n, "A") for n in range(3)])
            assert [result.queue_offset for result in results] == [0, 1, 2]
            assert len({result.msg_id for result in results}) == 3
            assert len({result.offset_msg_id for result in results}) == 3
            [command] = cluster.broker.sends
            assert command.code == 320
            cluster.broker.script.append(12)
            with pytest.raises(NotAcknowledged) as caught:
                await producer.send_batch([M("T", b"x"), M("T", b"y")])
            assert isinstance(caught.value.result, tuple)

    run_async(scenario())


def test_batches_that_cannot_be(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending(config={"body_size_max": 1_000}) as (cluster, producer):
            for messages, words in (
                ([], "at least one"),
                ([M("T", b"x"), M("U", b"x")], "topics T and U"),
                ([M("T", b"x", delay_level=1)], "delayed"),
                ([M("%RETRY%g", b"x")], "retry"),
            ):
                with pytest.raises(InvalidArgument, match=words):
                    producer.send_batch(messages)
            with pytest.raises(MessageTooLarge, match="batch of 2 messages"):
                producer.send_batch([M("T", b"x" * 500)] * 2)
            assert not cluster.broker.sends

    run_async(scenario())


def test_messages_of_a_key_are_stored_in_order(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending("broker-a", "broker-b") as (cluster, producer):
            for broker in cluster.brokers:
                broker.script.extend([2, 0, 2, 2])
            sends = [producer.send_ordered(M("T", b"%d" % n), f"k{n % 3}") for n in range(60)]
            results = await asyncio.gather(*sends)
            for key in range(3):
                mine = [result for n, result in enumerate(results) if n % 3 == key]
                assert len({result.queue for result in mine}) == 1
                offsets = [result.queue_offset for result in mine]
                assert offsets == sorted(offsets)
            assert cluster.sends()[0].ext["i"].count("__SHARDINGKEY") == 1

    run_async(scenario())


def test_one_that_fails_does_not_stop_the_lane(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending() as (cluster, producer):
            cluster.broker.script.extend([0, 13, 0])
            sends = [producer.send_ordered(M("T", b"%d" % n), "k") for n in range(4)]
            cancelled = producer.send_ordered(M("T", b"never"), "k")
            cancelled.cancel()
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert [isinstance(one, SendResult) for one in results] == [True, False, True, True]
            await producer.flush()
            assert [bytes(send.body) for send in cluster.broker.sends] == [b"0", b"1", b"2", b"3"]

    run_async(scenario())


def test_oneway_waits_for_nothing(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending() as (cluster, producer):
            await producer.send_oneway(M("T", b"x"))
            await producer.send_oneway(M("T", b"y", sharding_key="k"))
            await until(lambda: len(cluster.broker.sends) == 2)
            assert all(send.is_oneway for send in cluster.broker.sends)
            with pytest.raises(TopicNotExist):
                await producer.send_oneway(M("Unknown", b"x"))

    run_async(scenario())


def test_hostile_answers_are_errors_of_one_send(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending() as (cluster, producer):
            broker = cluster.broker

            def without_fields(command: RemotingCommand) -> RemotingCommand:
                return command.reply(0)

            def with_garbage(command: RemotingCommand) -> RemotingCommand:
                ext = {"msgId": "x" * 9_999, "queueId": "9" * 400, "queueOffset": "NaN"}
                return command.reply(0, ext=ext)

            broker.script.extend([without_fields, with_garbage])
            for _ in range(2):
                with pytest.raises(UnexpectedAnswer, match="broker-a"):
                    await producer.send("T", b"x")
            assert (await producer.send("T", b"x")).status is SendStatus.SEND_OK
            assert len(broker.sends) == 3, "such an answer means stored: no retry"

    run_async(scenario())


def test_too_many_waiting_sends_are_refused(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        limits = {"in_flight_max": 4, "waiting_max": 6, "coalesce": False}
        async with sending(**limits) as (_, producer):
            await producer.send("T", b"x")
            sends = [producer.send("T", b"x") for _ in range(10)]
            with pytest.raises(SystemBusy, match="waiting_max 6"):
                producer.send("T", b"x")
            assert len(await asyncio.gather(*sends)) == 10
            await producer.send("T", b"x")
        async with sending(in_flight_max=1, waiting_size_max=2_000, coalesce=False) as (_, p):
            await p.send("T", b"x")
            sends = [p.send("T", b"x" * 800), p.send("T", b"x" * 800)]
            with pytest.raises(SystemBusy, match="waiting_size_max 2000"):
                p.send("T", b"x" * 800)
            await asyncio.gather(*sends)

    run_async(scenario())


def test_a_cancelled_send_frees_its_place(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with sending(in_flight_max=1, coalesce=False) as (cluster, producer):
            await producer.send("T", b"x")
            cluster.broker.script.append(SILENCE)
            held = producer.send("T", b"x", timeout_ms=200)
            following = producer.send("T", b"y")
            waiting = producer.send("T", b"z")
            waiting.cancel()
            held.cancel()
            assert (await following).status is SendStatus.SEND_OK
            await producer.flush()
            assert producer._engine.unfinished == 0

    run_async(scenario())


def test_stopping_ends_every_send(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            producer = Producer(cluster.config(), "PG", in_flight_max=3, coalesce=False)
            await producer.start()
            cluster.broker.always = SILENCE
            sends = [producer.send("T", b"x") for _ in range(6)]
            sends += [producer.send_ordered(M("T", b"x"), "k") for _ in range(3)]
            await until(lambda: len(cluster.broker.sends) == 3)
            await producer.stop(wait_ms=20)
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(result) for result in results} == {ConnectionLost}
            assert cluster.broker.farewells[-1]["producerGroup"] == "PG"
            await producer.stop()

    run_async(scenario())


def test_a_full_connection_keeps_the_order(run_async: Callable[..., Any]) -> None:
    # A send that waits for room, a route or the connection is not overtaken by later ones.
    async def scenario() -> None:
        async with sending(config={"compress_from_size": 0}) as (cluster, producer):
            queue = MessageQueue("T", "broker-a", 0)
            sent = []
            for number in range(300):
                sent.append(producer.send("T", b"%d " % number + bytes(100_000), queue=queue))
                await asyncio.sleep(0)
            await asyncio.gather(*sent)
            numbers = [int(bytes(send.body).split(b" ")[0]) for send in cluster.broker.sends]
            assert numbers == sorted(numbers)

    run_async(scenario())
