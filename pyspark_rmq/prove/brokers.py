"""The brokers under test: one alone, or a master whose slave confirms everything.

Each knows which of its processes have died and puts things right again: it starts what is gone, or
makes the slave the master first and lets the old master follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

from broker_core import EmbeddedCluster, OutgoingMessage, SyncProducer, SyncPullConsumer, errors
from pyspark_rmq.embedded import EmbeddedBroker
from pyspark_rmq.prove.traps import BROKER, SLAVE

_START_TIMEOUT_S: Final = 60.0


class Brokers(Protocol):
    """What the harness needs of them."""

    starts: int
    promotions: int

    @property
    def options(self) -> dict[str, str]:
        """For `.options(**…)` of a reader or writer."""

    def tend(self, *, promotes: bool) -> bool:
        """Put right what has died; whether anything had. `promotes`: a dead master is replaced."""

    def processes(self) -> dict[str, list[int]]:
        """Whom a trap kills, by its victim."""

    def produce(self, topic: str, bodies: Iterable[str]) -> None:
        """Send; raises unless every one is as safe as these brokers promise."""

    def consume(self, topic: str) -> list[str]:
        """Everything in a topic."""

    def stop(self) -> None:
        """At the end."""


class OneBroker:
    """A master alone."""

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
        # What was killed has not been waited for yet.
        self._broker.kill()
        self._broker.start()
        self.starts += 1
        return True

    def processes(self) -> dict[str, list[int]]:
        """The broker."""
        return {BROKER: [self._broker.process_id]}

    def produce(self, topic: str, bodies: Iterable[str]) -> None:
        """Send and wait."""
        self._broker.produce(topic, bodies)

    def consume(self, topic: str) -> list[str]:
        """Everything in a topic."""
        return [message.body.decode() for message in self._broker.consume(topic)]

    def stop(self) -> None:
        """End it."""
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
        """Start who is gone; the slave takes a dead master's place first, if it is to."""
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
        # The master first: a slave asks the name server for it.
        for name in sorted(dead, key=lambda name: name != self._master):
            self._cluster.restart(name)
            self.starts += 1
        self._cluster.wait_in_sync()
        return True

    def processes(self) -> dict[str, list[int]]:
        """By what they are now."""
        return {
            BROKER if node.name == self._master else SLAVE: [node.process_id]
            for node in self._cluster.nodes
        }

    def produce(self, topic: str, bodies: Iterable[str]) -> None:
        """Send and wait until the slave has them too."""
        messages = (OutgoingMessage(topic, body.encode()) for body in bodies)
        with SyncProducer(self._cluster.name_server) as producer:
            producer.send_many(messages)

    def consume(self, topic: str) -> list[str]:
        """Everything in a topic, from the master: the slave is as far as it was told."""
        found: list[str] = []
        with SyncPullConsumer(self._cluster.name_server) as consumer:
            for queue in consumer.queues(topic):
                offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
                while offset < end:
                    result = consumer.pull(queue, offset)
                    found += [message.body.decode() for message in result.messages]
                    if result.next_offset <= offset:
                        raise errors.UnexpectedAnswer(f"{queue} does not go on at {offset}")
                    offset = result.next_offset
        return found

    def stop(self) -> None:
        """End both, and the name server."""
        self._cluster.stop()
