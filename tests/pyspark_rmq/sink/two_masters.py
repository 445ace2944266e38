"""A cluster of masters of one topic, for batches that span brokers."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import SinkClient, SyncAdmin, errors
from broker_core.broker.broker import Broker
from broker_core.client.blocking.sink import SyncSinkClient
from broker_core.nameserver.name_server import NameServer
from pyspark_rmq import connections
from pyspark_rmq.sink.guarantee import decide_guarantee
from pyspark_rmq.sink.publication import publish_batch
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import TaskIdentity
from pyspark_rmq.sink.task.sink_columns import find_columns
from pyspark_rmq.sink.task.writer import write_task
from tests.broker.running_broker import broker_config

A, B, C = "broker-a", "broker-b", "broker-c"


class Masters:
    """A name server and masters, on the event loop of the test."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path, address: str) -> None:
        self._loop, self._path, self.address = loop, path, address
        self._brokers: dict[str, Broker] = {}

    def start(self, *names: str) -> None:
        for name in names:
            config = broker_config(self._path / name, namesrvAddr=self.address, brokerName=name)
            self._brokers[name] = Broker(config)
            self._call(self._brokers[name].start())

    def stop(self, *names: str) -> None:
        for name in names or tuple(self._brokers):
            self._call(self._brokers.pop(name).stop())

    def _call(self, work: Any) -> Any:
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(120)

    def topic(self, name: str, *brokers: str) -> None:
        with SyncAdmin(self.address) as admin:
            admin.create_topic(name, queue_count=1, broker_names=list(brokers))

    def status(self, sink: str, name: str) -> Any:
        with SyncSinkClient(self.address) as client:
            return client.status(sink, name)

    def renewed(self, name: str, staging_id: str) -> float:
        """When the batch of a draft was worked on last, by the broker's clock."""
        draft = self._brokers[name].context.store.staging.find(staging_id)
        assert draft is not None
        return draft.lease.renewed

    def write(
        self, batch: int, topic: str, rows: list[str], *, sink: str = "S", run: str = "run-1",
        **given: str,
    ) -> None:  # fmt: skip
        options = SinkOptions.parse(
            {"rmq.namesrv.addr": self.address, "topic": topic, "rmq.retry.timeout.ms": "3000"}
            | given
        )
        found = pa.RecordBatch.from_pydict({"value": pa.array(rows)})
        columns = find_columns([("value", "string")], options)
        who = TaskIdentity(sink, batch, run, 0, 0, 0, query="query-1")
        promised = decide_guarantee(options, columns)
        publish_batch(options, [write_task([found], options, columns, promised, who)])


@pytest.fixture
def on_masters(
    run_async: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Runs a function on a thread, with brokers that it starts and stops."""
    # Decisions of queries are stored there, and all tests write as the same query.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(scenario: Callable[[Masters], None]) -> None:
        async def around() -> None:
            server = NameServer()
            address = f"127.0.0.1:{await server.start(port=0)}"
            masters = Masters(asyncio.get_running_loop(), tmp_path, address)
            try:
                await asyncio.to_thread(scenario, masters)
            finally:
                await asyncio.to_thread(connections.close_connections)
                await asyncio.to_thread(masters.stop)
                await server.stop()

        run_async(around())

    return run


@contextlib.contextmanager
def unreachable_broker(name: str) -> Iterator[None]:
    """Every request of sinks to a broker fails as to one whose machine is off."""
    ask = SinkClient._ask
    capabilities = SinkClient._capabilities

    async def refused(self: Any, broker_name: str, *rest: Any) -> Any:
        if broker_name == name:
            raise errors.ConnectionLost("its machine is off")
        return await ask(self, broker_name, *rest)

    async def unknown(self: Any, broker_name: str) -> Any:
        if broker_name == name:
            raise errors.ConnectionLost("its machine is off")
        return await capabilities(self, broker_name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SinkClient, "_ask", refused)
        patch.setattr(SinkClient, "_capabilities", unknown)
        yield
