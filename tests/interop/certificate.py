"""Everything that the compatibility page asks for, and the results that a run gives it.

`AREAS` are its tables. What a library cannot do is known without a run. `Certificate` collects the
results of one run, says which cells got worse, and writes the page when the run was complete.
"""

from __future__ import annotations

from tests.interop import client_matrix, mqadmin_scenarios
from tests.interop.client_kinds import GO_CLIENTS, JAVA_CLIENTS, NODE_CLIENTS, language_of
from tests.interop.compatibility_table import (
    FAILED,
    PAGE,
    PASSED,
    Area,
    Cell,
    is_worse,
    read_results,
    update_page,
)
from tests.interop.maven_artifacts import cache_root, locked
from tests.interop.our_client import OUR_CLIENT
from tests.interop.server_processes import BROKER_KINDS

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
    return {**reasons, **mqadmin_scenarios.impossible()}


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
        """Put what was measured on the page, whoever else writes it at the same time."""
        with locked(cache_root()):
            return update_page(AREAS, BROKER_KINDS, {**impossible(), **self.measured})
