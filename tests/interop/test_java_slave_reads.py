"""A real Java push consumer while our master is killed and comes back: no loss, no rewind."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import pytest

from broker_core import EmbeddedCluster, OutgoingMessage, SyncAdmin, SyncProducer
from broker_core.errors import RmqError
from tests.interop.client_ground import texts
from tests.interop.consumer_ground import patient_config
from tests.interop.java_client import CLIENT_VERSIONS, JavaClient
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.server_processes import wait_until

pytestmark = pytest.mark.interop

TOPIC = "Read"
GROUP = "JAVA_READERS"
COUNT = 300


def _send(name_server: str, first: int, count: int) -> None:
    messages = [OutgoingMessage(TOPIC, b"m%d" % n) for n in range(first, first + count)]
    # Patient: a message that is sent again for want of an answer would be stored twice.
    with SyncProducer(patient_config(name_server)) as producer:
        producer.send_many(messages)


def _start(client: JavaClient, name: str, name_server: str) -> None:
    client.call(
        "push.start", consumer=name, group=GROUP, topic=TOPIC, ns=name_server, instance=name,
        vip=False, route_ms=500, pull_batch=10, work_ms=5, threads=2,
    )  # fmt: skip


def _committed(name_server: str) -> int:
    with SyncAdmin(name_server) as admin, contextlib.suppress(RmqError):
        return sum(offset or 0 for offset in admin.committed_offsets(GROUP, TOPIC).values())
    # The route still leads to a broker that is gone.
    return -1


@pytest.mark.parametrize("version", CLIENT_VERSIONS[:1])
def test_a_java_consumer_goes_to_the_slave_and_comes_back(version: str, tmp_path: Path) -> None:
    try:
        client = JavaClient(version)
    except PeerUnavailable as error:
        pytest.skip(f"no Java client {version}: {error}")
    with (
        client,
        EmbeddedCluster(
            slaves_per_master=1, replication="sync", directory=tmp_path, topics={TOPIC: 2}
        ) as cluster,
    ):
        name_server = cluster.name_server
        _send(name_server, 0, COUNT)
        cluster.wait_in_sync()
        _start(client, "reader", name_server)
        client.wait_received("reader", COUNT // 10)
        cluster.kill("broker-a:0")
        # The rest comes from the slave.
        client.wait_received("reader", lambda got: len(set(texts(got))) == COUNT, 90)
        # The client commits what it did there, too.
        wait_until(lambda: _committed(name_server) == COUNT, 60, "offsets at the slave")
        cluster.restart("broker-a:0")
        cluster.wait_in_sync()
        # It comes back with what it knew when it was killed, and hears the rest from the slave.
        wait_until(lambda: _committed(name_server) == COUNT, 60, "offsets at the master")
        _send(name_server, COUNT, 50)
        received = client.wait_received(
            "reader", lambda got: len(set(texts(got))) == COUNT + 50, 90
        )
        # A client that is closed between a message and its commit leaves it to the next member.
        wait_until(lambda: _committed(name_server) == COUNT + 50, 60, "the last offsets")
        client.call("push.close", consumer="reader")
        counts = Counter(texts(received))
        assert set(counts) == {f"m{number}" for number in range(COUNT + 50)}
        # A pull that the kill interrupted may be consumed twice; nothing may be rewound.
        assert sum(counts.values()) - len(counts) <= 20, counts.most_common(3)
        # Another member of the group begins where the first one ended.
        _start(client, "next", name_server)
        _send(name_server, COUNT + 50, 1)
        last = client.wait_received("next", 1, 60)
        assert texts(last) == [f"m{COUNT + 50}"]
