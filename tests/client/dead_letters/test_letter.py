"""What a dead letter says about its origin, and the properties of its replay."""

from __future__ import annotations

import pytest

from broker_core.client.dead_letters.letter import DeadLetter, dead_letter_topic
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.records.message_properties import change_properties, encode_properties
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("%DLQ%billing", "broker-a", 0)


def letter(
    offset: int = 7, position: int = 640, queue: MessageQueue = QUEUE, **properties: str
) -> DeadLetter:
    record = MessageRecord(
        queue.topic,
        queue.queue_id,
        b"body",
        encode_properties(properties),
        queue_offset=offset,
        physical_offset=position,
        reconsume_times=3,
    )
    return DeadLetter(ReceivedMessage(record, queue))


def replayed(found: DeadLetter, target: str) -> dict[str, str]:
    text = change_properties(found.message.record.property_text, found.replay_changes(target))
    return MessageRecord("T", 0, b"", text).properties


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"RETRY_TOPIC": "orders", "DLQ_ORIGIN_TOPIC": "other"}, "orders"),
        ({"DLQ_ORIGIN_TOPIC": "orders"}, "orders"),
        ({"ORIGIN_TOPIC": "orders"}, "orders"),
        # Retries of pops that Apache's brokers moved.
        ({"RETRY_TOPIC": "%RETRY%billing_orders", "DLQ_ORIGIN_TOPIC": "orders"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%billing_orders"}, ""),
        ({}, ""),
    ],
)
def test_the_topic_that_it_was_for(properties: dict[str, str], topic: str) -> None:
    assert letter(**properties).origin_topic == topic


def test_what_it_says_about_itself() -> None:
    found = letter(ORIGIN_MESSAGE_ID="id-1", DEAD_LETTER_REASON="not JSON")
    assert found.place == "%DLQ%billing:broker-a:0:7"
    assert (found.origin_message_id, found.reason, found.reconsume_times) == ("id-1", "not JSON", 3)
    assert letter(DLQ_ORIGIN_MESSAGE_ID="id-2").origin_message_id == "id-2"
    assert dead_letter_topic("billing") == QUEUE.topic


def test_a_replay_names_its_origin_and_keeps_the_rest() -> None:
    given = {"TAGS": "A", "KEYS": "k", "colour": "red", "UNIQ_KEY": "first-id"}
    origin = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "id-1", "DLQ_ORIGIN_MESSAGE_ID": "id-1"}
    found = letter(**given, **origin, WAIT="false")
    assert replayed(found, "orders") == {
        **given,
        **origin,
        "DLQ_ORIGIN_TOPIC": "orders",
        "RECONSUME_TIME": "3",
        "REPLAY_OF": "%DLQ%billing:broker-a:0:7",
        "REPLAY_OF_ID": "first-id",
        "UNIQ_KEY": found.replay_id,
        "WAIT": "true",
    }


def test_a_replay_elsewhere_does_not_send_its_retries_to_the_first_topic() -> None:
    found = replayed(letter(RETRY_TOPIC="orders"), "orders-again")
    assert "RETRY_TOPIC" not in found
    assert found["DLQ_ORIGIN_TOPIC"] == "orders"


def test_a_replay_is_neither_delayed_nor_a_transaction() -> None:
    acted_on = {
        "DELAY": "3",
        "TIMER_DELIVER_MS": "99999999999999",
        "TRAN_MSG": "true",
        "REAL_TOPIC": "orders",
        "POP_CK": "0 0 0",
        "MAX_RECONSUME_TIMES": "1",
    }
    assert acted_on.keys().isdisjoint(replayed(letter(RETRY_TOPIC="orders", **acted_on), "orders"))


def test_the_id_of_a_replay_depends_on_the_dead_letter_alone() -> None:
    assert letter(KEYS="a").replay_id == letter(KEYS="b").replay_id
    assert len(letter().replay_id) == 32
    others = {
        letter(offset=8).replay_id,
        # The same offset of a topic that was made again.
        letter(position=1280).replay_id,
        letter(queue=QUEUE._replace(broker_name="broker-b")).replay_id,
        letter(queue=QUEUE._replace(topic="%DLQ%other")).replay_id,
    }
    assert len(others | {letter().replay_id}) == 5


@pytest.mark.parametrize(
    ("bits", "sys_flag"), [("1", 1), ("513", 513), ("4095", 1793), ("", 0), ("x", 0), ("9" * 40, 0)]
)
def test_a_replay_says_again_how_its_body_is_compressed(bits: str, sys_flag: int) -> None:
    found = letter(ORIGIN_COMPRESSION=bits)
    assert found.replayed_message().record.sys_flag == sys_flag
    assert found.replayed_message().record.body == b"body"
    assert "ORIGIN_COMPRESSION" not in replayed(found, "orders")
