"""Checks of open transactions: when, how often, and their outcome."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker_core.broker.transactions import check as transaction_check
from broker_core.broker.transactions.open_transactions import BLOCK_SIZE
from broker_core.broker.transactions.service import Verdict
from broker_core.store.message_store import MessageStore
from tests.broker.half_store import (
    AGE_MAX_MS,
    CHECKS_MAX,
    INTERVAL_MS,
    TIMEOUT_MS,
    HalfStore,
    asked,
)
from tests.broker.transactions.test_service import refuse

HOUR_MS = 3_600_000


@pytest.fixture
def broker() -> Iterator[HalfStore]:
    made = HalfStore().start()
    yield made
    made.stop()


def test_a_check_carries_the_message_and_its_place(broker: HalfStore) -> None:
    producer = broker.producer()
    offset = broker.send(b"x", "T", 3, TAGS="A")
    half = broker.half(offset).record
    broker.next_round()
    ((command, message),) = asked(producer)
    assert command.ext == {
        "tranStateTableOffset": str(offset),
        "commitLogOffset": str(half.physical_offset),
        "msgId": "key-x",
        "transactionId": "key-x",
        "offsetMsgId": half.message_id,
        "topic": "T",
        "bname": "broker-a",
    }
    assert (message.topic, message.queue_id, message.body) == ("T", 3, b"x")
    assert message.properties == {**half.properties, "TRANSACTION_CHECK_TIMES": "1"}
    assert message.physical_offset == half.physical_offset
    broker.next_round()
    ((_, message),) = asked(producer)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "2"


def test_a_half_is_not_checked_before_its_timeout(broker: HalfStore) -> None:
    producer = broker.producer()
    broker.advance(INTERVAL_MS - TIMEOUT_MS + 1)
    broker.send(b"x")
    broker.advance(TIMEOUT_MS)
    assert asked(producer) == []
    broker.advance(INTERVAL_MS)
    assert len(asked(producer)) == 1


def test_a_transaction_that_ended_is_not_checked(broker: HalfStore) -> None:
    producer = broker.producer()
    offsets = [broker.send(b"%d" % number) for number in range(3)]
    broker.commit(offsets[0])
    broker.end(offsets[2], Verdict.ROLLBACK)
    broker.next_round()
    assert [message.body for _, message in asked(producer)] == [b"1"]


def test_a_half_with_an_immunity_of_its_own_is_checked_later(broker: HalfStore) -> None:
    producer = broker.producer()
    broker.send(b"long", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    broker.send(b"usual", CHECK_IMMUNITY_TIME_IN_SECONDS="-1")
    broker.next_round()
    assert [message.body for _, message in asked(producer)] == [b"usual"]
    broker.next_round()
    broker.next_round()
    asked(producer)
    broker.next_round()
    # The time under protection has cost it no question.
    ((_, message), *_) = asked(producer)
    assert (message.body, message.properties["TRANSACTION_CHECK_TIMES"]) == (b"long", "1")


def test_a_shorter_immunity_than_the_others_have(broker: HalfStore) -> None:
    producer = broker.producer()
    broker.advance(INTERVAL_MS - 2_500)
    broker.send(b"usual")
    broker.send(b"short", CHECK_IMMUNITY_TIME_IN_SECONDS="2")
    broker.advance(2_500)
    assert [message.body for _, message in asked(producer)] == [b"short"]


def test_given_up_after_the_last_check(broker: HalfStore, caplog: pytest.LogCaptureFixture) -> None:
    producer = broker.producer()
    offset = broker.send(b"x")
    for _ in range(CHECKS_MAX):
        assert broker.given_up() == []
        broker.next_round()
    assert len(asked(producer)) == CHECKS_MAX
    with caplog.at_level(logging.ERROR):
        broker.next_round()
    assert broker.given_up() == [b"x"]
    assert "given up after 3 checks" in caplog.text
    assert broker.topics.find("TRANS_CHECK_MAX_TIME_TOPIC") is not None
    assert broker.open_offsets() == []
    # Too late now; and never both.
    assert broker.commit(offset).verdict is Verdict.GIVEN_UP
    assert broker.bodies() == []
    broker.next_round()
    assert asked(producer) == []


def test_given_up_without_room_for_its_topic() -> None:
    broker = HalfStore(checks_max=1)
    broker.topics._topics_max = 0
    broker.start()
    producer = broker.producer()
    for number in range(3):
        broker.send(b"%d" % number)
    broker.next_round()
    broker.next_round()
    assert broker.given_up() == [b"0", b"1", b"2"]
    assert len(asked(producer)) == 3
    broker.stop()


def test_without_a_producer_no_check_is_counted(
    broker: HalfStore, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        broker.send(b"%d" % number)
    stranger = broker.producer("Other")
    with caplog.at_level(logging.WARNING):
        for _ in range(CHECKS_MAX + 2):
            broker.next_round()
    assert broker.open_offsets() == [0, 1, 2]
    assert asked(stranger) == []
    assert caplog.text.count("3 transactions wait for a producer of group PG") == CHECKS_MAX + 2
    producer = broker.producer()
    broker.next_round()
    assert len(asked(producer)) == 3


def test_given_up_before_retention_takes_it(broker: HalfStore) -> None:
    broker.send(b"x")
    broker.advance(AGE_MAX_MS - INTERVAL_MS)
    assert broker.open_offsets() == [0]
    broker.advance(2 * INTERVAL_MS)
    assert broker.given_up() == [b"x"]


def test_no_check_is_sent_to_a_full_or_closed_connection(broker: HalfStore) -> None:
    broken, full, good = (broker.producer(port=port) for port in (1, 2, 3))
    broken.is_closed = True
    full.is_writable = False
    for number in range(4):
        broker.send(b"%d" % number)
    for _ in range(CHECKS_MAX):
        broker.next_round()
    assert full.sent == [] and good.sent
    counts = [broker.transactions.window.checks(offset) for offset in range(4)]
    assert sum(counts) == len(good.sent)


def test_producers_take_turns(broker: HalfStore) -> None:
    producers = [broker.producer(port=port) for port in (1, 2)]
    for number in range(10):
        broker.send(b"%d" % number)
    broker.next_round()
    assert [len(asked(producer)) for producer in producers] == [5, 5]


def test_checks_are_counted_over_restarts(broker: HalfStore) -> None:
    broker.producer()
    broker.send(b"x")
    broker.next_round()
    broker.next_round()
    again = broker.restart()
    producer = again.producer()
    again.next_round()
    ((_, message),) = asked(producer)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "3"
    last = again.killed()
    last.next_round()
    assert last.given_up() == [b"x"]
    last.stop()
    broker.stop = lambda: None  # type: ignore[method-assign]


def test_checks_by_another_broker_count(broker: HalfStore) -> None:
    producer = broker.producer()
    offset = broker.send(b"x")
    text = broker.half(offset).record.property_text + b"TRANSACTION_CHECK_TIMES\x012\x02"
    broker.store.append_text(
        "RMQ_SYS_TRANS_HALF_TOPIC", 0, b"y", text,
        born_timestamp=0, born_host=broker.store.store_host,
    )  # fmt: skip
    broker.store.flush()
    broker.next_round()
    times = {m.body: m.properties["TRANSACTION_CHECK_TIMES"] for _, m in asked(producer)}
    assert times == {b"x": "1", b"y": "3"}
    broker.next_round()
    assert broker.given_up() == [b"y"]


def test_halves_from_before_the_start(broker: HalfStore) -> None:
    broker.send(b"x")
    again = broker.restart()
    producer = again.producer()
    again.next_round()
    assert len(asked(producer)) == 1
    again.stop()
    broker.stop = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize("step_ms", [-87_600 * HOUR_MS, -HOUR_MS, HOUR_MS, 87_600 * HOUR_MS])
def test_a_wall_clock_that_is_set(broker: HalfStore, step_ms: int) -> None:
    producer = broker.producer()
    broker.send(b"before")
    broker.clock.set_wall(broker.clock.wall_ms() + step_ms)
    broker.send(b"after")
    broker.advance(TIMEOUT_MS - 1)
    assert asked(producer) == []
    broker.next_round()
    assert [message.body for _, message in asked(producer)] == [b"before", b"after"]
    assert broker.given_up() == []


def test_many_halves_are_checked_in_parts(
    broker: HalfStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = broker.producer()
    count = 3 * BLOCK_SIZE
    for number in range(count):
        broker.send(b"%d" % number)
    monkeypatch.setattr(transaction_check, "PAUSE_MS", 1_000)
    broker.advance(INTERVAL_MS)
    assert len(asked(producer)) == BLOCK_SIZE
    broker.advance(2_000)
    assert len(asked(producer)) == count - BLOCK_SIZE


def test_a_store_that_cannot_be_read_ends_no_round(
    broker: HalfStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from broker_core.errors import DiskFailed

    producer = broker.producer()
    broker.send(b"x")

    def fail(*_: object) -> None:
        raise DiskFailed("no")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(MessageStore, "message_at", fail)
        broker.next_round()
    assert "cannot be checked" in caplog.text
    broker.next_round()
    assert len(asked(producer)) == 1


def test_giving_up_that_cannot_be_stored_is_tried_again(
    broker: HalfStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.producer()
    offset = broker.send(b"x")
    for _ in range(CHECKS_MAX):
        broker.next_round()
    with monkeypatch.context() as patch:
        refuse(patch, "TRANS_CHECK_MAX_TIME_TOPIC")
        broker.next_round()
        assert broker.open_offsets() == [offset]
    # A producer that comes back in between is heard.
    assert broker.commit(offset).verdict is Verdict.COMMIT
    broker.advance(2_000)
    assert (broker.bodies(), broker.given_up()) == ([b"x"], [])
