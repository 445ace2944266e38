"""The routes of topics: requested when needed, cached, refreshed periodically.

    entries    topic → its route and the queues it offers
    templates  topic → queues that a first send would create (no broker has the topic yet)
    brokers    broker name → id → address that this client connects to

A route is kept when a name server no longer knows the topic: it may just have been restarted, and
brokers say themselves whether they have a topic. Addresses come from routes only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from broker_core.client.connection.name_server_client import NameServerClient
from broker_core.client.connection.topic_queues import (
    Queues,
    publish_queues,
    subscribe_queues,
    template_queues,
)
from broker_core.codec.wire.bodies.route_data import TopicRoute
from broker_core.codec.wire.topic_name import TEMPLATE_TOPIC
from broker_core.errors import BrokerNotExist, ConnectionLost, RmqError, TopicNotExist
from broker_core.protocol_codes import MASTER_ID, ResponseCode
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)

# Minimum pause between two refreshes of a topic after failures.
_REFRESH_PAUSE_S: Final = 1.0
_POLLED_AT_ONCE: Final = 16


class TopicEntry(NamedTuple):
    """The route of one topic and the queues it offers."""

    route: TopicRoute
    publish: Queues
    subscribe: Queues


class RouteCache:
    """Routes of the requested topics."""

    def __init__(
        self, name_servers: NameServerClient, address_rewrite: Mapping[str, str], clock: Clock
    ) -> None:
        self._name_servers = name_servers
        self._rewrite = address_rewrite
        self._clock = clock
        self._entries: dict[str, TopicEntry] = {}
        self._templates: dict[str, Queues] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._asking: dict[str, asyncio.Task[TopicRoute]] = {}
        self._refreshing: set[asyncio.Task[None]] = set()
        self._refresh_after: dict[str, float] = {}
        self._listeners: list[Callable[[str], object]] = []
        self._is_closed = False

    # May wait for a name server

    async def route(self, topic: str, refresh: bool = False) -> TopicRoute:
        """The cached route of `topic`; requested if it is missing or with `refresh`.

        Raises `TopicNotExist` or `ConnectionLost`; the cached route stays.
        """
        entry = self._entries.get(topic)
        if entry is not None and not refresh:
            return entry.route
        return await self._ask(topic)

    async def publish_queues(self, topic: str) -> Queues:
        """Queues to send to, never empty.

        A topic that does not exist offers the queues that a send would create, if brokers create
        topics on sends; `TopicNotExist` otherwise.
        """
        found = self.published(topic)
        if found:
            return found
        try:
            await self._ask(topic)
        except TopicNotExist:
            self._templates[topic] = await self._template_of(topic)
        found = self.published(topic)
        if not found:
            raise BrokerNotExist(
                ResponseCode.BROKER_NOT_EXIST,
                f"topic {topic} has no queue that can be written to: no master is up, or the topic"
                " is read-only",
            )
        return found

    async def subscribe_queues(self, topic: str, refresh: bool = False) -> Queues:
        """Queues to read from; empty when none can be read. Raises `TopicNotExist`."""
        await self.route(topic, refresh)
        return self._entries[topic].subscribe

    async def poll(self) -> None:
        """Refresh the route of every known topic; failures are logged."""
        topics = list({**self._entries, **self._templates})
        for first in range(0, len(topics), _POLLED_AT_ONCE):
            part = topics[first : first + _POLLED_AT_ONCE]
            await asyncio.gather(*map(self._refresh_quietly, part))
        self._forget_gone_brokers()

    # Answered from memory

    def published(self, topic: str) -> Queues:
        """The cached queues to send to; empty if unknown."""
        entry = self._entries.get(topic)
        return entry.publish if entry is not None else self._templates.get(topic, ())

    def is_template(self, topic: str) -> bool:
        """Whether the queues of `published` are those that a send would create."""
        return topic in self._templates

    def topics(self) -> list[str]:
        """Topics with a known route."""
        return list(self._entries)

    def broker_address(self, name: str, broker_id: int = MASTER_ID, or_any: bool = False) -> str:
        """The address of a member of broker `name`.

        `or_any` takes the next id, then any, when that one is not there. Raises `BrokerNotExist`.
        """
        members = self._brokers.get(name, {})
        address = members.get(broker_id)
        if address is None and or_any and members:
            address = members.get(broker_id + 1) or members[min(members)]
        if address is None:
            text = f"no route has an address of broker {name!r:.100} with id {broker_id}"
            raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
        return address

    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Broker name → id → address, of every broker in a known route."""
        return self._brokers

    def rewritten(self, address: str) -> str:
        """The address to connect to for one that a broker advertises."""
        return self._rewrite.get(address, address)

    # Refresh

    def on_change(self, listener: Callable[[str], object]) -> None:
        """Call `listener(topic)` whenever the route of a topic has changed."""
        self._listeners.append(listener)

    def forget(self, topic: str) -> None:
        """Drop a deleted topic from the cache."""
        self._entries.pop(topic, None)
        self._templates.pop(topic, None)

    def refresh_soon(self, topic: str) -> None:
        """Refresh in the background after a failure; at most once a second per topic."""
        now = self._clock.monotonic()
        if self._is_closed or topic in self._asking or now < self._refresh_after.get(topic, now):
            return
        self._refresh_after[topic] = now + _REFRESH_PAUSE_S
        task = asyncio.ensure_future(self._refresh_quietly(topic))
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    def refresh_broker_soon(self, name: str) -> None:
        """Refresh a broker's addresses, by the route of one of its topics, after a failure."""
        for topic, entry in self._entries.items():
            if any(broker.broker_name == name for broker in entry.route.brokers):
                self.refresh_soon(topic)
                return

    async def close(self) -> None:
        """Cancel pending requests."""
        self._is_closed = True
        tasks: list[asyncio.Task[Any]] = [*self._asking.values(), *self._refreshing]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _ask(self, topic: str) -> TopicRoute:
        """At most one request per topic at a time; concurrent callers share its answer."""
        if self._is_closed:
            raise ConnectionLost("the client is stopped")
        task = self._asking.get(topic)
        if task is None:
            task = asyncio.ensure_future(self._name_servers.route(topic))
            self._asking[topic] = task
            task.add_done_callback(lambda done: self._answered(topic, done))
        await asyncio.wait((task,))
        if task.cancelled():
            raise ConnectionLost("the client is stopped")
        return task.result()

    def _answered(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._asking.pop(topic, None)
        # `exception()` also marks the error as retrieved.
        if not task.cancelled() and task.exception() is None:
            self._store(topic, task.result())

    def _store(self, topic: str, route: TopicRoute) -> None:
        self._templates.pop(topic, None)
        for broker in route.brokers:
            self._brokers[broker.broker_name] = {
                broker_id: self.rewritten(address)
                for broker_id, address in broker.addresses.items()
            }
        known = self._entries.get(topic)
        if known is not None and known.route == route:
            return
        self._entries[topic] = TopicEntry(
            route, publish_queues(topic, route), subscribe_queues(topic, route)
        )
        for listener in self._listeners:
            listener(topic)

    async def _template_of(self, topic: str) -> Queues:
        try:
            template = await self.route(TEMPLATE_TOPIC)
        except TopicNotExist:
            template = None
        queues = template_queues(topic, template) if template is not None else ()
        if not queues:
            raise TopicNotExist(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {topic} does not exist and no broker creates topics on sends"
                f" ({TEMPLATE_TOPIC} has no route); create it first, for example with"
                " Admin.create_topic",
            )
        return queues

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self._ask(topic)
        except RmqError as error:
            _log.info("the route of %s was not refreshed: %s", topic, error)

    def _forget_gone_brokers(self) -> None:
        named = {b.broker_name for entry in self._entries.values() for b in entry.route.brokers}
        for name in self._brokers.keys() - named:
            del self._brokers[name]
