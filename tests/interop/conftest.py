"""The real store classes as fixtures, and the results for the compatibility page.

One `JavaStore` per version, or a visible skip. Tests marked with `certifies` decide cells of
`docs/compatibility.md`: a cell that got worse fails its test, and a complete run writes the page.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import cache
from typing import Any

import pytest

from tests.interop.certificate_marks import cells_of
from tests.interop.compatibility_table import FAILED, PAGE, PASSED
from tests.interop.java_store import VERSIONS, JavaStore
from tests.interop.peer_releases import COMPLETE, releases

# Only the tests that decide cells which no run has written, or not as their scenario is today.
STALE = COMPLETE and bool(os.environ.get("RMQ_INTEROP_STALE"))

# Asserts inside of scenarios say as much as those in tests.
pytest.register_assert_rewrite(
    *(
        f"tests.interop.client_scenarios_{room}"
        for room in ("faults", "kinds", "pull", "push", "send", "timers")
    )
)


@cache
def _certificate() -> Any:
    # Imports the scenarios, which must not be imported before the line above.
    from tests.interop.certificate import Certificate

    return Certificate()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not STALE:
        return
    from tests.interop.certificate import stale_cells

    stale = stale_cells()
    dropped = [item for item in items if stale.isdisjoint(cells_of(item))]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if not stale.isdisjoint(cells_of(item))]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    result = _result(report)
    if result is not None:
        cells = cells_of(item)
        complaints = [_certificate().add(cell, result) for cell in cells]
        if COMPLETE and cells:
            # At once: a run of many minutes that is cut off has not run in vain.
            _certificate().write()
        if not report.failed and any(complaints):
            report.outcome = "failed"
            report.longrepr = "\n".join(filter(None, complaints))
            del report.wasxfail
    return report


def _result(report: pytest.TestReport) -> str | None:
    """Yes, no or the reason of an expected failure; None while or when there is nothing to say."""
    if report.failed:
        return FAILED
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail).removeprefix("reason: ")
    return PASSED if report.when == "call" and report.passed else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if COMPLETE and PAGE.exists():
        terminalreporter.write_line(PAGE.read_text(encoding="utf-8"))


@cache
def peer_store(version: str) -> JavaStore:
    """One per version and run, so that what could not be had is asked for only once."""
    return JavaStore(version)


@pytest.fixture(params=releases(VERSIONS))
def java_store(request: pytest.FixtureRequest) -> JavaStore:
    store = peer_store(request.param)
    reason = store.available()
    if reason is not None:
        pytest.skip(reason)
    return store
