"""gRPC clients of 5.x consume from our broker through Apache's proxy in cluster mode.

Push consumers are left to the end of their process: their own goodbye takes twenty seconds.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core import SyncAdmin
from tests.interop.client_ground import texts
from tests.interop.driven_client import ClientError
from tests.interop.grpc_client import GrpcClient, Proxy
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.mqadmin import Mqadmin
from tests.interop.peer_releases import NEWEST
from tests.interop.server_processes import OURS, BrokerCluster, wait_until

pytestmark = pytest.mark.interop


class Grpc:
    """A cluster of ours, a proxy before it, and gRPC clients."""

    def __init__(self, home: Path, running: contextlib.ExitStack) -> None:
        self.client = running.enter_context(GrpcClient())
        self.cluster = running.enter_context(BrokerCluster(OURS, home / "cluster"))
        name_server = self.cluster.name_server_address
        self.mqadmin = running.enter_context(Mqadmin(NEWEST, name_server))
        self.proxy = running.enter_context(Proxy(home / "proxy", name_server))

    def topic(self, name: str, *options: str, queues: int = 4) -> str:
        self.mqadmin.ok(
            "updateTopic", "-c", "DefaultCluster", "-t", name, "-r", str(queues), "-w",
            str(queues), *options,
        )  # fmt: skip
        self.call("producer.start", producer=name, topic=name)
        return name

    def call(self, op: str, **arguments: Any) -> Any:
        return self.client.call(op, proxy=self.proxy.address, **arguments)

    def send(self, topic: str, *bodies: str, **options: str) -> None:
        self.call("producer.send", producer=topic, topic=topic, texts=",".join(bodies), **options)

    def committed(self, group: str, topic: str) -> int:
        with SyncAdmin(self.cluster.name_server_address) as admin:
            return sum(n or 0 for n in admin.committed_offsets(group, topic).values())

    def receive(self, consumer: str, count: int, **options: object) -> list[dict[str, Any]]:
        """Until so many messages came, or none more for a while."""
        found: list[dict[str, Any]] = []

        def enough() -> bool:
            found.extend(self.call("simple.receive", consumer=consumer, **options))
            return len(found) >= count

        wait_until(enough, 60, f"{count} messages")
        return found


@pytest.fixture(scope="module")
def grpc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grpc]:
    with contextlib.ExitStack() as running:
        try:
            found = Grpc(tmp_path_factory.mktemp("grpc"), running)
        except PeerUnavailable as error:
            pytest.skip(f"no proxy or gRPC client: {error}")
        yield found


def test_a_simple_consumer_receives_acknowledges_and_changes_times(grpc: Grpc) -> None:
    topic = grpc.topic("Simple")
    grpc.call("simple.start", consumer="s", group="SIMPLE", topic=topic, await_ms=5_000)
    expected = [f"m{n}" for n in range(100)]
    grpc.send(topic, *expected)
    found = grpc.receive("s", 100, invisible_ms=60_000)
    assert Counter(texts(found)) == Counter(expected)
    assert {m["attempt"] for m in found} == {1}
    grpc.call("simple.ack", consumer="s", texts=",".join(expected[1:]))
    # The one that is left is hidden for another while, shown again, and then acknowledged.
    grpc.call("simple.change", consumer="s", text="m0", invisible_ms=10_000)
    [again] = grpc.receive("s", 1, invisible_ms=30_000)
    assert (again["text"], again["topic"], again["attempt"]) == ("m0", topic, 2)
    grpc.call("simple.ack", consumer="s", texts="m0")
    wait_until(lambda: grpc.committed("SIMPLE", topic) == 100, 30, "all acknowledged")
    wait_until(lambda: grpc.committed("SIMPLE", f"%RETRY%SIMPLE_{topic}") == 1, 30, "the retry")
    assert grpc.call("simple.receive", consumer="s") == []
    grpc.call("simple.close", consumer="s")


def test_a_push_consumer_gets_everything_and_failures_again(grpc: Grpc) -> None:
    topic = grpc.topic("Push")
    expected = [f"fail{n}" if n % 100 == 0 else f"m{n}" for n in range(300)]
    grpc.send(topic, *expected[:150])
    grpc.call("push.start", consumer="p", group="PUSH", topic=topic, failures=1)
    grpc.send(topic, *expected[150:])
    received = grpc.client.wait_received("p", len(expected) + 3, 90)
    assert set(texts(received)) == set(expected)
    assert Counter(texts(received)) == Counter([*expected, "fail0", "fail100", "fail200"])
    assert sorted(m["text"] for m in received if m["attempt"] == 2) == [
        "fail0", "fail100", "fail200",
    ]  # fmt: skip
    wait_until(lambda: grpc.committed("PUSH", topic) == 300, 60, "all acknowledged")


def test_a_push_consumer_filters_by_tag(grpc: Grpc) -> None:
    topic = grpc.topic("Tagged")
    grpc.send(topic, "a1", "a2", tag="A")
    grpc.send(topic, "b1", "b2", tag="B")
    grpc.call("push.start", consumer="t", group="TAGGED", topic=topic, expression="B")
    assert sorted(texts(grpc.client.wait_received("t", 2))) == ["b1", "b2"]
    wait_until(lambda: grpc.committed("TAGGED", topic) == 4, 60, "the others passed")


def test_a_group_in_order(grpc: Grpc) -> None:
    topic = grpc.topic("Order", "-a", "+message.type=FIFO", queues=2)
    grpc.mqadmin.ok("updateSubGroup", "-c", "DefaultCluster", "-g", "ORDER", "-o", "true")
    expected = [f"m{n}" for n in range(20)]
    grpc.send(topic, *expected, message_group="g1")
    grpc.call("push.start", consumer="o", group="ORDER", topic=topic)
    assert texts(grpc.client.wait_received("o", 20)) == expected
    wait_until(lambda: grpc.committed("ORDER", topic) == 20, 60, "all acknowledged")


def test_a_push_consumer_lives_through_a_kill_of_the_broker(grpc: Grpc) -> None:
    topic = grpc.topic("Killed")
    expected = [f"m{n}" for n in range(100)]
    grpc.send(topic, *expected[:50])
    grpc.call("push.start", consumer="k", group="KILLED", topic=topic)
    grpc.client.wait_received("k", 10)
    grpc.cluster.broker.kill()
    grpc.cluster.start_broker()

    def sent() -> bool:
        try:
            grpc.send(topic, *expected[50:])
        except ClientError:
            # The proxy finds the broker again after a moment.
            return False
        return True

    wait_until(sent, 60, "a send through the proxy")
    grpc.client.wait_received("k", lambda got: len(set(texts(got))) == 100, 90)
