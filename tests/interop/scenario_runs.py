"""Runs scenarios of real clients against one kind of broker, many at a time.

`ScenarioRuns` owns the clusters and the Java processes of one kind. Scenarios mostly wait for
their clients' timers, so several run side by side; those that need the machine or the broker for
themselves run after all others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path

from tests.interop.client_ground import Ground, Scenario
from tests.interop.java_client import BINARY_HEADERS, JavaClient
from tests.interop.server_processes import BrokerCluster

SIDE_BY_SIDE = 6
_STRICT = {"autoCreateTopicEnable": "false"}

Wanted = tuple[str, Scenario]


class ScenarioRuns:
    """Starts what is wanted at once; `failure` waits for one of them."""

    def __init__(self, kind: str, home: Path, wanted: Iterable[Wanted]) -> None:
        self.kind = kind
        self._home = home
        self._opening = threading.Lock()
        self._stack = ExitStack()
        self._clusters: dict[bool, BrokerCluster] = {}
        self._processes: dict[tuple[str, str], JavaClient] = {}
        self._pool = ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="scenario")
        self._runs: dict[tuple[str, str], Future[None]] = {
            (version, scenario.name): self._pool.submit(self._run, version, scenario)
            for version, scenario in wanted
            if not scenario.alone
        }

    def failure(self, version: str, scenario: Scenario) -> BaseException | None:
        """What the scenario raised, or None if its checks held."""
        if scenario.alone:
            wait(self._runs.values())
            return self._pool.submit(self._run, version, scenario).exception()
        return self._runs[version, scenario.name].exception()

    def close(self) -> None:
        """End what runs; scenarios that nobody asked for any more fail quietly."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._opening:
            self._stack.close()
        self._pool.shutdown()

    def _run(self, version: str, scenario: Scenario) -> None:
        with self._opening:
            cluster = self._cluster(scenario.strict)
            java = self._process(version, scenario.headers)
        flags = BINARY_HEADERS if scenario.headers == "ROCKETMQ" else ()
        name = f"{scenario.name}-{version}".replace(".", "_")
        ground = Ground(java, cluster, name, flags)
        try:
            scenario.run(ground)
        finally:
            ground.close()

    def _cluster(self, strict: bool) -> BrokerCluster:
        if strict not in self._clusters:
            home = self._home / ("strict" if strict else "open")
            cluster = BrokerCluster(self.kind, home, _STRICT if strict else None)
            self._clusters[strict] = self._stack.enter_context(cluster)
        return self._clusters[strict]

    def _process(self, version: str, headers: str) -> JavaClient:
        key = (version, headers)
        if key not in self._processes:
            flags = BINARY_HEADERS if headers == "ROCKETMQ" else ()
            self._processes[key] = self._stack.enter_context(JavaClient(version, flags))
        return self._processes[key]
