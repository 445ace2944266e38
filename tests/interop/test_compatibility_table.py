"""The compatibility page: deterministic, complete, and a run changes only what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import certificate, conftest
from tests.interop.certificate import AREAS, Certificate, doubtful_cells, impossible, marks_of
from tests.interop.certificate_marks import cells_of, certifies
from tests.interop.compatibility_table import (
    FAILED,
    PAGE,
    PASSED,
    Area,
    Cell,
    page_text,
    read_marks,
    read_results,
    update_page,
)
from tests.interop.server_processes import BROKER_KINDS

BROKERS = ("ours", "4.9.7")
TABLES = (Area("Sending", ("sends", "batches"), ("Java 5.5.0", "ours")),)
OURS = Cell("sends", "Java 5.5.0", "ours")
THEIRS = Cell("sends", "ours", "4.9.7")
LACKING = Cell("batches", "ours", "ours")


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|") and "---" not in line]


def test_a_new_page_has_every_row_and_column(tmp_path: Path) -> None:
    text = update_page(
        TABLES, BROKERS, {OURS: PASSED, LACKING: "no such thing"}, {}, tmp_path / "p.md"
    )
    assert text == (tmp_path / "p.md").read_text(encoding="utf-8")
    assert rows(text) == [
        "| Client | Our broker | Apache 4.9.7 |",
        "| Java 5.5.0 | 1 of 2 | 0 of 2 |",
        "| our client | 0 of 1 | 0 of 2 |",
        "| Scenario | Java 5.5.0 | our client |",
        "| sends | yes | ? |",
        "| batches | ? | – (1) |",
        "| Scenario | Java 5.5.0 | our client |",
        "| sends | ? | ? |",
        "| batches | ? | ? |",
    ]
    assert text.endswith("## Notes\n\n1. no such thing\n")


def test_a_page_is_read_as_it_was_written() -> None:
    results = {OURS: PASSED, THEIRS: FAILED, LACKING: "no such thing"}
    marks = {OURS: "0a", THEIRS: "1b"}
    text = page_text(TABLES, BROKERS, results, marks)
    assert "| sends | yes <!-- 0a --> | ? |" in text
    assert read_results(text) == results
    assert read_marks(text) == marks
    assert page_text(TABLES, BROKERS, read_results(text), read_marks(text)) == text


def test_a_later_run_keeps_what_it_did_not_measure(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    update_page(TABLES, BROKERS, {OURS: PASSED, THEIRS: FAILED}, {OURS: "0a", THEIRS: "1b"}, page)
    text = update_page(TABLES, BROKERS, {OURS: FAILED}, {OURS: "2c"}, page)
    assert read_results(text) == {OURS: FAILED, THEIRS: FAILED}
    assert read_marks(text) == {OURS: "2c", THEIRS: "1b"}


def test_the_same_results_leave_the_page_untouched(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    update_page(TABLES, BROKERS, {OURS: PASSED}, {}, page)
    before = page.stat().st_mtime_ns
    update_page(TABLES, BROKERS, {OURS: PASSED}, {}, page)
    assert page.stat().st_mtime_ns == before


def test_rows_that_are_gone_leave_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    update_page(TABLES, BROKERS, {OURS: PASSED}, {}, page)
    fewer = (Area("Sending", ("batches",), ("Java 5.5.0", "ours")),)
    assert "sends" not in update_page(fewer, BROKERS, {}, {}, page)


def test_a_cell_that_got_worse_is_told() -> None:
    judge = Certificate()
    good = next(cell for cell, shown in read_results(shown_page()).items() if shown == PASSED)
    assert judge.add(good, PASSED) is None
    assert "but now: no" in (judge.add(good, FAILED) or "")
    # Several tests may decide one cell: one failure is enough.
    assert judge.add(good, PASSED) is None
    assert judge.measured[good] == FAILED
    assert "a reason" in (judge.add(good, "a reason") or "")


def shown_page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_its_results_make_it() -> None:
    """It was not edited by hand, and no row or note is left over."""
    results = {**read_results(shown_page()), **impossible()}
    made = page_text(AREAS, BROKER_KINDS, results, read_marks(shown_page()))
    assert made == shown_page(), "run make test-interop"


def test_every_cell_was_written_by_a_run_of_its_scenario() -> None:
    found = doubtful_cells(shown_page())
    assert found == [], (
        f"{len(found)} cells were written by hand, or their scenario has changed since; "
        "run make test-interop STALE=1"
    )


def certified_page() -> tuple[str, Cell, str]:
    """A page on which everything is fine, and a cell of it with its row."""
    cell = Cell(AREAS[0].titles[0], AREAS[0].clients[0], "4.9.7")
    results = {**impossible(), cell: PASSED}
    text = page_text(AREAS, BROKER_KINDS, results, marks_of(results))
    [row] = [line for line in text.splitlines() if "yes <!--" in line]
    return text, cell, row


def test_a_cell_that_was_made_by_hand_is_found() -> None:
    text, cell, row = certified_page()
    assert doubtful_cells(text) == []
    mark = read_marks(text)[cell]
    shown = f"yes <!-- {mark} -->"
    for hand_made in ("yes", f"no <!-- {mark} -->", "yes <!-- 0123456789ab -->"):
        assert doubtful_cells(text.replace(shown, hand_made)) == [cell]
    # The mark of another cell of the same scenario, by the same run.
    copied = text.replace(row, row.replace("| ? |", f"| {shown} |", 1))
    assert doubtful_cells(copied) == [cell._replace(client=AREAS[0].clients[1])]
    # A reason that is not in the table.
    noted = text.replace(shown, "– (1)")
    assert doubtful_cells(noted) == [cell]


def test_a_cell_is_stale_when_its_scenario_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    text, cell, _ = certified_page()
    changed = {**certificate.digests(), cell.title: "0" * 12}
    monkeypatch.setattr(certificate, "digests", lambda: changed)
    assert doubtful_cells(text) == [cell]
    assert cell in certificate.stale_cells()


def test_every_row_has_a_digest_of_its_own() -> None:
    found = certificate.digests()
    assert found.keys() == {title for area in AREAS for title in area.titles}
    assert len(set(found.values())) == len(found)


def test_nothing_that_can_work_fails_on_our_broker() -> None:
    failed = [
        cell
        for cell, result in read_results(shown_page()).items()
        if cell.broker == "ours" and result == FAILED
    ]
    assert failed == []


@certifies("{what} sends", "batches", client="{client}", broker="{kind}")
@pytest.mark.parametrize(("what", "client", "kind"), [("all", "Go 2.1.2", "apache-5.5.0")])
def test_marks_name_the_parameters_of_their_test(
    what: str, client: str, kind: str, request: pytest.FixtureRequest
) -> None:
    assert cells_of(request.node) == [
        Cell("all sends", client, "5.5.0"),
        Cell("batches", client, "5.5.0"),
    ]


@certifies("{what}", client="Java 5.5.0", broker="ours")
@pytest.mark.parametrize("what", [OURS.title])
@pytest.mark.parametrize("found", ["passed", "failed", "a reason"])
def test_a_run_fails_when_a_cell_gets_worse(
    what: str, found: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a reason is given why the client cannot do it."""
    judge = Certificate()
    judge._shown = {OURS: PASSED}
    monkeypatch.setattr(conftest, "_certificate", lambda: judge)
    monkeypatch.setattr(conftest, "COMPLETE", False)
    judged = conftest.pytest_runtest_makereport(request.node, _call())
    next(judged)
    with pytest.raises(StopIteration) as ended:
        judged.send(_report(request.node, found))
    assert (ended.value.value.outcome == "failed") is (found != "passed")


def _call() -> pytest.CallInfo[None]:
    return pytest.CallInfo.from_call(lambda: None, "call")


def _report(item: pytest.Item, found: str) -> pytest.TestReport:
    report = pytest.TestReport.from_item_and_call(item, _call())
    if found == "failed":
        report.outcome = "failed"
    elif found != "passed":
        report.outcome = "skipped"
        report.wasxfail = f"reason: {found}"
    return report
