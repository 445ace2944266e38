"""`rmq` itself: help, version, unknown words, one line per error."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.cli import main as rmq
from broker_core.cli.admin.registry import ADMIN_COMMANDS
from broker_core.cli.main import COMMANDS, main
from tests.cli.rmq_process import run_rmq, running

# Of the narrowest usual terminal.
COLUMNS = 80
GOLDEN = Path(__file__).parent / "golden"


def _golden(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("--help", "-h", "help"):
        assert main([word]) == 0
        assert capsys.readouterr() == (_golden("rmq"), "")
    assert max(map(len, _golden("rmq").splitlines())) <= COLUMNS


def test_no_command_shows_the_help_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr() == ("", _golden("rmq"))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    # The usage above is Python's and differs between its versions.
    assert shown[shown.index("\n\n") + 2 :] == _golden(name)
    assert max(map(len, shown.splitlines())) <= COLUMNS


@pytest.mark.parametrize("name", ADMIN_COMMANDS)
def test_help_of_an_admin_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["admin", *name.split(), "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert [line for line in shown.splitlines() if len(line) > COLUMNS] == []


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rmq ")


@pytest.mark.parametrize("word", ["serve", "--nonsense", "Broker", ""])
def test_an_unknown_word(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert repr(word) in error


def test_a_misspelled_command_gets_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstrat"]) == 2
    assert capsys.readouterr().err == (
        "rmq: error: unknown command 'quickstrat'; did you mean rmq quickstart?\n"
    )


def test_help_before_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["help", "lag"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("usage: rmq lag ")


def test_the_link_of_an_error_is_a_sentence_of_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["broker", "-p", "brokerNme=a"]) == 2
    assert capsys.readouterr().err == (
        "rmq broker: error: option -p: unknown property 'brokerNme': did you mean brokerName? See"
        " docs/errors.md#unknown-broker-property\n"
    )
    assert main(["broker", "-p", "nonsense=a"]) == 2
    assert capsys.readouterr().err == (
        "rmq broker: error: option -p: unknown property 'nonsense': docs/broker-configuration.md"
        " has all of them. See docs/errors.md#unknown-broker-property\n"
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["namesrv", "--listen", "9876"], "'9876' is not HOST:PORT"),
        (["namesrv", "extra"], "unrecognized arguments: extra"),
        (["namesrv", "--list", "a:1"], "--list"),
        (["namesrv", "--log-level", "loud"], "loud"),
        (["broker", "-p", "x"], "'x' is not KEY=VALUE"),
        (["broker", "-n", "nowhere"], "'nowhere' is not HOST:PORT"),
        (["standalone", "--port", "70000"], "'70000' is not a port"),
        (["standalone", "-t", "orders:0"], "'0' is not a whole number from 1"),
        (["produce"], "-t/--topic"),
        (["produce", "-t", "a", "--batch", "0"], "--batch"),
        (["produce", "-t", "a", "-K", ""], "at least one character"),
        (["consume", "-t", "a", "-o", "middle"], "'middle' is not earliest"),
        (["consume", "-t", "a", "-f", "%z"], "%z is not one of"),
        (["consume", "-t", "a", "-f", "%s", "-J"], "not allowed with"),
        (["consume", "-t", "a", "-q", "x"], "'x' is not the number of a queue"),
    ],
)
def test_a_wrong_option_is_one_line(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rmq {words[0]}: error: ")
    assert named in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["consume", "-t", "a", "-G", "g", "-q", "0"], "-q cannot be used with -G"),
        (["consume", "-t", "a", "-G", "g", "-o", "-3"], "-o with -G"),
        (["consume", "-t", "a", "-G", "g", "-o", "3"], "-o with -G"),
        (["namesrv", "--listen", "0.0.0.0:0"], "--allow-remote"),
        (["namesrv", "--listen", "0.0.0.0:0", "--allow-remote"], "--access-file"),
        (["namesrv", "--listen", "0.0.0.0:0", "--access-file", "x"], "--allow-remote"),
    ],
)
def test_options_that_exclude_each_other(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert named in capsys.readouterr().err


def test_an_error_text_of_many_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rmq, "import_module", _raise_two_lines)
    assert main(["broker"]) == 1
    assert capsys.readouterr().err == "rmq broker: error: first second\n"


def _raise_two_lines(name: str) -> None:
    raise OSError("first\n\tsecond")


def test_garbage_collection_is_off_for_the_imports_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states = []

    def import_nothing(name: str) -> None:
        states.append(gc.isenabled())
        raise OSError("no such module")

    monkeypatch.setattr(rmq, "import_module", import_nothing)
    assert main(["broker"]) == 1
    assert (states, gc.isenabled()) == ([False], True)
    assert capsys.readouterr().err == "rmq broker: error: no such module\n"


def test_it_runs_as_a_module() -> None:
    ended = run_rmq("--help")
    assert (ended.code, ended.output.decode(), ended.errors) == (0, _golden("rmq"), "")


@pytest.mark.parametrize("word", ["topic", "topicList", "Group"])
def test_a_command_of_admin_without_admin(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "list"]) == 2
    assert f"did you mean rmq admin {word}?" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["-V", "version"])
def test_other_words_for_the_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    assert capsys.readouterr().out.startswith("rmq ")


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_output_that_cannot_be_written_is_one_line(word: str) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "broker_core", word],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ended.returncode == 1
    assert ended.stderr == "rmq: error: [Errno 28] No space left on device\n"


def test_an_encoding_without_a_character_of_the_help() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "broker_core", "produce", "--help"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"1m ? 10m" in b" ".join(ended.stdout.split())


def test_a_name_that_no_topic_can_have(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("produce", "consume"):
        with pytest.raises(SystemExit) as end:
            main([command, "-t", "a b"])
        assert end.value.code == 2
        assert "'a b': topic has a character outside" in capsys.readouterr().err


def test_a_broker_that_is_not_reached(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    properties = ("-p", "brokerIP1=127.0.0.2", "-p", "bindAddress=127.0.0.1")
    ports = ("--port", "0", "--broker-port", str(port))
    with running(tmp_path, "standalone", *ports, "-t", "T:1", *properties) as server:
        ended = [
            run_rmq("consume", "-t", "T", "-e", "-n", server.address),
            run_rmq("admin", "topic", "status", "-t", "T", "-n", server.address),
        ]
        server.end()
    for one in ended:
        assert one.code == 1
        assert one.errors.endswith(
            f"127.0.0.2:{port} could not be reached: Connection refused. Start the broker or, if"
            " this machine reaches it at another address, set its brokerIP1."
            " See docs/errors.md#broker-not-reached\n"
        )
