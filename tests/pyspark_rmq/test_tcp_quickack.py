"""A task's input does not wait for the acknowledgement of what was sent before it."""

from __future__ import annotations

import copy
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq.tcp_quickack import QuickAckInput, acknowledge_input

_UNACKNOWLEDGED_AT = 24
_TRIES = 50


class Sent(QuickAckInput):
    """Stands for a reader."""

    def __init__(self) -> None:
        self.value = 7


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: Spark's and the worker's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        spark = socket.create_connection(server.getsockname())
        worker, _ = server.accept()
    with spark, worker:
        yield spark, worker


def unacknowledged(sender: socket.socket) -> int:
    """Segments that the other side has not acknowledged (tcpi_unacked)."""
    facts = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    (count,) = struct.unpack_from("I", facts, _UNACKNOWLEDGED_AT)
    return int(count)


def put_off(spark: socket.socket, worker: socket.socket) -> None:
    """Have the kernel put off an acknowledgement, as between two tasks."""
    for _ in range(_TRIES):
        # An answer is what makes the kernel expect more of them.
        worker.sendall(b"result")
        spark.recv(100)
        spark.sendall(b"what to run")
        worker.recv(100)
        if unacknowledged(spark):
            return
    pytest.fail("the kernel acknowledges everything at once")


def test_what_was_received_is_acknowledged(ends: tuple[socket.socket, socket.socket]) -> None:
    spark, worker = ends
    put_off(spark, worker)
    acknowledge_input()
    assert unacknowledged(spark) == 0


def test_a_process_that_unpickles_acknowledges(ends: tuple[socket.socket, socket.socket]) -> None:
    put_off(*ends)
    # Made from its state, as from a pickle.
    assert copy.copy(Sent()).value == 7
    assert unacknowledged(ends[0]) == 0


def test_connections_and_files_stay_open(
    ends: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    spark, worker = ends
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    with (tmp_path / "file").open("w") as file:
        acknowledge_input()
        file.write("there")
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before
    worker.sendall(b"result")
    assert spark.recv(100) == b"result"


def test_what_spark_sends_to_workers_is_prompt() -> None:
    pytest.importorskip("pyspark.sql.datasource")
    from pyspark_rmq.sink.batch_writer import RmqBatchWriter
    from pyspark_rmq.sink.stream_writer import RmqStreamWriter
    from pyspark_rmq.source.batch_reader import RmqBatchReader, RmqDescribeReader
    from pyspark_rmq.source.stream_reader import RmqStreamReader

    sent: list[Any] = [
        RmqBatchReader, RmqDescribeReader, RmqStreamReader, RmqBatchWriter, RmqStreamWriter,
    ]  # fmt: skip
    assert all(kind.__setstate__ is QuickAckInput.__setstate__ for kind in sent)
