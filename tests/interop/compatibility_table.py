"""The page that says which real client does what with which broker, written by the tests.

One section per broker, one table per area: rows are scenarios, columns are clients. A run replaces
the cells that it measured and leaves the others; the text holds no times, so that it changes only
when a result does. What cannot work is a dash with a note that says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "compatibility.md"
PASSED = "yes"
FAILED = "no"
NOT_RUN = "?"
IMPOSSIBLE = "–"

_HEAD = """# Compatibility

Written by `make test-interop`; do not edit by hand. Real, unmodified clients run each scenario \
against our broker and name server and against Apache's, all started as processes of their own. \
`make test` runs the quicker scenarios on our broker and fails when a cell got worse.

`yes`: every check of the scenario held. `no`: one did not. `–`: cannot work; the note says why. \
`?`: not run yet.

Beside each result is a comment with a hash of the scenario's code, the client, the broker and the \
result. A run writes it. `make test` fails for a result without it, for one that was changed by \
hand, and for one whose scenario has changed since; `make test-interop STALE=1` runs only those.
"""
_NOTE = re.compile(r"^(\d+)\. (.*)$")
_NOTED = re.compile(rf"^{IMPOSSIBLE} \((\d+)\)$")
_MARKED = re.compile(r"^(.*?)(?: <!-- ([0-9a-f]+) -->)?$")


class Cell(NamedTuple):
    """One result: a scenario, by a client, on a broker (`ours` or a version of Apache's)."""

    title: str
    client: str
    broker: str


@dataclass(frozen=True)
class Area:
    """One kind of table: its rows, and the clients that are its columns."""

    name: str
    titles: tuple[str, ...]
    clients: tuple[str, ...]


def broker_title(broker: str) -> str:
    return "Our broker" if broker == "ours" else f"Apache {broker}"


def client_title(client: str) -> str:
    return "our client" if client == "ours" else client


def is_measured(result: str) -> bool:
    """Whether only a run can say so."""
    return result in (PASSED, FAILED)


def is_worse(before: str, now: str) -> bool:
    """Whether a cell lost its `yes`."""
    return before == PASSED and now != PASSED


class _Notes:
    """Numbers for reasons, in the order in which the page needs them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def shown(self, result: str) -> str:
        if result in (PASSED, FAILED, NOT_RUN):
            return result
        number = self._numbers.setdefault(result, len(self._numbers) + 1)
        return f"{IMPOSSIBLE} ({number})"

    def lines(self) -> list[str]:
        return [f"{number}. {reason}" for reason, number in self._numbers.items()]


def page_text(
    areas: Sequence[Area],
    brokers: Sequence[str],
    results: Mapping[Cell, str],
    marks: Mapping[Cell, str],
) -> str:
    """The whole page; deterministic in its arguments. A result is yes, no, or a reason."""
    notes = _Notes()
    lines = [_HEAD, "## Summary", "", "Cells that say yes, of those that can work.", ""]
    lines += _summary(areas, brokers, results)
    for broker in brokers:
        lines += ["", f"## {broker_title(broker)}"]
        for area in areas:
            lines += ["", f"### {area.name}", "", *_table(area, broker, results, marks, notes)]
    if notes.lines():
        lines += ["", "## Notes", "", *notes.lines()]
    return "\n".join(lines) + "\n"


def _summary(
    areas: Sequence[Area], brokers: Sequence[str], results: Mapping[Cell, str]
) -> Iterable[str]:
    yield from _header(["Client", *map(broker_title, brokers)])
    for client in dict.fromkeys(client for area in areas for client in area.clients):
        titles = [t for area in areas if client in area.clients for t in area.titles]
        counts = []
        for broker in brokers:
            cells = [results.get(Cell(title, client, broker), NOT_RUN) for title in titles]
            possible = sum(cell in (PASSED, FAILED, NOT_RUN) for cell in cells)
            counts.append(f"{cells.count(PASSED)} of {possible}")
        yield _row([client_title(client), *counts])


def _table(
    area: Area,
    broker: str,
    results: Mapping[Cell, str],
    marks: Mapping[Cell, str],
    notes: _Notes,
) -> Iterable[str]:
    yield from _header(["Scenario", *map(client_title, area.clients)])
    for title in area.titles:
        cells = [Cell(title, client, broker) for client in area.clients]
        shown = [notes.shown(results.get(cell, NOT_RUN)) for cell in cells]
        yield _row([title, *map(_with_mark, shown, [marks.get(cell) for cell in cells])])


def _with_mark(shown: str, mark: str | None) -> str:
    return f"{shown} <!-- {mark} -->" if mark and is_measured(shown) else shown


def _header(cells: Sequence[str]) -> Iterable[str]:
    yield _row(cells)
    yield _row(["---"] * len(cells))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def read_results(text: str) -> dict[Cell, str]:
    """The results that a page shows; reasons as their text."""
    notes = {found[1]: found[2] for line in text.splitlines() if (found := _NOTE.match(line))}
    found = {cell: _result(_parted(shown)[0], notes) for cell, shown in _shown_cells(text)}
    return {cell: result for cell, result in found.items() if result != NOT_RUN}


def read_marks(text: str) -> dict[Cell, str]:
    """The marks that runs left beside results."""
    return {cell: mark for cell, shown in _shown_cells(text) if (mark := _parted(shown)[1])}


def _shown_cells(text: str) -> Iterable[tuple[Cell, str]]:
    broker, clients = "", []
    for line in text.splitlines():
        if line.startswith("## "):
            broker = {"Our broker": "ours"}.get(line[3:], line[3:].removeprefix("Apache "))
        elif line.startswith("| Scenario |"):
            clients = ["ours" if name == "our client" else name for name in _cells(line)[1:]]
        elif line.startswith("| ") and not line.startswith("| --- |") and broker != "Summary":
            title, *found = _cells(line)
            for client, shown in zip(clients, found, strict=True):
                yield Cell(title, client, broker), shown


def _parted(shown: str) -> tuple[str, str]:
    """Result and mark, which may be empty."""
    found = _MARKED.match(shown)
    return (found[1], found[2] or "") if found else (shown, "")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _result(shown: str, notes: Mapping[str, str]) -> str:
    noted = _NOTED.match(shown)
    return notes[noted[1]] if noted else shown


def update_page(
    areas: Sequence[Area],
    brokers: Sequence[str],
    measured: Mapping[Cell, str],
    marks: Mapping[Cell, str],
    page: Path = PAGE,
) -> str:
    """Write the page if what was measured changes it; its text. `marks` belong to `measured`."""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    results = {**read_results(before), **measured}
    text = page_text(areas, brokers, results, {**read_marks(before), **marks})
    if text != before:
        page.write_text(text, encoding="utf-8")
    return text
