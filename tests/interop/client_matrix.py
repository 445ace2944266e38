"""Scenarios × clients × brokers: which of them a run takes, and what they fail together.

`make test` takes the scenarios that do not wait for long timers, on our broker; with
`RMQ_INTEROP_ALL=1` (`make test-interop`) all of them run against Apache's brokers as well, which
is where the expected results come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import (
    client_scenarios_faults,
    client_scenarios_kinds,
    client_scenarios_pull,
    client_scenarios_push,
    client_scenarios_send,
    client_scenarios_timers,
)
from tests.interop.client_ground import SCENARIOS, Scenario
from tests.interop.client_kinds import GO_CLIENTS, JAVA_CLIENTS, NODE_CLIENTS, language_of
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.our_client import OUR_CLIENT
from tests.interop.peer_releases import COMPLETE
from tests.interop.scenario_runs import ScenarioRuns
from tests.interop.server_processes import BROKER_KINDS, OURS

KINDS = BROKER_KINDS if COMPLETE else (OURS,)
ROOMS = {
    "Sending": client_scenarios_send,
    "Pulling": client_scenarios_pull,
    "Pushed consumption": client_scenarios_push,
    "Kinds of messages": client_scenarios_kinds,
    "Times": client_scenarios_timers,
    "Restarts": client_scenarios_faults,
}
# Area of the page -> its scenarios, in their order.
AREAS: dict[str, list[Scenario]] = {
    area: [case for case in SCENARIOS if case.run.__module__ == room.__name__]
    for area, room in ROOMS.items()
}
CASES = [case for cases in AREAS.values() for case in cases]

_NO_LITE_PULL = "lite pull of 5.x clients uses a request that 4.9 brokers do not have"
# (client, broker) -> scenario -> why they fail it together.
KNOWN_GAPS: dict[tuple[str, str], dict[str, str]] = {
    ("Java 5.5.0", "4.9.7"): {
        "lite_pull": _NO_LITE_PULL,
        "lite_pull_binary": _NO_LITE_PULL,
        "lite_subscription": _NO_LITE_PULL,
        "feature-trace": "traces of 5.x clients are not found by their keys on 4.9 brokers",
        "feature-auto_batch": "4.9 brokers store what 5.x clients gather under the id of the batch",
    },
}
for _client in (*JAVA_CLIENTS, *GO_CLIENTS, *NODE_CLIENTS, OUR_CLIENT):
    KNOWN_GAPS.setdefault((_client, "4.9.7"), {}).update(
        dict.fromkeys(
            ("timers", "timers_refused", "recall", "timers_through_a_kill"),
            client_scenarios_timers.WITHOUT_TIMERS,
        )
    )


def matrix(clients: Iterable[str]) -> list[Any]:
    """The parameters (client, case) of a test of these clients."""
    return [
        pytest.param(client, case, id=f"{client.replace(' ', '-')}-{case.name}")
        for client in clients
        for case in CASES
        if language_of(client) not in case.lacking
        if COMPLETE or client not in case.slow_with
    ]


class RunsOfKinds:
    """The runs of one kind of broker at a time, of all tests that were selected."""

    def __init__(
        self, session: pytest.Session, test_name: str, make_home: Callable[[str], Path]
    ) -> None:
        self._session = session
        self._test_name = test_name
        self._make_home = make_home
        self._running: ScenarioRuns | None = None

    def check(self, client: str, case: Scenario, kind: str) -> None:
        """Fail as the scenario failed; what is known to fail, fails as expected."""
        failure = self._of(kind).failure(client, case)
        if isinstance(failure, PeerUnavailable):
            pytest.skip(str(failure))
        gap = KNOWN_GAPS.get((client, kind), {}).get(case.name)
        if gap is not None:
            assert failure is not None, f"passes now, so that it is no gap any more: {gap}"
            pytest.xfail(gap)
        if failure is not None:
            raise failure

    def _of(self, kind: str) -> ScenarioRuns:
        if self._running is None or self._running.kind != kind:
            self.close()
            self._running = ScenarioRuns(kind, self._make_home(kind), self._selected(kind))
        return self._running

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def _selected(self, kind: str) -> Iterator[tuple[str, Scenario]]:
        for item in self._session.items:
            if isinstance(item, pytest.Function) and item.originalname == self._test_name:
                parameters: dict[str, Any] = dict(item.callspec.params)
                if parameters["kind"] == kind:
                    yield parameters["client"], parameters["case"]
