"""The page that says which real client does what with which broker, written by the tests.

Rows are scenarios, columns are client and broker versions. A run replaces the cells that it
measured and leaves the others; the text holds no times, so that it changes only when a result does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "compatibility.md"
PASSED = "yes"
FAILED = "no"
NOT_RUN = "–"

_HEAD = """# Compatibility

Written by `tests/interop/test_java_clients.py`; do not edit by hand. Real, unmodified Java \
clients (`org.apache.rocketmq:rocketmq-client`) run each scenario against our broker and name \
server and against Apache's, all started as processes of their own. `make test` runs the columns \
of our broker, `make test-interop` runs all of them.

`yes`: every check of the scenario held. `no`: one did not. `–`: not run yet.

"""


class Cell(NamedTuple):
    """One result: a scenario, by a client, on a broker."""

    title: str
    client: str
    broker: str


def column_title(client: str, broker: str) -> str:
    shown = "our broker" if broker == "ours" else f"Apache {broker}"
    return f"client {client}, {shown}"


def page_text(
    titles: Sequence[str], columns: Sequence[tuple[str, str]], results: Mapping[Cell, str]
) -> str:
    """The whole page; deterministic in its arguments."""
    head = ["Scenario", *(column_title(*column) for column in columns)]
    lines = [_row(head), _row(["---"] * len(head))]
    for title in titles:
        cells = [results.get(Cell(title, *column), NOT_RUN) for column in columns]
        lines.append(_row([title, *cells]))
    return _HEAD + "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def read_results(text: str, columns: Sequence[tuple[str, str]]) -> dict[Cell, str]:
    """The results that a page shows, for the columns that are still asked for."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    if len(rows) < 2:
        return {}
    places = {column_title(*column): column for column in columns}
    results = {}
    for row in rows[2:]:
        for shown, cell in zip(rows[0][1:], row[1:], strict=False):
            if shown in places and cell in (PASSED, FAILED):
                results[Cell(row[0], *places[shown])] = cell
    return results


def update_page(
    titles: Sequence[str],
    columns: Sequence[tuple[str, str]],
    measured: Mapping[Cell, str],
    page: Path = PAGE,
) -> None:
    """Write the page if what was measured changes it."""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    text = page_text(titles, columns, {**read_results(before, columns), **measured})
    if text != before:
        page.write_text(text, encoding="utf-8")
