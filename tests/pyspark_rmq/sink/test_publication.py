"""Which of several brokers decides about a sink, and which ones a commit waits for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core import errors
from pyspark_rmq import connections
from tests.pyspark_rmq.sink.two_masters import A, B, C, Masters, unreachable_broker


def test_a_master_without_rows_is_not_waited_for(on_masters: Callable[..., None]) -> None:
    """It sorts first, is registered at the name server, and cannot be reached."""

    def scenario(masters: Masters) -> None:
        masters.start(A, B, C)
        masters.topic("T", B, C)
        with unreachable_broker(A):
            for batch in range(2):
                masters.write(batch, "T", [f"{batch}-{n}" for n in range(10)])
        assert masters.status("S", B).is_coordinator
        assert masters.status("S", C).coordinator == B
        assert not masters.status("S", A).is_known
        # It learns the deciding broker before it takes part; later brokers learn it at once.
        masters.topic("U", A)
        masters.write(2, "U", ["x"], run="run-2")
        assert masters.status("S", A).coordinator == B

    on_masters(scenario)


def test_reachable_brokers_know_the_coordinator(on_masters: Callable[..., None]) -> None:
    """Without a local checkpoint: also those that have had no rows yet."""

    def scenario(masters: Masters) -> None:
        masters.start(A, B)
        masters.topic("T", A)
        masters.write(0, "T", ["a"])
        assert masters.status("S", B).coordinator == A
        masters.stop(A)
        connections.close_connections()
        masters.topic("T", B)
        with pytest.raises(errors.BrokerNotExist, match="broker-a, which decides"):
            masters.write(0, "T", ["a"], run="run-2")

    on_masters(scenario)
