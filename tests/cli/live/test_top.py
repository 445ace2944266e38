"""`rmq top` on a real broker."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from broker_core import SyncAdmin
from broker_core.cli.live.top import TopLooks
from broker_core.cli.main import main
from broker_core.embedded.embedded_broker import EmbeddedBroker
from tests.cli.live.later_looks import Session, send


def test_rates_are_those_since_the_last_look(
    broker: EmbeddedBroker, topic: str, group: str
) -> None:
    options = argparse.Namespace(all=False)
    with SyncAdmin(broker.name_server) as admin:
        session: Any = Session(admin)
        top = TopLooks()
        admin.call(top(session, options))
        send(broker, topic, 10)
        session.now += 5
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
