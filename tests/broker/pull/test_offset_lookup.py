"""Ends of queues, offsets by time and messages by position, against a store with known times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_core.codec.records.message_record import decode_record
from broker_core.protocol_codes import FlushDiskType, RequestCode
from broker_core.store.writes.message import Message
from tests.broker.admin_broker import AdminBroker

T0 = 1_700_000_000_000
BY_TIME = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
VIEW = RequestCode.VIEW_MESSAGE_BY_ID


@pytest.fixture
def broker() -> Iterator[AdminBroker]:
    """Messages 0..9 of queue 0 are a second apart; 3, 4 and 5 of queue 1 share their time."""
    asked = AdminBroker()
    asked.put("T1", 10, step_ms=1_000)
    asked.put("T1", 4, queue_id=1, step_ms=1_000)
    asked.put("T1", 2, queue_id=1)
    asked.clock.advance(1_000)
    asked.put("T1", 1, queue_id=1)
    yield asked
    asked.close()


def offset(broker: AdminBroker, code: int, queue_id: int = 0, topic: str = "T1", **ext: str) -> int:
    answer = broker.ask(code, topic=topic, queueId=str(queue_id), **ext)
    assert answer.code == 0, answer.remark
    return int(answer.ext["offset"])


def test_ends(broker: AdminBroker) -> None:
    assert offset(broker, RequestCode.GET_MAX_OFFSET, committed="true") == 10
    assert offset(broker, RequestCode.GET_MIN_OFFSET) == 0
    assert offset(broker, RequestCode.GET_MAX_OFFSET, 1, bname="broker-a") == 7


def test_queues_without_messages_are_empty(broker: AdminBroker) -> None:
    for topic, queue_id in (("T1", 5), ("nowhere", 0), ("no such name", 7)):
        assert offset(broker, RequestCode.GET_MAX_OFFSET, queue_id, topic) == 0
        assert offset(broker, RequestCode.GET_MIN_OFFSET, queue_id, topic) == 0
        assert offset(broker, BY_TIME, queue_id, topic, timestamp=str(T0)) == 0
        assert offset(broker, BY_TIME, queue_id, topic, timestamp="5", boundaryType="UPPER") == 0
        answer = broker.ask(
            RequestCode.GET_EARLIEST_MSG_STORETIME, topic=topic, queueId=str(queue_id)
        )
        assert answer.ext == {"timestamp": "-1"}


def test_ends_after_retention(broker: AdminBroker) -> None:
    broker.put("T1", 400)
    broker.clock.advance(100 * 3_600_000)
    broker.store.clean(manual=True)
    low = offset(broker, RequestCode.GET_MIN_OFFSET)
    assert low > 0
    assert offset(broker, RequestCode.GET_MAX_OFFSET) == 410
    # Times of messages that are gone lead to the oldest that is kept.
    assert offset(broker, BY_TIME, timestamp=str(T0)) == low
    assert offset(broker, BY_TIME, timestamp=str(T0), boundaryType="UPPER") == low


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [
        (-(1 << 63), 0, 0),
        (-1, 0, 0),
        (0, 0, 0),
        (T0 - 1, 0, 0),
        (T0, 0, 0),
        (T0 + 1, 1, 0),
        (T0 + 3_000, 3, 3),
        (T0 + 3_500, 4, 3),
        (T0 + 9_000, 9, 9),
        # Past the end: the end, as 5.5 answers (4.9.7 gives the last message).
        (T0 + 9_001, 10, 9),
        ((1 << 63) - 1, 10, 9),
    ],
)
def test_offset_by_time(broker: AdminBroker, time_ms: int, lower: int, upper: int) -> None:
    assert offset(broker, BY_TIME, timestamp=str(time_ms)) == lower
    assert offset(broker, BY_TIME, timestamp=str(time_ms), boundaryType="lower") == lower
    assert offset(broker, BY_TIME, timestamp=str(time_ms), boundaryType="Upper") == upper


def test_messages_of_one_time_are_found_from_both_sides(broker: AdminBroker) -> None:
    shared = str(T0 + 12_000)
    assert offset(broker, BY_TIME, 1, timestamp=shared) == 3
    assert offset(broker, BY_TIME, 1, timestamp=shared, boundaryType="UPPER") == 5


def test_the_earliest_time(broker: AdminBroker) -> None:
    for queue_id, expected in ((0, T0), (1, T0 + 9_000)):
        answer = broker.ask(
            RequestCode.GET_EARLIEST_MSG_STORETIME, topic="T1", queueId=str(queue_id)
        )
        assert answer.ext == {"timestamp": str(expected)}


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        (RequestCode.GET_MAX_OFFSET, {"queueId": "0"}),
        (RequestCode.GET_MAX_OFFSET, {"topic": "T1"}),
        (RequestCode.GET_MAX_OFFSET, {"topic": "T1", "queueId": "-1"}),
        (RequestCode.GET_MIN_OFFSET, {"topic": "T1", "queueId": "2147483648"}),
        (RequestCode.GET_MIN_OFFSET, {"topic": "T1", "queueId": "0x1"}),
        (BY_TIME, {"topic": "T1", "queueId": "0"}),
        (BY_TIME, {"topic": "T1", "queueId": "0", "timestamp": "now"}),
        (BY_TIME, {"topic": "T1", "queueId": "0", "timestamp": "9" * 30}),
        (BY_TIME, {"topic": "T1", "queueId": "0", "timestamp": "1", "boundaryType": "MIDDLE"}),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "T1", "queueId": "x"}),
        (VIEW, {}),
        (VIEW, {"offset": "-1"}),
        (VIEW, {"offset": "one"}),
    ],
)
def test_bad_fields_are_29(broker: AdminBroker, code: int, ext: dict[str, str]) -> None:
    answer = broker.ask(code, **ext)
    assert answer.code == 29
    assert answer.remark


def test_every_message_can_be_viewed_by_its_position(broker: AdminBroker) -> None:
    stored = broker.store.get("T1", 0, 0, 32)
    assert stored.message_count == 10
    views = []
    for message in stored.messages():
        answer = broker.ask(VIEW, offset=str(message.physical_offset), topic="T1")
        assert answer.code == 0
        views.append(bytes(answer.body))
        assert decode_record(answer.body) == message
    assert b"".join(views) == stored.records, "the very bytes that a pull gives"


def test_positions_without_a_message_are_1(broker: AdminBroker) -> None:
    end = broker.store.log_range[1]
    for position in (1, 7, end - 1, end, end + 1, 1 << 40, (1 << 63) - 1):
        answer = broker.ask(VIEW, offset=str(position))
        assert (answer.code, answer.body) == (1, b"")
        assert str(position) in (answer.remark or "")


def test_a_message_that_is_not_visible_yet_cannot_be_viewed() -> None:
    # Messages wait in a write buffer until they are committed to the file.
    settings = {"transient_pool_enable": True, "flush_disk_type": FlushDiskType.ASYNC_FLUSH}
    broker = AdminBroker(settings)
    broker.put("T1", 1)
    position = broker.store.log_range[1]
    assert broker.store.append(Message("T1", b"in a buffer")).ok
    assert broker.ask(VIEW, offset=str(position)).code == 1
    broker.store.flush()
    assert broker.ask(VIEW, offset=str(position)).code == 0
    broker.close()
