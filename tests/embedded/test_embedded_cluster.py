"""`EmbeddedCluster`: RocketMQ's four modes of deployment, each from one call."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import EmbeddedCluster
from broker_core.client.connection.config import ClientConfig
from broker_core.client.produce.producer import Producer
from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument, PromotionRefused
from broker_core.runtime.clock import SystemClock
from tests.cli.rmq_process import LIMIT_S, environment, run_rmq, running
from tests.embedded.one_topic import bodies, queue_count, send
from tests.embedded.test_embedded_broker import is_there


def test_one_master() -> None:
    with EmbeddedCluster(topics={"orders": 4}) as cluster:
        [master] = cluster.nodes
        send(cluster.name_server, "orders", b"1", b"2")
        assert bodies(cluster.name_server, "orders") == [b"1", b"2"]
        assert cluster.options == {"rmq.namesrv.addr": cluster.name_server}
        cluster.kill("broker-a:0")
        assert not master.is_running
        cluster.restart(master)
        assert bodies(cluster.name_server, "orders") == [b"1", b"2"]
        directory, process_id = master.directory.parent, master.process_id
    assert not is_there(process_id)
    assert not directory.exists()
    cluster.stop()


def test_producers_go_to_another_master() -> None:
    async def send_all(name_server: str) -> list[str]:
        found = []
        async with Producer(ClientConfig((name_server,))) as producer:
            for number in range(40):
                if number == 20:
                    cluster.kill("broker-a:0")
                result = await producer.send("orders", b"%d" % number)
                found.append(result.queue.broker_name)
        return found

    with EmbeddedCluster(masters=2, topics={"orders": 4}) as cluster:
        assert queue_count(cluster.name_server, "orders") == 8
        brokers = asyncio.run(send_all(cluster.name_server))
        assert set(brokers[:20]) == {"broker-a", "broker-b"}
        assert set(brokers[20:]) == {"broker-b"}
        # Nothing of what the other one has acknowledged is gone.
        cluster.restart("broker-a:0")
        found = bodies(cluster.name_server, "orders")
        assert sorted(found) == sorted(b"%d" % number for number in range(40))


def _ha(name_server: str) -> list[dict[str, Any]]:
    ran = run_rmq("admin", "ha", "-n", name_server, "--json")
    assert ran.code == 0, ran.errors
    found: list[dict[str, Any]] = json.loads(ran.output)
    return found


def test_slaves_are_read_and_promoted() -> None:
    everything = [b"%d" % number for number in range(20)]
    with EmbeddedCluster(slaves_per_master=1, replication="sync", topics={"orders": 2}) as cluster:
        send(cluster.name_server, "orders", *everything)
        rows = _ha(cluster.name_server)
        assert [row["role"] for row in rows] == ["SYNC_MASTER", "SLAVE"]
        assert [row["lagBytes"] for row in rows] == [None, 0]
        assert [row["lagMessages"] for row in rows] == [None, 0]
        with pytest.raises(PromotionRefused, match="stop it first"):
            cluster.promote("broker-a:1")
        # While the master is away its messages can be read.
        old = cluster.kill("broker-a:0")
        assert bodies(cluster.name_server, "orders") == sorted(everything)
        done = cluster.promote("broker-a:1")
        assert done.address == cluster.node("broker-a:1").address
        assert done.role == "SYNC_MASTER"
        # The old master finds a newer one and follows it; then synchronous sends work again.
        cluster.restart(old)
        cluster.wait_in_sync()
        more = [b"after %d" % number for number in range(10)]
        send(cluster.name_server, "orders", *more)
        assert bodies(cluster.name_server, "orders") == sorted(everything + more)
        rows = _ha(cluster.name_server)
        assert [(row["role"], row["address"]) for row in rows] == [
            ("SYNC_MASTER", done.address), ("SLAVE", old.address),
        ]  # fmt: skip
        assert {row["epoch"] for row in rows} == {done.epoch}
        # A restart changes no role.
        cluster.restart("broker-a:1")
        cluster.wait_in_sync()
        send(cluster.name_server, "orders", b"last")
        assert bodies(cluster.name_server, "orders") == sorted([*everything, *more, b"last"])


class KillingClock(SystemClock):
    """Each reading kills the next process of `victims`; None stands for no process."""

    def __init__(self) -> None:
        super().__init__()
        self.victims: list[int | None] = []

    def monotonic(self) -> float:
        victim = self.victims.pop(0) if self.victims else None
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        return super().monotonic()


def test_a_wait_for_slaves_ends_with_their_process() -> None:
    clock = KillingClock()
    with EmbeddedCluster(slaves_per_master=1, replication="sync", clock=clock) as cluster:
        # Without a name server nothing is known about the slave, until its process ends.
        cluster.kill("namesrv")
        # The first reading makes the deadline, the second looks at it.
        clock.victims = [None, cluster.node("broker-a:1").process_id]
        with pytest.raises(EmbeddedBrokerFailed, match=r"broker-a:1 has ended; each node logs"):
            cluster.wait_in_sync(timeout_s=300)
        assert clock.victims == []


def test_stores_are_kept_where_asked(tmp_path: Path) -> None:
    for expected in ([], [b"kept"]):
        with EmbeddedCluster(directory=tmp_path, topics={"orders": 1}) as cluster:
            assert bodies(cluster.name_server, "orders") == expected
            if not expected:
                send(cluster.name_server, "orders", b"kept")
    assert (tmp_path / "broker-a-0" / "store" / "commitlog").is_dir()


def _promote_inside(cluster: EmbeddedCluster) -> None:
    cluster.promote("broker-a:1")
    # The old master has stepped down.
    cluster.restart("broker-a:0")
    cluster.wait_in_sync()


def _promote_from_outside(cluster: EmbeddedCluster) -> None:
    # The old master has not heard of the promotion.
    ran = run_rmq("admin", "promote", "-n", cluster.name_server, "--broker", "broker-a")
    assert ran.code == 0, ran.errors


@pytest.mark.parametrize("promote", [_promote_inside, _promote_from_outside])
def test_a_promotion_outlives_the_cluster(
    tmp_path: Path, promote: Callable[[EmbeddedCluster], None]
) -> None:
    def cluster_of(slaves: int) -> EmbeddedCluster:
        return EmbeddedCluster(
            slaves_per_master=slaves, directory=tmp_path, topics={"orders": 1},
            start_timeout_s=LIMIT_S,
        )  # fmt: skip

    with cluster_of(1) as cluster:
        send(cluster.name_server, "orders", b"1")
        cluster.wait_in_sync()
        cluster.kill("broker-a:0")
        promote(cluster)
        send(cluster.name_server, "orders", b"2")
        again = cluster
    with pytest.raises(InvalidArgument, match="broker-a:1 was promoted"):
        cluster_of(0).start()
    expected = [b"1", b"2"]
    for cluster in (cluster_of(1), cluster_of(1), again):
        with cluster:
            send(cluster.name_server, "orders", b"more")
            expected.append(b"more")
            assert bodies(cluster.name_server, "orders") == expected
            assert [(row["role"], row["address"]) for row in _ha(cluster.name_server)] == [
                ("ASYNC_MASTER", cluster.node("broker-a:1").address),
                ("SLAVE", cluster.node("broker-a:0").address),
            ]


def test_everything_ends_with_its_owner(tmp_path: Path) -> None:
    code = (
        "from broker_core import EmbeddedCluster\n"
        "c = EmbeddedCluster(masters=2).start()\n"
        "print(*[n.process_id for n in c.nodes], c.node('namesrv').process_id,"
        " c.nodes[0].directory.parent, flush=True)\n"
        "input()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd=tmp_path,
    )  # fmt: skip
    assert owner.stdin is not None and owner.stdout is not None
    try:
        *ids, directory = owner.stdout.readline().decode().split()
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()

        def is_left() -> bool:
            return any(is_there(int(number)) for number in ids) or Path(directory).exists()

        async def gone() -> None:
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            while is_left():
                await asyncio.wait((never,), timeout=0.05)

        asyncio.run(asyncio.wait_for(gone(), LIMIT_S))
    finally:
        owner.stdin.close()
        owner.stdout.close()


def test_the_command_starts_and_ends_all_of_them(tmp_path: Path) -> None:
    words = ("--slaves", "1", "--replication", "sync", "--port", "0", "--dir", str(tmp_path / "d"))
    with running(tmp_path, "cluster", *words) as server:
        assert re.fullmatch(
            r"rmq cluster ready on 127\.0\.0\.1:\d+: broker-a:0 on \S+, broker-a:1 on \S+\n",
            server.ready,
        )
        send(server.address, "orders", b"sent")
        assert bodies(server.address, "orders") == [b"sent"]
        ended = server.end()
    assert ended.code == 0, ended.errors
    assert (tmp_path / "d" / "broker-a-1" / "store" / "commitlog").is_dir()
    refused = run_rmq("cluster", "--replication", "sync")
    assert refused.code == 2 and "at least 1 slave" in refused.errors


def test_mistakes_are_named() -> None:
    for wrong in (
        {"masters": 0},
        {"masters": 27},
        {"slaves_per_master": -1},
        {"replication": "maybe"},
        {"flush": "never"},
        {"replication": "sync"},
        {"topics": {"orders": 0}},
    ):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))[:5]):
            EmbeddedCluster(**wrong)
    with pytest.raises(EmbeddedBrokerFailed, match="start"):
        _ = EmbeddedCluster().name_server
    with pytest.raises(EmbeddedBrokerFailed, match=r"(?s)broker-a:0: .*flushDiskType"):
        EmbeddedCluster(properties={"flushDiskType": "SOMETIMES"}).start()
    with EmbeddedCluster() as cluster, pytest.raises(InvalidArgument, match="broker-z:0"):
        cluster.kill("broker-z:0")
