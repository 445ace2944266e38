"""`rmq admin` on Apache's brokers and on ours: the same commands, the same answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_core import SyncPushConsumer
from broker_core.cli.main import main
from broker_core.client.connection.config import ClientConfig
from broker_core.client.push.types import ConsumeStatus
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.peer_releases import COMPLETE
from tests.interop.server_processes import BROKER_KINDS, OURS, BrokerCluster

pytestmark = pytest.mark.interop

KINDS = BROKER_KINDS if COMPLETE else (OURS,)


@pytest.fixture(scope="module", params=KINDS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    try:
        found = BrokerCluster(request.param, tmp_path_factory.mktemp(f"admin-{request.param}"))
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    with found:
        yield found


class Shell:
    def __init__(self, cluster: BrokerCluster, capture: pytest.CaptureFixture[str]) -> None:
        self.server = cluster.name_server_address
        self.kind = cluster.kind
        self._capture = capture

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capture.readouterr()
        code = main(["admin", *words, "-n", self.server, "--timeout", "20000"])
        return code, *self._capture.readouterr()

    def json(self, *words: str) -> Any:
        code, output, errors = self.run(*words, "--json")
        assert (code, errors) == (0, ""), errors
        return json.loads(output) if output.strip() else None


@pytest.fixture
def shell(cluster: BrokerCluster, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(cluster, capsys)


def until(reached: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(300):
        if reached():
            return
        pause.wait(0.1)
    raise AssertionError("not reached")


def test_several_topics_in_one_command(shell: Shell) -> None:
    names = [f"several_{number}" for number in range(40)]
    words = [word for name in names for word in ("-t", name)]
    made = shell.json("topic", "create", *words, "-q", "3")
    assert [(row["topic"], row["readQueues"], row["writeQueues"]) for row in made] == [
        (name, 3, 3) for name in names
    ]
    assert set(names) <= {row["topic"] for row in shell.json("topic", "list", "--names")}


def test_clusters_brokers_and_settings(shell: Shell) -> None:
    # Apache's broker cannot tell anything about itself before it has counted for a second.
    until(lambda: shell.json("cluster", "list")[0]["problem"] is None)
    [found] = shell.json("cluster", "list")
    assert found["broker"] == "broker-a"
    assert found["inPerSecond"] is None or found["inPerSecond"] >= 0
    assert "commitLogMaxOffset" in shell.json("broker", "status", "-b", "broker-a")
    assert shell.json("broker", "config", "-k", "brokerName") == {"brokerName": "broker-a"}
    [row] = shell.json("broker", "set", "-b", "broker-a", "transactionCheckMax=9")
    assert row["value"] == "9"
    for command in ("clean-queues", "clean-topics", "clean-log"):
        assert shell.run("broker", command)[0] == 0
    assert shell.json("broker", "drain", "-b", "broker-a")[0]["topicsChanged"] > 0
    assert shell.json("broker", "undrain", "-b", "broker-a")[0]["topicsChanged"] > 0
    shell.run("kv", "put", "-s", "app", "-k", "a", "-v", "b")
    assert shell.json("kv", "list", "-s", "app") == [{"key": "a", "value": "b"}]
    assert "orderMessageEnable" in shell.json("namesrv", "config")


def test_topics_and_messages(shell: Shell) -> None:
    [made] = shell.json("topic", "create", "-t", "admin-topic", "-q", "2")
    assert (made["readQueues"], made["permission"]) == (2, 6)
    [sent] = shell.json("message", "send", "-t", "admin-topic", "-p", "hello", "-k", "k7",
                        "-c", "red", "-i", "1")  # fmt: skip
    until(lambda: shell.run("message", "by-key", "-t", "admin-topic", "-k", "k7")[0] == 0)
    for message_id in (sent["messageId"], sent["offsetId"]):
        shown = shell.json("message", "show", "-t", "admin-topic", "-i", message_id)
        assert (shown["message"]["body"], shown["message"]["tags"]) == ("hello", "red")
    at = shell.json("message", "by-offset", "-t", "admin-topic", "-i", "1", "-o", "0")
    assert at["message"]["keys"] == "k7"
    assert [row["body"] for row in shell.json("printMsg", "-t", "admin-topic")] == ["hello"]
    status = shell.json("topic", "status", "-t", "admin-topic")
    assert [row["maxOffset"] for row in status] == [0, 1]
    assert shell.json("topic", "route", "-t", "admin-topic")[0]["permission"] == 6
    [changed] = shell.json("topic", "permission", "-t", "admin-topic", "-p", "4")
    assert changed["permission"] == 4
    listed = shell.json("topic", "list", "-c", "DefaultCluster")
    assert "admin-topic" in [row["topic"] for row in listed]
    assert shell.run("topic", "delete", "-t", "admin-topic", "--yes")[0] == 0
    assert shell.run("topic", "status", "-t", "admin-topic")[0] == 1


def test_groups_and_offsets(shell: Shell) -> None:
    topic = group = "admin-group"
    shell.json("topic", "create", "-t", topic, "-q", "2")
    for number in range(4):
        shell.json("message", "send", "-t", topic, "-p", f"{number}", "-i", f"{number % 2}")
    [made] = shell.json("group", "create", "-g", group, "-r", "3")
    assert made["retryMax"] == 3

    def behind() -> int:
        code, output, _ = shell.run("group", "progress", "-g", group, "-t", topic, "--json")
        rows = json.loads(output) if code == 0 else []
        return sum(row["behind"] for row in rows) if rows else -1

    config = ClientConfig((shell.server,), offset_persist_interval_ms=100)
    consumer = SyncPushConsumer(config, group, lambda _, __: ConsumeStatus.SUCCESS)
    consumer.subscribe(topic)
    with consumer:
        until(lambda: shell.run("group", "connections", "-g", group)[0] == 0)
        until(lambda: behind() == 0)
        [client] = shell.json("group", "connections", "-g", group)["members"]
        running = shell.json("group", "running", "-g", group, "-i", client["clientId"])
        assert running[f"queues of {client['clientId']}"]
        [first, *_] = shell.json("message", "list", "-t", topic)
        answer = shell.json("message", "show", "-t", topic, "-i", first["messageId"],
                            "-g", group, "-d", client["clientId"])  # fmt: skip
        assert answer["consumeResult"] == "CR_SUCCESS"
        track = shell.json("message", "show", "-t", topic, "-i", first["messageId"])
        assert {"group": group, "state": "CONSUMED", "problem": ""} in track["consumed by"]
    until(lambda: shell.run("group", "connections", "-g", group)[0] == 1)
    reset = shell.json("offset", "reset", "-g", group, "-t", topic, "--to", "earliest")
    assert {row["offset"] for row in reset} == {0}
    until(lambda: behind() == 4)
    shell.json("offset", "reset", "-g", group, "-t", topic, "--queue", "0", "--offset", "1")
    until(lambda: behind() == 3)
    shell.json("offset", "skip", "-g", group, "-t", topic)
    until(lambda: behind() == 0)
    backlog = shell.json("broker", "backlog")
    assert {row["behind"] for row in backlog if row["group"] == group} == {0}
    assert group in {row["group"] for row in shell.json("topic", "groups", "-t", topic)}
    assert shell.run("group", "delete", "-g", group, "--yes")[0] == 0
