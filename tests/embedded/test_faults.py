"""`broker.faults`: each fault is felt by a client, and is over after its block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress

import pytest

from broker_core import Cluster, EmbeddedBroker, SyncAdmin
from broker_core.embedded.faults import Faults
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    EmbeddedBrokerFailed,
    InvalidArgument,
    NameServersSilent,
    NoPermission,
    RequestTimeout,
    RmqError,
    ServiceNotAvailable,
    SystemBusy,
)
from tests.cli.rmq_process import LIMIT_S

# Each takes at least half a second.
ATTEMPTS_MAX = 240


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 2}, sync_flush=True) as running:
        yield running


@pytest.fixture
def hasty(broker: EmbeddedBroker) -> Cluster:
    """A client that does not wait for a fault to end."""
    return Cluster(broker.name_server, request_timeout_ms=500)


def bodies(broker: EmbeddedBroker) -> list[bytes]:
    return [message.body for message in broker.consume("orders")]


def fails(kind: type[RmqError], call: Callable[[], object]) -> RmqError:
    """Call until the error is of this kind: on a machine that stands still the time ends first."""
    for _ in range(ATTEMPTS_MAX):
        with pytest.raises(RmqError) as raised:
            call()
        error = raised.value
        if isinstance(error, kind) and not isinstance(error, NameServersSilent):
            return error
        assert isinstance(error, RequestTimeout | NameServersSilent)
    pytest.fail(f"{ATTEMPTS_MAX} calls have timed out")


# The process


def test_a_paused_broker_answers_nothing(broker: EmbeddedBroker, hasty: Cluster) -> None:
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


def test_a_pause_has_a_limit(broker: EmbeddedBroker) -> None:
    with broker.faults.paused(limit_s=0.2):
        assert broker.produce("orders", ["in time"]) == 1


def test_a_kill(broker: EmbeddedBroker) -> None:
    broker.produce("orders", ["kept"])
    broker.faults.kill()
    assert not broker.is_running
    with pytest.raises(EmbeddedBrokerFailed, match=r"call start\(\)"):
        broker.faults.pause()
    broker.start()
    assert b"kept" in bodies(broker)


@pytest.mark.parametrize(
    ("point", "is_stored"),
    [("send-received", False), ("send-done", True), ("after-sync", True), ("before-sync", None)],
)
def test_a_kill_at_a_point_of_a_send(
    broker: EmbeddedBroker, hasty: Cluster, point: str, is_stored: bool | None
) -> None:
    with broker.faults.kill_at(point) as kill:
        assert not kill.was_reached
        fails(ConnectionLost, lambda: hasty.produce("orders", [point]))
        kill.wait(LIMIT_S)
        assert kill.was_reached
        assert repr(kill) == f"<KillPoint {point}, killed>"
    assert broker.is_running
    found = point.encode() in bodies(broker)
    # Before a sync both is right: the message is in the log, and not on the disk.
    assert is_stored is None or found is is_stored


def test_a_kill_after_the_first_sync_of_messages() -> None:
    # A new broker syncs tables and new files before its first message.
    with EmbeddedBroker(topics={"orders": 1}, sync_flush=True) as new:
        client = Cluster(new.name_server, request_timeout_ms=500)
        with new.faults.kill_at("after-sync") as kill:
            fails(ConnectionLost, lambda: client.produce("orders", ["synced"]))
            kill.wait(LIMIT_S)
        assert b"synced" in bodies(new)


def test_a_kill_at_the_second_pull(broker: EmbeddedBroker) -> None:
    broker.produce("orders", ["read", "read"])
    with broker.faults.kill_at("pull-received", occurrence=2) as kill:
        # One for each queue.
        while not kill.was_reached:
            with suppress(RmqError):
                broker.consume("orders")
    assert b"read" in bodies(broker)


def test_a_point_that_is_not_reached(broker: EmbeddedBroker) -> None:
    with broker.faults.kill_at("publish-done") as kill:
        broker.produce("orders", ["a"])
        with pytest.raises(EmbeddedBrokerFailed, match=r"did not pass publish-done in 0\.1 s"):
            kill.wait(0.1)
    assert not kill.was_reached
    with pytest.raises(InvalidArgument, match=r"no point 'nowhere': give one of send-received, "):
        broker.faults.kill_at("nowhere").__enter__()


# Requests


def test_busy(broker: EmbeddedBroker, hasty: Cluster) -> None:
    with broker.faults.busy():
        error = fails(SystemBusy, lambda: hasty.produce("orders", ["busy"]))
    assert "busy: a fault on purpose" in str(error)
    broker.produce("orders", ["after busy"])
    assert b"after busy" in bodies(broker)
    assert b"busy" not in bodies(broker)


def test_one_fault_twice_is_refused(broker: EmbeddedBroker, hasty: Cluster) -> None:
    with broker.faults.busy():
        with (
            pytest.raises(InvalidArgument, match="fault busy is there already"),
            broker.faults.busy(),
        ):
            pass
        # The outer one goes on.
        fails(SystemBusy, lambda: hasty.produce("orders", ["refused"]))
    with broker.faults.busy():
        pass
    assert broker.produce("orders", ["stored"]) == 1


def test_refused_sends(broker: EmbeddedBroker) -> None:
    broker.produce("orders", ["before"])
    with broker.faults.refused_sends():
        with pytest.raises((NoPermission, BrokerNotExist)):
            broker.produce("orders", ["refused"])
        assert b"before" in bodies(broker)
    broker.produce("orders", ["after"])
    assert b"after" in bodies(broker)
    assert b"refused" not in bodies(broker)


# The network


def test_latency_keeps_the_order(broker: EmbeddedBroker, hasty: Cluster) -> None:
    with broker.faults.latency(0.05), SyncAdmin(broker.name_server) as admin:
        broker.produce("orders", [f"late {n}" for n in range(20)])
        assert admin.topic_offsets("orders")
    with broker.faults.latency(30), pytest.raises(RmqError, match="not answered within"):
        hasty.produce("orders", ["too late"])
    assert {b"late %d" % n for n in range(20)} <= set(bodies(broker))


def test_dropped_connections(broker: EmbeddedBroker, hasty: Cluster) -> None:
    # A heartbeat on the same connection may lose its answer first, and the send with it.
    while b"answer lost" not in bodies(broker):
        with broker.faults.dropped_connections():
            fails(ConnectionLost, lambda: hasty.produce("orders", ["answer lost"]))
    # The request was performed.
    with broker.faults.dropped_connections(every=1_000):
        broker.produce("orders", ["answered"])
    assert b"answered" in bodies(broker)


def test_a_partition(broker: EmbeddedBroker, hasty: Cluster) -> None:
    answered = threading.Event()

    def send() -> None:
        broker.produce("orders", ["held"])
        answered.set()

    with broker.faults.partition():
        with pytest.raises(RmqError):
            hasty.topics()
        thread = threading.Thread(target=send)
        thread.start()
        assert not answered.wait(0.2)
    thread.join(LIMIT_S)
    assert answered.is_set()
    assert b"held" in bodies(broker)


# The disk


def test_a_slow_sync(broker: EmbeddedBroker, hasty: Cluster) -> None:
    with broker.faults.slow_sync(60), pytest.raises(RmqError):
        hasty.produce("orders", ["slow"])
    # The end of the fault has let the sync pass.
    assert broker.produce("orders", ["quick"]) == 1
    assert b"slow" in bodies(broker)


def test_a_failing_sync_is_final_until_the_end_of_the_block(broker: EmbeddedBroker) -> None:
    before = broker.process_id
    with broker.faults.failing_sync():
        for text in ("failed", "refused"):
            with pytest.raises(RmqError):
                broker.produce("orders", [text])
        assert broker.process_id == before
    assert broker.process_id != before
    broker.produce("orders", ["after"])
    assert b"refused" not in bodies(broker)
    with broker.faults.failing_sync():
        unharmed = broker.process_id
    assert broker.process_id == unharmed


def test_a_full_disk(broker: EmbeddedBroker) -> None:
    broker.produce("orders", ["kept"])
    with broker.faults.full_disk():
        with pytest.raises(ServiceNotAvailable, match="DISK_FULL"):
            broker.produce("orders", ["no room"])
        assert b"kept" in bodies(broker)
    broker.produce("orders", ["room"])
    assert b"no room" not in bodies(broker)


# All of them


@pytest.mark.parametrize(
    "fault",
    [
        Faults.busy,
        Faults.partition,
        Faults.full_disk,
        lambda faults, limit_s: faults.latency(60, limit_s=limit_s),
        lambda faults, limit_s: faults.dropped_connections(every=1, limit_s=limit_s),
        lambda faults, limit_s: faults.slow_sync(60, limit_s=limit_s),
    ],
)
def test_a_fault_has_a_limit(
    broker: EmbeddedBroker, fault: Callable[..., AbstractContextManager[None]]
) -> None:
    with fault(broker.faults, limit_s=0.05):
        while True:
            try:
                broker.produce("orders", ["in the end"])
                break
            except RmqError:
                continue
    assert broker.produce("orders", ["after"]) == 1


def test_two_faults_and_a_kill_in_a_block(broker: EmbeddedBroker) -> None:
    with broker.faults.latency(0.01), broker.faults.slow_sync(0.01):
        broker.produce("orders", ["slow"])
        broker.faults.kill()
    broker.start()
    assert b"slow" in bodies(broker)


@pytest.mark.parametrize(
    ("begin", "text"),
    [
        (lambda faults: faults.latency(0), "seconds=0: give a number above 0 and at most 600"),
        (
            lambda faults: faults.latency(1, limit_s=1e9),
            "limit_s=1000000000.0: give .* at most 3600",
        ),
        (lambda faults: faults.latency("slow"), "seconds='slow': give a number above 0 and at"),
        (lambda faults: faults.dropped_connections(every=0), "every=0: give a whole number from 1"),
        (lambda faults: faults.kill_at("send-done", occurrence=0), "occurrence=0"),
        (lambda faults: faults._fault("flood", limit_s=1), "no fault 'flood'"),
    ],
)
def test_faults_that_cannot_be(
    broker: EmbeddedBroker,
    begin: Callable[[Faults], AbstractContextManager[object]],
    text: str,
) -> None:
    with pytest.raises(InvalidArgument, match=text), begin(broker.faults):
        pass
    assert broker.produce("orders", ["unharmed"]) == 1


def test_a_broker_that_others_can_reach_has_no_faults() -> None:
    remote = EmbeddedBroker(properties={"allowRemote": "true"})
    with pytest.raises(EmbeddedBrokerFailed, match="allowRemote=true has no faults"):
        remote.faults.busy().__enter__()
