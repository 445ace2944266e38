"""The compatibility page: deterministic, and a run changes only what it measured."""

from __future__ import annotations

from pathlib import Path

from tests.interop.compatibility_table import FAILED, PASSED, Cell, page_text, update_page

TITLES = ["sends", "pulls"]
COLUMNS = [("5.5.0", "ours"), ("4.9.8", "4.9.7")]
OURS = Cell("sends", "5.5.0", "ours")
THEIRS = Cell("sends", "4.9.8", "4.9.7")


def rows(page: Path) -> list[str]:
    return [line for line in page.read_text(encoding="utf-8").splitlines() if "|" in line]


def test_a_new_page_has_every_row_and_column(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    update_page(TITLES, COLUMNS, {OURS: PASSED}, page)
    assert rows(page) == [
        "| Scenario | client 5.5.0, our broker | client 4.9.8, Apache 4.9.7 |",
        "| --- | --- | --- |",
        "| sends | yes | – |",
        "| pulls | – | – |",
    ]


def test_a_later_run_keeps_what_it_did_not_measure(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    update_page(TITLES, COLUMNS, {OURS: PASSED, THEIRS: FAILED}, page)
    update_page(TITLES, COLUMNS, {OURS: FAILED}, page)
    assert rows(page)[2:] == ["| sends | no | no |", "| pulls | – | – |"]
    update_page(["pulls", "sends"], COLUMNS, {THEIRS: PASSED}, page)
    assert rows(page)[2:] == ["| pulls | – | – |", "| sends | no | yes |"]


def test_the_same_results_leave_the_page_untouched(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    update_page(TITLES, COLUMNS, {OURS: PASSED}, page)
    before = page.stat().st_mtime_ns
    update_page(TITLES, COLUMNS, {OURS: PASSED}, page)
    assert page.stat().st_mtime_ns == before
    assert page.read_text(encoding="utf-8") == page_text(TITLES, COLUMNS, {OURS: PASSED})


def test_rows_that_are_gone_leave_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    update_page(TITLES, COLUMNS, {OURS: PASSED}, page)
    update_page(["pulls"], COLUMNS, {}, page)
    assert rows(page)[2:] == ["| pulls | – | – |"]
