"""Everything that the compatibility page asks for, and the results that a run gives it.

`AREAS` are its tables. What a library cannot do is known without a run. `Certificate` collects the
results of one run, says which cells got worse, and writes the page when the run was complete.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.interop import client_matrix, mqadmin_scenarios
from tests.interop.client_kinds import GO_CLIENTS, JAVA_CLIENTS, NODE_CLIENTS, language_of
from tests.interop.compatibility_table import (
    FAILED,
    PAGE,
    PASSED,
    Area,
    Cell,
    is_measured,
    is_worse,
    read_marks,
    read_results,
    update_page,
)
from tests.interop.maven_artifacts import cache_root, locked
from tests.interop.our_client import OUR_CLIENT
from tests.interop.scenario_digests import cell_mark, scenario_digest
from tests.interop.server_processes import BROKER_KINDS
from tests.interop.test_mqadmin import KNOWN_GAPS

CLIENTS = (*JAVA_CLIENTS, *GO_CLIENTS, *NODE_CLIENTS, OUR_CLIENT)
AREAS = (
    *(
        Area(name, tuple(case.title for case in cases), CLIENTS)
        for name, cases in client_matrix.AREAS.items()
    ),
    Area(
        "Administration",
        tuple(case.title for case in mqadmin_scenarios.SCENARIOS),
        mqadmin_scenarios.CLIENTS,
    ),
)


def impossible() -> dict[Cell, str]:
    """Cells that no run can fill, and why."""
    reasons: dict[Cell, str] = {}
    for case in client_matrix.CASES:
        for client in CLIENTS:
            if (reason := case.lacking.get(language_of(client))) is not None:
                for broker in BROKER_KINDS:
                    reasons[Cell(case.title, client, broker)] = reason
    for (client, broker), gaps in client_matrix.KNOWN_GAPS.items():
        for case in client_matrix.CASES:
            if case.name in gaps:
                reasons[Cell(case.title, client, broker)] = gaps[case.name]
    for (version, broker), gaps in KNOWN_GAPS.items():
        for admin_case in mqadmin_scenarios.SCENARIOS:
            if (known := gaps.get(admin_case.run.__name__)) is not None:
                reasons[Cell(admin_case.title, f"mqadmin {version}", broker)] = known
    return {**reasons, **mqadmin_scenarios.impossible()}


def digests() -> dict[str, str]:
    """Title -> hash of what its scenario does."""
    return {
        **{
            case.title: scenario_digest(case.run, case.strict, case.alone, case.headers)
            for case in client_matrix.CASES
        },
        **{
            case.title: scenario_digest(case.run, case.alone)
            for case in mqadmin_scenarios.SCENARIOS
        },
    }


def marks_of(results: Mapping[Cell, str]) -> dict[Cell, str]:
    """What a run writes beside these results today."""
    known = digests()
    return {
        cell: cell_mark(known[cell.title], *cell, result)
        for cell, result in results.items()
        if is_measured(result) and cell.title in known
    }


def doubtful_cells(text: str) -> list[Cell]:
    """Cells of a page that no run of today's scenarios has written as they are."""
    results, marks, reasons = read_results(text), read_marks(text), impossible()
    valid = marks_of(results)
    return [
        cell
        for cell, result in results.items()
        if (
            marks.get(cell) is None or marks[cell] != valid.get(cell)
            if is_measured(result)
            else reasons.get(cell) != result
        )
    ]


def stale_cells() -> set[Cell]:
    """Cells that a run has to write: doubtful ones of the page, failed ones, and absent ones."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    shown = read_results(text)
    wanted = {
        Cell(title, client, broker)
        for area in AREAS
        for title in area.titles
        for client in area.clients
        for broker in BROKER_KINDS
    }
    failed = {cell for cell, result in shown.items() if result == FAILED}
    return {*doubtful_cells(text), *failed, *(wanted - shown.keys())}


class Certificate:
    """The results of one run beside those of the page."""

    def __init__(self) -> None:
        self._shown = read_results(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
        self.measured: dict[Cell, str] = {}

    def add(self, cell: Cell, result: str) -> str | None:
        """Note a result, which is yes, no or a reason; the complaint if the cell got worse."""
        if self.measured.get(cell, PASSED) == PASSED:
            self.measured[cell] = result
        before = self._shown.get(cell, FAILED)
        if is_worse(before, result):
            return f"docs/compatibility.md says {before!r} for {cell}, but now: {result}"
        return None

    def write(self) -> str:
        """Put what was measured on the page, also with concurrent writers."""
        measured = {**impossible(), **self.measured}
        with locked(cache_root()):
            return update_page(AREAS, BROKER_KINDS, measured, marks_of(self.measured))
