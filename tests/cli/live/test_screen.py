"""Reports that are printed again and again."""

from __future__ import annotations

import json

import pytest

from broker_core.cli.main import main
from broker_core.embedded.embedded_broker import EmbeddedBroker


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


@pytest.mark.parametrize("command", ["lag", "top"])
def test_no_name_server_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "-n", "127.0.0.1:1"]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert "Are the name servers 127.0.0.1:1 (-n) right, and up?" in errors
