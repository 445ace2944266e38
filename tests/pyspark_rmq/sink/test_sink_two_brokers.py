"""A batch whose rows go to two masters: one publication, completed if its writer is killed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import SinkClient, SyncAdmin, SyncPullConsumer, errors
from broker_core.broker.broker import Broker
from broker_core.client.sink import client as sink_client
from broker_core.nameserver.name_server import NameServer
from pyspark_rmq import connections
from pyspark_rmq.sink.publication import publish_batch
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import TaskIdentity, TaskResult
from pyspark_rmq.sink.task.sink_columns import find_columns
from pyspark_rmq.sink.task.writer import write_task
from tests.broker.running_broker import broker_config
from tests.cli.rmq_process import LIMIT_S
from tests.pyspark_rmq.sink.two_masters import A, B, Masters


def test_two_masters(
    run_async: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        server = NameServer()
        name_server = f"127.0.0.1:{await server.start(port=0)}"
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(server.stop)
            for name in ("broker-a", "broker-b"):
                config = broker_config(tmp_path / name, namesrvAddr=name_server, brokerName=name)
                broker = Broker(config)
                await broker.start()
                stack.push_async_callback(broker.stop)
            try:
                await asyncio.to_thread(_write_all, name_server, monkeypatch)
            finally:
                await asyncio.to_thread(connections.close_connections)

    run_async(scenario())


def _write_all(name_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with SyncAdmin(name_server) as admin:
        admin.create_topic("T", queue_count=2)
    options = SinkOptions.parse({"rmq.namesrv.addr": name_server, "topic": "T"})
    sent: list[str] = []

    def write(batch: int, count: int, run: str = "run-1", **columns: Any) -> TaskResult:
        values = [f"b{batch}-{n}" for n in range(count)]
        rows = pa.RecordBatch.from_pydict({"value": pa.array(values), **columns})
        fields = [(f.name, "int" if f.type == pa.int32() else "string") for f in rows.schema]
        identity = TaskIdentity("query", batch, run, 0, 0, 0)
        sent.extend(values)
        return write_task([rows], options, find_columns(fields, options), "exactly_once", identity)

    first = write(0, 100)
    assert {part.broker_name for part in first.parts} == {"broker-a", "broker-b"}
    assert not _values(name_server)
    publish_batch(options, [first])
    publish_batch(options, [first])
    assert _values(name_server) == Counter(sent)
    # Rows that name their queue, on the broker that does not decide.
    named = write(1, 2, partition=pa.array([1, 0], pa.int32()), broker=pa.array(["broker-b"] * 2))
    assert [part.broker_name for part in named.parts] == ["broker-b"]
    publish_batch(options, [named])
    assert _values(name_server) == Counter(sent)

    # The driver is killed after the decision, before the other broker gets it.
    async def dies(*_: Any) -> None:
        raise errors.ConnectionLost("the driver is gone")

    halfway = write(2, 50)
    with monkeypatch.context() as patch:
        patch.setattr(SinkClient, "_completed", dies)
        with pytest.raises(errors.ConnectionLost):
            publish_batch(options, [halfway])
    del sent[-50:]
    again = write(2, 50, run="run-2")
    publish_batch(options, [again])
    assert _values(name_server) == Counter(sent)


def _values(name_server: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with SyncPullConsumer(name_server) as consumer:
        for queue in consumer.queues("T"):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                pulled = consumer.pull(queue, offset)
                found.update(message.body.decode() for message in pulled.messages)
                offset = pulled.next_offset
    return found


def test_a_task_that_computes_for_long_renews_what_the_others_have_staged(
    on_masters: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before its first row, and at brokers to which it has written nothing."""
    monkeypatch.setattr(sink_client, "_FIRST_RENEWAL_S", 0.01)
    monkeypatch.setattr(sink_client, "RENEWALS", 1_000_000)

    at_work: list[bool] = []
    keep = SinkClient.keep_staged

    async def noted(self: Any, identity: Any) -> None:
        at_work.append(True)
        number = len(at_work) - 1
        try:
            await keep(self, identity)
        finally:
            at_work[number] = False

    monkeypatch.setattr(SinkClient, "keep_staged", noted)

    def scenario(masters: Masters) -> None:
        masters.start(A, B)
        masters.topic("T", A, B)
        options = SinkOptions.parse({"rmq.namesrv.addr": masters.address, "topic": "T"})
        columns = find_columns([("value", "string")], options)

        def task(partition: int, batches: Any) -> TaskResult:
            who = TaskIdentity("job", 0, "run-1", partition, 0, 0, once=True)
            return write_task(batches, options, columns, "exactly_once", who)

        early = task(0, [pa.RecordBatch.from_pydict({"value": ["a", "b", "c", "d"]})])
        assert {part.broker_name for part in early.parts} == {A, B}

        def rows_of_a_slow_task() -> Iterator[pa.RecordBatch]:
            for part in early.parts:
                for _ in range(3):
                    before = masters.renewed(part.broker_name, part.staging_id)
                    until(partial(_is_later, masters, part, before))
            yield pa.RecordBatch.from_pydict({"value": ["e"]})

        late = task(1, rows_of_a_slow_task())
        assert at_work
        with pytest.raises(RuntimeError, match="planted"):
            task(2, _failing())
        # No task is left that renews: a job that was killed lets go.
        until(lambda: not any(at_work))
        publish_batch(options, [early, late])
        assert _values(masters.address) == Counter("abcde")

    on_masters(scenario)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline


def _is_later(masters: Masters, part: Any, before: float) -> bool:
    return masters.renewed(part.broker_name, part.staging_id) > before


def _failing() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": ["f"]})
    raise RuntimeError("planted")
