"""Real Java push consumers in POP mode: everything arrives, failures come again, members share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core import OutgoingMessage, SyncAdmin, SyncProducer
from tests.interop.client_ground import texts
from tests.interop.consumer_ground import patient_config
from tests.interop.java_client import JavaClient
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.mqadmin import Mqadmin
from tests.interop.peer_releases import COMPLETE, NEWEST
from tests.interop.server_processes import OURS, BrokerCluster, wait_until

pytestmark = pytest.mark.interop

COUNT = 1_000
FAILING = 10
QUEUES = 4


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
def client() -> Iterator[JavaClient]:
    try:
        found = JavaClient(NEWEST)
    except PeerUnavailable as error:
        pytest.skip(f"no Java client: {error}")
    with found:
        yield found


@pytest.fixture(scope="module")
def mqadmin(cluster: BrokerCluster) -> Iterator[Mqadmin]:
    try:
        found = Mqadmin(NEWEST, cluster.name_server_address)
    except PeerUnavailable as error:
        pytest.skip(f"no mqadmin: {error}")
    with found:
        yield found


class Popping:
    """One topic and one group that pops it."""

    def __init__(
        self, cluster: BrokerCluster, client: JavaClient, mqadmin: Mqadmin, name: str
    ) -> None:
        self.topic, self.group = f"T-{name}", f"G-{name}"
        self._cluster = cluster
        self._client = client
        self._mqadmin = mqadmin
        broker = ("-b", cluster.address)
        mqadmin.ok("updateTopic", *broker, "-t", self.topic, "-r", str(QUEUES), "-w", str(QUEUES))
        mqadmin.ok("updateSubGroup", *broker, "-g", self.group)

    def set_mode(self, mode: str, shared: int = 0) -> None:
        self._mqadmin.ok(
            "setConsumeMode", "-b", self._cluster.address, "-t", self.topic, "-g", self.group,
            "-m", mode, "-q", str(shared),
        )  # fmt: skip

    def send(self, *bodies: str) -> None:
        messages = [OutgoingMessage(self.topic, body.encode(), tags="A") for body in bodies]
        with SyncProducer(patient_config(self._cluster.name_server_address)) as producer:
            producer.send_many(messages)

    def start(self, name: str, **options: object) -> None:
        self._client.call(
            "push.start", consumer=name, group=self.group, topic=self.topic,
            ns=self._cluster.name_server_address, instance=name, vip=False, route_ms=500,
            broker_divides="true", **options,
        )  # fmt: skip

    def pop_queues(self, name: str) -> list[int]:
        found: list[int] = self._client.call("push.pop_queues", consumer=name, topic=self.topic)
        return found

    def committed(self, topic: str = "") -> int:
        with SyncAdmin(self._cluster.name_server_address) as admin:
            offsets = admin.committed_offsets(self.group, topic or self.topic)
        return sum(offset or 0 for offset in offsets.values())


def test_everything_arrives_and_failures_come_again(
    cluster: BrokerCluster, client: JavaClient, mqadmin: Mqadmin
) -> None:
    pops = Popping(cluster, client, mqadmin, "all")
    pops.set_mode("POP")
    expected = [f"fail{n}" if n % (COUNT // FAILING) == 0 else f"m{n}" for n in range(COUNT)]
    pops.send(*expected[: COUNT // 2])
    pops.start("all", failures=1)
    wait_until(lambda: pops.pop_queues("all") == [-1], 60, "pops of the whole broker")
    pops.send(*expected[COUNT // 2 :])
    received = client.wait_received("all", COUNT + FAILING, 90)
    assert set(texts(received)) == set(expected)
    times = Counter(texts(received))
    assert {text for text, count in times.items() if count > 1} == {
        text for text in expected if text.startswith("fail")
    }
    again = [m for m in received if m["reconsume_times"] == 1]
    assert len(again) == FAILING
    # The second try has the message as it was: its topic, id and tags.
    assert {m["topic"] for m in again} == {pops.topic}
    first = {m["text"]: m["msg_id"] for m in received if m["reconsume_times"] == 0}
    assert all(m["msg_id"] == first[m["text"]] and m["tags"] == "A" for m in again)
    if cluster.kind == OURS:
        wait_until(lambda: pops.committed() == COUNT, 60, "all of it acknowledged")
        retries = f"%RETRY%{pops.group}_{pops.topic}"
        wait_until(lambda: pops.committed(retries) == FAILING, 60, "the retries, too")
    client.call("push.close", consumer="all")


def test_members_share_the_queues(
    cluster: BrokerCluster, client: JavaClient, mqadmin: Mqadmin
) -> None:
    pops = Popping(cluster, client, mqadmin, "shared")
    pops.set_mode("POP", shared=1)
    for name in ("one", "two", "three"):
        pops.start(name)
    names = ("one", "two", "three")
    wait_until(
        lambda: all(len(pops.pop_queues(name)) in (2, 3) for name in names), 90, "their shares"
    )
    expected = [f"m{n}" for n in range(300)]
    pops.send(*expected)
    wait_until(lambda: sum(len(client.received(name)) for name in names) >= 300, 60, "all messages")
    received = [text for name in names for text in texts(client.received(name))]
    assert Counter(received) == Counter(expected)
    for name in names:
        client.call("push.close", consumer=name)


def test_a_group_may_go_from_pop_to_pull(
    cluster: BrokerCluster, client: JavaClient, mqadmin: Mqadmin
) -> None:
    pops = Popping(cluster, client, mqadmin, "changing")
    pops.set_mode("POP")
    pops.send("a", "b")
    pops.start("popping")
    client.wait_received("popping", 2)
    if cluster.kind == OURS:
        wait_until(lambda: pops.committed() == 2, 60, "both acknowledged")
    client.call("push.close", consumer="popping")
    pops.set_mode("PULL")
    pops.start("pulling")
    wait_until(
        lambda: client.call("push.queues", consumer="pulling", topic=pops.topic) != [],
        60, "its queues",
    )  # fmt: skip
    pops.send("c")
    received = client.wait_received("pulling", 1)
    if cluster.kind == OURS:
        assert texts(received) == ["c"]
    client.call("push.close", consumer="pulling")


def test_a_consumer_lives_through_a_kill_of_the_broker(
    cluster: BrokerCluster, client: JavaClient, mqadmin: Mqadmin, tmp_path: Path
) -> None:
    pops = Popping(cluster, client, mqadmin, "killed")
    pops.set_mode("POP")
    expected = [f"m{n}" for n in range(600)]
    pops.send(*expected[:300])
    pops.start("killed", work_ms=5)
    client.wait_received("killed", 50)
    cluster.broker.kill()
    cluster.start_broker()
    pops.send(*expected[300:])
    client.wait_received("killed", lambda got: len(set(texts(got))) == 600, 120)
    client.call("push.close", consumer="killed")
