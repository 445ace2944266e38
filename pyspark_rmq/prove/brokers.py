"""The brokers under test: a single broker, or a SYNC_MASTER with a slave.

Both restart their dead processes. The pair can promote the slave first and let the old master
follow it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from broker_core import (
    EmbeddedBroker,
    EmbeddedCluster,
    OutgoingMessage,
    SyncProducer,
    SyncPullConsumer,
    errors,
)
from pyspark_rmq.prove.traps import BROKER, SLAVE

_START_TIMEOUT_S: Final = 300.0
_CLOSE_TRIES: Final = 5
_SEND_TIMEOUT_MS: Final = 30_000


class Brokers(Protocol):
    """Interface for the harness."""

    starts: int
    promotions: int

    @property
    def options(self) -> dict[str, str]:
        """For `.options(**…)` of a reader or writer."""

    def tend(self, *, promotes: bool) -> bool:
        """Restart dead processes; True if there were any. `promotes`: replace a dead master."""

    def processes(self) -> dict[str, list[int]]:
        """Process ids by victim."""

    def running(self) -> set[int]:
        """Process ids of the brokers that have not ended."""

    def produce(self, topic: str, bodies: Sequence[str]) -> dict[str, str]:
        """Send each body once; body -> message id of the acknowledged ones."""

    def consume(self, topic: str) -> list[str]:
        """All bodies of a topic, read by a client."""

    def close_stores(self) -> dict[str, Path]:
        """Stop cleanly; stores by their name in the report."""

    def stop(self) -> None:
        """Stop all processes."""


def _produced(name_server: str, topic: str, bodies: Sequence[str]) -> dict[str, str]:
    acknowledged: dict[str, str] = {}
    # Without retries: a retry may store a message twice, which would look like a bug of the broker.
    # The first suppression is for a broker that cannot be reached at all.
    with (
        contextlib.suppress(errors.RmqError),
        SyncProducer(name_server, retries=0, timeout_ms=_SEND_TIMEOUT_MS) as producer,
    ):
        messages = [OutgoingMessage(topic, body.encode()) for body in bodies]
        answers = [producer.send_async(message) for message in messages]
        for body, answer in zip(bodies, answers, strict=True):
            # No answer, or no SEND_OK: it may be stored or not.
            with contextlib.suppress(errors.RmqError):
                acknowledged[body] = answer.result().msg_id
    return acknowledged


def _consumed(name_server: str, topic: str) -> list[str]:
    found: list[str] = []
    with SyncPullConsumer(name_server) as consumer:
        for queue in consumer.queues(topic):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, offset)
                found += [message.body.decode() for message in result.messages]
                if result.next_offset <= offset:
                    raise errors.UnexpectedAnswer(f"{queue} does not continue at {offset}")
                offset = result.next_offset
    return found


def _is_clean(store: Path) -> bool:
    """Whether the last shutdown was clean; otherwise queues may lag behind the log."""
    return not (store / "abort").exists()


class OneBroker:
    """A single master."""

    def __init__(self, store: Path, topics: Mapping[str, int]) -> None:
        self._broker = EmbeddedBroker(store=store, topics=topics)
        self.starts = self.promotions = 0

    @property
    def options(self) -> dict[str, str]:
        """Of its name server."""
        return self._broker.options

    def tend(self, *, promotes: bool) -> bool:
        """Start it if it does not run."""
        if self._broker.is_running:
            return False
        # Reap the killed process.
        self._broker.kill()
        self._broker.start()
        self.starts += 1
        return True

    def processes(self) -> dict[str, list[int]]:
        return {BROKER: [self._broker.process_id]}

    def running(self) -> set[int]:
        """The broker, unless it is dead."""
        return {self._broker.process_id} if self._broker.is_running else set()

    def produce(self, topic: str, bodies: Sequence[str]) -> dict[str, str]:
        """Send and wait."""
        return _produced(self._broker.name_server, topic, bodies)

    def consume(self, topic: str) -> list[str]:
        """Everything in a topic."""
        return _consumed(self._broker.name_server, topic)

    def close_stores(self) -> dict[str, Path]:
        """The store of the broker."""
        store = self._broker.store_dir
        self._broker.stop()
        for _ in range(_CLOSE_TRIES):
            if _is_clean(store):
                return {"files": store}
            self._broker.start()
            self._broker.stop()
        raise errors.EmbeddedBrokerFailed(f"the broker of {store} does not stop cleanly")

    def stop(self) -> None:
        self._broker.stop()


class MasterAndSlave:
    """A SYNC_MASTER and its slave, which change places."""

    def __init__(self, directory: Path, topics: Mapping[str, int]) -> None:
        self._cluster = EmbeddedCluster(
            slaves_per_master=1,
            replication="sync",
            directory=directory,
            topics=topics,
            start_timeout_s=_START_TIMEOUT_S,
        )
        self._master = ""
        self.starts = self.promotions = 0

    @property
    def options(self) -> dict[str, str]:
        """Of the name server."""
        return self._cluster.options

    def tend(self, *, promotes: bool) -> bool:
        """Restart dead nodes; with `promotes` the slave replaces a dead master first."""
        if not self._master:
            self._cluster.start()
            self._master = self._cluster.nodes[0].name
            self.starts += 2
            return True
        dead = [node.name for node in self._cluster.nodes if not node.is_running]
        if not dead:
            return False
        if promotes and self._master in dead and len(dead) == 1:
            [self._master] = [node.name for node in self._cluster.nodes if node.is_running]
            self._cluster.promote(self._master)
            self.promotions += 1
        # The master first: the slave asks the name server for it.
        for name in sorted(dead, key=lambda name: name != self._master):
            self._cluster.restart(name)
            self.starts += 1
        self._cluster.wait_in_sync()
        return True

    def processes(self) -> dict[str, list[int]]:
        """Process ids by current role."""
        return {
            BROKER if node.name == self._master else SLAVE: [node.process_id]
            for node in self._cluster.nodes
        }

    def running(self) -> set[int]:
        """Those of the two that are not dead."""
        return {node.process_id for node in self._cluster.nodes if node.is_running}

    def produce(self, topic: str, bodies: Sequence[str]) -> dict[str, str]:
        """Send and wait until the slave has confirmed."""
        return _produced(self._cluster.name_server, topic, bodies)

    def consume(self, topic: str) -> list[str]:
        """All bodies of a topic, from the master."""
        return _consumed(self._cluster.name_server, topic)

    def close_stores(self) -> dict[str, Path]:
        """The stores of master and slave, in sync."""
        self._cluster.wait_in_sync()
        found = {}
        for node in self._cluster.nodes:
            node.stop()
            tries = 0
            while not _is_clean(node.store_dir):
                tries += 1
                if tries > _CLOSE_TRIES:
                    raise errors.EmbeddedBrokerFailed(f"{node.name} does not stop cleanly")
                self._cluster.restart(node).stop()
            found["files" if node.name == self._master else "files of the slave"] = node.store_dir
        return found

    def stop(self) -> None:
        """Stop both and the name server."""
        self._cluster.stop()
