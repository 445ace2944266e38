"""Unmodified Java clients use our broker as if it were Apache's.

Every scenario runs with each client version against our broker, and with `RMQ_INTEROP_ALL=1`
(`make test-interop`) against Apache's brokers as well, which is where the expected results come
from. The results are written to `docs/compatibility.md`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import (
    client_scenarios_faults,
    client_scenarios_pull,
    client_scenarios_push,
    client_scenarios_send,
)
from tests.interop.client_ground import SCENARIOS, Scenario
from tests.interop.compatibility_table import FAILED, PASSED, Cell, update_page
from tests.interop.java_client import CLIENT_VERSIONS
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.scenario_runs import ScenarioRuns
from tests.interop.server_processes import BROKER_KINDS, OURS

pytestmark = pytest.mark.interop

COMPLETE = bool(os.environ.get("RMQ_INTEROP_ALL"))
KINDS = BROKER_KINDS if COMPLETE else (OURS,)
ROOMS = (
    client_scenarios_send,
    client_scenarios_pull,
    client_scenarios_push,
    client_scenarios_faults,
)
CASES = [case for room in ROOMS for case in SCENARIOS if case.run.__module__ == room.__name__]
SELECTED = [
    pytest.param(version, case, id=f"{version}-{case.name}")
    for version in CLIENT_VERSIONS
    for case in CASES
    if COMPLETE or version not in case.slow_with
]
COLUMNS = [(client, kind) for kind in BROKER_KINDS for client in CLIENT_VERSIONS]
# (client, broker) -> scenarios that they fail together, and why.
KNOWN_GAPS = {
    ("5.5.0", "4.9.7"): (
        {"lite_pull", "lite_pull_binary", "lite_subscription"},
        "lite pull of 5.x clients uses a request that 4.9 brokers do not have",
    ),
}


@pytest.fixture(scope="module")
def results() -> Iterator[dict[Cell, str]]:
    measured: dict[Cell, str] = {}
    yield measured
    if measured:
        update_page([case.title for case in CASES], COLUMNS, measured)


@pytest.fixture(scope="module")
def runs_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], ScenarioRuns]]:
    """The runs of one kind of broker at a time, of all tests that were selected."""
    running: list[ScenarioRuns] = []

    def of(kind: str) -> ScenarioRuns:
        if not running or running[-1].kind != kind:
            while running:
                running.pop().close()
            home: Path = tmp_path_factory.mktemp(f"cluster-{kind}")
            running.append(ScenarioRuns(kind, home, _selected(request.session, kind)))
        return running[-1]

    yield of
    while running:
        running.pop().close()


def _selected(session: pytest.Session, kind: str) -> Iterator[tuple[str, Scenario]]:
    for item in session.items:
        if isinstance(item, pytest.Function) and item.originalname == "test_a_java_client":
            parameters: dict[str, Any] = dict(item.callspec.params)
            if parameters["kind"] == kind:
                yield parameters["version"], parameters["case"]


def _known_gap(case: Scenario, version: str, kind: str) -> str | None:
    names, reason = KNOWN_GAPS.get((version, kind), (set(), None))
    return reason if case.name in names else None


@pytest.mark.parametrize(("version", "case"), SELECTED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_java_client(
    version: str,
    case: Scenario,
    kind: str,
    runs_of: Callable[[str], ScenarioRuns],
    results: dict[Cell, str],
) -> None:
    failure = runs_of(kind).failure(version, case)
    if isinstance(failure, PeerUnavailable):
        pytest.skip(str(failure))
    results[Cell(case.title, version, kind)] = PASSED if failure is None else FAILED
    gap = _known_gap(case, version, kind)
    if gap is not None:
        assert failure is not None, f"passes now, so that it is no gap any more: {gap}"
        pytest.xfail(gap)
    if failure is not None:
        raise failure
