"""Our transaction producer: on our own broker, and on brokers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import SyncTransactionProducer
from broker_core.broker.broker import Broker
from broker_core.client.connection.config import ClientConfig
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.transactions.producer import (
    TransactionProducer,
    TransactionState,
)
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    ConnectionLost,
    InvalidArgument,
    MessageTooLarge,
    NotAcknowledged,
    RmqError,
)
from broker_core.nameserver.name_server import NameServer
from tests.broker.running_broker import broker_config, until, until_registered
from tests.client.scripted_brokers import HANG_UP, ScriptedBroker, scripted_cluster

Run = Callable[..., Any]

COMMIT, ROLLBACK, UNKNOWN = TransactionState
QUICK = {"transactionTimeOut": "200", "transactionCheckInterval": "100"}


def never(*_: object) -> TransactionState:
    raise AssertionError("not expected to be called")


@contextlib.asynccontextmanager
async def our_cluster(tmp_path: Path, **properties: str) -> AsyncIterator[tuple[Broker, str]]:
    server = NameServer()
    name_server = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    broker = Broker(broker_config(tmp_path, namesrvAddr=name_server, **QUICK, **properties))
    await broker.start()
    try:
        await until_registered(server)
        yield broker, name_server
    finally:
        await broker.stop()
        await server.stop(50)


def note_ends(broker: ScriptedBroker) -> list[dict[str, str]]:
    """The fields of every END_TRANSACTION from now on; all are confirmed."""
    ends: list[dict[str, str]] = []

    def answer(command: RemotingCommand) -> RemotingCommand:
        ends.append(command.ext)
        return command.reply()

    broker.answers[37] = answer
    return ends


def stored(broker: Broker, topic: str = "T") -> list[bytes]:
    store = broker.context.store
    return sorted(
        message.body
        for name, queue_id in store.queues()
        if name == topic
        for message in store.get(name, queue_id, 0, 100).messages()
    )


def test_commit_and_rollback_are_confirmed(tmp_path: Path, run_async: Run) -> None:
    seen: list[tuple[str, object]] = []

    async def execute(message: OutgoingMessage, argument: Any) -> TransactionState:
        seen.append((message.unique_id, argument))
        return ROLLBACK if argument else COMMIT

    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            config = ClientConfig((name_server,))
            async with TransactionProducer(config, "PG", execute=execute, check=never) as producer:
                assert isinstance(producer, TransactionProducer)
                results = [
                    await producer.send_in_transaction(OutgoingMessage("T", b"%d" % n), n)
                    for n in range(2)
                ]
                assert [(r.state, r.is_confirmed) for r in results] == [
                    (COMMIT, True), (ROLLBACK, True)
                ]  # fmt: skip
                assert seen == [(r.half.msg_id, n) for n, r in enumerate(results)]
                assert results[0].half.transaction_id == results[0].half.msg_id
                # It is a producer like any other besides.
                assert (await producer.send("T", b"plain")).queue.topic == "T"
                await until(lambda: stored(broker) == [b"0", b"plain"])
                assert broker.features.transactions.service.window.open_count == 0

    run_async(scenario())


def test_the_broker_asks_and_the_check_answers(tmp_path: Path, run_async: Run) -> None:
    answers = itertools.chain((UNKNOWN,), itertools.repeat(COMMIT))
    threads: set[str] = set()
    checked: list[tuple[str, bytes, str]] = []

    def execute(*_: object) -> TransactionState:
        threads.add(threading.current_thread().name)
        return UNKNOWN

    def check(message: ReceivedMessage) -> TransactionState:
        threads.add(threading.current_thread().name)
        times = message.properties["TRANSACTION_CHECK_TIMES"]
        checked.append((message.message_id, message.body, times))
        return next(answers)

    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            config = ClientConfig((name_server,))
            async with TransactionProducer(config, "PG", execute=execute, check=check) as producer:
                assert isinstance(producer, TransactionProducer)
                body = b"x" * 10_000
                result = await producer.send_in_transaction(OutgoingMessage("T", body))
                assert (result.state, result.is_confirmed) == (UNKNOWN, False)
                await until(lambda: len(stored(broker)) == 1)
                key = result.half.msg_id
                # On a slow machine a third question may leave before the second is answered.
                times = [str(number) for number in range(1, len(checked) + 1)]
                assert checked == [(key, body, number) for number in times]
                assert len(checked) >= 2
                assert len(stored(broker)) == 1
        assert all(name.startswith("transaction-PG") for name in threads)

    run_async(scenario())


def test_a_local_transaction_that_raises_stays_open(tmp_path: Path, run_async: Run) -> None:
    async def execute(*_: object) -> TransactionState:
        raise KeyError("no such account")

    async def check(_: ReceivedMessage) -> TransactionState:
        return ROLLBACK

    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            config = ClientConfig((name_server,))
            async with TransactionProducer(config, "PG", execute=execute, check=check) as producer:
                assert isinstance(producer, TransactionProducer)
                with pytest.raises(KeyError, match="account"):
                    await producer.send_in_transaction(OutgoingMessage("T", b"x"))
                window = broker.features.transactions.service.window
                await until(lambda: window.high == 1 and window.open_count == 0)
                assert stored(broker) == []

    run_async(scenario())


def test_nothing_is_checked_while_the_local_transaction_runs(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            asked = broker.features.transactions.check

            async def execute(*_: object) -> TransactionState:
                await until(lambda: asked.asked_count >= 2)
                return COMMIT

            config = ClientConfig((name_server,))
            async with TransactionProducer(config, "PG", execute=execute, check=never) as producer:
                assert isinstance(producer, TransactionProducer)
                result = await producer.send_in_transaction(OutgoingMessage("T", b"x"))
                assert result.is_confirmed
                await until(lambda: stored(broker) == [b"x"])

    run_async(scenario())


def test_a_check_that_raises_or_says_nonsense_is_asked_again(
    tmp_path: Path, run_async: Run, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    async def execute(*_: object) -> TransactionState:
        return UNKNOWN

    async def check(_: ReceivedMessage) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("database away")
        return "yes" if len(calls) == 2 else COMMIT

    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            config = ClientConfig((name_server,))
            async with TransactionProducer(config, "PG", execute=execute, check=check) as producer:
                assert isinstance(producer, TransactionProducer)
                await producer.send_in_transaction(OutgoingMessage("T", b"x"))
                await until(lambda: stored(broker) == [b"x"])
                assert stored(broker) == [b"x"]
        # The broker does not wait for the answer to its last question before it asks again.
        assert len(calls) >= 3

    run_async(scenario())
    assert "database away" in caplog.text


def test_another_process_of_the_group_answers(tmp_path: Path, run_async: Run) -> None:
    async def execute(*_: object) -> TransactionState:
        return UNKNOWN

    async def check(_: ReceivedMessage) -> TransactionState:
        return COMMIT

    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):
            config = ClientConfig((name_server,))
            async with TransactionProducer(config, "PG", execute=execute, check=never) as first:
                assert isinstance(first, TransactionProducer)
                await first.send_in_transaction(OutgoingMessage("T", b"x"), immunity_s=1)
            other = ClientConfig((name_server,), client_id="another")
            async with TransactionProducer(other, "PG", execute=never, check=check) as second:
                await second.publish_queues("T")
                await until(lambda: stored(broker) == [b"x"])

    run_async(scenario())


def test_synchronous_producers_do_the_same(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with our_cluster(tmp_path) as (broker, name_server):

            def use() -> bool:
                with SyncTransactionProducer(
                    name_server, "PG", execute=lambda *_: COMMIT, check=never
                ) as producer:
                    return producer.send_in_transaction(OutgoingMessage("T", b"x")).is_confirmed

            assert await asyncio.to_thread(use)
            await until(lambda: stored(broker) == [b"x"])

    run_async(scenario())


def test_arguments_that_cannot_be_meant(run_async: Run) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            producer = TransactionProducer(cluster.config(), "PG", execute=never, check=never)
            async with producer:
                with pytest.raises(InvalidArgument, match="delayed"):
                    await producer.send_in_transaction(OutgoingMessage("T", b"x", delay_level=1))
                for seconds in (0, -1, 1 << 40, True):
                    with pytest.raises(InvalidArgument, match="immunity_s"):
                        await producer.send_in_transaction(
                            OutgoingMessage("T", b"x"), immunity_s=seconds
                        )
                large = OutgoingMessage("T", b"x", properties={"a": "b" * 32_690})
                with pytest.raises(MessageTooLarge):
                    await producer.send_in_transaction(large)
                assert cluster.broker.sends == []

    run_async(scenario())


def test_a_half_is_sent_once_and_rolled_back_when_it_is_not_safe(run_async: Run) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            broker = cluster.broker
            ends = note_ends(broker)
            producer = TransactionProducer(cluster.config(), "PG", execute=never, check=never)
            async with producer:
                broker.script.extend((HANG_UP, 10))
                with pytest.raises(ConnectionLost):
                    await producer.send_in_transaction(OutgoingMessage("T", b"x"))
                assert (len(broker.sends), ends) == (1, [])
                with pytest.raises(NotAcknowledged):
                    await producer.send_in_transaction(OutgoingMessage("T", b"y"))
                assert [fields["commitOrRollback"] for fields in ends] == ["12"]
                properties = broker.properties()
                assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "PG")
                assert broker.sends[-1].ext["f"] == "4"

    run_async(scenario())


def test_an_end_without_an_answer_is_not_confirmed(run_async: Run) -> None:
    async def execute(*_: object) -> TransactionState:
        return COMMIT

    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            broker = cluster.broker
            refusals: list[tuple[Callable[[RemotingCommand], Any], int]] = [
                (lambda command: command.reply(1, "no such half"), 60_000),
                (lambda command: command.reply(604), 60_000),
                # Silence lasts as long as the producer waits for the answer to the end.
                (lambda command: None, 500),
            ]
            remarks = []
            for refusal, timeout_ms in refusals:
                producer = TransactionProducer(
                    cluster.config(), "PG", execute=execute, check=never, timeout_ms=timeout_ms
                )
                async with producer:
                    broker.answers[37] = refusal
                    result = await producer.send_in_transaction(
                        OutgoingMessage("T", b"x"), timeout_ms=60_000
                    )
                    assert (result.state, result.is_confirmed) == (COMMIT, False)
                    remarks.append(result.remark)
            assert remarks[:2] == ["no such half", "response code 604"]
            assert remarks[2]

    run_async(scenario())


def test_hostile_questions(run_async: Run, caplog: pytest.LogCaptureFixture) -> None:
    called: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        called.append(message.body)
        return COMMIT

    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            broker = cluster.broker
            ends = note_ends(broker)
            producer = TransactionProducer(cluster.config(), "PG", execute=never, check=check)
            async with producer:
                await producer.send("T", b"x")
                (connection,) = broker.connections
                good = encode_record(MessageRecord("T", 0, b"x", b"PGROUP\x01PG\x02"))
                other = encode_record(MessageRecord("T", 0, b"x", b"PGROUP\x01Other\x02"))
                for body in (b"", b"junk", good[:-5], other):
                    with contextlib.suppress(RmqError):
                        connection.oneway(RemotingCommand(39, {}, body))
                connection.oneway(RemotingCommand(39, {"tranStateTableOffset": "x" * 50}, good))
                await until(lambda: len(ends) == 1)
                assert called == [b"x"]
                assert ends[0]["producerGroup"] == "PG"
                assert (await producer.send("T", b"x")).queue.topic == "T"

    run_async(scenario())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
