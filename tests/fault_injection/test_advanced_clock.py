"""A clock that is moved, and the broker that follows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from broker_core import (
    ConsumeContext,
    ConsumeStatus,
    EmbeddedBroker,
    ReceivedMessage,
    SyncPushConsumer,
)
from broker_core.codec.wire.bodies.heartbeat_data import FROM_FIRST_OFFSET
from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument
from broker_core.fault_injection.advanced_clock import AdvancedClock
from broker_core.runtime.clock import SystemClock

DAY_S = 86_400


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 2}, test_clock=True) as running:
        yield running


def bodies(broker: EmbeddedBroker, topic: str = "orders") -> list[str]:
    return sorted(message.body.decode() for message in broker.consume(topic))


def test_both_times_move_together() -> None:
    clock, system = AdvancedClock(), SystemClock()
    before = clock.monotonic()
    clock.advance(DAY_S)
    assert clock.ahead_s == DAY_S
    assert clock.monotonic() - before >= DAY_S
    assert clock.wall_ms() - system.wall_ms() >= DAY_S * 1000 - 1000


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 400 * DAY_S])
def test_the_clock_goes_forward_and_not_too_far(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="cannot be advanced by"):
        AdvancedClock().advance(seconds)


def test_delay_levels_and_timers_are_due(broker: EmbeddedBroker) -> None:
    broker.produce("orders", ["now"])
    broker.produce("orders", ["in a minute"], delay_level=5)
    broker.produce("orders", ["in two hours"], delay_level=18)
    broker.produce("orders", [{"value": "in a day", "delay_ms": DAY_S * 1000}])
    at = broker.wall_ms + 2 * DAY_S * 1000
    broker.produce("orders", [{"value": "in two days", "deliver_at_ms": at}])
    assert bodies(broker) == ["now"]
    broker.advance_clock(60)
    assert bodies(broker) == ["in a minute", "now"]
    broker.advance_clock(7200 - 60)
    assert bodies(broker) == ["in a minute", "in two hours", "now"]
    broker.advance_clock(DAY_S - 7200)
    assert "in a day" in bodies(broker)
    assert "in two days" not in bodies(broker)
    broker.advance_clock(DAY_S)
    assert "in two days" in bodies(broker)


def test_many_that_are_due_at_once(broker: EmbeddedBroker) -> None:
    broker.create_topic("many", 2)
    broker.produce("many", [f"{n}" for n in range(3_000)], delay_level=3)
    broker.advance_clock(3_600)
    assert len(bodies(broker, "many")) == 3_000


def test_the_retry_of_a_consumer_is_due(broker: EmbeddedBroker) -> None:
    broker.create_topic("jobs", 1)
    broker.produce("jobs", ["job"])
    again = threading.Event()

    def listen(messages: Sequence[ReceivedMessage], _: ConsumeContext) -> ConsumeStatus:
        [message] = messages
        if message.reconsume_times < 3:
            return ConsumeStatus.LATER
        again.set()
        return ConsumeStatus.SUCCESS

    consumer = SyncPushConsumer(broker.name_server, "workers", listen, from_where=FROM_FIRST_OFFSET)
    consumer.subscribe("jobs")
    with consumer:
        # Retries wait for 10 s, 30 s and a minute.
        for _ in range(1_000):
            if again.wait(0.1):
                break
            broker.advance_clock(60)
    assert again.is_set()


def test_a_kill_does_not_set_the_clock_back() -> None:
    with EmbeddedBroker(topics={"orders": 1}, test_clock=True) as broker:
        broker.advance_clock(DAY_S)
        broker.kill()
        broker.start()
        assert broker.is_clock_advanced
        broker.produce("orders", [{"value": "a", "deliver_at_ms": broker.wall_ms + 60_000}])
        assert bodies(broker) == []
        broker.advance_clock(61)
        assert bodies(broker) == ["a"]
        # Another store has another time.
        broker.stop()
        assert not broker.start().is_clock_advanced


def test_the_clock_of_the_machine_is_not_moved() -> None:
    plain = EmbeddedBroker()
    with plain, pytest.raises(InvalidArgument, match="start it with test_clock=True"):
        plain.advance_clock(1)
    with pytest.raises(EmbeddedBrokerFailed, match=r"call start\(\)"):
        plain.advance_clock(1)
