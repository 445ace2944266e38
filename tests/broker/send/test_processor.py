"""Sends over real sockets: what is stored, what is answered, what is refused and how."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.records.message_record import decode_record
from broker_core.codec.wire.message_id import decode_message_id
from broker_core.codec.wire.remoting_command import BINARY_HEADER, RemotingCommand
from broker_core.protocol_codes import PutStatus, RequestCode, ResponseCode
from tests.broker.running_broker import UNIQUE, Asker, broker_config, records, running

Run = Callable[..., Any]
SYNC = {"flushDiskType": "SYNC_FLUSH"}
ASYNC = {"flushDiskType": "ASYNC_FLUSH"}
LONG = dict(
    zip(
        "abcdefghijkm",
        (
            "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId",
            "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
            "batch",
        ),
        strict=True,
    )
)  # fmt: skip


def batch_item(body: bytes, text: bytes = b"", flag: int = 0) -> bytes:
    head = struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(text)) + text


async def pulled(asker: Asker, topic: str = "T", queue: int = 0, offset: int = 0) -> list[Any]:
    """Messages of a queue, waiting until the first is visible."""
    fields = {"sysFlag": 6, "suspendTimeoutMillis": 5_000, "maxMsgNums": 32}
    # A machine that pauses may use up the time of one pull.
    while (answer := await asker.pull(topic, queue, offset, **fields)).code != 0:
        assert answer.code == ResponseCode.PULL_NOT_FOUND, (answer.code, answer.remark)
    return records(answer)


@pytest.mark.parametrize("flush", [SYNC, ASYNC], ids=["sync", "async"])
def test_a_message_is_stored_as_it_was_sent(
    tmp_path: Path, run_async: Run, flush: dict[str, str]
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **flush)) as asker:
            for number in range(3):
                answer = await asker.send(body=b"body %d" % number, e=2, f=1, h=77)
                assert answer.code == 0
                assert answer.ext["queueId"] == "2"
                assert answer.ext["queueOffset"] == str(number)
                assert answer.ext["transactionId"] == UNIQUE
                assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == (
                    "DefaultRegion",
                    "true",
                )
                host, _ = decode_message_id(answer.ext["msgId"])
                assert host == ("127.0.0.1", asker.broker.port)
            found = await pulled(asker, queue=2)
            assert [message.body for message in found] == [b"body 0", b"body 1", b"body 2"]
            message = found[1]
            assert (message.flag, message.sys_flag, message.queue_offset) == (77, 1, 1)
            assert message.born_timestamp == 1_700_000_000_000
            assert message.born_host[0] == "127.0.0.1"
            assert message.properties["UNIQ_KEY"] == UNIQUE
            assert message.properties["TAGS"] == "A"
            assert message.properties["CLUSTER"] == "DefaultCluster"
            view = await asker.ask(33, offset=message.physical_offset)
            assert records(view)[0].body == b"body 1"

    run_async(scenario())


def test_every_form_of_the_request_says_the_same(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.send()
            await asker.send(serialize_type=BINARY_HEADER)
            fields = {
                "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "h": 0,
                "g": 1_700_000_000_000, "j": 0, "k": "false", "m": "false",
                "i": f"UNIQ_KEY\x01{UNIQUE}\x02WAIT\x01true\x02TAGS\x01A\x02",
            }  # fmt: skip
            named = {LONG[name]: value for name, value in fields.items()}
            assert (await asker.ask(10, b"body", **named)).ext["queueOffset"] == "2"
            connection = await asker.client.connect(asker.broker.address, 3_000)
            connection.oneway(
                RemotingCommand(310, {name: str(value) for name, value in fields.items()}, b"body")
            )
            # Answered after the oneway: requests of one connection are taken in order.
            assert (await asker.send()).ext["queueOffset"] == "4"
            found = await pulled(asker)
            assert len(found) == 5
            assert len({(m.body, m.property_text, m.flag, m.sys_flag) for m in found}) == 1
            for message in found:
                assert message.properties["TAGS"] == "A"
                assert message.properties["UNIQ_KEY"] == UNIQUE

    run_async(scenario())


def test_what_is_missing_is_made(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            # No unique key, no queue: the broker chooses.
            answer = await asker.send(text="TAGS\x01A\x02", e=-1)
            assert answer.code == 0
            assert 0 <= int(answer.ext["queueId"]) < 4
            (message,) = await pulled(asker, queue=int(answer.ext["queueId"]))
            assert message.properties["UNIQ_KEY"] == answer.ext["transactionId"]
            assert len(answer.ext["transactionId"]) == 32
            topic = asker.broker.context.topics.find("T")
            assert topic is not None
            assert (topic.read_queue_count, topic.perm) == (4, 6)

    run_async(scenario())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"b": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"b": "bad/name"}, ResponseCode.INVALID_PARAMETER),
        ({"b": ".."}, ResponseCode.INVALID_PARAMETER),
        ({"b": "a" * 128}, ResponseCode.INVALID_PARAMETER),
        ({"b": ""}, ResponseCode.INVALID_PARAMETER),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION),
        ({"b": "RMQ_SYS_TRANS_OP_HALF_TOPIC"}, ResponseCode.NO_PERMISSION),
        ({"b": "OFFSET_MOVED_EVENT"}, ResponseCode.NO_PERMISSION),
        ({"b": "%RETRY%nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"b": "ReadOnly"}, ResponseCode.NO_PERMISSION),
        ({"e": 4}, ResponseCode.INVALID_PARAMETER),
        ({"e": "x"}, ResponseCode.INVALID_PARAMETER),
        ({"f": 1 << 40}, ResponseCode.INVALID_PARAMETER),
        ({"g": "soon"}, ResponseCode.INVALID_PARAMETER),
        ({"i": "a\x01" + "b" * 40_000}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "TRAN_MSG\x01true\x02PGROUP\x01Other\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "TIMER_DELAY_MS\x01soon\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "DELAY\x01soon\x02"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_refusals(
    tmp_path: Path, run_async: Run, fields: dict[str, Any], code: ResponseCode
) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, autoCreateTopicEnable="false")
        async with running(config) as asker:
            await asker.make_topic("T")
            await asker.make_topic("ReadOnly", perm=4)
            before = asker.broker.context.store.log_range
            answer = await asker.send(**fields)
            assert (answer.code, bool(answer.remark)) == (code, True)
            assert asker.broker.context.store.log_range == before
            # The connection is as good as before.
            assert (await asker.send()).ext["queueOffset"] == "0"

    run_async(scenario())


def test_too_large_takes_no_offset(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, maxMessageSize="1000")) as asker:
            assert (await asker.send(body=bytes(1000))).ext["queueOffset"] == "0"
            for code in (310, 320):
                answer = await asker.send(body=bytes(1001), code=code)
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert (await asker.send()).ext["queueOffset"] == "1"

    run_async(scenario())


def test_batches(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            body = b"".join(
                batch_item(b"m%d" % n, b"UNIQ_KEY\x01%032X\x02K\x01v" % n, flag=n // 3)
                for n in range(7)
            )
            answer = await asker.send(code=320, body=body, e=1, m="true")
            assert answer.code == 0
            assert (answer.ext["queueOffset"], answer.ext["queueId"]) == ("0", "1")
            found = await pulled(asker, queue=1)
            assert [m.body for m in found] == [b"m%d" % n for n in range(7)]
            assert [m.flag for m in found] == [0, 0, 0, 1, 1, 1, 2]
            assert [m.queue_offset for m in found] == list(range(7))
            assert [m.properties["UNIQ_KEY"] for m in found] == [f"{n:032X}" for n in range(7)]
            assert {m.properties["K"] for m in found} == {"v"}
            assert answer.ext["msgId"].split(",") == [m.message_id for m in found]
            # Code 310 with the batch flag is a batch as well.
            again = await asker.send(body=batch_item(b"x") + batch_item(b"y"), e=1, m="true")
            assert again.ext["queueOffset"] == "7"
            for message_id in again.ext["msgId"].split(","):
                view = await asker.ask(33, offset=decode_message_id(message_id)[1])
                assert records(view)[0].body in (b"x", b"y")

    run_async(scenario())


@pytest.mark.parametrize("body", [b"", b"abc", batch_item(b"x")[:-1], batch_item(b"x") + b"\0"])
def test_a_broken_batch_stores_nothing(tmp_path: Path, run_async: Run, body: bytes) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            answer = await asker.send(code=320, body=body)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert asker.broker.context.store.log_range == (0, 0)

    run_async(scenario())


def test_a_batch_to_a_retry_topic(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            asker.broker.context.groups.find_or_create("g")
            answer = await asker.send("%RETRY%g", code=320, body=batch_item(b"x"))
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL

    run_async(scenario())


def test_delayed_messages_wait_and_are_delivered(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, messageDelayLevel="1s 2h")
        async with running(config) as asker:
            text = f"DELAY\x011\x02UNIQ_KEY\x01{UNIQUE}\x02TAGS\x01A\x02"
            answer = await asker.send(text=text, e=3)
            # The answer names the waiting record and the queue that was asked for.
            assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "3", "0")
            data = asker.broker.context.store.record_at(decode_message_id(answer.ext["msgId"])[1])
            assert data is not None
            assert decode_record(data).topic == "SCHEDULE_TOPIC_XXXX"
            (message,) = await pulled(asker, queue=3)
            assert (message.body, message.properties["TAGS"]) == (b"body", "A")
            far = await asker.send(text=text.replace("\x011\x02", "\x0199\x02", 1))
            position = decode_message_id(far.ext["msgId"])[1]
            # Not for clients before its time.
            assert (await asker.ask(33, offset=position)).code != ResponseCode.SUCCESS
            data = asker.broker.context.store.record_at(position)
            assert data is not None
            waiting = decode_record(data)
            assert (waiting.topic, waiting.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)

    run_async(scenario())


def test_retries_end_as_dead_letters(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            asker.broker.context.groups.find_or_create("g")
            alive = await asker.send("%RETRY%g", j=3, l=3)
            assert alive.code == 0
            assert len(await pulled(asker, "%RETRY%g")) == 1
            dead = await asker.send("%RETRY%g", text="DELAY\x015\x02A\x01b\x02", j=4, l=3)
            assert (dead.code, dead.ext["queueId"]) == (0, "0")
            (message,) = await pulled(asker, "%DLQ%g")
            assert (message.reconsume_times, "DELAY" in message.properties) == (4, False)
            topic = asker.broker.context.topics.find("%DLQ%g")
            assert topic is not None
            assert (topic.write_queue_count, topic.perm) == (1, 6)

    run_async(scenario())


def test_many_in_flight_with_sync_flush_are_answered_in_groups(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **SYNC)) as asker:
            answers = await asyncio.gather(*(asker.send(body=b"%d" % n) for n in range(500)))
            assert {answer.code for answer in answers} == {0}
            offsets = sorted(int(answer.ext["queueOffset"]) for answer in answers)
            assert offsets == list(range(500))
            store = asker.broker.context.store
            assert store.flushed_position == store.log_range[1]

    run_async(scenario())


def test_waiting_for_a_disk_that_does_not_answer(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **SYNC, syncFlushTimeout="1")) as asker:
            await asker.send()
            writes = asker.broker.context.store.writes
            real_when, held = writes.when_acknowledged, []

            def late(result: Any, callback: Callable[[PutStatus], object]) -> None:
                held.append(callback)
                real_when(result, lambda _status: callback(PutStatus.FLUSH_DISK_TIMEOUT))

            writes.when_acknowledged = late  # type: ignore[method-assign]
            answer = await asker.send()
            # Stored all the same: the whole result comes with the status.
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert (answer.ext["queueOffset"], answer.ext["queueId"]) == ("1", "0")
            assert decode_message_id(answer.ext["msgId"])[1] > 0

    run_async(scenario())


@pytest.mark.parametrize("bits", [4, 8, 12])
def test_only_the_broker_marks_transactions(tmp_path: Path, run_async: Run, bits: int) -> None:
    """A record that says "prepared" gets no place in its queue: acknowledged and never seen."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            items = batch_item(b"b1") + batch_item(b"b2", flag=3)
            assert (await asker.send(body=b"plain", f=bits)).ext["queueOffset"] == "0"
            assert (await asker.send(body=b"batch", f=bits | 1)).ext["queueOffset"] == "1"
            assert (await asker.send(code=320, body=items, f=bits)).ext["queueOffset"] == "2"
            bulk = await asker.ask(
                RequestCode.BULK_SEND, items, topic="T", queueId=0, producerGroup="P", sysFlag=bits
            )
            assert bulk.ext["queueOffset"] == "4"
            found = await pulled(asker)
            assert [m.sys_flag for m in found] == [0, 1, 0, 0, 0, 0]

    run_async(scenario())


def test_a_bad_message_refuses_a_batch_of_several_flags(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            text = b"a\x01" + b"b" * 32_700
            answer = await asker.send(code=320, body=batch_item(b"x") + batch_item(b"y", text, 1))
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert asker.broker.context.store.log_range == (0, 0)

    run_async(scenario())
