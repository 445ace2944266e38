"""`rmq admin` against a real broker: every command, its table, its JSON, its errors."""

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
from broker_core.embedded.embedded_broker import EmbeddedBroker
from broker_core.runtime.clock import SystemClock
from tests.cli.admin.test_confirmation import Terminal
from tests.cli.rmq_process import LIMIT_S

Capture = pytest.CaptureFixture[str]


class Shell:
    """`rmq admin` in this process."""

    def __init__(self, broker: EmbeddedBroker, capture: Capture) -> None:
        self.server = broker.name_server
        self._capture = capture

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capture.readouterr()
        code = main(["admin", *words, "-n", self.server])
        output, errors = self._capture.readouterr()
        return code, output, errors

    def text(self, *words: str) -> str:
        code, output, errors = self.run(*words)
        assert (code, errors) == (0, ""), errors
        return output

    def json(self, *words: str) -> Any:
        return json.loads(self.text(*words, "--json"))

    def refusal(self, *words: str, code: int = 1) -> str:
        found, output, errors = self.run(*words)
        assert (found, output, errors.count("\n")) == (code, "", 1), (found, output, errors)
        return errors


@pytest.fixture
def shell(broker: EmbeddedBroker, capsys: Capture) -> Shell:
    return Shell(broker, capsys)


@pytest.fixture
def member(shell: Shell, topic: str) -> Iterator[str]:
    """A group with a live consumer of the topic."""
    shell.text("topic", "create", "-t", topic, "-q", "2")
    group = f"G-{topic}"[:100]
    config = ClientConfig((shell.server,), offset_persist_interval_ms=50)
    consumer = SyncPushConsumer(config, group, lambda _, __: ConsumeStatus.SUCCESS)
    consumer.subscribe(topic)
    with consumer:
        poll(lambda: shell.run("group", "connections", "-g", group)[0] == 0)
        yield group


def poll(reached: Callable[[], bool]) -> None:
    pause, clock = threading.Event(), SystemClock()
    until = clock.monotonic() + LIMIT_S
    while not reached():
        assert clock.monotonic() < until, "not reached"
        pause.wait(0.02)


# The registry


@pytest.mark.parametrize(
    ("answer", "is_deleted"),
    [("y", True), ("YES", True), ("", False), ("no", False)],
)
def test_a_person_is_asked_before_a_topic_is_deleted(
    shell: Shell, topic: str, monkeypatch: pytest.MonkeyPatch, answer: str, is_deleted: bool
) -> None:
    shell.text("topic", "create", "-t", topic)
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    found, _, errors = shell.run("topic", "delete", "-t", topic)
    question = f"delete topic {topic} and all its messages? [y/N] "
    said = "" if is_deleted else "rmq admin: error: nothing was deleted\n"
    assert (found, errors) == (0 if is_deleted else 1, question + said)
    is_there = {"topic": topic} in shell.json("topic", "list", "--names")
    assert is_there != is_deleted


def test_topics_of_the_system_are_hidden_unless_asked_for(shell: Shell, topic: str) -> None:
    shell.text("topic", "create", "-t", topic)
    shown = shell.text("topic", "list")
    names = [line.split()[0] for line in shown.splitlines() if line]
    assert {"TOPIC", topic} <= {*names}
    hidden = {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a", "SELF_TEST_TOPIC"}
    assert not hidden & {*names}
    assert "system topics are not shown (--all)" in shown
    everything = {row["topic"] for row in shell.json("topic", "list", "--all", "--names")}
    assert hidden | {topic} <= everything
    assert len(everything) >= len(names)


# Reports


# Topics


def test_a_topic_from_creation_to_deletion(shell: Shell, topic: str) -> None:
    [made] = shell.json("topic", "create", "-t", topic, "-q", "3")
    assert (made["topic"], made["readQueues"], made["permission"]) == (topic, 3, 6)
    assert topic in shell.text("topics")
    [listed] = [row for row in shell.json("topic", "list") if row["topic"] == topic]
    assert listed == {
        "topic": topic, "brokers": 1, "queues": 3, "messages": 0, "lastUpdated": 0
    }  # fmt: skip
    assert {"topic": topic} in shell.json("topic", "list", "--names", "-c", "DefaultCluster")
    [changed] = shell.json("topic", "permission", "-t", topic, "-p", "4")
    assert (changed["readQueues"], changed["permission"]) == (3, 4)
    [route] = shell.json("topicRoute", "-t", topic)
    assert (route["permission"], route["id"]) == (4, 0)
    shell.text("updateTopic", "-t", topic, "-r", "4", "-w", "4", "-p", "6", "-c", "DefaultCluster")
    status = shell.json("topicStatus", "-t", topic)
    assert len(status) == 4
    assert {row["messages"] for row in status} == {0}
    assert shell.json("topic", "clusters", "-t", topic) == [{"cluster": "DefaultCluster"}]
    assert f"delete topic {topic} and all its messages? Give --yes" in shell.refusal(
        "topic", "delete", "-t", topic, code=2
    )
    assert "is deleted" in shell.text("topic", "delete", "-t", topic, "--yes")
    assert "rmq admin topic list" in shell.refusal("topicStatus", "-t", topic)


def test_mistakes_are_one_line(shell: Shell, topic: str, capsys: Capture) -> None:
    assert "bad topic" in shell.refusal("topic", "create", "-t", "bad topic", code=2)
    assert "no cluster" in shell.refusal("deleteTopic", "-t", topic, "-c", "Nowhere", code=2)
    shell.text("topic", "create", "-t", topic)
    text = shell.refusal("broker", "status", "-b", "nobody", code=2)
    assert "nobody" in text and "name servers list" in text
    assert "no broker knows group nobody" in shell.refusal("group", "progress", "-g", "nobody")
    assert "either --to" in shell.refusal("offset", "reset", "-g", "g", "-t", topic, code=2)
    with pytest.raises(SystemExit):
        shell.run("offset", "reset", "-g", "g", "-t", topic, "--to", "soon")
    assert "earliest, latest" in capsys.readouterr().err
    assert main(["admin", "topics", "-n", "127.0.0.1:1", "--timeout", "300"]) == 1
    assert "-n" in capsys.readouterr().err


# Messages


def test_messages_are_sent_found_and_printed(shell: Shell, topic: str) -> None:
    shell.text("topic", "create", "-t", topic, "-q", "2")
    [sent] = shell.json(
        "sendMessage", "-t", topic, "-p", "hello wörld", "-k", "k1", "-c", "red", "-i", "1"
    )
    assert (sent["queue"], sent["offset"], sent["status"]) == (1, 0, "SEND_OK")
    for number in range(3):
        shell.text("message", "send", "-t", topic, "-p", f"b{number}", "-i", "0", "-c", "blue")
    for message_id in (sent["messageId"], sent["offsetId"]):
        found = shell.json("queryMsgById", "-t", topic, "-i", message_id)
        assert found["message"]["body"] == "hello wörld"
        assert (found["message"]["tags"], found["message"]["queue"]) == ("red", 1)
    [by_key] = shell.json("queryMsgByKey", "-t", topic, "-k", "k1")
    assert by_key["messageId"] == sent["messageId"]
    assert "no message with key" in shell.refusal("queryMsgByKey", "-t", topic, "-k", "none")
    assert "has no message" in shell.refusal("message", "show", "-t", topic, "-i", "junk")
    at = shell.json("message", "by-offset", "-t", topic, "-i", "0", "-o", "2")
    assert at["message"]["body"] == "b2"
    assert "holds 0 to 3" in shell.refusal("queryMsgByOffset", "-t", topic, "-i", "0", "-o", "99")
    assert len(shell.json("printMsg", "-t", topic)) == 4
    assert len(shell.json("message", "list", "-t", topic, "-s", "red")) == 1
    assert [row["offset"] for row in shell.json(
        "message", "list", "-t", topic, "-i", "0", "-o", "1", "-c", "1")] == [1]  # fmt: skip


# Groups, with a consumer that is connected


def test_groups_without_members(shell: Shell, topic: str) -> None:
    shell.text("topic", "create", "-t", topic, "-q", "1")
    [made] = shell.json("group", "create", "-g", topic, "-r", "3")
    assert (made["group"], made["retryMax"], made["consumes"]) == (topic, 3, True)
    assert shell.json("getConsumerConfig", "-g", topic) == [made]
    assert {"group": topic, "members": 0, "type": "", "model": ""} in shell.json("group", "list")
    shell.text("message", "send", "-t", topic, "-p", "one")
    shell.text("message", "send", "-t", topic, "-p", "two")
    [reset] = shell.json("offset", "reset", "-g", topic, "-t", topic, "--to", "latest")
    assert reset["offset"] == 2
    [row] = shell.json("consumerProgress", "-g", topic)
    assert (row["brokerOffset"], row["consumerOffset"], row["behind"]) == (2, 2, 0)
    shell.text("offset", "reset", "-g", topic, "-t", topic, "--queue", "0", "--offset", "1")
    [row] = shell.json("group", "progress", "-g", topic, "-t", topic)
    assert row["behind"] == 1
    assert "behind: 1" in shell.text("group", "progress", "-g", topic)
    shell.text("group", "create", "-g", f"{topic}-2")
    shell.text("cloneGroupOffset", "-s", topic, "-d", f"{topic}-2", "-t", topic)
    [row] = shell.json("group", "progress", "-g", f"{topic}-2", "-t", topic)
    assert row["consumerOffset"] == 1
    shell.text("skipAccumulatedMessage", "-g", f"{topic}-2", "-t", topic)
    behind = {row["group"]: row["behind"] for row in shell.json("broker", "backlog")}
    assert (behind[topic], behind[f"{topic}-2"]) == (1, 0)
    assert "no consumer that is connected" in shell.refusal("consumerConnection", "-g", topic)
    assert topic in {row["group"] for row in shell.json("topic", "groups", "-t", topic)}
    assert "is deleted" in shell.text("group", "delete", "-g", topic, "--yes")
    assert "no broker knows" in shell.refusal("group", "show", "-g", topic)


def test_a_group_with_a_member(shell: Shell, topic: str, member: str) -> None:
    [sent] = shell.json("message", "send", "-t", topic, "-p", "x", "-i", "0")
    live = shell.json("consumerConnection", "-g", member)
    [client] = live["members"]
    assert client["language"] == "PYTHON" or client["language"]
    assert {"topic": topic, "expression": "*"} in live["subscriptions"]

    def consumed() -> bool:
        rows = shell.json("group", "progress", "-g", member, "-t", topic)
        # Before the first commit there may be no row at all.
        return [row["consumerOffset"] for row in rows if row["queue"] == 0] == [1]

    running = shell.json("consumerStatus", "-g", member)
    assert any(title.startswith("queues of") for title in running)
    positions = shell.json("getConsumerStatus", "-g", member, "-t", topic)
    assert {row["clientId"] for row in positions} <= {client["clientId"]}
    answer = shell.json(
        "message", "show", "-t", topic, "-i", sent["messageId"], "-g", member,
        "-d", client["clientId"],
    )  # fmt: skip
    assert answer["consumeResult"] == "CR_SUCCESS"
    poll(consumed)
    track = shell.json("message", "show", "-t", topic, "-i", sent["messageId"])["consumed by"]
    assert [row["state"] for row in track if row["group"] == member] == ["CONSUMED"]
    assert "no member" in shell.refusal("group", "running", "-g", member, "-i", "nobody")
    stats = shell.json("statsAll", "-t", topic)
    assert stats[0]["in24Hours"] == 1


def test_members_follow_a_reset(shell: Shell, topic: str, member: str) -> None:
    for number in range(3):
        shell.text("message", "send", "-t", topic, "-p", f"{number}", "-i", "0")

    def behind() -> int:
        rows = shell.json("group", "progress", "-g", member, "-t", topic)
        return sum(row["behind"] for row in rows)

    poll(lambda: behind() == 0)
    reset = shell.json("resetOffsetByTime", "-g", member, "-t", topic, "-s", "0")
    assert {row["offset"] for row in reset} == {0}
    poll(lambda: behind() == 0)


# Brokers and name servers


def test_brokers(shell: Shell, broker: EmbeddedBroker) -> None:
    [found] = shell.json("clusterList")
    assert (found["cluster"], found["id"], found["problem"]) == ("DefaultCluster", 0, None)
    name = found["broker"]
    assert "putTps" in shell.json("brokerStatus", "-b", name)
    assert shell.json("broker", "status", "-b", found["address"])["brokerActive"] == "true"
    assert shell.json("broker", "config", "-k", "brokerPermission") == {"brokerPermission": "6"}
    assert "no setting" in shell.refusal("broker", "config", "-k", "nothing", code=2)
    [row] = shell.json("broker", "set", "-b", name, "transactionCheckMax=9")
    assert row["value"] == "9"
    [row] = shell.json("updateBrokerConfig", "-b", name, "-k", "transactionCheckMax", "-v", "15")
    assert row["value"] == "15"
    assert "broker.conf" in shell.refusal("broker", "set", "storePathRootDir=/etc")
    assert "nothing to change" in shell.refusal("broker", "set", code=2)
    assert shell.refusal("broker", "set", "-b", name, "transactionCheckMx=9", code=2) == (
        f"rmq admin: error: broker {name} has no setting 'transactionCheckMx'; did you mean"
        f" transactionCheckMax? rmq admin broker config -b {name} lists all\n"
    )
    for command in ("clean-queues", "clean-topics", "clean-log"):
        assert "removed on" in shell.text("broker", command, "-b", name)
    assert shell.json("broker", "drain", "-b", name)[0]["topicsChanged"] > 5
    assert shell.json("broker", "undrain", "-b", name)[0]["topicsChanged"] > 5
    windows = shell.json("broker", "stats", "--name", "BROKER_PUT_NUMS", "--key", "DefaultCluster")
    assert [row["window"] for row in windows] == ["minute", "hour", "day"]
    assert shell.json("producer", "list", "-b", name) == []


def test_name_servers(shell: Shell, topic: str) -> None:
    assert shell.json("kv", "list", "-s", topic) == []
    shell.text("kv", "put", "-s", topic, "-k", "a", "-v", "b=c")
    assert shell.json("kv", "list", "-s", topic) == [{"key": "a", "value": "b=c"}]
    shell.text("kv", "delete", "-s", topic, "-k", "a", "-y")
    assert shell.json("kv", "list", "-s", topic) == []
    [row] = shell.json("updateOrderConf", "-t", topic, "-m", "put", "-v", "broker-a:4")
    assert row == {"topic": topic, "order": "broker-a:4"}
    assert shell.json("topic", "order", "-t", topic, "-m", "delete")[0]["order"] is None
    assert "orderMessageEnable" in shell.json("namesrv", "config")
    shell.text("namesrv", "set", "orderMessageEnable=false")
