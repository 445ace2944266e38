"""An Apache cluster whose log is replicated by consensus, through a change of its leader.

Three brokers of 4.9.7 with `enableDLegerCommitLog`. The client and the Spark source find the new
leader by themselves: what was acknowledged is read once, before and after the leader is killed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from broker_core import OutgoingMessage, SyncAdmin, SyncProducer
from broker_core.errors import RmqError
from tests.interop.loopback_ports import free_ports
from tests.interop.server_processes import BROKER_NAME, START_TIMEOUT_S, BrokerCluster, wait_until
from tests.pyspark_rmq.batch_stream import BatchStream

pytestmark = pytest.mark.skipif(
    not os.environ.get("RMQ_INTEROP_ALL"), reason="in the complete run: RMQ_INTEROP_ALL=1"
)
TOPIC = "Agreed"
MEMBERS = 3


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[BrokerCluster]]:
    ports = free_ports(MEMBERS)
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    found: list[BrokerCluster] = []
    for number in range(MEMBERS):
        shared = {"namesrvAddr": found[0].name_server_address} if found else {}
        found.append(
            BrokerCluster(
                "4.9.7",
                tmp_path / f"n{number}",
                {
                    "enableDLegerCommitLog": "true",
                    "dLegerGroup": BROKER_NAME,
                    "dLegerPeers": peers,
                    "dLegerSelfId": f"n{number}",
                    "brokerId": "-1",
                    "mappedFileSizeCommitLog": str(16 << 20),
                    **shared,
                },
            )
        )
    try:
        found[0].name_server.start()
        for member in found:
            member.broker.start(wait=False)
        server = found[0].name_server_address
        wait_until(lambda: _leader(server) is not None, START_TIMEOUT_S, "a leader")
        yield found
    finally:
        for member in found:
            member.broker.kill()
        found[0].name_server.kill()


def _leader(name_server: str) -> str | None:
    """The address of the member that is the master now."""
    with SyncAdmin(name_server) as admin, contextlib.suppress(RmqError):
        for broker in admin.route("TBW102").brokers:
            return broker.addresses.get(0)
    return None


def _send(name_server: str, numbers: range) -> None:
    """Each until it is acknowledged; while there is no leader, nothing is."""
    with SyncProducer(name_server) as producer:
        for number in numbers:
            message = OutgoingMessage(TOPIC, b"%d" % number)
            wait_until(partial(_is_sent, producer, message), START_TIMEOUT_S, "a leader's word")


def _is_sent(producer: SyncProducer, message: OutgoingMessage) -> bool:
    try:
        producer.send(message)
    except RmqError:
        return False
    return True


def test_streams_go_on_with_the_next_leader(members: list[BrokerCluster]) -> None:
    server = members[0].name_server_address
    _send(server, range(100))
    stream = BatchStream(server, TOPIC)
    try:
        stream.read_until(100)
        before = _leader(server)
        [leader] = [member for member in members if member.address == before]
        leader.broker.kill()
        _send(server, range(100, 200))
        assert _leader(server) != before
        wait_until(lambda: _reads_on(stream, 200), START_TIMEOUT_S, "all rows")
        leader.broker.start()
        _send(server, range(200, 220))
        wait_until(lambda: _reads_on(stream, 220), START_TIMEOUT_S, "all rows")
    finally:
        stream.close()
    # A send that was repeated for want of an answer may be there twice; nothing is missing.
    assert {int(body) for body in stream.seen} == set(range(220))
    assert len(stream.seen) <= 220 + MEMBERS


def _reads_on(stream: BatchStream, count: int) -> bool:
    """While a leader is chosen a batch may fail; it is planned again, as Spark would."""
    with contextlib.suppress(RmqError):
        stream.read()
    return len(set(stream.seen)) >= count
