"""The published `mqadmin` administers our broker as it does Apache's: every command that counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from tests.interop.certificate_marks import certifies
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.mqadmin import MQADMIN_VERSIONS, Mqadmin
from tests.interop.mqadmin_desk import Desk
from tests.interop.mqadmin_scenarios import SCENARIOS, AdminScenario
from tests.interop.peer_releases import COMPLETE
from tests.interop.server_processes import BROKER_KINDS, OURS, BrokerCluster
from tests.interop.side_by_side import SideBySide

pytestmark = pytest.mark.interop

# A command waits for its own threads much longer than for the broker.
SIDE_BY_SIDE = 4

_NO_TOPIC_CONFIG = "the tool of 5.x asks for a topic's settings as 4.9 brokers cannot be asked"
_NO_REQUEST = "4.9 brokers do not have the request of this command"
# What this version of the tool cannot do with a broker, ours or Apache's.
KNOWN_GAPS = {
    ("5.5.0", "4.9.7"): {
        **dict.fromkeys(
            (
                "topic_statistics",
                "progress_and_connections",
                "running_info",
                "messages_are_tracked",
                "direct_consumption",
                "reset_online",
                "reset_offline",
            ),
            _NO_TOPIC_CONFIG,
        ),
        "group_lists": _NO_REQUEST,
        "replication_status": _NO_REQUEST,
        "exports": "the tool of 5.x wants a key that brokers of 4.9 do not send",
    },
    ("4.9.7", "5.5.0"): {
        "clusters_and_brokers": "the tool of 4.9 wants a key that brokers of 5.x do not send",
        "exports": "the tool of 4.9 wants settings that brokers of 5.x do not have",
    },
}


class AdminRuns:
    """One cluster and several tools; scenarios run side by side."""

    def __init__(self, version: str, kind: str, home: Path, wanted: list[AdminScenario]) -> None:
        self._version = version
        self._stack = ExitStack()
        self._cluster = self._stack.enter_context(BrokerCluster(kind, home))
        self._tools: SimpleQueue[Mqadmin] = SimpleQueue()
        self._making = threading.Lock()
        self._runs = SideBySide(SIDE_BY_SIDE, "mqadmin")
        for case in wanted:
            if not case.alone:
                self._runs.start(case.title, self._run, case)

    def check(self, case: AdminScenario) -> None:
        if case.alone:
            failure = self._runs.failure_alone(case.title, self._run, case)
        else:
            failure = self._runs.failure(case.title)
        if failure is not None:
            raise failure

    def close(self) -> None:
        self._runs.close()
        self._stack.close()

    def _run(self, case: AdminScenario) -> None:
        tool = self._tool()
        try:
            case.run(Desk(tool, self._cluster, case.name))
        finally:
            if tool.is_alive:
                self._tools.put(tool)

    def _tool(self) -> Mqadmin:
        """A free one; there are never more than running scenarios."""
        try:
            return self._tools.get_nowait()
        except Empty:
            tool = Mqadmin(self._version, self._cluster.name_server_address)
            with self._making:
                return self._stack.enter_context(tool)


Runs = Callable[[str, str], AdminRuns]


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    current: dict[tuple[str, str], AdminRuns] = {}

    def find(version: str, kind: str) -> AdminRuns:
        if (version, kind) not in current:
            for found in current.values():
                found.close()
            current.clear()
            asked = {
                item.callspec.params["case"].title
                for item in request.session.items
                if getattr(item, "originalname", "") == "test_mqadmin"
                and (item.callspec.params["version"], item.callspec.params["kind"])
                == (version, kind)
            }
            wanted = [case for case in SCENARIOS if case.title in asked]
            home = tmp_path_factory.mktemp(f"mqadmin-{version}-{kind}")
            try:
                current[version, kind] = AdminRuns(version, kind, home, wanted)
            except PeerUnavailable as missing:
                pytest.skip(f"mqadmin {version} cannot be had: {missing}")
        return current[version, kind]

    yield find
    for found in current.values():
        found.close()


def _cases() -> Iterator[object]:
    versions = MQADMIN_VERSIONS if COMPLETE else MQADMIN_VERSIONS[:1]
    for kind in BROKER_KINDS if COMPLETE else (OURS,):
        for version in versions:
            for case in SCENARIOS:
                if case.only_new and version.startswith("4"):
                    continue
                gaps = KNOWN_GAPS.get((version, kind), {})
                marks = []
                if case.run.__name__ in gaps:
                    reason = gaps[case.run.__name__]
                    marks.append(pytest.mark.xfail(reason=reason, strict=True))
                name = f"{version}-{kind}-{case.run.__name__}"
                yield pytest.param(version, kind, case, id=name, marks=marks)


@certifies("{case.title}", client="mqadmin {version}", broker="{kind}")
@pytest.mark.parametrize(("version", "kind", "case"), list(_cases()))
def test_mqadmin(version: str, kind: str, case: AdminScenario, runs: Runs) -> None:
    runs(version, kind).check(case)
