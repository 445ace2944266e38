"""Records that are hidden from consumers, requested by position: found by administrators only.

Half messages, messages that wait for their time, and the broker's own notes lie in the same log as
everything else, and their positions can be guessed or are in the answer to the sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.codec.records.message_record import decode_record
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.codec.wire.message_id import decode_message_id, encode_message_id
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.system_topics import refuses_pulls
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.store.writes.message import Message
from tests.access.access_files import ACCOUNTS, ADMIN, write_access_file
from tests.broker.protected_cluster import cluster, make_topic
from tests.broker.running_broker import TIMEOUT_MS, UNIQUE, broker_config, running, until
from tests.broker.transactions.test_end import AskedProducer, send_half
from tests.patient_client import patient_client

Run = Callable[..., Any]
# Asks as some account, or as none.
Ask = Callable[..., Any]

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
GIVE_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
QUERY = RequestCode.QUERY_MESSAGE
HIDDEN_TOPICS = (
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "rmq_sys_append_group",
)
OWNER: dict[str, Any] = {
    "accessKey": "owner-key",
    "secretKey": "canary-owner-secret",
    "topicPerms": ["T=PUB|SUB"],
    "groupPerms": ["G=PUB|SUB"],
    "defaultTopicPerm": "PUB|SUB",
}


def properties(**pairs: str) -> str:
    pairs = {"UNIQ_KEY": UNIQUE, "KEYS": "key", **pairs}
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def sends() -> dict[str, dict[str, Any]]:
    """One send of each kind whose record waits somewhere else than in its topic."""
    wire = {"a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000,
            "h": 0, "j": 0, "k": "false", "m": "false"}  # fmt: skip
    half = properties(TRAN_MSG="true", PGROUP="PG")
    return {
        "half": {**wire, "i": half, "f": 4},
        "delayed": {**wire, "i": properties(DELAY="18")},
        "timer": {**wire, "i": properties(TIMER_DELAY_SEC="3600")},
    }


async def hidden_positions(ask: Ask) -> dict[str, int]:
    """Where a record of each kind lies, as the answers to their sends say."""
    found = {}
    for kind, fields in sends().items():
        texts = {name: str(value) for name, value in fields.items()}
        answer = await ask(RequestCode.SEND_MESSAGE_V2, b"secret", **texts)
        assert answer.code == 0, (kind, answer.remark)
        found[kind] = decode_message_id(answer.ext["msgId"])[1]
    return found


async def ask_everything(ask: Ask, position: int) -> list[RemotingCommand]:
    """Everything that an ordinary client can ask about one position."""
    span = {"beginTimestamp": "0", "endTimestamp": str(1 << 62), "maxNum": "32"}
    answers = [
        await ask(VIEW, offset=str(position)),
        await ask(VIEW, offset=str(position), topic="T"),
        await ask(GIVE_BACK, group="G", offset=str(position), delayLevel="1", originTopic="T"),
        await ask(GIVE_BACK, group="G", offset=str(position), delayLevel="-1", originTopic="T"),
    ]
    for topic in HIDDEN_TOPICS:
        for key in (UNIQUE, "key"):
            answers.append(await ask(QUERY, topic=topic, key=key, **span))
            answers.append(await ask(QUERY, topic=topic, key=key, _UNIQUE_KEY_QUERY="true", **span))
    return answers


def check_not_found(answers: list[RemotingCommand], kind: str) -> None:
    refused = (ResponseCode.SYSTEM_ERROR, ResponseCode.QUERY_NOT_FOUND, ResponseCode.NO_PERMISSION)
    for number, answer in enumerate(answers):
        assert answer.code in refused, (kind, number)
        assert b"secret" not in bytes(answer.body), (kind, number)
    for viewed in answers[:2]:
        assert viewed.code == ResponseCode.SYSTEM_ERROR, (kind, viewed.remark)
        assert "can not find message" in (viewed.remark or "")
    for given_back in answers[2:4]:
        assert given_back.code == ResponseCode.SYSTEM_ERROR, (kind, given_back.remark)
        assert "look message by offset failed" in (given_back.remark or "")


def test_without_accounts_hidden_records_are_not_found(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)
            store = asker.broker.context.store
            for kind, position in (await hidden_positions(asker.ask)).items():
                await until(lambda position=position: store.dispatched_position > position)
                check_not_found(await ask_everything(asker.ask, position), kind)
            assert store.offsets("%RETRY%G", 0) == store.offsets("%DLQ%G", 0) == (0, 0)

    run_async(scenario())


def test_with_accounts_only_administrators_see_hidden_records(
    tmp_path: Path, run_async: Run
) -> None:
    """The account that sent them may write and read the topic, and still sees none."""

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            write_access_file(found.file, *ACCOUNTS, OWNER)
            store = found.broker.context.store

            async def as_owner(code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
                return await found.ask(OWNER, code, body, **ext)

            # The file is looked at every second.
            await until_answered(lambda: as_owner(RequestCode.CAPABILITIES))
            positions = await hidden_positions(as_owner)
            for kind, position in positions.items():
                await until(lambda position=position: store.dispatched_position > position)
                check_not_found(await ask_everything(as_owner, position), kind)
                seen = await found.ask(ADMIN, VIEW, offset=str(position))
                assert seen.code == 0, (kind, seen.remark)
                record = decode_record(bytes(seen.body))
                assert record.body == b"secret" and record.topic in HIDDEN_TOPICS
                queried = await found.ask(
                    ADMIN, QUERY, topic=record.topic, key=UNIQUE, beginTimestamp="0",
                    endTimestamp=str(1 << 62),
                )  # fmt: skip
                assert queried.code == 0 and b"secret" in bytes(queried.body)
                # Giving it back would deliver it: that is no way of looking at it.
                back = await found.ask(
                    ADMIN, GIVE_BACK, group="G", offset=str(position), delayLevel="1"
                )
                assert back.code == ResponseCode.SYSTEM_ERROR
            assert store.offsets("%RETRY%G", 0) == (0, 0)

    run_async(scenario())


def test_every_position_of_a_log_with_everything_in_it(tmp_path: Path, run_async: Run) -> None:
    """What can be viewed is what can be pulled, after commits and deliveries, too."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path, messageDelayLevel="1s 2h")) as asker:
            await asker.make_topic("T", queues=2)
            store = asker.broker.context.store
            committed, rolled_back = await send_half(asker, "K1"), await send_half(asker, "K2")
            assert (await asker.ask(37, commitOrRollback=8, **committed)).code == 0
            assert (await asker.ask(37, commitOrRollback=12, **rolled_back)).code == 0
            await asker.send("T", b"soon", text=properties(DELAY="1"))
            await asker.send("T", b"late", text=properties(DELAY="2"))
            # As brokers before 4.3 kept half messages.
            host = b"\x7f\0\0\1\0\0\0\5"
            assert store.append_text("T", 0, b"old half", b"", 0, 4, 5, host).ok
            assert store.append_group([], b"a note").ok
            assert store.append(Message("T", b"plain")).ok
            store.flush()
            # The committed one in queue 1; the delivered and the plain one in queue 0.
            await until(lambda: (store.offsets("T", 0)[1], store.offsets("T", 1)[1]) == (2, 1))
            viewed, hidden = [], []
            for position, topic in records_of(store):
                answer = await asker.ask(VIEW, offset=position)
                if answer.code == 0:
                    record = decode_record(bytes(answer.body))
                    assert not refuses_pulls(record.topic)
                    viewed.append(record.body)
                else:
                    hidden.append(topic)
            assert sorted(viewed) == [b"K1", b"plain", b"soon"]
            assert set(hidden) == {*HIDDEN_TOPICS, "T"} - {"rmq_sys_wheel_timer"}

    run_async(scenario())


async def until_answered(ask: Callable[[], Any]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 120
    while (await ask()).code != 0:
        assert loop.time() < deadline, "the account never came to be"


def records_of(store: Any) -> list[tuple[int, str]]:
    """Position and topic of every record in the log."""
    position, end = store.log_range
    found = []
    while position < end:
        data = store.record_at(position)
        assert data is not None
        found.append((position, decode_record(data).topic))
        position += len(data)
    return found


def test_hidden_records_are_not_relayed_to_a_consumer(tmp_path: Path, run_async: Run) -> None:
    """CONSUME_MESSAGE_DIRECTLY passes a record on to a client, which may be the requester's own."""
    handed: list[bytes] = []

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T", queues=1)

            def consume(_: Any, command: RemotingCommand) -> RemotingCommand:
                if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
                    handed.append(bytes(command.body))
                return command.reply()

            own = patient_client(request_handler=consume)
            subscriptions = (parse_tag_expression("T", "*"),)
            consumer = ConsumerData("G", subscriptions=subscriptions)
            body = encode_heartbeat(HeartbeatData("me", (), (consumer,)))
            beat = RemotingCommand(RequestCode.HEART_BEAT, {}, body)
            assert (await own.request(asker.broker.address, beat, TIMEOUT_MS)).code == 0
            for position in (await hidden_positions(asker.ask)).values():
                answer = await asker.ask(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    consumerGroup="G",
                    clientId="me",
                    msgId=encode_message_id(("127.0.0.1", 1), position),
                )
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "there is no message" in (answer.remark or "")
            await own.close()

    run_async(scenario())
    assert handed == []


def test_half_messages_are_still_checked_with_their_producers(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        quick = {"transactionTimeOut": "100", "transactionCheckInterval": "100"}
        async with running(broker_config(tmp_path, **quick)) as asker:
            producer = AskedProducer(asker.broker)
            await producer.join()
            fields = await send_half(asker, "K1")
            await until(lambda: bool(producer.questions), 120)
            _, record = producer.questions[0]
            assert record.body == b"K1"
            fields["fromTransactionCheck"] = "true"
            assert (await asker.ask(37, commitOrRollback=8, **fields)).code == 0
            store = asker.broker.context.store
            await until(lambda: store.offsets("T", 1)[1] == 1)
            await producer.client.close()

    run_async(scenario())
