"""`rmq explain` prints what an error refers to."""

from __future__ import annotations

import pytest

from broker_core.cli.live.explain import error_page, error_sections
from broker_core.cli.main import main
from tests.test_error_page import named_anchors


@pytest.mark.parametrize("start", ["", "docs/errors.md#"])
def test_a_section(start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{start}null-values"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("column … is null in … rows\n\nA message always has a body")
    assert "##" not in shown and "<a id" not in shown


def test_all_errors_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert set(listed) == set(named_anchors()) == error_sections(error_page()).keys()


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nothing"]) == 2
    assert capsys.readouterr().err == (
        "rmq explain: error: no error is called 'nothing'; rmq explain lists them\n"
    )
