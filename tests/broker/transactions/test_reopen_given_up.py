"""Checks of a given-up transaction are resumed by a request, and it ends as any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.codec.wire.topic_name import TRANSACTION_GIVEN_UP_TOPIC, TRANSACTION_HALF_TOPIC
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.running_broker import UNIQUE, broker_config, records, running, until

Run = Callable[..., Any]
RESUME = RequestCode.RESUME_CHECK_HALF_MESSAGE
MODE = RequestCode.SET_MESSAGE_REQUEST_MODE
HALF = (
    f"REAL_TOPIC\x01T\x02REAL_QID\x011\x02PGROUP\x01PG\x02TRAN_MSG\x01true\x02"
    f"UNIQ_KEY\x01{UNIQUE}\x02TRANSACTION_CHECK_TIMES\x0115\x02"
)


def test_a_transaction_is_resumed_and_committed(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            store = asker.broker.context.store
            aside = store.append_text(
                TRANSACTION_GIVEN_UP_TOPIC, 0, b"pay", HALF.encode(), 0, 0, 5, b"\x7f\0\0\1\0\0\0\5"
            )
            store.flush()
            message_id = store.message_ids(aside)
            assert (await asker.ask(RESUME, msgId=message_id)).code == 0
            await until(lambda: store.offsets(TRANSACTION_HALF_TOPIC, 0)[1] == 1)
            [half] = store.get(TRANSACTION_HALF_TOPIC, 0, 0).messages()
            assert half.body == b"pay" and "TRANSACTION_CHECK_TIMES" not in half.properties
            answer = await asker.ask(
                RequestCode.END_TRANSACTION, producerGroup="PG", tranStateTableOffset=0,
                commitLogOffset=half.physical_offset, commitOrRollback=8,
                fromTransactionCheck="true", msgId=UNIQUE, transactionId=UNIQUE,
            )  # fmt: skip
            assert answer.code == 0, answer.remark
            await until(lambda: store.offsets("T", 1)[1] == 1)
            [message] = records(await asker.pull("T", queue=1))
            assert message.body == b"pay"

    run_async(scenario())


def test_nothing_else_becomes_a_transaction(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            sent = await asker.send("T")
            for message_id in (sent.ext["msgId"], "F" * 32, "x", "", "0" * 32, "7F" * 28):
                answer = await asker.ask(RESUME, msgId=message_id)
                assert answer.code == ResponseCode.INVALID_PARAMETER, message_id
            assert asker.broker.context.store.offsets(TRANSACTION_HALF_TOPIC, 0) == (0, 0)

    run_async(scenario())


def test_groups_pull_or_pop(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            body = b'{"consumerGroup":"g","mode":"%b","popShareQueueNum":0,"topic":"%b"}'
            assert (await asker.ask(MODE, body % (b"PULL", b"T"))).code == 0
            assert (await asker.ask(MODE, body % (b"POP", b"T"))).code == 0
            for mode, topic in ((b"PUSH", b"T"), (b"", b"T"), (b"POP", b"%RETRY%g")):
                await asker.make_topic("%RETRY%g")
                refused = await asker.ask(MODE, body % (mode, topic))
                assert refused.code == ResponseCode.INVALID_PARAMETER, mode
            assert (await asker.ask(MODE, body % (b"PULL", b"None"))).code == 17
            assert (await asker.ask(MODE, b"{}")).code == ResponseCode.INVALID_PARAMETER

    run_async(scenario())
