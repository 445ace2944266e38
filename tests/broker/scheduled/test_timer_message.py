"""Timer properties, their stored form, and recall handles: pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.scheduled.timer_message import (
    TimerRules,
    commit_due_ms,
    delivered_timer,
    is_recall,
    names_timer,
    out_ms,
    property_bytes,
    recall_text,
    recalled_key,
    rolled_timer,
    stored_due_ms,
    timer_form,
    wake_ms,
)
from broker_core.codec.records.message_properties import decode_properties, encode_properties
from broker_core.codec.records.message_record import MessageRecord
from broker_core.errors import MalformedRecord, RemoteError
from broker_core.protocol_codes import ResponseCode

NOW = 1_700_000_000_123
RULES = TimerRules(True, 259_200_000)


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({}, None),
        ({"TIMER_DELAY_SEC": "3"}, NOW + 3_000),
        ({"TIMER_DELAY_MS": "3"}, NOW + 3),
        ({"TIMER_DELAY_MS": "+3"}, NOW + 3),
        ({"TIMER_DELIVER_MS": str(NOW + 3)}, NOW + 3),
        # The first of these counts, as in RocketMQ.
        ({"TIMER_DELIVER_MS": str(NOW + 9), "TIMER_DELAY_SEC": "1"}, NOW + 1_000),
        ({"TIMER_DELAY_SEC": "259200"}, NOW + 259_200_000),
        # The past is now.
        ({"TIMER_DELAY_SEC": "0"}, None),
        ({"TIMER_DELAY_MS": "-5"}, None),
        ({"TIMER_DELIVER_MS": "1"}, None),
        ({"TIMER_DELIVER_MS": str(NOW)}, None),
        ({"TIMER_DELIVER_MS": "-9223372036854775808"}, None),
        # It has waited already.
        ({"TIMER_DELAY_SEC": "3", "TIMER_OUT_MS": "5"}, None),
    ],
)
def test_the_due_time_that_properties_set(properties: dict[str, str], due_ms: int | None) -> None:
    if "-9223372036854775808" in properties.values():
        # One more than fits on the other side.
        properties = {"TIMER_DELIVER_MS": "-9223372036854775807"}
    assert RULES.due_ms(properties, NOW) == due_ms
    assert commit_due_ms(properties, NOW) == due_ms


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIMER_DELAY_SEC", "259201"),
        ("TIMER_DELAY_MS", "259200001"),
        ("TIMER_DELIVER_MS", str(NOW + 259_200_001)),
        ("TIMER_DELAY_SEC", "9223372036854775807"),
        ("TIMER_DELAY_SEC", "99999999999999999999999"),
        ("TIMER_DELAY_MS", "soon"),
        ("TIMER_DELAY_MS", "1.5"),
        ("TIMER_DELAY_MS", "٣"),
        ("TIMER_DELAY_MS", " 3"),
    ],
)
def test_times_that_no_broker_takes(name: str, value: str) -> None:
    with pytest.raises(RemoteError, match=name) as refused:
        RULES.due_ms({name: value}, NOW)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_broker_without_timers_rejects_timer_messages() -> None:
    with pytest.raises(RemoteError, match="timerWheelEnable") as refused:
        TimerRules(False, 1).due_ms({"TIMER_DELAY_MS": "3"}, NOW)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert TimerRules(False, 1).due_ms({}, NOW) is None


def test_a_recall_of_the_past_is_refused() -> None:
    with pytest.raises(RemoteError, match="cannot be recalled"):
        RULES.due_ms({"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "k"}, NOW)


@given(st.integers(0, 1 << 59))
def test_the_stored_time_is_exact_to_a_millisecond(due_ms: int) -> None:
    waiting = timer_form("T", 3, b"own\x011\x02TIMER_ROLL_TIMES\x017\x02", due_ms)
    stored = stored_due_ms(waiting.text)
    assert stored is not None
    assert 0 <= stored - due_ms <= 1
    assert stored == out_ms(due_ms)
    assert decode_properties(waiting.text) == {
        "own": "1",
        "TIMER_OUT_MS": str(stored),
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }
    assert (waiting.topic, waiting.queue_id) == ("rmq_sys_wheel_timer", 0)


@given(st.integers(1, 1 << 50), st.booleans())
def test_what_apache_stored_is_never_early(due_ms: int, has_exact: bool) -> None:
    """It rounds down, and takes a whole second off where nothing is left to round."""
    out = due_ms - 1_000 if due_ms % 1_000 == 0 else due_ms // 1_000 * 1_000
    out = max(out, 0)
    properties = {"TIMER_OUT_MS": str(out)}
    if has_exact:
        properties["TIMER_DELIVER_MS"] = str(due_ms)
    stored = stored_due_ms(encode_properties(properties))
    assert stored is not None
    assert due_ms <= stored <= due_ms + (0 if has_exact else 1_000)


@pytest.mark.parametrize("text", [b"", b"TIMER_OUT_MS\x01\x02", b"TIMER_OUT_MS\x01-4\x02"])
def test_a_text_without_a_time(text: bytes) -> None:
    assert stored_due_ms(text) is None


def test_values_are_found_by_whole_names() -> None:
    text = b"XTIMER_OUT_MS\x015\x02TIMER_OUT_MS\x017\x02"
    assert property_bytes(text, b"TIMER_OUT_MS\x01") == b"7"
    assert property_bytes(b"a\x01TIMER_OUT_MS\x02", b"TIMER_OUT_MS\x01") == b""


def test_looking_ahead() -> None:
    assert wake_ms(500, 100, 1_000) == 500
    assert wake_ms(5_000, 100, 1_000) == 1_100


def test_batches_with_times_are_noticed() -> None:
    assert names_timer(b"TIMER_DELAY_MS\x015\x02")
    assert names_timer(memoryview(b"a\x01b\x02TIMER_DELIVER_MS\x015\x02"))
    assert not names_timer(b"a\x01TIMER_DELAY_MS\x02XTIMER_DELAY_SEC\x015\x02")


def test_a_recall_names_its_message() -> None:
    text = recall_text("T", "key", NOW)
    assert is_recall(text)
    assert recalled_key(text) == ("T", "key")
    # Brokers may be set to put the topic first.
    assert recalled_key(b"REAL_TOPIC\x01T\x02TIMER_DEL_UNIQKEY\x01T+key\x02") == ("T", "key")
    assert stored_due_ms(text) == NOW


def test_a_rolled_message_counts_its_rolls() -> None:
    record = MessageRecord("rmq_sys_wheel_timer", 0, b"x", b"REAL_TOPIC\x01T\x02")
    record = record._replace(physical_offset=77)
    once = rolled_timer(record)
    twice = rolled_timer(once)
    assert twice.properties == {"REAL_TOPIC": "T", "TIMER_ROLL_TIMES": "2"}
    assert twice.prepared_transaction_offset == ~77


def test_a_copy_never_waits_again() -> None:
    text = b"REAL_TOPIC\x01rmq_sys_wheel_timer\x02"
    with pytest.raises(MalformedRecord, match="not a topic to deliver to"):
        delivered_timer(MessageRecord("rmq_sys_wheel_timer", 0, b"x", text))
