"""Messages that come at a time to the millisecond, and taking them back."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.interop.client_ground import GO, JAVA, NODE, Ground, Producer, scenario, texts
from tests.interop.driven_client import ClientError, Row
from tests.interop.server_processes import OURS as OUR_BROKER

WITHOUT_TIMERS = "4.9 brokers know delay levels only"
# For a time that was misread, such as seconds for milliseconds; how punctual a broker is, the
# benchmarks measure.
LATE_MAX_MS = 180_000
ATTEMPTS = 3


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _send(ground: Ground, producer: Producer, topic: str, body: str, **times: Any) -> Row:
    pairs = [f"{name}={value}" for name, value in times.items()]
    # Java's library refuses these names where applications may set properties.
    field = "timer" if ground.language == JAVA else "property"
    return producer.send(topic, body.encode(), **{field: pairs})


@scenario("timer messages: on time, in the order of their times, and at once when that is past")
def timers(ground: Ground) -> None:
    # A machine that is busy may send the last of them when the first is due already.
    for attempt in range(ATTEMPTS):
        if _timers_come(ground, f"-{attempt}", is_last=attempt == ATTEMPTS - 1):
            return


def _timers_come(ground: Ground, mark: str, *, is_last: bool) -> bool:
    """Whether they came in order; false when the machine was too slow to tell."""
    topic, producer = ground.topic(mark=mark), ground.producer()
    consumer = ground.push(topic, mark, group=ground.group(mark))
    begin_ms = _now_ms()
    due: dict[str, int] = {}
    for number, in_s in enumerate((9, 6, 3)):
        body = f"at{number}"
        due[body] = begin_ms + in_s * 1_000
        _send(ground, producer, topic, body, TIMER_DELIVER_MS=due[body])
    for name, value in (("TIMER_DELAY_SEC", 5), ("TIMER_DELAY_MS", 4_500)):
        due[name] = _now_ms() + (value * 1_000 if name.endswith("SEC") else value)
        sent = _send(ground, producer, topic, name, **{name: value})
        assert sent["status"] == "SEND_OK"
    for name, value in (("TIMER_DELIVER_MS", begin_ms - 5_000), ("TIMER_DELAY_MS", -3)):
        _send(ground, producer, topic, "past", **{name: value})
    spent_ms = _now_ms() - begin_ms
    # As they were delivered: the listeners of a slow client may overtake each other.
    received = sorted(consumer.wait(7), key=lambda message: int(message["offset"]))
    late = {m["text"]: m["store_timestamp"] - due[m["text"]] for m in received if m["text"] in due}
    assert sorted(late) == sorted(due)
    assert min(late.values()) >= 0, late
    assert max(late.values()) < LATE_MAX_MS, late
    if spent_ms > 2_000 and not is_last:
        return False
    assert texts(received)[:2] == ["past", "past"]
    assert [text for text in texts(received) if text.startswith("at")] == ["at2", "at1", "at0"]
    return True


@scenario("timer messages too far ahead, or at no time at all, are refused")
def timers_refused(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    for name, value in (
        ("TIMER_DELAY_SEC", 3 * 86_400 + 60),
        ("TIMER_DELIVER_MS", _now_ms() + 4 * 86_400_000),
        ("TIMER_DELAY_MS", "soon"),
    ):
        with pytest.raises(ClientError) as refused:
            _send(ground, producer, topic, "x", **{name: value})
        assert refused.value.code == 13 or "13" in str(refused.value), refused.value
    assert _send(ground, producer, topic, "y", TIMER_DELAY_SEC=2)["status"] == "SEND_OK"
    assert texts(ground.push(topic).wait(1)) == ["y"]


@scenario(
    "timer messages taken back before their time",
    lacking={
        GO: "this library cannot recall messages",
        NODE: "this library cannot recall messages",
    },
)
def recall(ground: Ground) -> None:
    # On a busy machine the time may come before the recall: then it was none.
    assert any(_is_recalled(ground, f"-{attempt}") for attempt in range(ATTEMPTS))


def _is_recalled(ground: Ground, mark: str) -> bool:
    """Whether the recall came before the time of the message; checks what was delivered then."""
    topic, producer = ground.topic(mark=mark), ground.producer()
    consumer = ground.push(topic, mark, group=ground.group(mark))
    due_ms = _now_ms() + 6_000
    sent = {
        body: _send(ground, producer, topic, body, TIMER_DELIVER_MS=due_ms)
        for body in ("one", "two", "three")
    }
    try:
        _take_back(ground, producer, topic, sent["two"], due_ms)
    except ClientError:
        if _now_ms() < due_ms - 1_000:
            raise
    if _now_ms() > due_ms - 1_000:
        return False
    assert sorted(texts(consumer.wait(2))) == ["one", "three"]
    marker = _send(ground, producer, topic, "last", TIMER_DELAY_MS=1)
    assert marker["status"] == "SEND_OK"
    consumer.wait(lambda got: "last" in texts(got))
    assert sorted(texts(consumer.received())) == ["last", "one", "three"]
    return True


def _take_back(ground: Ground, producer: Producer, topic: str, sent: Row, due_ms: int) -> None:
    if ground.language == JAVA and ground.client.version.startswith("4."):
        # Its library knows no recall; the properties that a recall is made of work all the same.
        _send(
            ground, producer, topic, "0", TIMER_DELIVER_MS=due_ms,
            TIMER_DEL_UNIQKEY=sent["msg_id"],
        )  # fmt: skip
        return
    answered = producer.call("producer.recall", topic=topic, handle=sent["recall_handle"])
    assert answered == sent["msg_id"]
    with pytest.raises(ClientError):
        producer.call("producer.recall", topic=topic, handle="nonsense")


@scenario(
    "timer messages through a kill of the broker",
    strict=True,
    alone=True,
    slow_with=("Java 4.9.8", "Go 2.1.2", "Node 3.12.0", "ours"),
)
def timers_through_a_kill(ground: Ground) -> None:
    soon: dict[str, Any] = {"route_ms": 1_000, "heartbeat_ms": 1_000}
    # Not so soon: a Java client whose heartbeat is answered late drops its connection, and sends
    # again what was under way there.
    topic, producer = ground.topic(2), ground.producer()
    consumer = ground.push(topic, **soon)
    begin_ms = _now_ms() + 2_000
    due = {f"m{number}": begin_ms + number * 100 for number in range(60)}
    bodies = list(due)
    for body, due_ms in due.items():
        _send(ground, producer, topic, body, TIMER_DELIVER_MS=due_ms)
    early = consumer.wait(10)
    assert all(message["store_timestamp"] >= due[message["text"]] for message in early)
    ground.cluster.broker.kill()
    ground.cluster.start_broker()
    received = consumer.wait(lambda got: set(bodies) <= set(texts(got)), 90)
    stored = {(message["queue"], message["offset"]): message["text"] for message in received}
    if ground.cluster.kind == OUR_BROKER:
        # RocketMQ delivers again what it had not noted yet.
        assert sorted(stored.values()) == sorted(bodies)
