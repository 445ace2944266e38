"""Only one write of a `foreachBatch` function belongs to a sink and a batch."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from broker_core import errors
from pyspark_rmq.sink import inner_writes
from pyspark_rmq.sink.inner_writes import BATCHES_KEPT, only_write
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import TaskIdentity

OPTIONS = SinkOptions.parse({"rmq.namesrv.addr": "127.0.0.1:9876"})
REFUSED = "batch 3 of sinkId S was written by this run already.*a sinkId of its own"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def task(batch: int = 3, start: str = "s1", sink: str = "S", query: str = "q") -> TaskIdentity:
    return TaskIdentity(sink, batch, "run", 0, 0, 0, query=query, start=start)


def write(identity: TaskIdentity, options: SinkOptions = OPTIONS) -> None:
    with only_write(options, identity):
        pass


def test_a_second_write_is_refused() -> None:
    write(task())
    for _ in range(2):
        with pytest.raises(errors.InvalidArgument, match=REFUSED):
            write(task())
    # Another sink, query, batch or start, and a cluster that has a sink of the same name.
    write(task(sink="S-2"))
    write(task(query="q2"))
    write(task(batch=4))
    write(task(), SinkOptions.parse({"rmq.namesrv.addr": "127.0.0.1:9877"}))
    with pytest.raises(errors.InvalidArgument, match=REFUSED):
        write(task())
    write(task(start="s2"))


def test_while_the_first_one_is_being_published() -> None:
    """Two threads of the function."""
    with only_write(OPTIONS, task()), pytest.raises(errors.InvalidArgument, match=REFUSED):
        write(task())


def test_a_write_that_failed_may_be_repeated() -> None:
    with pytest.raises(errors.SystemBusy), only_write(OPTIONS, task()):
        raise errors.SystemBusy(2, "planted")
    write(task())


def test_frames_of_another_session_belong_to_the_same_start() -> None:
    """The application's session is the same for all starts; that of the query is not."""
    write(task(start="query-1"))
    with pytest.raises(errors.InvalidArgument, match=REFUSED):
        write(task(start="app+query-1"))
    write(task(start="app+query-2"))
    write(task(start="app+query-3"))
    with pytest.raises(errors.InvalidArgument, match=REFUSED):
        write(task(start="query-3"))


def test_several_batches_of_one_call() -> None:
    """A function that numbers its writes itself."""
    for batch in range(BATCHES_KEPT + 2):
        write(task(batch))
    with pytest.raises(errors.InvalidArgument, match="batch 2 of"):
        write(task(2))


def test_jobs_are_not_counted(tmp_path: Path) -> None:
    write(task(start=""))
    write(task(start=""))
    assert not any(tmp_path.iterdir())


def test_a_damaged_file_and_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_writes, "FILES_MAX", 2)
    for number in range(4):
        write(task(sink=f"S-{number}"))
    [folder] = tmp_path.glob("*/rmq-writes")
    assert len(list(folder.iterdir())) <= 3
    for text in ("", "{", "[]", '{"start":1,"batches":[]}', '{"start":"s1","batches":"x"}'):
        for path in folder.iterdir():
            path.write_text(text)
        write(task(sink="S-3"))


def test_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker still refuses what this run has published."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    write(task())
    write(task())
