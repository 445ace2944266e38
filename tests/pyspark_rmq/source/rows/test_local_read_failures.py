"""Local reads over many log files, and failures of local reads: the rows are there either way."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import MessageQueue, OutgoingMessage, ReadOnlyStore, SyncProducer, errors
from broker_core.codec.native import decode_columns
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.reads import read_only_store
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.columns import ChosenColumn
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.offset_planning import QueueRange
from pyspark_rmq.source.rows import local_reader
from pyspark_rmq.source.rows.message_batches import arrow_schema
from pyspark_rmq.source.rows.range_reader import Task, read_task

VALUE = (ChosenColumn("value", "value"),)
DESCRIPTORS = Path("/proc/self/fd")
FILE_SIZE = 65_536
FILES = 3 * read_only_store.SEGMENTS_MAX
FILLER = bytes(FILE_SIZE // 2)

Read = Callable[[str], list[bytes]]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Queue 0 of `sparse` has one small message in each log file, far more than stay mapped."""
    properties = {"mappedFileSizeCommitLog": str(FILE_SIZE)}
    with EmbeddedBroker(topics={"sparse": 2}, properties=properties) as running:
        with SyncProducer(running.name_server, timeout_ms=120_000) as producer:
            for number in range(FILES):
                small = OutgoingMessage("sparse", b"%d" % number)
                producer.send(small, queue=MessageQueue("sparse", "broker-a", 0))
                filler = OutgoingMessage("sparse", os.urandom(len(FILLER)))
                producer.send(filler, queue=MessageQueue("sparse", "broker-a", 1))
        yield running


EXPECTED = [b"%d" % number for number in range(FILES)]


@pytest.fixture(autouse=True)
def _closed_files() -> Iterator[None]:
    yield
    local_reader.close_local_stores()


def options_of(broker: EmbeddedBroker, short_circuit: str) -> SourceOptions:
    given = {**broker.options, "subscribe": "sparse", "shortCircuit": short_circuit}
    return SourceOptions.parse(given).for_stream()


@pytest.fixture
def read(broker: EmbeddedBroker) -> Read:
    def values(short_circuit: str) -> list[bytes]:
        task = Task((QueueRange("sparse", "broker-a", 0, 0, FILES),), {})
        batches = list(read_task(task, options_of(broker, short_circuit), VALUE))
        return pa.Table.from_batches(batches, arrow_schema(VALUE)).column(0).to_pylist()

    return values


@pytest.fixture
def network_reads(monkeypatch: pytest.MonkeyPatch) -> list[QueueRange]:
    """The ranges that were left to the network."""
    left: list[QueueRange] = []
    whole = local_reader.local_batches

    def watched(*given: Any) -> Any:
        rest = yield from whole(*given)
        left.extend(rest)
        return rest

    monkeypatch.setattr("pyspark_rmq.source.rows.range_reader.local_batches", watched)
    return left


@pytest.mark.parametrize("short_circuit", ["auto", "on"])
def test_one_batch_over_more_files_than_stay_mapped(
    broker: EmbeddedBroker, read: Read, network_reads: list[QueueRange], short_circuit: str
) -> None:
    assert len(list((broker.store_dir / "commitlog").iterdir())) > FILES // 2
    for _ in range(3):
        assert read(short_circuit) == EXPECTED
    assert network_reads == []


def test_a_batch_takes_a_bounded_number_of_descriptors(
    read: Read, network_reads: list[QueueRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped: list[int] = []

    def counted(*given: Any) -> dict[str, Any]:
        targets = {str(descriptor.resolve()) for descriptor in DESCRIPTORS.iterdir()}
        mapped.append(len([target for target in targets if "/commitlog/" in target]))
        return decode_columns(*given)

    monkeypatch.setattr(read_only_store, "decode_columns", counted)
    assert read("on") == EXPECTED
    assert network_reads == []
    assert len(mapped) > 1
    assert max(mapped) <= read_only_store.SEGMENTS_MAX


Fault = Callable[[], BaseException]
FAULTS: list[Fault] = [
    lambda: FileNotFoundError(errno.ENOENT, "no such file"),
    lambda: OSError(errno.EMFILE, "too many open files"),
    lambda: OSError(errno.ENOMEM, "cannot map"),
    lambda: OSError(errno.EIO, "cannot read"),
    lambda: ValueError("operation forbidden on released memoryview object"),
    lambda: BufferError("cannot close exported pointers exist"),
    lambda: KeyError("odd"),
    lambda: errors.StoreUnusable("another store"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: repr(fault()))
@pytest.mark.parametrize("at", ["open", "columns", "check_identity", "close", "forget_below"])
def test_any_failure_leaves_the_rest_to_the_network(
    broker: EmbeddedBroker, read: Read, monkeypatch: pytest.MonkeyPatch, at: str, fault: Fault
) -> None:
    assert read("auto") == EXPECTED
    local_reader.close_local_stores()
    calls = 0

    def failing(whole: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            # The first few go well, so that the failure comes in the middle of a read.
            if calls > 2:
                raise fault()
            return whole(*given, **more)

        return call

    owner: Any = PosixFileSystem if at == "open" else ReadOnlyStore
    monkeypatch.setattr(owner, at, failing(getattr(owner, at)))
    for _ in range(4):
        assert read("auto") == EXPECTED
    assert at == "close" or calls > 2
    monkeypatch.undo()
    # And the next task is not given what the failure has left.
    assert read("on") == EXPECTED


def files_of(broker: EmbeddedBroker) -> list[Path]:
    return sorted((broker.store_dir / "commitlog").iterdir())


@pytest.mark.parametrize("short_circuit", ["auto", "on"])
def test_a_log_file_that_is_away_or_short(
    broker: EmbeddedBroker, read: Read, network_reads: list[QueueRange], short_circuit: str
) -> None:
    path = files_of(broker)[FILES // 4]
    away = path.with_name("away")
    # The broker has the file mapped and goes on with it.
    path.rename(away)
    try:
        assert read(short_circuit) == EXPECTED
        path.write_bytes(away.read_bytes()[: FILE_SIZE // 2])
        assert read(short_circuit) == EXPECTED
        path.write_bytes(b"")
        assert read(short_circuit) == EXPECTED
    finally:
        away.rename(path)
    assert len(network_reads) == 3


def test_a_log_file_that_becomes_short_while_it_is_mapped(
    broker: EmbeddedBroker, read: Read, network_reads: list[QueueRange]
) -> None:
    # A copy takes the place of the file that the broker has mapped, for the reader to map.
    path = files_of(broker)[1]
    away = path.with_name("away")
    path.rename(away)
    try:
        path.write_bytes(away.read_bytes())
        assert read("on") == EXPECTED
        os.truncate(path, 0)
        assert read("on") == EXPECTED
    finally:
        away.rename(path)
    assert len(network_reads) == 1


def test_no_descriptors_left(
    broker: EmbeddedBroker, read: Read, network_reads: list[QueueRange]
) -> None:
    assert read("off") == EXPECTED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(DESCRIPTORS.iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 24, hard))
    try:
        assert read("auto") == EXPECTED
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert network_reads
    assert read("on") == EXPECTED


def test_proven_damage_is_an_error(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with EmbeddedBroker(store=tmp_path / "store", topics={"sparse": 1}) as damaged:
        damaged.produce("sparse", [b"x" * 100 for _ in range(50)])
        [path, *_] = files_of(damaged)
        with path.open("r+b") as file:
            content = file.read(50 * 400)
            at = content.rindex(b"x" * 100)
            file.seek(at)
            file.write(b"y")
        options = options_of(damaged, "on")
        task = Task((QueueRange("sparse", "broker-a", 0, 0, 50),), {})
        with pytest.raises(errors.CorruptRecord):
            list(read_task(task, options, VALUE))
        connections.close_connections()
