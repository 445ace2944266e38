"""What a scenario of real clients stands on: one client process, one cluster, names of its own.

A scenario is a function that takes a `Ground`, uses real clients on a real cluster and asserts
what it saw. Each runs with the names of its own topics and groups, so that many can share one
cluster at the same time. `SCENARIOS` lists them in the order of the compatibility page.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.interop.driven_client import ANSWER_TIMEOUT_S, ClientError, DrivenClient, Row
from tests.interop.observer import Observer
from tests.interop.server_processes import BROKER_NAME, BrokerCluster, has_route, wait_until

ROUTE_TIMEOUT_S = 60.0
JAVA, GO, NODE, OURS = "Java", "Go", "Node", "Ours"
# Their producers can administer, and their pull consumers do what they are told.
COMPLETE_LIBRARIES = (JAVA, OURS)
_JSON_ONLY = "this library writes JSON headers only"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the compatibility page."""

    name: str
    title: str
    run: Callable[[Ground], None]
    # A broker that creates no topics by itself, and that no other test needs while it is down.
    strict: bool
    # Needs the machine or the broker for itself.
    alone: bool
    headers: str
    # Clients with which it waits for a timer of half a minute: not part of every run.
    slow_with: tuple[str, ...]
    # Languages whose library cannot do it -> why.
    lacking: Mapping[str, str] = field(default_factory=dict)


SCENARIOS: list[Scenario] = []

Run = Callable[["Ground"], None]


def scenario(
    title: str,
    *,
    strict: bool = False,
    alone: bool = False,
    also_binary: bool = False,
    slow_with: tuple[str, ...] = (),
    lacking: Mapping[str, str] | None = None,
) -> Callable[[Run], Run]:
    """Register a scenario under its function's name; `also_binary` runs it with either header."""
    without = dict(lacking or {})
    json_only = {**dict.fromkeys((GO, NODE, OURS), _JSON_ONLY), **without}

    def register(run: Run) -> Run:
        name = run.__name__
        SCENARIOS.append(Scenario(name, title, run, strict, alone, "JSON", slow_with, without))
        if also_binary:
            name, shown = f"{name}_binary", f"{title}; binary headers"
            SCENARIOS.append(
                Scenario(name, shown, run, strict, alone, "ROCKETMQ", slow_with, json_only)
            )
        return run

    return register


class Producer:
    """A producer and the sends that it can make."""

    def __init__(self, client: DrivenClient, name: str, observer: Observer) -> None:
        self._client = client
        self._observer = observer
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
        if self._client.language not in COMPLETE_LIBRARIES:
            return self._observer.offsets(topic, queue)
        offsets: Row = self.call("admin.offsets", topic=topic, queue=queue)
        return offsets

    def call(self, op: str, **arguments: Any) -> Any:
        return self._client.call(op, producer=self.name, broker=BROKER_NAME, **arguments)


class PushConsumer:
    """A push consumer and what it was given."""

    def __init__(self, client: DrivenClient, name: str) -> None:
        self._client = client
        self.name = name

    def wait(
        self, reached: int | Callable[[list[Row]], bool], timeout_s: float = 60.0
    ) -> list[Row]:
        return self._client.wait_received(self.name, reached, timeout_s)

    def received(self) -> list[Row]:
        return self._client.received(self.name)

    def queues(self, topic: str) -> list[int]:
        """The queues that it holds now."""
        queues: list[int] = self._client.call("push.queues", consumer=self.name, topic=topic)
        return queues

    def done(self, topic: str) -> int:
        """Messages of the held queues that count as consumed, told to the broker or not."""
        progress: dict[str, int | None] = self._client.call(
            "push.progress", consumer=self.name, topic=topic
        )
        return sum(max(offset or 0, 0) for offset in progress.values())

    def wait_done(self, topic: str, count: int) -> None:
        """Wait until so many messages of the topic count as consumed.

        A listener is given a message before that: a member that is closed in between leaves the
        message to the next one, as at-least-once delivery allows.
        """
        wait_until(lambda: self.done(topic) >= count, 60, f"{count} messages of {topic} done")

    def close(self) -> None:
        """Its own graceful shutdown."""
        self._client.call("push.close", consumer=self.name)


class PullConsumer:
    """A pull consumer or lite pull consumer: `call` its commands on one topic."""

    def __init__(self, client: DrivenClient, name: str, room: str, topic: str) -> None:
        self._client = client
        self._room = room
        self._topic = topic
        self.name = name

    def call(self, op: str, queue: int = 0, **arguments: Any) -> Any:
        return self.begin(op, queue, **arguments).result(ANSWER_TIMEOUT_S)

    def begin(self, op: str, queue: int = 0, **arguments: Any) -> Future[Any]:
        arguments = {"topic": self._topic, "broker": BROKER_NAME, "queue": queue, **arguments}
        return self._client.begin(f"{self._room}.{op}", consumer=self.name, **arguments)


class ObservedQueue:
    """Stands for a pull consumer where the library has none, or one that only waits."""

    def __init__(self, observer: Observer, topic: str) -> None:
        self._observer = observer
        self._topic = topic

    def call(self, op: str, queue: int = 0, *, offset: int, count: int = 32) -> Row:
        assert op == "pull"
        return self._observer.pull(self._topic, queue, offset, count)


class Ground:
    """One scenario's share of a client process and a cluster; `close` what it left open."""

    _numbers = itertools.count(1)

    def __init__(self, client: DrivenClient, cluster: BrokerCluster, name: str) -> None:
        self.client = client
        self.cluster = cluster
        self.observer = Observer(cluster.address, BROKER_NAME)
        self._name = f"{name}-{next(self._numbers)}"
        self._open: dict[str, tuple[DrivenClient, str, str]] = {}

    @property
    def language(self) -> str:
        return self.client.language

    def close(self) -> None:
        """Scenarios that passed leave nothing behind that could disturb the next."""
        for name, (client, op, field_name) in self._open.items():
            client.begin(op, **{field_name: name})

    def group(self, mark: str = "") -> str:
        return f"g-{self._name}{mark}"

    def producer_group(self) -> str:
        return f"pg-{self._name}"

    def topic(self, queues: int = 1, mark: str = "") -> str:
        """A new topic, created through the client's own administration where it has one."""
        topic = f"t-{self._name}{mark}"
        self._create_topic(topic, queues)
        return topic

    def _create_topic(self, topic: str, queues: int) -> None:
        if self.language in COMPLETE_LIBRARIES:
            creator = self.producer("creator")
            wait_until(
                lambda: self._is_created(creator, topic, queues), ROUTE_TIMEOUT_S, f"topic {topic}"
            )
        elif self.language == GO:
            self.admin("create_topic", topic=topic, queues=queues)
        else:
            self.observer.create_topic(topic, queues)
        wait_until(lambda: self.routes(topic), ROUTE_TIMEOUT_S, f"a route to {topic}")

    def _is_created(self, creator: Producer, topic: str, queues: int) -> bool:
        try:
            creator.call("admin.create_topic", key=BROKER_NAME, topic=topic, queues=queues)
        except ClientError:
            # Its connection is that of a broker which another scenario has killed.
            return False
        return True

    def admin(self, op: str, **arguments: Any) -> Any:
        """The administration of a library that keeps it apart from its producers."""
        place = {"ns": self.cluster.name_server_address, "address": self.cluster.address}
        return self.client.call(f"admin.{op}", **place, **arguments)

    def queue_ids(self, topic: str) -> list[int]:
        """The queues that the client would send to."""
        if self.language == GO:
            found: list[int] = self.admin("queues", topic=topic)
        else:
            found = self.producer().call("admin.queues", topic=topic)
        return found

    def routes(self, topic: str) -> bool:
        return has_route(self.cluster.name_server_address, topic)

    def retry_topic(self) -> None:
        """Create the retry topic before its group starts.

        Go and Node learn of a topic that came after them only with their next look, half a minute
        later; an administrator who creates the group creates this topic, too.
        """
        if self.language in (GO, NODE):
            topic = f"%RETRY%{self.group()}"
            self.observer.create_topic(topic, 1)
            wait_until(lambda: self.routes(topic), ROUTE_TIMEOUT_S, f"a route to {topic}")

    def unknown_topic(self, mark: str = "") -> str:
        """A name that no broker knows."""
        return f"u-{self._name}{mark}"

    def producer(self, mark: str = "", **options: Any) -> Producer:
        """`options` as in the driver: compress_over, compress_type, size_max, retries, vip."""
        name = f"p-{self._name}{mark}"
        if name not in self._open:
            options = {"group": self.producer_group(), **options}
            self._start(self.client, "producer.start", "producer", name, options)
        return Producer(self.client, name, self.observer)

    def transactions(self, mark: str = "", **options: Any) -> str:
        """A transaction producer; its checks are collected under the name that is returned."""
        name = f"x-{self._name}{mark}"
        options = {"group": f"xg-{self._name}", **options}
        self._start(self.client, "transaction.start", "producer", name, options)
        return name

    def push(
        self,
        topic: str | list[str],
        mark: str = "",
        client: DrivenClient | None = None,
        **options: Any,
    ) -> PushConsumer:
        """`options` as in the driver: expression, model, orderly, start_at, batch, failures, …"""
        client = client or self.client
        name = f"c-{self._name}{mark}"
        options = {"group": self.group(), "topic": topic, **options}
        self._start(client, "push.start", "consumer", name, options)
        return PushConsumer(client, name)

    def stored(self, topic: str) -> PullConsumer | ObservedQueue:
        """Something that pulls what was stored: the client's own pull consumer if it has one."""
        if self.language in COMPLETE_LIBRARIES:
            return self.pull(topic, "-stored")
        return ObservedQueue(self.observer, topic)

    def pull(self, topic: str, mark: str = "", **options: Any) -> PullConsumer:
        name = f"pull-{self._name}{mark}"
        options = {"group": self.group("-pull"), "topic": topic, **options}
        if name not in self._open:
            self._start(self.client, "pull.start", "consumer", name, options)
        return PullConsumer(self.client, name, "pull", topic)

    def lite(self, topic: str, mark: str = "", **options: Any) -> PullConsumer:
        name = f"lite-{self._name}{mark}"
        options = {"group": self.group("-lite"), "topic": topic, **options}
        self._start(self.client, "lite.start", "consumer", name, options)
        return PullConsumer(self.client, name, "lite", topic)

    def _start(
        self, client: DrivenClient, op: str, field_name: str, name: str, options: dict[str, Any]
    ) -> None:
        # The instance name is part of the client id, which must differ between processes.
        arguments = {
            "ns": self.cluster.name_server_address,
            "instance": f"{name}-{client.pid}",
            **options,
        }
        client.call(op, **{field_name: name}, **arguments)
        self._open[name] = (client, op.replace(".start", ".close"), field_name)

    @contextmanager
    def second_process(self) -> Iterator[DrivenClient]:
        """Another process of the same client, to be killed by the scenario."""
        with self.client.another() as other:
            try:
                yield other
            finally:
                self._forget(other)

    def _forget(self, other: DrivenClient) -> None:
        self._open = {k: v for k, v in self._open.items() if v[0] is not other}


def texts(messages: list[Row]) -> list[str]:
    """The texts of messages, which name themselves in these scenarios."""
    return [message["text"] for message in messages]
