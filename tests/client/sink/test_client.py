"""The sink's client against a real broker, one that is killed, and Apache-like ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.client.connection.config import ClientConfig
from broker_core.client.sink import client as sink_client
from broker_core.client.sink import stage_writer
from broker_core.client.sink.client import SinkClient
from broker_core.client.sink.stage_writer import StageWriter
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import part_fields
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    InvalidArgument,
    MessageTooLarge,
    RemoteError,
    RequestNotSupported,
    SinkFenced,
    StagingRefused,
    TopicNotExist,
)
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from tests.broker.running_broker import broker_config, until_registered
from tests.broker.sink_store import identity
from tests.client.scripted_brokers import scripted_cluster
from tests.codec.codec_backends import column

Run = Callable[..., Any]
NAME = "broker-a"


@pytest.fixture(autouse=True)
def _over_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from another machine; `test_staging_file.py` has the writers that are neighbours."""
    monkeypatch.setattr(stage_writer, "open_staging_file", lambda *_: None)


class RunningCluster:
    """A name server and one broker that can be started again."""

    def __init__(self, root: Path, name_server: str, properties: dict[str, str]) -> None:
        self.name_server = name_server
        self._config = broker_config(root, namesrvAddr=name_server, **properties)
        self.broker = Broker(self._config)

    async def start(self) -> None:
        await self.broker.start()
        # The same port from now on.
        self._config = self.broker.config

    async def restart(self) -> None:
        """A clean stop and a new start: memory is gone, the disk stays."""
        await self.broker.stop()
        self.broker = Broker(self._config)
        await self.broker.start()

    def client(self, **options: Any) -> SinkClient:
        return SinkClient(ClientConfig((self.name_server,)), **options)

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        store = self.broker.context.store
        offset, high = store.offsets(topic, queue_id)
        found: list[bytes] = []
        while offset < high:
            result = store.get(topic, queue_id, offset, 1_000, size_max=1 << 24)
            found += [message.body for message in result.messages()]
            offset = result.next_offset
        return found


@contextlib.asynccontextmanager
async def running_cluster(root: Path, **properties: str) -> AsyncIterator[RunningCluster]:
    server = NameServer()
    port = await server.start(port=0)
    cluster = RunningCluster(root, f"127.0.0.1:{port}", properties)
    try:
        await cluster.start()
        await until_registered(server)
        yield cluster
    finally:
        await cluster.broker.stop()
        await server.stop()


def rows(bodies: Sequence[bytes], topic: bytes = b"T", queue_id: int = 0) -> ColumnBatch:
    return ColumnBatch(len(bodies), ((topic, queue_id),), None, column(*bodies))


def numbered(count: int, size: int = 20) -> list[bytes]:
    return [b"%d" % n + bytes(size) for n in range(count)]


async def staged(
    sink: SinkClient, who: Any, bodies: Sequence[bytes], queue_id: int = 0
) -> StagedPart:
    writer = await sink.stage(who, NAME)
    await writer.append(rows(bodies, queue_id=queue_id))
    return await writer.seal()


def test_what_was_staged_is_published_once(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client() as sink:
            assert await sink.is_supported(NAME)
            writer = await sink.stage(identity(0), NAME)
            bodies = numbered(1_000)
            for first in range(0, 1_000, 300):
                await writer.append(rows(bodies[first : first + 300]))
            await writer.append(rows([]))
            part = await writer.seal()
            assert (part.broker_name, part.record_count) == (NAME, 1_000)
            other = await staged(sink, identity(0), [b"q1"], 1)
            assert cluster.bodies() == []
            answer = await sink.publish(identity(0), [part, other])
            assert answer[:3] == (False, 0, {NAME: {"T": {0: (0, 1_000), 1: (0, 1)}}})
            assert cluster.bodies() == bodies
            record = cluster.broker.context.store.get("T", 0, 0, 1).messages()[0]
            assert record.born_host[0] == "127.0.0.1"
            assert record.born_timestamp > 1_700_000_000_000
            assert (await sink.publish(identity(0), [part, other])).is_repeat
            status = await sink.status("S", NAME)
            assert (status.is_known, status.batch, status.run) == (True, 0, "run-1")
            assert not (await sink.status("unknown", NAME)).is_known

    run_async(scenario())


def test_memory_is_bounded_by_the_window(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with (
            running_cluster(tmp_path) as cluster,
            cluster.client(block_size=4_096, window_size=20_000) as sink,
        ):
            writer = await sink.stage(identity(0), NAME)
            most = 0
            send = writer._send

            async def watched(command: RemotingCommand, size: int) -> None:
                nonlocal most
                await send(command, size)
                most = max(most, writer._size)

            writer._send = watched  # type: ignore[method-assign]
            bodies = numbered(3_000, 50)
            await writer.append(rows(bodies))
            await sink.publish(identity(0), [await writer.seal()])
            assert 10_000 < most <= 20_000
            assert cluster.bodies() == bodies

    run_async(scenario())


def test_an_empty_batch_names_its_broker(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client(retry_for_ms=100) as sink:
            with pytest.raises(InvalidArgument, match="are at none"):
                await sink.publish(identity(0), [])
            assert not (await sink.publish(identity(0), [], NAME)).is_repeat
            part = StagedPart("0" * 32, 0, 0, 0, NAME)
            with pytest.raises(InvalidArgument, match="are at broker-a, broker-b"):
                await sink.publish(identity(1), [part, part._replace(broker_name="broker-b")])
            with pytest.raises(BrokerNotExist):
                await sink.publish(identity(1), [part._replace(broker_name="broker-b")])

    run_async(scenario())


def test_abort_drops_what_it_can(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client() as sink:
            part = await staged(sink, identity(0), [b"x"])
            writer = await sink.stage(identity(0), NAME)
            await writer.append(rows(numbered(10)))
            await writer.abort()
            with pytest.raises(InvalidArgument, match="sealed or aborted"):
                await writer.append(rows([b"more"]))
            gone = part._replace(broker_name="broker-x")
            assert await sink.abort([part, gone]) == 1
            assert cluster.broker.context.store.staging.size == 0
            with pytest.raises(StagingRefused):
                await sink.publish(identity(0), [part])

    run_async(scenario())


def test_refusals_are_typed(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with (
            running_cluster(tmp_path, autoCreateTopicEnable="false", maxMessageSize="1000") as c,
            c.client() as sink,
        ):
            await sink.stage(identity(0, "run-1"), NAME)
            await sink.stage(identity(0, "run-2"), NAME)
            with pytest.raises(SinkFenced, match="replaced by run run-2"):
                await sink.stage(identity(0, "run-1"), NAME)
            writer = await sink.stage(identity(0, "run-2"), NAME)
            await writer.append(rows([b"x"], b"Nowhere"))
            with pytest.raises(TopicNotExist):
                await writer.seal()
            await writer.abort()
            writer = await sink.stage(identity(0, "run-2"), NAME)
            await writer.append(rows([bytes(1_001)], b"SELF_TEST_TOPIC"))
            with pytest.raises(RemoteError):
                await writer.seal()
            await writer.abort()
            assert c.broker.context.store.staging.size == 0

    run_async(scenario())


def test_a_broker_without_sinks(run_async: Run) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            name = cluster.brokers[0].name
            async with SinkClient(cluster.config()) as sink:
                assert not await sink.is_supported(name)
                with pytest.raises(RequestNotSupported, match="at_least_once"):
                    await sink.stage(identity(0), name)

    run_async(scenario())


# Connections and brokers that go away


class _Cutter:
    """Loses chosen answers: the request is done, the connection goes before the answer leaves."""

    def __init__(self, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.codes: list[int] = []
        send = Connection.send
        asked: dict[tuple[int, int], int] = {}

        router = cluster.broker.router
        handle = type(router).__call__

        def watched(this: Any, connection: Connection, command: RemotingCommand) -> Any:
            asked[id(connection), command.opaque] = command.code
            return handle(this, connection, command)

        def cut(connection: Connection, answer: RemotingCommand) -> None:
            code = asked.pop((id(connection), answer.opaque), None)
            if code is not None and code in self.codes:
                self.codes.remove(code)
                connection.close("cut by the test")
                return
            send(connection, answer)

        monkeypatch.setattr(type(router), "__call__", watched)
        monkeypatch.setattr(Connection, "send", cut)


@pytest.mark.parametrize("count", [1, 3])
def test_lost_answers_do_no_harm(
    count: int, tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with (
            running_cluster(tmp_path) as cluster,
            cluster.client(block_size=2_000, window_size=10_000) as sink,
        ):
            cutter = _Cutter(cluster, monkeypatch)
            codes = [
                RequestCode.STAGE_BEGIN, RequestCode.STAGE_APPEND, RequestCode.STAGE_SEAL,
                RequestCode.SINK_PUBLISH,
            ]  # fmt: skip
            cutter.codes = codes * count
            bodies = numbered(400)
            part = await staged(sink, identity(0), bodies)
            answer = await sink.publish(identity(0), [part])
            assert cutter.codes == []
            # The first request did it.
            assert answer == (True, 0, {NAME: {"T": {0: (0, 400)}}})
            assert cluster.bodies() == bodies

    run_async(scenario())


def test_a_broker_that_restarts_between_seal_and_publish(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client() as sink:
            part = await staged(sink, identity(0), [b"a"])
            await cluster.restart()
            assert (await sink.publish(identity(0), [part])).offsets == {NAME: {"T": {0: (0, 1)}}}
            await cluster.restart()
            assert (await sink.publish(identity(0), [part])).is_repeat
            assert cluster.bodies() == [b"a"]

    run_async(scenario())


def test_a_broker_that_restarts_while_rows_are_staged(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client() as sink:
            writer = await sink.stage(identity(0), NAME)
            await writer.append(rows([b"a"]))
            await cluster.restart()
            with pytest.raises(StagingRefused, match="Stage the data again"):
                await writer.append(rows([b"b"]))
                await writer.seal()
            await writer.abort()
            await sink.publish(identity(0), [await staged(sink, identity(0), [b"again"])])
            assert cluster.bodies() == [b"again"]

    run_async(scenario())


def test_a_publication_waits_for_a_broker_that_comes_back(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client() as sink:
            part = await staged(sink, identity(0), [b"a"])
            await cluster.broker.stop()
            publishing = asyncio.ensure_future(sink.publish(identity(0), [part]))
            await asyncio.sleep(0)
            cluster.broker = Broker(cluster._config)
            await cluster.broker.start()
            assert not (await publishing).is_repeat
            assert cluster.bodies() == [b"a"]

    run_async(scenario())


def test_a_broker_that_stays_away_is_an_error(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client(retry_for_ms=200) as sink:
            part = await staged(sink, identity(0), [b"a"])
            await cluster.broker.stop()
            with pytest.raises((ConnectionLost, BrokerNotExist)):
                await sink.publish(identity(0), [part])
            assert await sink.abort([part]) == 0

    run_async(scenario())


def test_writers_are_plain_values(tmp_path: Path, run_async: Run) -> None:
    """What travels from a worker to the driver is made of texts and numbers."""
    part = StagedPart("id", 1, 2, 3, "b")
    assert all(type(value) in (str, int) for value in part)
    assert part_fields(part) == ["id", 1, 2, 3]

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster, cluster.client() as sink:
            writer = await sink.stage(identity(0, once=True), NAME)
            assert isinstance(writer, StageWriter)
            await writer.append(rows([b"x"]))
            await sink.publish(identity(0, once=True), [await writer.seal()])
            assert cluster.bodies() == [b"x"]

    run_async(scenario())


def test_rows_that_are_too_long(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with (
            running_cluster(tmp_path, mappedFileSizeCommitLog=str(32 << 20)) as cluster,
            cluster.client() as sink,
        ):
            writer = await sink.stage(identity(0), NAME)
            await writer.append(rows([bytes((4 << 20) + 1)]))
            with pytest.raises(RemoteError, match="maxMessageSize is 4194304"):
                await writer.seal()
            await writer.abort()
            writer = await sink.stage(identity(0), NAME)
            with pytest.raises(MessageTooLarge, match="does not fit into a frame"):
                await writer.append(rows([b"short", bytes(17 << 20)]))
            await writer.abort()
            largest = bytes(4 << 20)
            part = await staged(sink, identity(0), [largest, b"short"])
            await sink.publish(identity(0), [part])
            assert cluster.bodies() == [largest, b"short"]

    run_async(scenario())


# Several brokers


@contextlib.asynccontextmanager
async def two_brokers(root: Path) -> AsyncIterator[dict[str, RunningCluster]]:
    """One name server, two masters."""
    server = NameServer()
    address = f"127.0.0.1:{await server.start(port=0)}"
    names = (NAME, "broker-b")
    brokers = {n: RunningCluster(root / n, address, {"brokerName": n}) for n in names}
    try:
        for broker in brokers.values():
            await broker.start()
        yield brokers
    finally:
        for broker in brokers.values():
            await broker.broker.stop()
        await server.stop()


@pytest.mark.parametrize("restarted", ["", NAME, "broker-b"])
@pytest.mark.parametrize("phase", ["reserve", "prepare", "decide", "complete"])
def test_a_batch_on_two_brokers(phase: str, restarted: str, tmp_path: Path, run_async: Run) -> None:
    """The answer of one step is lost, or a broker restarts there; the batch is completed."""

    async def scenario() -> None:
        async with two_brokers(tmp_path) as brokers, brokers[NAME].client() as sink:
            publish, steps = sink._publish, []

            async def watched(name: str, publication: Any) -> Any:
                answer = await publish(name, publication)
                steps.append((name, publication.phase))
                if publication.phase == phase and restarted:
                    await brokers[restarted].restart()
                    return await publish(name, publication)
                return answer

            sink._publish = watched  # type: ignore[method-assign]
            for batch in range(2):
                who = identity(batch)
                parts = []
                for name in brokers:
                    writer = await sink.stage(who, name)
                    await writer.append(rows([f"{batch}/{name}".encode()]))
                    parts.append(await writer.seal())
                coordinator = await sink.coordinator("S", brokers)
                assert coordinator == NAME
                answer = await sink.publish(who, parts, coordinator)
                assert answer.offsets == {n: {"T": {0: (batch, batch + 1)}} for n in brokers}
                assert (await sink.publish(who, parts, coordinator)).is_repeat
            for name, broker in brokers.items():
                assert broker.bodies() == [f"{batch}/{name}".encode() for batch in range(2)]
            assert [p for _, p in steps[:4]] == ["reserve", "prepare", "decide", "complete"]

    run_async(scenario())


def test_when_a_task_renews_its_batch_again(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with (
            running_cluster(tmp_path, sinkStagingExpiryMs="80000") as cluster,
            cluster.client() as sink,
        ):
            assert await sink._renew(identity()) == 10
            # A broker that does not answer is asked again soon.
            masters = sink.masters

            async def one_more(**given: Any) -> tuple[str, ...]:
                return (*await masters(**given), "broker-that-is-down")

            monkeypatch.setattr(sink, "masters", one_more)
            assert await sink._renew(identity()) == 5
            monkeypatch.undo()
            # One of an earlier version does not know the request.
            monkeypatch.setattr(sink_client, "RequestCode", _Unknown)
            assert await sink._renew(identity()) == sink_client._RENEWAL_MOST_S

    run_async(scenario())


class _Unknown:
    STAGE_RENEW = 29_999
