"""Unmodified Java clients use our broker as if it were Apache's: every scenario, both versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.certificate_marks import certifies
from tests.interop.client_ground import Scenario
from tests.interop.client_kinds import JAVA_CLIENTS
from tests.interop.client_matrix import KINDS, RunsOfKinds, matrix

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunsOfKinds]:
    found = RunsOfKinds(request.session, "test_a_java_client", tmp_path_factory.mktemp)
    yield found
    found.close()


@certifies("{case.title}", client="{client}", broker="{kind}")
@pytest.mark.parametrize(("client", "case"), matrix(JAVA_CLIENTS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_java_client(client: str, case: Scenario, kind: str, runs: RunsOfKinds) -> None:
    runs.check(client, case, kind)
