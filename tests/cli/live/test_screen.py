"""Reports that are printed again and again."""

from __future__ import annotations

import json
import re

import pytest

from broker_core.cli.admin.report import Note, Table, report_text
from broker_core.cli.live.screen import fitted
from broker_core.cli.main import main
from broker_core.embedded.embedded_broker import EmbeddedBroker
from tests.cli.terminal import at_terminal


def test_watching_prints_each_look(
    broker: EmbeddedBroker, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["lag", "-n", broker.name_server, "-g", group, "--watch", "--looks", "2", "-i", "1"]
    assert main(words) == 0
    assert capsys.readouterr().out.count("behind: 4\n") == 2


def test_each_look_is_a_document_of_its_own(
    broker: EmbeddedBroker, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["lag", "-n", broker.name_server, "-g", group, "--watch", "--looks", "2", "-i", "1"]
    assert main([*words, "--json"]) == 0
    documents = capsys.readouterr().out.replace("]\n[", "]\0[").split("\0")
    assert [json.loads(document)[0]["group"] for document in documents] == [group, group]


@pytest.mark.parametrize(
    "command",
    [["lag"], ["top"], ["dlq", "list"], ["consume", "-t", "a"], ["admin", "topic", "list"]],
)
def test_no_name_server_is_one_line(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "-n", "127.0.0.1:1"]) == 1
    assert capsys.readouterr() == (
        "",
        f"rmq {command[0]}: error: none of the name servers 127.0.0.1:1 answered: 127.0.0.1:1 could"
        " not be reached: Connection refused. Give the address of a name server with -n or"
        " --profile, or start one with a broker: rmq standalone."
        " See docs/errors.md#name-servers-not-reached\n",
    )


def test_a_long_table_fits_the_terminal() -> None:
    brokers = Table(("name",), [("a",)], "brokers")
    topics = Table(("topic",), [(n,) for n in range(100)], "topics")
    report = [brokers, topics, Note("the end")]
    for height in (12, 24, 107):
        shown = report_text(fitted(report, height))
        assert shown.count("\n") == height
        assert shown.endswith("more do not fit the terminal\n\nthe end\n")
    assert fitted(report, 108) == report
    shown = report_text(fitted(report, 24))
    left_out = 100 - len(re.findall(r"^ *\d+$", shown, re.MULTILINE))
    assert f"\n{left_out} more do not fit" in shown


def test_on_a_terminal_a_lost_cluster_is_seen_again() -> None:
    with (
        EmbeddedBroker(topics={"orders": 2}) as broker,
        at_terminal("top", "-n", broker.name_server, "-i", "1", "--timeout", "2000") as terminal,
    ):
        terminal.until("orders")
        broker.kill()
        terminal.until("looking again")
        broker.start()
        terminal.until_last("\x1b[J", lacks="looking again")
        terminal.interrupt()
        assert terminal.end() == 130
        assert terminal.shown.endswith("\r\n")
