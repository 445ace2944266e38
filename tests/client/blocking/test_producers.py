"""Sync faces: in threads without a loop, in notebooks with one, and in wrong places."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_core import SyncAdmin, SyncProducer
from broker_core.client.blocking.loop_thread import LoopThread
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.errors import InvalidArgument, RemoteError, TopicNotExist
from tests.client.scripted_brokers import ScriptedCluster, scripted_cluster

M = OutgoingMessage


@contextlib.contextmanager
def served() -> Iterator[ScriptedCluster]:
    """A cluster in a thread of its own."""
    thread = LoopThread()
    manager = scripted_cluster()
    cluster = thread.call(manager.__aenter__())
    try:
        yield cluster
    finally:
        thread.call(manager.__aexit__(None, None, None))
        thread.stop()


def test_sends_wait_for_their_results() -> None:
    with served() as cluster, SyncProducer(cluster.name_server, "PG") as producer:
        assert producer.send("T", b"x", tags="A").queue.topic == "T"
        assert producer.send(M("T", b"x")).queue_offset >= 0
        assert producer.send_async(M("T", b"x")).result(120).queue.topic == "T"
        assert len(producer.send_batch([M("T", b"x"), M("T", b"y")])) == 2
        assert producer.send_ordered(M("T", b"x"), "key").queue.topic == "T"
        queue = producer.publish_queues("T")[1]
        assert producer.send("T", b"x", queue=queue).queue == queue
        producer.send_oneway(M("T", b"x"))
        results = producer.send_many(M("T", b"%d" % n) for n in range(300))
        assert len({result.msg_id for result in results}) == 300
        producer.flush()
        with pytest.raises(TopicNotExist):
            producer.send("Unknown", b"x")
        with pytest.raises(InvalidArgument):
            producer.send_many([M("T", b"x"), M("bad topic", b"x")])
        cluster.broker.always = 13
        with pytest.raises(RemoteError):
            producer.send_many([M("T", b"x")] * 3)
        assert producer.send_many([]) == []


def test_synchronous_producers_work_where_a_loop_is_running(run_async: Callable[..., Any]) -> None:
    with served() as cluster:

        async def cell() -> None:
            with SyncProducer(cluster.name_server, "PG") as producer:
                assert producer.send("T", b"x").queue.topic == "T"

        run_async(cell())


def test_many_threads_share_one_producer_and_one_loop() -> None:
    with served() as cluster, SyncProducer(cluster.name_server, "PG") as producer:
        results: list[Any] = []

        def work() -> None:
            results.extend(producer.send("T", b"x") for _ in range(20))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({result.msg_id for result in results}) == 80
        with SyncAdmin(cluster.name_server) as admin:
            assert admin._thread is producer._thread


def test_the_thread_ends_with_its_last_user() -> None:
    with served() as cluster:
        first, second = SyncAdmin(cluster.name_server), SyncAdmin(cluster.name_server)
        first.open()
        first.open()
        second.open()
        thread = first._thread
        assert thread is not None
        first.close()
        first.close()
        assert thread.is_alive
        assert "T" in second.topics()
        second.close()
        assert not thread.is_alive
        with pytest.raises(InvalidArgument, match="not open"):
            second.topics()


def test_a_face_that_cannot_open_leaves_no_thread() -> None:
    with served() as cluster:
        producer = SyncProducer(cluster.name_server, "bad group")
        before = set(threading.enumerate())
        with pytest.raises(InvalidArgument, match="group"):
            producer.open()
        # Threads of earlier tests may end meanwhile; none may be new.
        assert set(threading.enumerate()) <= before
        producer.close()
