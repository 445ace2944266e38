"""Timer messages and their recall over real sockets: requests and answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.scheduled.timer_message import timer_form
from broker_core.codec.records.message_properties import decode_properties
from broker_core.codec.records.message_record import encode_record
from broker_core.codec.wire.recall_handle import RecallHandle, decode_handle
from broker_core.codec.wire.topic_name import TIMER_TOPIC
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.running_broker import Asker, broker_config, running, until
from tests.fakes.held_clock import HeldClock

Run = Callable[..., Any]

HOUR_MS = 3_600_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _text(key: str, **properties: Any) -> str:
    pairs = {"UNIQ_KEY": key, **properties}
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


async def _recall(asker: Asker, handle: str, topic: str = "T") -> Any:
    return await asker.ask(
        RequestCode.RECALL_MESSAGE, producerGroup="PG", topic=topic, recallHandle=handle
    )


def _bodies(asker: Asker, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    store = asker.broker.context.store
    return [record.body for record in store.get(topic, queue_id, 0, 1_000).messages()]


def test_a_timer_message_waits_and_comes(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        clock = HeldClock()
        async with running(broker_config(tmp_path), clock=clock) as asker:
            await asker.make_topic("T")
            due_ms = clock.wall_ms() + 300
            answer = await asker.send(
                text=_text("k1", TIMER_DELIVER_MS=due_ms, TAGS="A", POP_CK="x"), e=2
            )
            assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "2", "0")
            handle = decode_handle(answer.ext["recallHandle"])
            assert handle[:2] == ("T", "broker-a")
            assert 0 <= handle.due_ms - due_ms <= 1
            assert handle.unique_key == "k1"
            await until(lambda: asker.broker.features.scheduled.timers.pending_by_topic == {"T": 1})
            # Not before its time, however long that takes to come: one that is due a little
            # earlier is delivered and this one is not.
            early = _text("k0", TIMER_DELIVER_MS=due_ms - 100)
            assert (await asker.send(body=b"early", text=early, e=3)).code == 0
            await until(lambda: asker.broker.features.scheduled.timers.pending_by_topic == {"T": 2})
            clock.advance(handle.due_ms - clock.wall_ms() - 1)
            await until(lambda: _bodies(asker, "T", 3) == [b"early"])
            assert _bodies(asker, "T", 2) == []
            clock.advance(1)
            await until(lambda: _bodies(asker, "T", 2) == [b"body"])
            store = asker.broker.context.store
            waiting, _ = store.get(TIMER_TOPIC, 0, 0, 10).messages()
            (copy,) = store.get("T", 2, 0, 10).messages()
            assert copy.store_timestamp == handle.due_ms
            assert waiting.message_id == answer.ext["msgId"]
            assert copy.properties == {
                "UNIQ_KEY": "k1", "TAGS": "A", "TIMER_DELIVER_MS": str(due_ms),
                "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
                "TIMER_OUT_MS": str(handle.due_ms), "REAL_TOPIC": "T", "REAL_QID": "2",
            }  # fmt: skip

    run_async(scenario())


def test_times_are_as_safe_as_any_message(tmp_path: Path, run_async: Run) -> None:
    """A stop and a start on the way."""

    clock = HeldClock()

    async def before() -> int:
        config = broker_config(tmp_path, flushDiskType="SYNC_FLUSH")
        async with running(config, clock=clock) as asker:
            await asker.make_topic("T")
            due_ms = clock.wall_ms() + 1_500
            for number in range(5):
                await asker.send(
                    body=b"%d" % number, text=_text(f"k{number}", TIMER_DELIVER_MS=due_ms - number)
                )
            return due_ms

    async def after(due_ms: int) -> None:
        async with running(broker_config(tmp_path), clock=clock) as asker:
            assert _bodies(asker) == []
            clock.advance(2_000)
            await until(lambda: len(_bodies(asker)) == 5)
            assert _bodies(asker) == [b"4", b"3", b"2", b"1", b"0"]
            times = [
                r.store_timestamp for r in asker.broker.context.store.get("T", 0, 0).messages()
            ]
            assert min(times) >= due_ms - 4

    due_ms = run_async(before())
    run_async(after(due_ms))


@pytest.mark.parametrize(
    "properties",
    [{"TIMER_DELAY_SEC": 0}, {"TIMER_DELAY_MS": -1}, {"TIMER_DELIVER_MS": 17}],
)
def test_the_past_is_now(tmp_path: Path, run_async: Run, properties: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            answer = await asker.send(text=_text("k", **properties))
            assert answer.code == 0
            assert "recallHandle" not in answer.ext
            await until(lambda: _bodies(asker) == [b"body"])

    run_async(scenario())


def test_what_a_broker_refuses(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, timerMaxDelaySec="60")
        async with running(config) as asker:
            await asker.make_topic("T")
            before = asker.broker.context.store.log_range
            for properties in (
                {"TIMER_DELAY_SEC": 61},
                {"TIMER_DELAY_MS": "x"},
                {"TIMER_DELIVER_MS": _now_ms() + HOUR_MS},
                {"TIMER_DELAY_SEC": 61, "TRAN_MSG": "true", "PGROUP": "PG"},
                {"TIMER_DELIVER_MS": 5, "TIMER_DEL_UNIQKEY": "k"},
            ):
                answer = await asker.send(text=_text("k", **properties))
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL, properties
                assert "TIMER_" in (answer.remark or "")
            assert asker.broker.context.store.log_range == before
            assert (await asker.send(text=_text("k", TIMER_DELAY_SEC=60))).code == 0

    run_async(scenario())


def test_a_batch_takes_no_times(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            text = _text("k", TIMER_DELAY_MS=500).encode()
            item = b"\0" * 12 + (0).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"x"
            item += len(text).to_bytes(2, "big") + text
            item = (len(item)).to_bytes(4, "big") + item[4:]
            answer = await asker.send(body=item, code=320, m="true", text="WAIT\x01true\x02")
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "send them singly" in (answer.remark or "")

    run_async(scenario())


def test_timers_can_be_switched_off(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, timerWheelEnable="false")) as asker:
            await asker.make_topic("T")
            answer = await asker.send(text=_text("k", TIMER_DELAY_MS=500))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "timerWheelEnable" in (answer.remark or "")
            handle = RecallHandle("T", "broker-a", _now_ms() + 5_000, "k").encode()
            assert (await _recall(asker, handle)).code == ResponseCode.NO_PERMISSION

    run_async(scenario())


def test_a_delay_level_wins_over_a_time(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            answer = await asker.send(text=_text("k", TIMER_DELAY_MS="x", DELAY=3))
            assert answer.code == 0
            store = asker.broker.context.store
            (waiting,) = store.get("SCHEDULE_TOPIC_XXXX", 2, 0, 1).messages()
            assert "TIMER_DELAY_MS" not in waiting.properties

    run_async(scenario())


def test_clients_cannot_send_to_the_timer_topic(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            answer = await asker.send(TIMER_TOPIC, text=_text("k", TIMER_OUT_MS=5, REAL_TOPIC="T"))
            assert answer.code == ResponseCode.NO_PERMISSION

    run_async(scenario())


def test_the_time_of_a_transaction_counts_from_its_commit(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        clock = HeldClock()
        async with running(broker_config(tmp_path), clock=clock) as asker:
            await asker.make_topic("T")
            text = _text("k", TIMER_DELAY_MS=300, TRAN_MSG="true", PGROUP="PG")
            half = await asker.send(text=text)
            assert (half.code, "recallHandle" in half.ext) == (0, False)
            clock.advance(5_000)
            committed_ms = clock.wall_ms()
            answer = await asker.ask(
                RequestCode.END_TRANSACTION, producerGroup="PG", commitOrRollback=8,
                tranStateTableOffset=half.ext["queueOffset"], msgId="k",
                commitLogOffset=int(half.ext["msgId"][16:], 16),
            )  # fmt: skip
            assert answer.code == 0
            await until(lambda: asker.broker.features.scheduled.timers.pending_count == 1)
            assert _bodies(asker) == []
            clock.advance(400)
            await until(lambda: _bodies(asker) == [b"body"])
            (copy,) = asker.broker.context.store.get("T", 0, 0, 1).messages()
            assert copy.store_timestamp >= committed_ms + 300
            assert copy.sys_flag & 12 == 8

    run_async(scenario())


def test_a_recall(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        clock = HeldClock()
        config = broker_config(tmp_path, flushDiskType="SYNC_FLUSH")
        async with running(config, clock=clock) as asker:
            await asker.make_topic("T")
            sent = await asker.send(body=b"1", text=_text("k1", TIMER_DELAY_MS=700))
            await asker.send(body=b"2", text=_text("k2", TIMER_DELAY_MS=700))
            answer = await _recall(asker, sent.ext["recallHandle"])
            assert (answer.code, answer.ext["msgId"], answer.ext["recalled"]) == (0, "k1", "true")
            again = await _recall(asker, sent.ext["recallHandle"])
            assert (again.code, again.ext["msgId"]) == (0, "k1")
            assert asker.broker.features.scheduled.timers.pending_by_topic == {"T": 1}
            clock.advance(800)
            await until(lambda: _bodies(asker) == [b"2"])
            late = await _recall(asker, sent.ext["recallHandle"])
            assert late.code == ResponseCode.ILLEGAL_OPERATION
            assert "timestamp invalid" in (late.remark or "")
            assert _bodies(asker) == [b"2"]

    run_async(scenario())


def test_recalls_that_are_refused(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            ahead = _now_ms() + 60_000
            illegal = ResponseCode.ILLEGAL_OPERATION
            for topic, handle, code in (
                ("T", "no handle", illegal),
                ("None", RecallHandle("None", "broker-a", ahead, "k").encode(), 17),
                ("T", RecallHandle("U", "broker-a", ahead, "k").encode(), illegal),
                ("T", RecallHandle("T", "broker-b", ahead, "k").encode(), illegal),
                ("T", RecallHandle("T", "broker-a", 5, "k").encode(), illegal),
                ("T", RecallHandle("T", "broker-a", ahead + 99 * HOUR_MS, "k").encode(), illegal),
            ):
                answer = await _recall(asker, handle, topic)
                assert answer.code == code, (topic, answer.remark)
            # As RocketMQ answers: the message is not looked up first.
            fine = await _recall(asker, RecallHandle("T", "broker-a", ahead, "none").encode())
            assert (fine.code, fine.ext) == (0, {"msgId": "none"})

    run_async(scenario())


def test_recalls_can_be_switched_off(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, recallMessageEnable="false")) as asker:
            await asker.make_topic("T")
            sent = await asker.send(text=_text("k1", TIMER_DELAY_MS=300))
            answer = await _recall(asker, sent.ext["recallHandle"])
            assert answer.code == ResponseCode.NO_PERMISSION
            await until(lambda: _bodies(asker) == [b"body"])

    run_async(scenario())


def test_a_message_that_takes_another_one_back(tmp_path: Path, run_async: Run) -> None:
    """The older way: an ordinary send with the key and the time of the message."""

    async def scenario() -> None:
        clock = HeldClock()
        async with running(broker_config(tmp_path), clock=clock) as asker:
            await asker.make_topic("T")
            due_ms = clock.wall_ms() + 500
            await asker.send(body=b"1", text=_text("k1", TIMER_DELIVER_MS=due_ms))
            await asker.send(body=b"2", text=_text("k2", TIMER_DELIVER_MS=due_ms))
            text = _text("k9", TIMER_DELIVER_MS=due_ms, TIMER_DEL_UNIQKEY="k1")
            assert (await asker.send(text=text)).code == 0
            clock.advance(600)
            await until(lambda: _bodies(asker) == [b"2"])
            assert asker.broker.features.scheduled.timers.pending_count == 0

    run_async(scenario())


def test_many_due_in_one_moment_do_not_hold_up_others(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await asker.make_topic("Other")
            store = asker.broker.context.store
            waiting = timer_form("T", 0, b"", _now_ms() + 1_000)
            for _ in range(2_000):
                store.append_text(*waiting[:2], b"body", waiting.text, born_host=store.store_host)
            timers = asker.broker.features.scheduled.timers
            await until(lambda: timers.delivered_count > 0)
            assert (await asker.send("Other")).code == 0
            # It was answered between two of them, and not when all of them had been delivered.
            assert timers.delivered_count < 2_000
            await until(lambda: timers.delivered_count == 2_000)
            assert timers.pending_by_topic == {}

    run_async(scenario())


def test_the_record_that_waits_can_be_read_by_apache(tmp_path: Path, run_async: Run) -> None:
    """Golden bytes: what its own broker would read from the log."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            due_ms = (_now_ms() + HOUR_MS) // 1_000 * 1_000
            answer = await asker.send(text=_text("k", TIMER_DELIVER_MS=due_ms))
            store = asker.broker.context.store
            position = int(answer.ext["msgId"][16:], 16)
            stored = store.record_at(position)
            assert stored is not None
            decoded = store.message_at(position)
            assert decoded is not None
            assert encode_record(decoded) == stored
            text = decode_properties(decoded.property_text)
            assert text["TIMER_OUT_MS"] == str(due_ms + 1)
            assert (decoded.topic, decoded.queue_id) == ("rmq_sys_wheel_timer", 0)

    run_async(scenario())
