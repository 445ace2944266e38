"""`rmq dlq` on a real broker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from broker_core import ClientConfig, OutgoingMessage, SyncAdmin
from broker_core.cli.main import main
from broker_core.embedded.embedded_broker import EmbeddedBroker
from tests.client.dead_letters.dead_messages import make_dead


@pytest.fixture
def group(broker: EmbeddedBroker, topic: str) -> str:
    """A group with two dead letters of `topic`."""
    with SyncAdmin(broker.name_server) as admin:
        admin.create_topic(topic, queue_count=1)
    messages = [OutgoingMessage(topic, body, keys="k") for body in (b"first", b"\xff")]
    name = f"{topic}-group"
    asyncio.run(make_dead(ClientConfig((broker.name_server,)), name, messages))
    return name


def rmq(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["dlq", *words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_list_show_and_replay(
    broker: EmbeddedBroker, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("-n", broker.name_server)
    dlq = f"%DLQ%{group}"
    row = {"group": group, "topic": dlq, "queues": 1, "messages": 2, "waiting": 2, "problem": ""}
    assert row in rmq(capsys, "list", *given)
    assert rmq(capsys, "list", "-g", group, *given) == [row]

    first, second = rmq(capsys, "show", "-t", dlq, *given)
    assert (first["body"], first["originTopic"], first["retries"]) == ("first", topic, 1)
    assert (first["keys"], first["offset"], second["body"]) == ("k", 0, "ff")
    assert first["properties"]["ORIGIN_MESSAGE_ID"] == first["originMessageId"]
    assert len(rmq(capsys, "show", "-g", group, "--max", "1", *given)) == 1

    planned = rmq(capsys, "replay", "-g", group, "--dry-run", *given)
    assert [(each["deadLetter"], each["to"], each["offset"]) for each in planned] == [
        (f"{dlq}:broker-a:0:0", topic, None),
        (f"{dlq}:broker-a:0:1", topic, None),
    ]
    [sent] = rmq(capsys, "replay", "-g", group, "--max", "1", *given)
    assert (sent["broker"], sent["queue"], sent["offset"]) == ("broker-a", 0, 2)
    assert [each["offset"] for each in rmq(capsys, "show", "-g", group, *given)] == [1]
    assert len(rmq(capsys, "show", "-g", group, "--all", *given)) == 2
    assert main(["dlq", "replay", "-g", group, *given]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "replayed: 1"
    assert main(["dlq", "replay", "-g", group, *given]) == 0
    assert capsys.readouterr().out.splitlines() == ["(none)", "", "replayed: 0"]


def test_an_error_after_some_were_sent(
    broker: EmbeddedBroker, topic: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dead letter of a topic that is gone; what was sent is printed."""
    gone = f"{topic}-gone"
    with SyncAdmin(broker.name_server) as admin:
        admin.create_topic(gone, queue_count=1)
        message = OutgoingMessage(gone, b"x")
        asyncio.run(make_dead(ClientConfig((broker.name_server,)), group, [message]))
        admin.delete_topic(gone)
    assert main(["dlq", "replay", "-g", group, "-n", broker.name_server]) == 1
    ended = capsys.readouterr()
    assert "replayed: 2" in ended.out
    assert gone in ended.err
    assert main(["dlq", "replay", "-g", group, "--to", topic, "-n", broker.name_server]) == 0
    assert "replayed: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["replay"], "give the consumer group (-g) or the dead-letter topic (-t)"),
        (["show", "-g", "a", "-t", "b"], "give -g or -t, not both"),
        (["list", "--dry-run"], "--dry-run is for replay"),
        (["show", "-g", "a", "--to", "b"], "--to is for replay"),
        (["replay", "-g", "a", "--all"], "--all is for show"),
        (["list", "--max", "1"], "--max is for show and replay"),
    ],
)
def test_misuse(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dlq", *words]) == 2
    assert text in capsys.readouterr().err


def test_a_group_without_dead_letters(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "show", "-g", "none-ever", "-n", broker.name_server]) == 1
    assert "rmq dlq list shows" in capsys.readouterr().err
