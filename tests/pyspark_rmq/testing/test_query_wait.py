"""`processed` with a broker that has a fault, and a query that has read everything."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core import EmbeddedBroker, Topic
from broker_core.errors import NameServersSilent
from pyspark_rmq.testing import processed


class Query:
    """A query whose last report has every queue of a topic far behind it."""

    recentProgress = ()

    def __init__(self, topic: str) -> None:
        queues = {topic: {"broker-a": {str(number): 1_000 for number in range(4)}}}
        self.lastProgress = {"batchId": 1, "sources": [{"endOffset": {"queues": queues}}]}

    def awaitTermination(self, timeout_s: float) -> bool:
        return False


def test_a_fault_of_the_broker_does_not_fail_the_wait() -> None:
    pytest.importorskip("pyspark")
    with EmbeddedBroker(topics={"orders": 4}) as broker:
        topic: Topic = broker.topic("orders")
        topic.produce(["a"])
        query: Any = Query("orders")
        with broker.faults.dropped_connections(every=3):
            for _ in range(6):
                processed(query, until=topic)
        with broker.faults.busy(limit_s=1):
            processed(query, until=topic)
    with pytest.raises(NameServersSilent):
        processed(query, until=topic)
