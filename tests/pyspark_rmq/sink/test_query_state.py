"""Decisions of a query in its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core import errors
from pyspark_rmq import connections
from pyspark_rmq.sink.query_state import Decided, QueryState
from tests.pyspark_rmq.sink.two_masters import A, B, Masters


def test_no_second_coordinator_when_the_first_is_gone(
    on_masters: Callable[..., None], tmp_path: Path
) -> None:
    """The next broker joins later, and knows nothing of the sink; the checkpoint does."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()

    def scenario(masters: Masters) -> None:
        masters.start(A)
        masters.topic("T", A)
        masters.write(0, "T", ["a"], checkpointLocation=str(checkpoint))
        assert QueryState(str(checkpoint), "S").read().coordinator == A
        masters.stop(A)
        connections.close_connections()
        masters.start(B)
        masters.topic("T", B)
        # The replay of a batch that was published on the broker that is gone.
        with pytest.raises(errors.BrokerNotExist, match=r"broker-a, which decides.* new sinkId"):
            masters.write(0, "T", ["a"], run="run-2", checkpointLocation=str(checkpoint))
        assert masters.status("S", B).batch == -1
        masters.start(A)
        masters.write(0, "T", ["a"], run="run-3", checkpointLocation=str(checkpoint))
        assert masters.status("S", B).batch == -1

    on_masters(scenario)


def test_what_a_query_writes_down(tmp_path: Path) -> None:
    state = QueryState(f"file://{tmp_path}", "S")
    assert state.read() == Decided()
    state.write(coordinator="A")
    state.write(guarantee="exactly_once")
    assert QueryState(str(tmp_path), "S").read() == ("A", "exactly_once")
    assert QueryState(str(tmp_path), "other").read() == Decided()
    for elsewhere in ("", "hdfs://n/c", "s3a://b/c", str(tmp_path / "absent")):
        QueryState(elsewhere, "S").write(coordinator="A")
        assert QueryState(elsewhere, "S").read() == Decided()
    [path] = (tmp_path / "rmq-sink").iterdir()
    for text in ("", "[]", '{"v": 2}', '{"v": 1, "coordinator": 5}', "{}"):
        path.write_text(text)
        with pytest.raises(errors.InvalidArgument, match=r"cannot be read.*Restore"):
            state.read()
