"""The unmodified Node.js client uses our broker as if it were Apache's: what it can do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.certificate_marks import certifies
from tests.interop.client_ground import Scenario
from tests.interop.client_kinds import NODE_CLIENTS
from tests.interop.client_matrix import KINDS, RunsOfKinds, matrix

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunsOfKinds]:
    found = RunsOfKinds(request.session, "test_a_node_client", tmp_path_factory.mktemp)
    yield found
    found.close()


@certifies("{case.title}", client="{client}", broker="{kind}")
@pytest.mark.parametrize(("client", "case"), matrix(NODE_CLIENTS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_client(client: str, case: Scenario, kind: str, runs: RunsOfKinds) -> None:
    runs.check(client, case, kind)
