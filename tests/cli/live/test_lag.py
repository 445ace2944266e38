"""`rmq lag` on a real broker."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from broker_core import SyncAdmin
from broker_core.cli.live.lag import LagLooks
from broker_core.cli.main import main
from broker_core.embedded.embedded_broker import EmbeddedBroker
from tests.cli.live.later_looks import Session, send


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


def test_the_growth_of_the_lag_is_shown(broker: EmbeddedBroker, topic: str, group: str) -> None:
    options = argparse.Namespace(group=group, topic=None, watch=True)
    with SyncAdmin(broker.name_server) as admin:
        session: Any = Session(admin)
        lag = LagLooks()
        admin.call(lag(session, options))
        send(broker, topic, 10)
        session.now += 5
        [table, note] = admin.call(lag(session, options))
    assert table.rows == [(group, topic, 2, 14, 2.0)]
    assert note.text == "behind: 14"


def test_a_group_or_a_topic_that_does_not_exist(
    broker: EmbeddedBroker, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    to = ("lag", "-n", broker.name_server)
    assert main([*to, "-g", "mistyped"]) == 1
    assert capsys.readouterr() == (
        "",
        "rmq lag: error: no broker knows group mistyped: rmq admin group list shows those that"
        " are\n",
    )
    assert main([*to, "-t", "mistyped"]) == 1
    assert main([*to, "-t", "mistyped", "-g", group]) == 1
    text = "topic 'mistyped' is not known: rmq admin topic list shows those that are."
    link = "See docs/errors.md#topic-not-found"
    assert capsys.readouterr().err.splitlines() == [f"rmq lag: error: {text} {link}"] * 2
    # It may come while one watches.
    assert main([*to, "-g", "mistyped", "--watch", "--looks", "1"]) == 0


def test_the_lag_of_a_topic_is_that_of_its_readers(
    broker: EmbeddedBroker, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"{topic}-unread"
    with SyncAdmin(broker.name_server) as admin:
        admin.create_topic(other)
    assert main(["lag", "-n", broker.name_server, "-t", topic, "--json"]) == 0
    assert [row["group"] for row in json.loads(capsys.readouterr().out)] == [group]
    assert main(["lag", "-n", broker.name_server, "-t", other, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
