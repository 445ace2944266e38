"""A position contains the run of the log of its last message; what that detects.

Real broker processes throughout, and the driver's part of a stream without Spark.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core import EmbeddedCluster
from broker_core.replication.log_epochs import RUNS_NAMED
from broker_core.storage.state.store_state import SLOT_SIZE, STATE_FILE, decode_slot, encode_slot
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.data_loss import DataLost
from pyspark_rmq.source.offsets.offset_planning import ranges_between
from pyspark_rmq.source.offsets.stream_position import StreamOffset
from pyspark_rmq.source.rows.range_reader import Task, check_stores
from pyspark_rmq.source.stream_reader import RmqStreamReader
from pyspark_rmq.source.stream_session import Limits
from tests.cli.rmq_process import LIMIT_S
from tests.embedded.one_topic import send
from tests.pyspark_rmq.source.test_stream_session import Query

pytestmark = pytest.mark.crash


def options_of(name_server: str, **more: str) -> SourceOptions:
    given = {
        "rmq.namesrv.addr": name_server,
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "fetchOffset.numRetries": "100",
        "partition.metadata.cache.ttl.ms": "-1",
        **more,
    }
    return SourceOptions.parse(given).for_stream()


class Stream:
    """One query, whose driver is started anew for every read."""

    def __init__(self) -> None:
        self.position: StreamOffset | None = None

    def read(self, name_server: str, rows_max: int | None = None, **more: str) -> int:
        """Everything that is there, or some rows of it; how many."""
        options = options_of(name_server, **more)
        query = Query(options)
        try:
            start = self.position or query.initial()
            end = query.latest(start, Limits(rows=rows_max))
            self.position = end
            ranges = [] if end is start else ranges_between(start, end)
            # As a task does when it begins.
            check_stores(Task(tuple(ranges), dict(end.stores)), options, query.connected)
            return sum(part.rows for part in ranges)
        finally:
            query.close()
            connections.close_connections()

    def without_run(self) -> None:
        """As a release without runs left it."""
        assert self.position is not None
        found = self.position.to_json()
        for store in found["stores"].values():
            store.pop("run", None)
        self.position = StreamOffset.from_json(json.loads(json.dumps(found)))


def numbered(count: int, mark: bytes = b"") -> list[bytes]:
    return [b"%s%d" % (mark, number) for number in range(count)]


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline


def sync_cluster(tmp_path: Path, slaves: int) -> EmbeddedCluster:
    return EmbeddedCluster(
        slaves_per_master=slaves, replication="sync", directory=tmp_path, topics={"orders": 1},
        start_timeout_s=LIMIT_S,
    )  # fmt: skip


@pytest.mark.parametrize("with_run", [True, False], ids=["position", "older position"])
def test_a_promoted_slave_that_was_away_while_another_one_confirmed(
    tmp_path: Path, with_run: bool
) -> None:
    stream = Stream()
    with sync_cluster(tmp_path, 2) as cluster:
        master, stale, other = cluster.nodes
        send(cluster.name_server, "orders", *numbered(5))
        cluster.wait_in_sync()
        # In a run in which `stale` is the only slave it has everything that readers see, and is
        # told so.
        cluster.kill(other)
        cluster.restart(master)
        cluster.wait_in_sync()
        told = stale.store_dir / "config" / "logIdentity.json"
        until(lambda: bool(json.loads(told.read_text()).get("confirmed", True)))
        assert stream.read(cluster.name_server) == 5
        cluster.kill(stale)
        cluster.restart(other)
        cluster.wait_in_sync()
        send(cluster.name_server, "orders", *numbered(10, b"confirmed by the other "))
        assert stream.read(cluster.name_server) == 10
        if not with_run:
            stream.without_run()
        cluster.kill(master)
        cluster.kill(other)
        cluster.restart(stale)
        cluster.promote(stale, force=True)
        stale.set_properties(inSyncReplicas="1")
        cluster.restart(stale)
        send(cluster.name_server, "orders", *numbered(40, b"of the new master "))
        known = "10 messages that were read are not in the log" if with_run else "broker-a"
        with pytest.raises(DataLost, match=known):
            stream.read(cluster.name_server)
        # And without an error it says what happened, and goes on: with all of the new master, if
        # it can tell where its log begins to differ.
        goes_on = 40 if with_run else 30
        assert stream.read(cluster.name_server, failOnDataLoss="false") == goes_on
        send(cluster.name_server, "orders", b"last")
        assert stream.read(cluster.name_server) == 1


def test_a_promoted_slave_that_has_everything_is_read_on(tmp_path: Path) -> None:
    stream = Stream()
    with sync_cluster(tmp_path, 1) as cluster:
        master, slave = cluster.nodes
        send(cluster.name_server, "orders", *numbered(5))
        assert stream.read(cluster.name_server) == 5
        cluster.kill(master)
        assert stream.read(cluster.name_server) == 0
        cluster.promote(slave)
        cluster.restart(master)
        cluster.wait_in_sync()
        send(cluster.name_server, "orders", *numbered(3))
        assert stream.read(cluster.name_server) == 3
        # Back again, which is another run.
        cluster.kill(slave)
        cluster.promote(master)
        cluster.restart(slave)
        cluster.wait_in_sync()
        send(cluster.name_server, "orders", *numbered(2))
        assert stream.read(cluster.name_server) == 2


def broker_on(store: Path, **properties: str) -> EmbeddedBroker:
    return EmbeddedBroker(store=store, topics={"orders": 1}, properties=properties)


@pytest.mark.parametrize("reads_before", [True, False], ids=["read before", "read after only"])
def test_a_restored_backup_that_has_grown_past_the_position(
    tmp_path: Path, reads_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store, backup = tmp_path / "store", tmp_path / "backup"
    stream = Stream()
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(5))
        if reads_before:
            assert stream.read(broker.name_server) == 5
    shutil.copytree(store, backup)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(5, b"gone "))
        assert stream.read(broker.name_server) == (5 if reads_before else 10)
    shutil.rmtree(store)
    shutil.copytree(backup, store)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(20, b"instead "))
        lost = "5 messages that were read .*: 5 of queue 0 of orders from offset 5 on"
        with pytest.raises(DataLost, match=f"backup.*{lost}"):
            stream.read(broker.name_server)
        with caplog.at_level(logging.WARNING):
            assert stream.read(broker.name_server, failOnDataLoss="false") == 20
        assert re.search(lost, caplog.text)
        assert stream.read(broker.name_server) == 0


@pytest.mark.parametrize("more", [0, 3], ids=["shorter", "grown below the position"])
def test_a_restored_backup_that_ends_before_the_position(
    tmp_path: Path, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What came after the backup is lost; what came instead is read, all of it."""
    store, backup = tmp_path / "store", tmp_path / "backup"
    stream = Stream()
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(5))
    shutil.copytree(store, backup)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(4))
        # Runs in between, which the backup does not have.
        broker.restart()
        send(broker.name_server, "orders", *numbered(1))
        assert stream.read(broker.name_server) == 10
    shutil.rmtree(store)
    shutil.copytree(backup, store)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(more, b"instead "))
        with pytest.raises(DataLost, match="5 messages that were read"):
            stream.read(broker.name_server)
        with caplog.at_level(logging.WARNING):
            assert stream.read(broker.name_server, failOnDataLoss="false") == more
        assert "5 messages that were read" in caplog.text
        assert "were cut off" not in caplog.text
        send(broker.name_server, "orders", b"last")
        assert stream.read(broker.name_server) == 1


def test_a_backup_from_before_all_runs_that_the_position_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, backup = tmp_path / "store", tmp_path / "backup"
    stream = Stream()
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(2))
    shutil.copytree(store, backup)
    with broker_on(store) as broker:
        for _ in range(RUNS_NAMED):
            send(broker.name_server, "orders", *numbered(1))
            broker.restart()
        assert stream.read(broker.name_server) == 2 + RUNS_NAMED
    shutil.rmtree(store)
    shutil.copytree(backup, store)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(30, b"instead "))
        with pytest.raises(DataLost, match="How many messages are lost is not known"):
            stream.read(broker.name_server)
        with caplog.at_level(logging.WARNING):
            found = stream.read(broker.name_server, failOnDataLoss="false")
        assert found == 30 - RUNS_NAMED
        assert "is not known" in caplog.text


def test_a_restored_backup_in_many_batches_with_a_fixed_target(tmp_path: Path) -> None:
    """AvailableNow looks once: what is read again from an earlier offset is read again once."""
    store, backup = tmp_path / "store", tmp_path / "backup"
    stream = Stream()
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(5))
    shutil.copytree(store, backup)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(5, b"gone "))
        assert stream.read(broker.name_server) == 10
    shutil.rmtree(store)
    shutil.copytree(backup, store)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(20, b"instead "))
        query = Query(options_of(broker.name_server, failOnDataLoss="false"))
        query.session.fix_target()
        start, ranges = stream.position, []
        assert start is not None
        while (end := query.latest(start, Limits(rows=6))) is not start:
            ranges += [(part.start, part.until) for part in ranges_between(start, end)]
            start = end
        query.close()
        connections.close_connections()
        assert ranges == [(5, 11), (11, 17), (17, 23), (23, 25)]


def test_a_batch_that_is_repeated_after_a_backup_was_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver died before the batch was done: it reads what came instead, and only once."""
    store, backup = tmp_path / "store", tmp_path / "backup"
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(5))
    shutil.copytree(store, backup)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(5, b"gone "))
        reader = RmqStreamReader(options_of(broker.name_server), ())
        start = reader.initialOffset()
        planned = reader.latestOffset(start)
        reader.stop()
    shutil.rmtree(store)
    shutil.copytree(backup, store)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(20, b"instead "))
        reader = RmqStreamReader(options_of(broker.name_server, failOnDataLoss="false"), ())
        [task] = reader.partitions(start, planned)
        assert [(part.start, part.until) for part in task.value.ranges] == [(0, 10)]
        with caplog.at_level(logging.WARNING):
            end = reader.latestOffset(planned)
        [task] = reader.partitions(planned, end)
        assert [(part.start, part.until) for part in task.value.ranges] == [(10, 25)]
        assert "5 messages that were read" in caplog.text
        assert "was run again and has read some of those" in caplog.text
        reader.stop()


def test_a_restored_backup_with_messages_that_were_not_read_yet(tmp_path: Path) -> None:
    """The lost ones were behind the position: nothing is read twice, and nothing skipped."""
    store, backup = tmp_path / "store", tmp_path / "backup"
    stream = Stream()
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(10))
    shutil.copytree(store, backup)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(10, b"gone "))
        assert stream.read(broker.name_server, rows_max=4) == 4
    shutil.rmtree(store)
    shutil.copytree(backup, store)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(3, b"instead "))
        with pytest.raises(DataLost, match="All messages that this query has read are still"):
            stream.read(broker.name_server)
        assert stream.read(broker.name_server, failOnDataLoss="false") == 9
        assert stream.read(broker.name_server) == 0


def test_a_restored_backup_that_has_all_that_was_read(tmp_path: Path) -> None:
    store, backup = tmp_path / "store", tmp_path / "backup"
    stream = Stream()
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(5))
        assert stream.read(broker.name_server) == 5
    shutil.copytree(store, backup)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(5, b"gone and never read "))
    shutil.rmtree(store)
    shutil.copytree(backup, store)
    with broker_on(store) as broker:
        send(broker.name_server, "orders", *numbered(3, b"instead "))
        assert stream.read(broker.name_server) == 3


def test_restarts_and_kills_keep_a_stream(tmp_path: Path) -> None:
    stream = Stream()
    with broker_on(tmp_path / "store") as broker:
        for number in range(4):
            send(broker.name_server, "orders", *numbered(2 + number))
            assert stream.read(broker.name_server) == 2 + number
            if number % 2:
                broker.kill()
            broker.restart()
            # A run in which nothing is appended is no reason for anything.
            broker.restart()
            assert stream.read(broker.name_server) == 0


def lose_power(store: Path) -> None:
    """The machine of a killed broker is another boot by now."""
    path = store / STATE_FILE
    data = path.read_bytes()
    slots = [decode_slot(data[:SLOT_SIZE]), decode_slot(data[SLOT_SIZE:])]
    path.write_bytes(
        b"".join(
            encode_slot(state._replace(boot_id="0" * 36), generation)
            for generation, state in filter(None, slots)
        )
    )


@pytest.mark.parametrize("with_run", [True, False], ids=["position", "older position"])
def test_a_power_cut_removes_nothing_that_a_stream_read(tmp_path: Path, with_run: bool) -> None:
    """With ASYNC_FLUSH, too: the broker syncs before it names an end."""
    store, stream = tmp_path / "store", Stream()
    with broker_on(store, flushDiskType="ASYNC_FLUSH") as broker:
        send(broker.name_server, "orders", *numbered(5))
        assert stream.read(broker.name_server) == 5
        if not with_run:
            stream.without_run()
        broker.kill()
        lose_power(store)
        broker.restart()
        assert stream.read(broker.name_server) == 0
        send(broker.name_server, "orders", *numbered(3))
        assert stream.read(broker.name_server) == 3
