"""`%rmq` in a real IPython shell, with a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from pyspark_rmq import Cluster, EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 1}) as running:
        yield running


@pytest.fixture
def shell(broker: EmbeddedBroker) -> Iterator[Any]:
    made = InteractiveShell()
    made.run_line_magic("load_ext", "pyspark_rmq")
    made.user_ns["broker"] = broker
    yield made
    # It keeps its history in a database.
    made.history_manager.end_session()


def test_produce_and_tail(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("rmq", "produce orders -K : --tags new", "k1:first\nk2:second\n")
    assert "2 acknowledged" in capsys.readouterr().out
    tail = shell.run_line_magic("rmq", "tail orders -n 1")
    assert [(row.key, row.tags, row.value) for row in tail.itertuples()] == [
        ("k2", "new", "second")
    ]
    assert len(shell.run_line_magic("rmq", "tail orders")) >= 2


def test_topics_and_lag(shell: Any, broker: EmbeddedBroker) -> None:
    assert "orders" in set(shell.run_line_magic("rmq", "topics")["topic"])
    assert "TBW102" in set(shell.run_line_magic("rmq", "topics --system")["topic"])
    assert len(shell.run_line_magic("rmq", "lag")) == 0
    assert shell.run_line_magic("rmq", "") is broker


def test_other_commands_are_those_of_the_command_line(
    shell: Any, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.produce("shown", ["the body"])
    shell.run_line_magic("rmq", "consume -t shown -e -f 'got %s\\n'")
    assert capsys.readouterr().out == "got the body\n"
    with pytest.raises(UsageError, match="ended with exit code"):
        shell.run_line_magic("rmq", "consume -t missing -e")
    assert "missing" in capsys.readouterr().out


def test_use(shell: Any, broker: EmbeddedBroker) -> None:
    other = shell.run_line_magic("rmq", f"use {broker.name_server}")
    assert isinstance(other, Cluster)
    assert shell.run_line_magic("rmq", "") is other
    assert shell.run_line_magic("rmq", "use broker") is broker
    shared = shell.run_line_magic("rmq", "use of_the_magic")
    try:
        assert shared is EmbeddedBroker.shared("of_the_magic")
        assert shell.run_line_magic("rmq", "") is shared
    finally:
        shared.stop()


@pytest.mark.parametrize("name", ["127.0.0.1", "number", "mistyped.name"])
def test_use_of_what_is_no_cluster(shell: Any, name: str) -> None:
    shell.user_ns["number"] = 7
    with pytest.raises(UsageError, match=f"'{name}' is neither a broker nor a cluster"):
        shell.run_line_magic("rmq", f"use {name}")


def test_use_says_that_it_starts_a_broker(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for expected in ("no broker 'started_by_use' was shared; a new one has been started\n", ""):
        shared = shell.run_line_magic("rmq", "use started_by_use")
        assert capsys.readouterr().out == expected
    shared.stop()


@pytest.mark.parametrize(
    ("word", "meant"),
    [("tial", "tail"), ("Topics", "topics"), ("topic", "topics"), ("uses", "use")],
)
def test_a_misspelled_command(shell: Any, word: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"unknown command '{word}'; did you mean {meant}?"):
        shell.run_line_magic("rmq", f"{word} orders")


def test_a_line_with_a_cell(shell: Any) -> None:
    with pytest.raises(UsageError, match="tail takes no cell: write it with one %"):
        shell.run_cell_magic("rmq", "tail orders", "a\n")


@pytest.mark.parametrize("line", ["--help", "help", "-h"])
def test_help_shows_the_lines_of_the_magic_and_the_commands(
    shell: Any, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del shell.user_ns["broker"]
    shell.run_line_magic("rmq", line)
    shown = capsys.readouterr().out
    assert shown.index("%rmq tail TOPIC [-n N]") < shown.index("usage: rmq COMMAND")


@pytest.mark.parametrize(
    ("line", "text"),
    [("consume --help", "usage: rmq consume"), ("doctor", "pyspark-rmq"), ("profile list", "")],
)
def test_commands_that_need_no_cluster(
    shell: Any, line: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del shell.user_ns["broker"]
    try:
        shell.run_line_magic("rmq", line)
    except UsageError as error:
        # `doctor` may have found something.
        assert "doctor ended with exit code 1" in str(error)
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("line", ["tail --help", "topics -h", "use --help"])
def test_help(shell: Any, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_line_magic("rmq", line)
    shown = capsys.readouterr().out
    assert "%rmq tail TOPIC [-n N]" in shown
    assert max(map(len, shown.splitlines())) <= 88


def test_which_cluster(shell: Any, broker: EmbeddedBroker) -> None:
    shell.user_ns["again"] = broker
    assert shell.run_line_magic("rmq", "") is broker
    shell.user_ns["other"] = Cluster("127.0.0.1:1")
    with pytest.raises(UsageError, match=r"2 clusters \(.*%rmq use NAME"):
        shell.run_line_magic("rmq", "topics")
    for name in ("broker", "again", "other"):
        del shell.user_ns[name]
    with pytest.raises(UsageError, match="no broker runs in this notebook"):
        shell.run_line_magic("rmq", "topics")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("tail", "usage: %rmq tail"),
        ("tail orders -n many", "invalid int value"),
        ("tail orders -n -1", "give a number from 0"),
        ("produce orders", "give the messages in a cell: write it with %%"),
        ("topics --all", "unrecognized arguments"),
        ("watch nothing", "neither a variable with a query nor the name of one; active: none"),
        ("tail 'orders", "No closing quotation"),
    ],
)
def test_misuse(shell: Any, line: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        shell.run_line_magic("rmq", line)
