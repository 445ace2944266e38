"""Colours appear on a terminal, and nowhere else."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from pathlib import Path

import pytest

from broker_core.cli.admin.report import Facts, Note, Table, report_text
from broker_core.cli.colours import paint, wants_colour
from tests.cli.rmq_process import LIMIT_S, command, environment


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("is_terminal", "variables", "wanted"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_when(
    is_terminal: bool, variables: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if is_terminal else io.StringIO()
    assert wants_colour(stream) is wanted
    assert paint("x", "red", stream) == ("\x1b[1;31mx\x1b[0m" if wanted else "x")


def test_a_report_is_the_same_below_its_colours() -> None:
    report = [
        Table(("group", "behind"), [("a", 0), ("b", 12)], "groups"),
        Facts({"name": "x", "size": 1}),
        Note("done"),
    ]
    plain, coloured = report_text(report), report_text(report, True)
    assert "\x1b" not in plain
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"):
        assert code in coloured
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_only_a_lag_is_notable() -> None:
    text = report_text([Table(("behind",), [(0,), (12,), (None,)])], True)
    assert text.count("\x1b[33m") == 1
    assert "\x1b[33m    12\x1b[0m" in text


def on_a_terminal(*arguments: str, **changes: str) -> str:
    """What a command prints where standard output and errors are a terminal."""
    ours, its = pty.openpty()
    # 3.14 has colours of its own in help texts.
    variables = environment(TERM="xterm", **changes)
    with subprocess.Popen(
        command(*arguments), stdin=subprocess.DEVNULL, stdout=its, stderr=its, env=variables
    ) as process:
        os.close(its)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:
            # Linux reports the end of a terminal so.
            pass
        finally:
            os.close(ours)
        process.wait(LIMIT_S)
    return shown.decode()


def test_a_command_on_a_terminal(tmp_path: Path) -> None:
    shown = on_a_terminal("profile", "show", "none", RMQ_CONFIG_DIR=str(tmp_path))
    assert shown.startswith("rmq profile: \x1b[1;31merror:\x1b[0m no profile 'none'")
    plain = on_a_terminal("profile", "list", RMQ_CONFIG_DIR=str(tmp_path), NO_COLOR="1")
    assert "\x1b" not in plain
