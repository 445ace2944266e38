"""Which of several brokers decides about a sink, and which ones a commit waits for."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core import SinkClient, SyncAdmin, errors
from broker_core.broker.broker import Broker
from broker_core.client.blocking.sink import SyncSinkClient
from broker_core.client.connection.capabilities import BrokerCapabilities
from broker_core.nameserver.name_server import NameServer
from pyspark_rmq import connections
from pyspark_rmq.sink import guarantee
from pyspark_rmq.sink.guarantee import decide_guarantee
from pyspark_rmq.sink.publication import publish_batch
from pyspark_rmq.sink.query_state import Decided, QueryState
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
def on_masters(run_async: Callable[..., Any], tmp_path: Path) -> Callable[..., None]:
    """Runs a function on a thread, with brokers that it starts and stops."""

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


def test_a_master_without_rows_is_not_waited_for(on_masters: Callable[..., None]) -> None:
    """It sorts first, is registered at the name server, and cannot be reached."""

    def scenario(masters: Masters) -> None:
        masters.start(A, B, C)
        masters.topic("T", B, C)
        with _unreachable(A):
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


def test_rows_that_name_their_topic(on_masters: Callable[..., None]) -> None:
    def scenario(masters: Masters) -> None:
        masters.start(A, B)
        masters.topic("T", B)
        options = SinkOptions.parse(
            {"rmq.namesrv.addr": masters.address, "rmq.retry.timeout.ms": "3000"}
        )
        columns = find_columns([("value", "string"), ("topic", "string")], options)
        with _unreachable(A), pytest.MonkeyPatch.context() as patch:
            of, address = BrokerCapabilities.of, _address_of(masters.address, A)

            async def unreachable(self: Any, asked: str) -> Any:
                if asked == address:
                    raise errors.ConnectionLost("its machine is off")
                return await of(self, asked)

            patch.setattr(BrokerCapabilities, "of", unreachable)
            assert decide_guarantee(options, columns) == "exactly_once"

    on_masters(scenario)


def _address_of(name_server: str, broker: str) -> str:
    with SyncAdmin(name_server) as admin:
        return admin.cluster_info().brokers[broker].addresses[0]


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


def test_brokers_that_could_be_reached_know_who_decides(on_masters: Callable[..., None]) -> None:
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


@contextlib.contextmanager
def _unreachable(name: str) -> Iterator[None]:
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


# What deliveryGuarantee=auto means


def cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of Apache joined the topic."""

    async def is_supported(self: Any, name: str) -> bool:
        return False

    monkeypatch.setattr(SinkClient, "is_supported", is_supported)
    guarantee._decided.clear()


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_guarantee_that_changes_is_refused(
    on_masters: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_checkpoint: bool,
) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    given = {"checkpointLocation": str(checkpoint)} if has_checkpoint else {}
    sink = f"S-{uuid.uuid4()}"

    def scenario(masters: Masters) -> None:
        masters.start(A)
        masters.topic("T", A)
        masters.write(0, "T", ["a"], sink=sink, **given)
        cannot(monkeypatch)
        for _ in range(2):
            with pytest.raises(
                errors.InvalidArgument, match=r"meant exactly_once .* means at_least_once now"
            ):
                masters.write(0, "T", ["a"], sink=sink, run="run-2", **given)
        # An explicit option may change it; the new value is stored from then on.
        explicit = {**given, "deliveryGuarantee": "at_least_once"}
        masters.write(0, "T", ["a"], sink=sink, run="run-2", **explicit)
        if has_checkpoint:
            monkeypatch.undo()
            guarantee._decided.clear()
            with pytest.raises(
                errors.InvalidArgument, match=r"meant at_least_once .* means exactly_once now"
            ):
                masters.write(1, "T", ["b"], sink=sink, run="run-3", **given)

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
