"""Name servers without brokers: nothing is decided about capabilities or topics yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import SyncAdmin, errors
from broker_core.broker.broker import Broker
from broker_core.client.connection.name_server_client import NameServerClient
from broker_core.nameserver.name_server import NameServer
from pyspark_rmq import connections
from pyspark_rmq.sink.guarantee import decide_guarantee
from pyspark_rmq.sink.publication import publish_batch
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import TaskIdentity
from pyspark_rmq.sink.task.sink_columns import find_columns
from pyspark_rmq.sink.task.writer import write_task
from tests.broker.running_broker import broker_config, until

Run = Callable[..., Any]
SAYS = r"no broker is registered at the name servers 127\.0\.0\.1:\d+"


def with_name_server(run_async: Run, scenario: Callable[[str], Awaitable[None]]) -> None:
    async def run() -> None:
        server = NameServer()
        address = f"127.0.0.1:{await server.start(port=0)}"
        try:
            await scenario(address)
        finally:
            await asyncio.to_thread(connections.close_connections)
            await server.stop()

    run_async(run())


def write(options: SinkOptions, guarantee: str) -> int:
    rows = pa.RecordBatch.from_pydict({"value": pa.array(["a", "b"])})
    columns = find_columns([("value", "string")], options)
    identity = TaskIdentity("query", 0, "run-1", 0, 0, 0)
    result = write_task([rows], options, columns, guarantee, identity)
    publish_batch(options, [result])
    return result.row_count


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_no_broker_is_an_error_that_may_pass(guarantee: str, run_async: Run) -> None:
    async def scenario(name_server: str) -> None:
        given = {"rmq.namesrv.addr": name_server, "topic": "T", "rmq.retry.timeout.ms": "300"}
        options = SinkOptions.parse({**given, "deliveryGuarantee": guarantee})
        columns = find_columns([("value", "string"), ("deliverAt", "bigint")], options)
        if guarantee == "exactly_once":
            columns = find_columns([("value", "string")], options)
        with pytest.raises(errors.ConnectionLost, match=SAYS) as refused:
            await asyncio.to_thread(decide_guarantee, options, columns)
        assert refused.value.retriable
        with pytest.raises(errors.ConnectionLost, match=SAYS):
            await asyncio.to_thread(write, options, guarantee)

    with_name_server(run_async, scenario)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_broker_that_registers_late_is_waited_for(
    guarantee: str, tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic does not count as missing, nor the broker as another product."""
    asked: list[int] = []
    cluster_info = NameServerClient.cluster_info

    def counted(self: NameServerClient) -> Any:
        asked.append(1)
        return cluster_info(self)

    async def scenario(name_server: str) -> None:
        broker = Broker(broker_config(tmp_path, namesrvAddr=name_server))
        await broker.start()
        await asyncio.to_thread(_create_topic, name_server)
        await broker.stop()
        options = SinkOptions.parse({"rmq.namesrv.addr": name_server, "topic": "T"})
        columns = find_columns([("value", "string")], options)
        monkeypatch.setattr(NameServerClient, "cluster_info", counted)
        deciding = asyncio.ensure_future(asyncio.to_thread(decide_guarantee, options, columns))
        writing = asyncio.ensure_future(asyncio.to_thread(write, options, guarantee))
        await until(lambda: len(asked) > 5)
        assert not deciding.done()
        assert not writing.done()
        broker = Broker(broker.config)
        await broker.start()
        try:
            assert await deciding == "exactly_once"
            assert await writing == 2
        finally:
            await asyncio.to_thread(connections.close_connections)
            await broker.stop()

    with_name_server(run_async, scenario)


def _create_topic(name_server: str) -> None:
    with SyncAdmin(name_server) as admin:
        admin.create_topic("T", queue_count=2)
