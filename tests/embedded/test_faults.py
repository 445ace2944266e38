"""`broker.faults`: each fault is felt by a client, and is over after its block."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_core import Cluster, EmbeddedBroker
from broker_core.errors import BrokerNotExist, EmbeddedBrokerFailed, NoPermission, RmqError


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 2}) as running:
        yield running


def test_a_paused_broker_answers_nothing(broker: EmbeddedBroker) -> None:
    hasty = Cluster(broker.name_server, request_timeout_ms=500)
    with broker.faults.paused():
        assert broker.is_running
        with pytest.raises(RmqError):
            hasty.topics()
    assert "orders" in set(broker.topics()["topic"])
    broker.faults.resume()


def test_an_error_in_the_block_ends_the_pause(broker: EmbeddedBroker) -> None:
    with pytest.raises(ZeroDivisionError), broker.faults.paused():
        _ = 1 // 0
    assert broker.produce("orders", ["a"]) == 1


def test_refused_sends(broker: EmbeddedBroker) -> None:
    broker.produce("orders", ["before"])
    with broker.faults.refused_sends():
        with pytest.raises((NoPermission, BrokerNotExist)):
            broker.produce("orders", ["refused"])
        assert b"before" in [message.body for message in broker.consume("orders")]
    broker.produce("orders", ["after"])
    bodies = [message.body for message in broker.consume("orders")]
    assert b"after" in bodies
    assert b"refused" not in bodies


def test_a_kill(broker: EmbeddedBroker) -> None:
    broker.produce("orders", ["kept"])
    broker.faults.kill()
    assert not broker.is_running
    with pytest.raises(EmbeddedBrokerFailed, match=r"call start\(\)"):
        broker.faults.pause()
    broker.start()
    assert b"kept" in [message.body for message in broker.consume("orders")]
