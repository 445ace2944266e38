"""Requests of one client answered by another: Java and ours, either way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.certificate_marks import certifies
from tests.interop.client_ground import Ground
from tests.interop.client_matrix import COMPLETE
from tests.interop.driven_client import DrivenClient
from tests.interop.java_client import JavaClient
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.our_client import OurClient
from tests.interop.server_processes import OURS, BrokerCluster

pytestmark = pytest.mark.interop

REQUEST_LIMIT_MS = 60_000


@certifies("requests and their replies", client="ours", broker="{kind}")
@pytest.mark.parametrize("kind", [OURS, "5.5.0"] if COMPLETE else [OURS])
def test_clients_answer_each_other(kind: str, tmp_path: Path) -> None:
    try:
        with (
            BrokerCluster(kind, tmp_path) as cluster,
            JavaClient("5.5.0") as java,
            OurClient() as ours,
        ):
            _ask(Ground(java, cluster, "java-asks"), ours)
            _ask(Ground(ours, cluster, "we-ask"), java)
    except PeerUnavailable as error:
        pytest.skip(str(error))


def _ask(ground: Ground, replier: DrivenClient) -> None:
    """The ground's client asks, the other one answers."""
    topic, producer = ground.topic(4), ground.producer()
    place = {"ns": ground.cluster.name_server_address}
    replier.call(
        "producer.start", producer="answering", group=ground.group("-a"), instance="a", **place
    )
    ground.push(topic, client=replier, reply_by="answering")
    for number in range(5):
        reply = producer.call(
            "producer.request", topic=topic, body=b"question %d" % number,
            limit_ms=REQUEST_LIMIT_MS,
        )  # fmt: skip
        assert reply["text"] == f"re: question {number}"
        assert reply["properties"]["CORRELATION_ID"]
    replier.call("producer.close", producer="answering")
    ground.close()
