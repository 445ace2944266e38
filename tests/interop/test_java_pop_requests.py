"""The POP requests of Apache's own client library, one by one: batches of acks, order, handles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core import OutgoingMessage, SyncAdmin, SyncProducer
from tests.interop.client_ground import texts
from tests.interop.consumer_ground import patient_config
from tests.interop.driven_client import ClientError, DrivenClient
from tests.interop.java_client import compiled_class_path, java_tool
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.peer_releases import COMPLETE, NEWEST
from tests.interop.server_processes import BROKER_NAME, OURS, BrokerCluster, wait_until

pytestmark = pytest.mark.interop

_HERE = Path(__file__).parent


class PopRequests(DrivenClient):
    """One Java process that makes the requests."""

    language = "Java"

    def __init__(self, version: str = NEWEST) -> None:
        self._class_path = compiled_class_path(
            f"rocketmq-client-{version}",
            [f"org.apache.rocketmq:rocketmq-client:{version}"],
            _HERE / "java_pop",
            also=(_HERE / "java_client" / "JsonText.java",),
        )
        super().__init__(version)

    def _command(self, home: str) -> list[str]:
        flags = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        places = (f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}")
        return [java_tool("java"), *flags, *places, "-cp", self._class_path, "PopScenarios"]


class Popper:
    """A group and a topic of its own."""

    def __init__(self, cluster: BrokerCluster, client: PopRequests, name: str) -> None:
        self.topic, self.group = f"T-{name}", f"G-{name}"
        self._client = client
        self._cluster = cluster
        with SyncAdmin(cluster.name_server_address) as admin:
            admin.create_topic(self.topic, queue_count=1)

    def send(self, *bodies: str) -> None:
        with SyncProducer(patient_config(self._cluster.name_server_address)) as producer:
            # One by one: the queue has them in this order.
            for body in bodies:
                producer.send(OutgoingMessage(self.topic, body.encode()))

    def call(self, op: str, **arguments: Any) -> Any:
        place = {"address": self._cluster.address, "broker": BROKER_NAME}
        named = {"topic": self.topic, "group": self.group}
        return self._client.call(f"pop.{op}", **place, **named, **arguments)

    def pop(self, **options: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("pop", **options)["messages"]
        return found

    def until_popped(self, **options: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        wait_until(
            lambda: bool(found.extend(self.pop(poll_ms=1_000, **options)) or found), 60, "a message"
        )
        return found


@pytest.fixture(scope="module", params=[OURS, NEWEST] if COMPLETE else [OURS])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    try:
        found = BrokerCluster(request.param, tmp_path_factory.mktemp("pop"))
    except PeerUnavailable as error:
        pytest.skip(f"no broker {request.param}: {error}")
    with found:
        yield found


@pytest.fixture(scope="module")
def client() -> Iterator[PopRequests]:
    try:
        found = PopRequests()
    except PeerUnavailable as error:
        pytest.skip(f"no Java client: {error}")
    with found:
        yield found


def test_batches_of_acknowledgements(cluster: BrokerCluster, client: PopRequests) -> None:
    popper = Popper(cluster, client, "batch")
    popper.send(*(f"m{n}" for n in range(40)))
    found = popper.until_popped(count=32)
    while len(found) < 40:
        found += popper.until_popped(count=32)
    handles = ",".join(m["handle"] for m in found if m["text"] != "m7")
    assert popper.call("batch_ack", handles=handles) == "OK"
    if cluster.kind == OURS:
        with SyncAdmin(cluster.name_server_address) as admin:
            assert admin.committed_offsets(popper.group, popper.topic).popitem()[1] == 7
    [kept] = [m["handle"] for m in found if m["text"] == "m7"]
    assert popper.call("ack", handle=kept) == "OK"
    assert popper.pop() == []


def test_retries_and_their_handles(cluster: BrokerCluster, client: PopRequests) -> None:
    popper = Popper(cluster, client, "retry")
    popper.send("a")
    [first] = popper.until_popped(invisible_ms=60_000)
    assert (first["topic"], first["tries"]) == (popper.topic, 0)
    changed = popper.call("change", handle=first["handle"], invisible_ms=1_000)
    assert changed["status"] == "OK"
    [again] = popper.until_popped(invisible_ms=60_000)
    assert (again["text"], again["topic"], again["tries"]) == ("a", popper.topic, 1)
    assert again["handle"].split(" ")[4] == "1"
    assert popper.call("batch_ack", handles=again["handle"]) == "OK"
    assert popper.pop() == []


def test_an_old_handle_does_not_count(cluster: BrokerCluster, client: PopRequests) -> None:
    popper = Popper(cluster, client, "old")
    popper.send("a")
    [message] = popper.until_popped(invisible_ms=60_000)
    changed = popper.call("change", handle=message["handle"], invisible_ms=30_000)
    if cluster.kind == OURS:
        # Apache's answers OK and forgets it.
        assert popper.call("ack", handle=message["handle"]) == "NO_EXIST"
    assert popper.call("ack", handle=changed["handle"]) == "OK"


def test_order(cluster: BrokerCluster, client: PopRequests) -> None:
    popper = Popper(cluster, client, "order")
    popper.send(*(f"m{n}" for n in range(6)))
    first = popper.until_popped(order="true", attempt="1", count=3, invisible_ms=3_000)
    assert texts(first) == ["m0", "m1", "m2"]
    assert popper.pop(order="true", attempt="2") == []
    same = popper.pop(order="true", attempt="1", count=3, invisible_ms=3_000)
    assert texts(same) == ["m0", "m1", "m2"]
    for message in same:
        assert popper.call("ack", handle=message["handle"]) == "OK"
    second = popper.until_popped(order="true", attempt="3", count=2, invisible_ms=1_000)
    assert texts(second) == ["m3", "m4"]
    # Not acknowledged: they come again from their queue, and the client is told how often.
    again = popper.until_popped(order="true", attempt="4", count=2, invisible_ms=30_000)
    assert [(m["text"], m["tries"]) for m in again] == [("m3", 1), ("m4", 1)]
    for message in again:
        assert popper.call("ack", handle=message["handle"]) == "OK"
    assert texts(popper.until_popped(order="true", attempt="5")) == ["m5"]


def test_notification(cluster: BrokerCluster, client: PopRequests) -> None:
    popper = Popper(cluster, client, "notice")
    assert popper.call("notify", poll_ms=100) is False
    popper.send("a")
    wait_until(lambda: popper.call("notify", poll_ms=5_000) is True, 30, "a notice")
    with pytest.raises(ClientError):
        popper.call("pop", queue=77)
