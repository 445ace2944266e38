"""`rmq explain` prints what an error refers to."""

from __future__ import annotations

import pytest

from broker_core.cli.live.explain import error_sections, page_folder
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
    assert set(listed) == set(named_anchors()) == error_sections(_page("errors.md")).keys()


def _page(name: str) -> str:
    return (page_folder() / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["source.md", "docs/errors.md"])
def test_a_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 0
    assert capsys.readouterr().out == _page(name.removeprefix("docs/"))


def test_pages_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--pages"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(p.name for p in page_folder().glob("*.md"))
    assert any(
        line.split() == ["source.md", *_page("source.md").split("\n")[0].split()[1:]]
        for line in lines
    )


@pytest.mark.parametrize("name", ["gone.md", "../README.md", "decisions/001-rooms.md"])
def test_no_such_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 2
    assert "rmq explain --pages" in capsys.readouterr().err


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nothing"]) == 2
    assert capsys.readouterr().err == (
        "rmq explain: error: no error is called 'nothing'; rmq explain lists them\n"
    )
