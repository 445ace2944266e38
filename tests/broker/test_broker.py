"""A broker as a whole: starting, stopping, restarting, and its name servers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.broker import Broker
from broker_core.errors import StoreLocked
from broker_core.nameserver.name_server import NameServer
from broker_core.remoting.server import RemotingServer, bind_address
from tests.broker.running_broker import broker_config, records, running, until
from tests.broker.send.test_processor import batch_item

Run = Callable[..., Any]


def test_everything_survives_a_restart(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("Kept", queues=3)
            for number in range(5):
                await asker.send("Kept", b"%d" % number, e=1)
            answer = await asker.ask(
                15, consumerGroup="CG", topic="Kept", queueId=1, commitOffset=2
            )
            assert answer.code == 26
            await asker.pull("Kept", 1, 2, sysFlag=5, commitOffset=2)
            port = asker.broker.port
        async with running(broker_config(tmp_path, listenPort=str(port))) as asker:
            topic = asker.broker.context.topics.find("Kept")
            assert topic is not None
            assert topic.read_queue_count == 3
            assert asker.broker.context.offsets.query("CG", "Kept", 1) == 2
            answer = await asker.pull("Kept", 1, 2)
            assert [m.body for m in records(answer)] == [b"2", b"3", b"4"]
            assert (await asker.send("Kept", e=1)).ext["queueOffset"] == "5"

    run_async(scenario())


def test_a_taken_port_leaves_the_store_alone(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            with pytest.raises(OSError, match=port):
                await Broker(broker_config(tmp_path / "store", listenPort=port)).start()
        assert not (tmp_path / "store").exists()

    run_async(scenario())


def test_two_brokers_on_one_directory(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            second = Broker(broker_config(tmp_path))
            with pytest.raises(StoreLocked):
                await second.start()
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", second.port)) != 0
            assert (await asker.send()).code == 0

    run_async(scenario())


def test_the_vip_port_serves_as_well(
    tmp_path: Path, run_async: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(directory: Path) -> bool:
        async with running(broker_config(directory, vipPortEnable="true")) as asker:
            if "clients that use the VIP channel cannot connect" in caplog.text:
                # Another process has the port below the one that the system chose.
                caplog.clear()
                return False
            port = asker.broker.port
            asker.broker.config = asker.broker.config.with_listen_port(port - 2)
            assert (await asker.send()).code == 0
            return True

    assert any(run_async(scenario(tmp_path / str(number))) for number in range(20))


def test_a_vip_port_that_another_server_takes_first(
    tmp_path: Path,
    run_async: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both had bound it; the other one listens while this broker recovers its store."""

    async def scenario() -> None:
        with bind_address("127.0.0.1", 0) as other:
            vip_port = other.getsockname()[1]
            serve = RemotingServer.serve

            async def later(self: RemotingServer, bound: socket.socket) -> int:
                other.listen()
                return await serve(self, bound)

            monkeypatch.setattr(RemotingServer, "serve", later)
            given = {"listenPort": str(vip_port + 2), "haListenPort": "-1", "vipPortEnable": "true"}
            config = broker_config(tmp_path, **given)
            async with running(config) as asker:
                assert "clients that use the VIP channel cannot connect" in caplog.text
                assert f"cannot listen on 127.0.0.1:{vip_port}" in caplog.text
                assert (await asker.send()).code == 0

    run_async(scenario())


def test_unknown_codes_are_answered(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            for code in (0, 999, 200_049, -5):
                answer = await asker.ask(code)
                assert (answer.code, str(code) in (answer.remark or "")) == (3, True)

    run_async(scenario())


def test_name_servers_know_everything_at_once(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server = NameServer()
        port = await server.start("127.0.0.1", 0)
        # The second one is down; the start does not wait for it.
        addresses = f"127.0.0.1:{port};127.0.0.1:1"
        async with running(broker_config(tmp_path, namesrvAddr=addresses)) as asker:
            assert server.table.route("TBW102") is not None
            await asker.make_topic("New", queues=5)
            route = server.table.route("New")
            assert route is not None
            assert route.queues[0].read_queue_count == 5
            for topic, code, body in (("ByItself", 310, b"x"), ("ByBatch", 320, batch_item(b"x"))):
                assert (await asker.send(topic, body, code=code)).code == 0
                assert server.table.route(topic) is not None
        assert server.table.route("New") is None
        await server.stop()

    run_async(scenario())


def test_a_name_server_that_comes_back_gets_everything(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        server = NameServer()
        port = await server.start("127.0.0.1", 0)
        async with running(broker_config(tmp_path, namesrvAddr=f"127.0.0.1:{port}")) as asker:
            await asker.make_topic("T1")
            await server.stop()
            await asker.make_topic("T2")
            server = NameServer()
            await server.start("127.0.0.1", port)
            await until(lambda: server.table.route("T2"))
            assert server.table.route("T1") is not None
        await server.stop()

    run_async(scenario())
