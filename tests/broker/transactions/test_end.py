"""Transactions over real sockets: half sends, END_TRANSACTION, questions to producers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.codec.records.message_record import MessageRecord, decode_record
from broker_core.codec.wire.bodies.heartbeat_data import HeartbeatData, encode_heartbeat
from broker_core.codec.wire.message_id import decode_message_id
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from tests.broker.running_broker import Asker, broker_config, records, running, until
from tests.patient_client import patient_client

Run = Callable[..., Any]

SYNC = {"flushDiskType": "SYNC_FLUSH"}
# The fixed times of real brokers, shortened.
QUICK = {"transactionTimeOut": "100", "transactionCheckInterval": "100"}


def half_text(key: str, **more: str) -> str:
    pairs = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": key, "TAGS": "A", **more}
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


async def send_half(asker: Asker, key: str = "K1", topic: str = "T", **more: str) -> dict[str, Any]:
    """A half message as Java sends it; the fields that end it."""
    answer = await asker.send(topic, key.encode(), half_text(key, **more), e=1, f=4)
    assert answer.code == 0, answer.remark
    assert answer.ext["queueId"] == "1" and answer.ext["transactionId"] == key
    return {
        "producerGroup": "PG",
        "tranStateTableOffset": answer.ext["queueOffset"],
        "commitLogOffset": decode_message_id(answer.ext["msgId"])[1],
        "fromTransactionCheck": "false",
        "msgId": key,
        "transactionId": key,
    }


async def end(
    asker: Asker, fields: dict[str, Any], how: int = 8, **changes: Any
) -> RemotingCommand:
    return await asker.ask(37, **{"commitOrRollback": how, **fields, **changes})


async def bodies(asker: Asker, topic: str = "T", queue: int = 1) -> list[bytes]:
    answer = await asker.pull(topic, queue)
    return [record.body for record in records(answer)] if answer.code == 0 else []


class AskedProducer:
    """A connection that announces a producer group and collects what it is asked."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.questions: list[tuple[RemotingCommand, MessageRecord]] = []
        self.client = patient_client(request_handler=self._handle)

    def _handle(self, _: Connection, command: RemotingCommand) -> None:
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        assert command.is_oneway
        self.questions.append((command, decode_record(command.body)))

    async def join(self, group: str = "PG") -> None:
        body = encode_heartbeat(HeartbeatData("client-1", (group,), ()))
        command = RemotingCommand(RequestCode.HEART_BEAT, {}, body)
        assert (await self.client.request(self._broker.address, command, 5_000)).code == 0


@pytest.mark.parametrize("mode", [{}, SYNC], ids=["async", "sync"])
def test_commit_and_rollback(tmp_path: Path, run_async: Run, mode: dict[str, str]) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **mode)) as asker:
            first, second = await send_half(asker), await send_half(asker, "K2")
            assert await bodies(asker) == []
            assert (await end(asker, first)).code == 0
            assert (await end(asker, second, 12)).code == 0
            await until(lambda: asker.broker.context.store.offsets("T", 1)[1] == 1)
            (copy,) = records(await asker.pull("T", 1))
            assert (copy.body, copy.sys_flag) == (b"K1", 8)
            assert copy.prepared_transaction_offset == first["commitLogOffset"]
            assert {"TRAN_MSG", "PGROUP", "CLUSTER", "MSG_REGION"} <= copy.properties.keys()

    run_async(scenario())


def test_a_commit_right_behind_its_half(tmp_path: Path, run_async: Run) -> None:
    """With ASYNC_FLUSH the answer may be sent before the half message is readable."""

    async def one(asker: Asker, number: int) -> None:
        fields = await send_half(asker, f"K{number}")
        assert (await end(asker, fields)).code == 0

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await send_half(asker)
            await asyncio.gather(*(one(asker, number) for number in range(200)))
            await until(lambda: asker.broker.context.store.offsets("T", 1)[1] == 200)
            assert asker.broker.features.transactions.service.window.open_count == 1

    run_async(scenario())


def test_end_again_and_otherwise(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            first, second = await send_half(asker), await send_half(asker, "K2")
            many = await asyncio.gather(*(end(asker, first) for _ in range(20)))
            assert {answer.code for answer in many} == {0}
            answer = await end(asker, first, 12)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "it was committed before" in (answer.remark or "")
            assert (await end(asker, second, 12)).code == 0
            assert (await end(asker, second, 12)).code == 0
            assert "it was rolled back before" in ((await end(asker, second)).remark or "")
        async with running(broker_config(tmp_path)) as asker:
            assert (await end(asker, first)).code == 0
            assert (await end(asker, second)).code == ResponseCode.SYSTEM_ERROR
            assert await bodies(asker) == [b"K1"]

    run_async(scenario())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"producerGroup": "Other"}, ResponseCode.SYSTEM_ERROR),
        ({"producerGroup": ""}, ResponseCode.INVALID_PARAMETER),
        ({"msgId": "K2"}, ResponseCode.SYSTEM_ERROR),
        ({"tranStateTableOffset": 1}, ResponseCode.SYSTEM_ERROR),
        ({"tranStateTableOffset": 77}, ResponseCode.SYSTEM_ERROR),
        ({"tranStateTableOffset": -1}, ResponseCode.INVALID_PARAMETER),
        ({"commitLogOffset": 0}, ResponseCode.SYSTEM_ERROR),
        ({"commitLogOffset": 1 << 62}, ResponseCode.SYSTEM_ERROR),
        ({"commitOrRollback": 4}, ResponseCode.INVALID_PARAMETER),
        ({"commitOrRollback": ""}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_refused(
    tmp_path: Path, run_async: Run, changes: dict[str, Any], code: ResponseCode
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            fields = await send_half(asker)
            await send_half(asker, "K2")
            answer = await end(asker, fields, **changes)
            assert (answer.code, bool(answer.remark)) == (code, True)
            assert asker.broker.features.transactions.service.window.open_count == 2
            assert (await end(asker, fields)).code == 0

    run_async(scenario())


def test_hostile_ends(tmp_path: Path, run_async: Run) -> None:
    """Only the right request ends it, and no request is an internal error."""
    rng = random.Random(20_261_116)
    values = ["", "0", "1", "8", "12", "-1", "x", "9" * 40, "true", "\0", "PG", "K1", "é" * 300]

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            fields = {"commitOrRollback": 8, **await send_half(asker)}
            for _ in range(500):
                changed = dict(fields)
                for name in rng.sample(sorted(set(fields) - {"transactionId"}), rng.randint(1, 4)):
                    changed[name] = rng.choice(values)
                if changed["commitLogOffset"] == fields["commitLogOffset"]:
                    changed["producerGroup"] = "Other"
                answer = await asker.ask(37, **changed)
                assert answer.code in (1, 29), (answer, changed)
                assert "internal error" not in (answer.remark or "")
            assert asker.broker.features.transactions.service.window.open_count == 1
            assert (await end(asker, fields)).code == 0

    run_async(scenario())


def test_not_known_yet_and_without_an_id(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            fields = await send_half(asker)
            assert (await end(asker, fields, 0)).code == 0
            assert asker.broker.features.transactions.service.window.open_count == 1
            assert (await end(asker, fields, msgId="", transactionId="")).code == 0
            assert asker.broker.features.transactions.service.window.open_count == 0

    run_async(scenario())


def test_after_its_own_immunity_only_a_checked_producer_may_end_it(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            fields = await send_half(asker, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
            transactions = asker.broker.features.transactions.service
            half = transactions.half(0)
            assert half is not None
            await until(lambda: transactions.age_ms(half) > 1_000)
            assert (await end(asker, fields)).code == ResponseCode.ILLEGAL_OPERATION
            assert (await end(asker, fields, fromTransactionCheck="true")).code == 0

    run_async(scenario())


def test_refused_by_the_configuration(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, rejectTransactionMessage="true")
        async with running(config) as asker:
            answer = await asker.send("T", b"x", half_text("K"))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "rejectTransactionMessage" in (answer.remark or "")

    run_async(scenario())


def test_halves_of_other_accounts_cannot_be_reached(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await send_half(asker)
            for topic in (TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC):
                assert (await asker.send(topic)).code == ResponseCode.NO_PERMISSION
            for code in (11, 361):
                answer = await asker.pull(TRANSACTION_HALF_TOPIC, code=code)
                assert answer.code == ResponseCode.NO_PERMISSION
            answer = await asker.ask(
                15, consumerGroup="CID_RMQ_SYS_TRANS", topic=TRANSACTION_HALF_TOPIC,
                queueId=0, commitOffset=1,
            )  # fmt: skip
            assert answer.code == ResponseCode.NO_PERMISSION
            for text in (half_text("K", PGROUP="Other"), half_text("K")):
                topic = "T" if "Other" in text else "%RETRY%CG"
                await asker.pull("T")
                answer = await asker.send(topic, b"x", text)
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL

    run_async(scenario())


def test_a_committed_message_may_go_to_the_retry_topic(tmp_path: Path, run_async: Run) -> None:
    """TRAN_MSG stays with it; a consumer's own resend opens no transaction."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.send("T")
            await asker.pull("T")
            for reconsumed, delay in ((1, {"DELAY": "1"}), (20, {})):
                text = half_text(f"K{reconsumed}", **delay)
                answer = await asker.send("%RETRY%CG", b"x", text, j=reconsumed, l=16)
                assert answer.code == 0
            assert asker.broker.features.transactions.service.window.open_count == 0
            assert await bodies(asker, "%DLQ%CG", 0) == [b"x"]

    run_async(scenario())


def test_a_producer_that_is_checked_commits(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **QUICK)) as asker:
            # A half may come before its producer is known.
            await send_half(asker)
            producer = AskedProducer(asker.broker)
            await producer.join()
            await until(lambda: len(producer.questions) >= 2)
            (command, message), (_, second) = producer.questions[:2]
            assert (message.topic, message.queue_id, message.body) == ("T", 1, b"K1")
            times = [m.properties["TRANSACTION_CHECK_TIMES"] for m in (message, second)]
            assert times == ["1", "2"]
            ext = {
                **{k: command.ext[k] for k in ("tranStateTableOffset", "commitLogOffset", "msgId")},
                "producerGroup": "PG",
                "commitOrRollback": "8",
                "fromTransactionCheck": "true",
            }
            await producer.client.oneway(asker.broker.address, RemotingCommand(37, ext))
            await until(lambda: asker.broker.context.store.offsets("T", 1)[1] == 1)
            await producer.client.close()

    run_async(scenario())


def test_a_half_that_was_given_up_can_be_consumed(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, transactionCheckMax="2", **QUICK)
        async with running(config) as asker:
            fields = await send_half(asker)
            producer = AskedProducer(asker.broker)
            await producer.join()
            store = asker.broker.context.store
            await until(lambda: store.offsets("TRANS_CHECK_MAX_TIME_TOPIC", 0)[1] == 1)
            assert len(producer.questions) == 2
            assert await bodies(asker, "TRANS_CHECK_MAX_TIME_TOPIC", 0) == [b"K1"]
            answer = await end(asker, fields)
            assert "it was given up before" in (answer.remark or "")
            await producer.client.close()

    run_async(scenario())


def test_a_new_broker_begins_with_a_half(tmp_path: Path, run_async: Run) -> None:
    """The first record of a log has a position that a copy could not name."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            fields = await send_half(asker)
            assert fields["commitLogOffset"] > 0
            assert (fields["tranStateTableOffset"], (await end(asker, fields)).code) == ("0", 0)

    run_async(scenario())


def test_kept_over_a_restart(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            ended, left = await send_half(asker), await send_half(asker, "K2")
            assert (await end(asker, ended)).code == 0
        async with running(broker_config(tmp_path)) as asker:
            assert asker.broker.features.transactions.service.window.open_count == 1
            assert (await end(asker, left)).code == 0
            assert await bodies(asker) == [b"K1", b"K2"]

    run_async(scenario())
