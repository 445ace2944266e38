"""`rmq lag` and `rmq top` on a real broker."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer
from broker_core.cli.live.lag import LagLooks
from broker_core.cli.live.top import TopLooks
from broker_core.cli.main import main
from broker_core.embedded.embedded_broker import EmbeddedBroker


@pytest.fixture
def group(broker: EmbeddedBroker, topic: str) -> str:
    """A group that has consumed 2 of 6 messages in two queues."""
    name = f"{topic}-group"
    with SyncAdmin(broker.name_server) as admin, SyncProducer(broker.name_server) as producer:
        admin.create_topic(topic, queue_count=2)
        admin.create_group(name)
        for queue_id in (0, 1):
            queue = MessageQueue(topic, "broker-a", queue_id)
            for number in range(3):
                producer.send(OutgoingMessage(topic, b"%d" % number), queue=queue)
            admin.commit_offset(name, queue, 1)
    return name


def send(broker: EmbeddedBroker, topic: str, count: int) -> None:
    with SyncProducer(broker.name_server) as producer:
        for number in range(count):
            producer.send(OutgoingMessage(topic, b"%d" % number))


def test_the_lag_of_a_group(
    broker: EmbeddedBroker, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lag", "-n", broker.name_server, "-g", group]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *aligned([("GROUP", "TOPIC", "QUEUES", "BEHIND", "PER SECOND"),
                  (group, topic, "2", "4", "-")]),
        "",
        "behind: 4",
    ]  # fmt: skip
    assert main(["lag", "-n", broker.name_server, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    row = {"group": group, "topic": topic, "queues": 2, "behind": 4, "perSecond": None}
    assert row in found


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        texts = [
            text.ljust(width) if place < 2 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(texts).rstrip())
    return lines


def test_watching_prints_each_look(
    broker: EmbeddedBroker, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["lag", "-n", broker.name_server, "-g", group, "--watch", "--looks", "2", "-i", "1"]
    assert main(words) == 0
    assert capsys.readouterr().out.count("behind: 4\n") == 2


class Session:
    """What a look needs, with a clock of its own."""

    def __init__(self, admin: Any) -> None:
        self.admin = admin.asynchronous
        self.clock = self
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_rates_are_those_since_the_last_look(
    broker: EmbeddedBroker, topic: str, group: str
) -> None:
    options = argparse.Namespace(group=group, topic=None, all=False)
    with SyncAdmin(broker.name_server) as admin:
        session: Any = Session(admin)
        lag, top = LagLooks(), TopLooks()
        admin.call(lag(session, options))
        admin.call(top(session, options))
        send(broker, topic, 10)
        session.now += 5
        [table, note] = admin.call(lag(session, options))
        assert table.rows == [(group, topic, 2, 14, 2.0)]
        assert note.text == "behind: 14"
        brokers, topics, _ = admin.call(top(session, options))
    assert brokers.rows[0][:2] == ("broker-a", broker.address)
    # The busiest first.
    assert topics.rows[0] == (topic, 2, 16, 2.0, 14, 1)
    assert not {"TBW102", "broker-a"} & {row[0] for row in topics.rows}


def test_top_ends_after_its_looks(
    broker: EmbeddedBroker, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "-n", broker.name_server, "--looks", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [row] = [row for row in found["topics"] if row["topic"] == topic]
    assert (row["queues"], row["messages"], row["behind"], row["groups"]) == (2, 6, 4, 1)


@pytest.mark.parametrize("command", ["lag", "top"])
def test_no_name_server_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "-n", "127.0.0.1:1"]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert "Are the name servers 127.0.0.1:1 (-n) right, and up?" in errors
