"""What a scenario of real clients stands on: one Java process, one cluster, names of its own.

A scenario is a function that takes a `Ground`, uses real clients on a real cluster and asserts
what it saw. Each runs with the names of its own topics and groups, so that many can share one
cluster at the same time. `SCENARIOS` lists them in the order of the compatibility page.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.interop.java_client import JavaClient, Row
from tests.interop.server_processes import BROKER_NAME, BrokerCluster, has_route, wait_until

ROUTE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the compatibility page."""

    name: str
    title: str
    run: Callable[[Ground], None]
    # A broker that creates no topics by itself, and that nobody else misses while it is down.
    strict: bool
    # Needs the machine or the broker for itself.
    alone: bool
    headers: str
    # Client versions with which it waits for a timer of half a minute: not part of every run.
    slow_with: tuple[str, ...]


SCENARIOS: list[Scenario] = []


def scenario(
    title: str,
    *,
    strict: bool = False,
    alone: bool = False,
    also_binary: bool = False,
    slow_with: tuple[str, ...] = (),
) -> Callable[[Callable[[Ground], None]], Callable[[Ground], None]]:
    """Register a scenario under its function's name; `also_binary` runs it with either header."""

    def register(run: Callable[[Ground], None]) -> Callable[[Ground], None]:
        SCENARIOS.append(Scenario(run.__name__, title, run, strict, alone, "JSON", slow_with))
        if also_binary:
            name, shown = f"{run.__name__}_binary", f"{title}; binary headers"
            SCENARIOS.append(Scenario(name, shown, run, strict, alone, "ROCKETMQ", slow_with))
        return run

    return register


class Producer:
    """A Java producer and the sends that it can make."""

    def __init__(self, java: JavaClient, name: str) -> None:
        self._java = java
        self.name = name

    def send(self, topic: str, body: bytes, **options: Any) -> Row:
        """`options` as in the driver: queue, tags, keys, property, flag, delay_level."""
        return self._send("producer.send", topic, body, options)

    def send_async(self, topic: str, body: bytes, **options: Any) -> Row:
        return self._send("producer.async", topic, body, options)

    def send_oneway(self, topic: str, body: bytes, **options: Any) -> None:
        self._send("producer.oneway", topic, body, options)

    def send_batch(self, topic: str, bodies: list[bytes], **options: Any) -> Row:
        return self._send("producer.batch", topic, bodies, options)

    def send_ordered(self, topic: str, body: bytes, shard: str) -> Row:
        return self._send("producer.ordered", topic, body, {"shard": shard})

    def _send(self, op: str, topic: str, body: Any, options: dict[str, Any]) -> Row:
        answer: Row = self.call(op, topic=topic, body=body, **options)
        return answer

    def offsets(self, topic: str, queue: int = 0) -> Row:
        """Lowest and next offset of a queue, and the store time of its first message."""
        offsets: Row = self.call("admin.offsets", topic=topic, queue=queue)
        return offsets

    def call(self, op: str, **arguments: Any) -> Any:
        return self._java.call(op, producer=self.name, broker=BROKER_NAME, **arguments)


class PushConsumer:
    """A Java push consumer and what it was given."""

    def __init__(self, java: JavaClient, name: str) -> None:
        self._java = java
        self.name = name

    def wait(
        self, reached: int | Callable[[list[Row]], bool], timeout_s: float = 60.0
    ) -> list[Row]:
        return self._java.wait_received(self.name, reached, timeout_s)

    def received(self) -> list[Row]:
        return self._java.received(self.name)

    def queues(self, topic: str) -> list[int]:
        """The queues that it holds now."""
        queues: list[int] = self._java.call("push.queues", consumer=self.name, topic=topic)
        return queues

    def close(self) -> None:
        """Its own graceful shutdown."""
        self._java.call("push.close", consumer=self.name)


class PullConsumer:
    """A Java pull consumer or lite pull consumer: `call` its commands on one topic."""

    def __init__(self, java: JavaClient, name: str, room: str, topic: str) -> None:
        self._java = java
        self._room = room
        self._topic = topic
        self.name = name

    def call(self, op: str, queue: int = 0, **arguments: Any) -> Any:
        return self.begin(op, queue, **arguments).result(90)

    def begin(self, op: str, queue: int = 0, **arguments: Any) -> Future[Any]:
        arguments = {"topic": self._topic, "broker": BROKER_NAME, "queue": queue, **arguments}
        return self._java.begin(f"{self._room}.{op}", consumer=self.name, **arguments)


class Ground:
    """One scenario's share of a Java process and a cluster; `close` what it left open."""

    _numbers = itertools.count(1)

    def __init__(
        self, java: JavaClient, cluster: BrokerCluster, name: str, flags: tuple[str, ...] = ()
    ) -> None:
        self.java = java
        self.cluster = cluster
        self._flags = flags
        self._name = f"{name}-{next(self._numbers)}"
        self._open: dict[str, tuple[JavaClient, str, str]] = {}

    def close(self) -> None:
        """Scenarios that passed leave nothing behind that could disturb the next."""
        for name, (java, op, field) in self._open.items():
            java.begin(op, **{field: name})

    def group(self, mark: str = "") -> str:
        return f"g-{self._name}{mark}"

    def topic(self, queues: int = 1, mark: str = "") -> str:
        """A new topic, created through the client's own administration."""
        topic = f"t-{self._name}{mark}"
        self._create_topic(topic, queues)
        return topic

    def _create_topic(self, topic: str, queues: int) -> None:
        creator = self.producer("creator")
        creator.call("admin.create_topic", key=BROKER_NAME, topic=topic, queues=queues)
        wait_until(lambda: self.routes(topic), ROUTE_TIMEOUT_S, f"a route to {topic}")

    def routes(self, topic: str) -> bool:
        return has_route(self.cluster.name_server_address, topic)

    def unknown_topic(self, mark: str = "") -> str:
        """A name that no broker knows."""
        return f"u-{self._name}{mark}"

    def producer(self, mark: str = "", **options: Any) -> Producer:
        """`options` as in the driver: compress_over, compress_type, size_max, retries, vip."""
        name = f"p-{self._name}{mark}"
        if name not in self._open:
            options = {"group": f"pg-{self._name}", **options}
            self._start(self.java, "producer.start", "producer", name, options)
        return Producer(self.java, name)

    def push(
        self, topic: str | list[str], mark: str = "", java: JavaClient | None = None, **options: Any
    ) -> PushConsumer:
        """`options` as in the driver: expression, model, orderly, start_at, batch, failures, …"""
        java = java or self.java
        name = f"c-{self._name}{mark}"
        options = {"group": self.group(), "topic": topic, **options}
        self._start(java, "push.start", "consumer", name, options)
        return PushConsumer(java, name)

    def pull(self, topic: str, mark: str = "", **options: Any) -> PullConsumer:
        name = f"pull-{self._name}{mark}"
        self._start(
            self.java, "pull.start", "consumer", name, {"group": self.group("-pull"), **options}
        )
        return PullConsumer(self.java, name, "pull", topic)

    def lite(self, topic: str, mark: str = "", **options: Any) -> PullConsumer:
        name = f"lite-{self._name}{mark}"
        options = {"group": self.group("-lite"), "topic": topic, **options}
        self._start(self.java, "lite.start", "consumer", name, options)
        return PullConsumer(self.java, name, "lite", topic)

    def _start(
        self, java: JavaClient, op: str, field: str, name: str, options: dict[str, Any]
    ) -> None:
        # The instance name is part of the client id, which must differ between processes.
        arguments = {
            "ns": self.cluster.name_server_address,
            "instance": f"{name}-{java.pid}",
            **options,
        }
        java.call(op, **{field: name}, **arguments)
        self._open[name] = (java, op.replace(".start", ".close"), field)

    @contextmanager
    def second_process(self) -> Iterator[JavaClient]:
        """Another Java process of the same version, to be killed by the scenario."""
        with JavaClient(self.java.version, self._flags) as java:
            yield java
            self._open = {k: v for k, v in self._open.items() if v[0] is not java}


def texts(messages: list[Row]) -> list[str]:
    """The texts of messages, which name themselves in these scenarios."""
    return [message["text"] for message in messages]
