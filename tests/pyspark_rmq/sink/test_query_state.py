"""Decisions of a query in its checkpoint."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core import errors
from pyspark_rmq import connections
from pyspark_rmq.sink import query_state
from pyspark_rmq.sink.query_state import Decided, QueryState
from tests.pyspark_rmq.sink.two_masters import A, B, Masters


@pytest.mark.parametrize("where", ["local", "hdfs://host/checkpoint", "by configuration"])
def test_no_second_coordinator_when_the_first_is_gone(
    on_masters: Callable[..., None], tmp_path: Path, where: str
) -> None:
    """The next broker joins later, without a record of the sink, which the query's state has."""
    (tmp_path / "checkpoint").mkdir()
    checkpoint = {"local": str(tmp_path / "checkpoint"), "by configuration": ""}.get(where, where)
    given = {"checkpointLocation": checkpoint} if checkpoint else {}

    def scenario(masters: Masters) -> None:
        masters.start(A)
        masters.topic("T", A)
        masters.write(0, "T", ["a"], **given)
        assert QueryState(checkpoint, "S", "query-1").read().coordinator == A
        masters.stop(A)
        connections.close_connections()
        masters.start(B)
        masters.topic("T", B)
        # The replay of a batch that was published on the broker that is gone.
        with pytest.raises(errors.BrokerNotExist, match=r"broker-a, which decides.* new sinkId"):
            masters.write(0, "T", ["a"], run="run-2", **given)
        assert masters.status("S", B).batch == -1
        masters.start(A)
        masters.write(0, "T", ["a"], run="run-3", **given)
        assert masters.status("S", B).batch == -1

    on_masters(scenario)


def test_the_state_file_of_a_query(tmp_path: Path) -> None:
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


def test_a_checkpoint_that_the_driver_does_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is on its machine, under the id of the query, and the oldest ones are removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(query_state, "FILES_MAX", 3)
    for elsewhere in ("", "hdfs://n/c", "s3a://b/c", str(tmp_path / "absent")):
        assert QueryState(elsewhere, "S", f"query{elsewhere}").read() == Decided()
        QueryState(elsewhere, "S", f"query{elsewhere}").write(coordinator="A")
        assert QueryState(elsewhere, "S", f"query{elsewhere}").read().coordinator == "A"
        assert QueryState(elsewhere, "S", "another query").read() == Decided()
        assert QueryState(elsewhere, "other", f"query{elsewhere}").read() == Decided()
    folder = tmp_path / f"pyspark-rmq-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    files = list((folder / "rmq-sink").iterdir())
    assert len(files) == 3
    for path in files:
        path.write_text("")
    with pytest.raises(errors.InvalidArgument, match=r"cannot be read.*Remove it, if"):
        QueryState("hdfs://n/c", "S", "queryhdfs://n/c").read()
    # The checkpoint is used where it can be.
    QueryState(str(tmp_path), "S", "query").write(coordinator="B")
    assert (tmp_path / "rmq-sink").is_dir()


def test_a_temporary_directory_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"pyspark-rmq-{os.getuid()}").write_text("a file")
    QueryState("", "S", "query").write(coordinator="A")
    assert QueryState("", "S", "query").read() == Decided()
