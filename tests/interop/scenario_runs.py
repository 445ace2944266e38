"""Runs scenarios of real clients against one kind of broker, many at a time.

`ScenarioRuns` owns the clusters and the client processes of one kind. Scenarios mostly wait for
their clients' timers, so several run side by side; those that need the machine or the broker for
themselves run after all others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from tests.interop.client_ground import NODE, Ground, Scenario
from tests.interop.client_kinds import language_of, start_client
from tests.interop.driven_client import DrivenClient
from tests.interop.server_processes import OURS, BrokerCluster
from tests.interop.side_by_side import SideBySide

SIDE_BY_SIDE = 6
# The times of real brokers, shortened.
_USUAL = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "transactionCheckInterval": "1000",
    # A half is checked when its end has not come by then: a busy producer needs a while for it.
    # Apache notes an end some time after it: a half that is checked before that ends twice.
    "transactionTimeOut": "5000",
    # Apache counts its checks also when no producer is online.
    "transactionCheckMax": "500",
}
_APACHE = {
    "transactionOpBatchInterval": "300",
    "recallMessageEnable": "true",
}
_STRICT = {"autoCreateTopicEnable": "false"}

Wanted = tuple[str, Scenario]


class ScenarioRuns:
    """Starts what is wanted at once; `failure` waits for one of them."""

    def __init__(self, kind: str, home: Path, wanted: Iterable[Wanted]) -> None:
        self.kind = kind
        self._home = home
        self._opening = threading.Lock()
        self._is_closed = False
        self._stack = ExitStack()
        self._clusters: dict[bool, BrokerCluster] = {}
        self._processes: dict[tuple[str, str, bool], DrivenClient] = {}
        self._runs = SideBySide(SIDE_BY_SIDE, "scenario")
        for client, scenario in wanted:
            if not scenario.alone:
                self._runs.start(f"{client} {scenario.name}", self._run, client, scenario)

    def failure(self, client: str, scenario: Scenario) -> BaseException | None:
        """What the scenario raised, or None if its checks held."""
        name = f"{client} {scenario.name}"
        if scenario.alone:
            return self._runs.failure_alone(name, self._run, client, scenario)
        return self._runs.failure(name)

    def close(self) -> None:
        """End what runs; scenarios that are no longer needed fail quietly."""
        self._runs.cancel()
        with self._opening:
            self._is_closed = True
            self._stack.close()
        self._runs.close()

    def _run(self, client: str, scenario: Scenario) -> None:
        with self._opening:
            assert not self._is_closed, "nobody asks for this scenario any more"
            cluster = self._cluster(scenario.strict)
            process = self._process(client, scenario)
        name = f"{scenario.name}-{client}".replace(".", "_").replace(" ", "_")
        ground = Ground(process, cluster, name)
        try:
            scenario.run(ground)
        finally:
            ground.close()

    def _cluster(self, strict: bool) -> BrokerCluster:
        if strict not in self._clusters:
            home = self._home / ("strict" if strict else "open")
            settings = _USUAL | ({} if self.kind == OURS else _APACHE)
            cluster = BrokerCluster(self.kind, home, settings | (_STRICT if strict else {}))
            self._clusters[strict] = self._stack.enter_context(cluster)
        return self._clusters[strict]

    def _process(self, client: str, scenario: Scenario) -> DrivenClient:
        # Node's library keeps one producer of its own for all clusters of a process.
        apart = language_of(client) == NODE and scenario.strict
        key = (client, scenario.headers, apart)
        if key not in self._processes:
            process = start_client(client, scenario.headers)
            self._processes[key] = self._stack.enter_context(process)
        return self._processes[key]
