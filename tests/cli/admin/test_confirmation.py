"""Nothing is deleted without a yes."""

from __future__ import annotations

import io

import pytest

from broker_core.cli.admin.confirmation import confirm
from broker_core.cli.exit_codes import FAILED, MISUSED, CommandFailed


class Terminal(io.StringIO):
    """Standard input with a person at it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["y\n", "Yes\n", " YES "])
def test_yes(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    confirm("delete topic a")


@pytest.mark.parametrize("answer", ["\n", "", "no\n", "yesterday\n", "t\n"])
def test_anything_else_is_no(
    answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    with pytest.raises(CommandFailed, match=r"^nothing was deleted$") as refused:
        confirm("delete topic a")
    assert refused.value.exit_code == FAILED
    assert capsys.readouterr().err == "delete topic a? [y/N] "


def test_without_a_terminal_there_is_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(CommandFailed, match=r"^delete topic a[?] Give --yes") as refused:
        confirm("delete topic a")
    assert refused.value.exit_code == MISUSED
