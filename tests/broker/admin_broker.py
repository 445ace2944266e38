"""A store and its tables on a simulated disk, with the administration processors in front."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from broker_core.broker.admin.feature import AdminFeature
from broker_core.broker.clients.feature import ClientsFeature
from broker_core.broker.context import BrokerContext
from broker_core.broker.pop.feature import PopFeature
from broker_core.broker.pull.feature import PullFeature
from broker_core.broker.request_router import Processor
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.settings.live_settings import LIVE_SETTINGS_FILE, LiveSettings
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.log_identity import IDENTITY_FILE, LogIdentity
from broker_core.broker.tables.new_groups import NewGroups
from broker_core.broker.tables.new_topics import NewTopics
from broker_core.broker.tables.queue_locks import QueueLocks
from broker_core.broker.tables.request_modes import MODES_FILE, RequestModes
from broker_core.broker.transactions.reopen_given_up import ReopenGivenUpProcessor
from broker_core.codec.wire.bodies.heartbeat_data import ConsumerData, HeartbeatData
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.config import RemotingLimits
from broker_core.errors import RmqError
from broker_core.remoting.request_dispatch import Handler, failure_reply
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.writes.message import Message
from tests.broker.broker_tables import OpenConnection, group_table, offset_table, topic_table
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk, open_small


class AdminBroker:
    """Everything real but the disk, the clock and the sockets."""

    def __init__(self, store_settings: dict[str, Any] | None = None, **settings: Any) -> None:
        self.disk: SimulatedDisk = new_disk()
        self.clock: Any = self.disk.clock
        self.store = open_small(self.disk, **(store_settings or {}))
        self.config = BrokerConfig(**settings)
        limit = self.config.queues_per_topic_max
        self.topics = topic_table(
            self.disk, queues_per_topic_max=limit, topics_max=self.config.topics_max
        )
        self.groups = group_table(self.disk)
        self.offsets = offset_table(self.disk, end_offset=lambda t, q: self.store.offsets(t, q)[1])
        self.clients = ClientTable(self.clock, 120_000, lambda _connection, _group: None)
        self.stats = BrokerStats(self.clock, self.store.stats)
        self.delay_offsets: dict[int, int] = {}
        # How many topics were registered at the name servers each time.
        self.told: list[int] = []
        self.settings = LiveSettings(
            self.config, self.clock, JsonTable(self.disk, LIVE_SETTINGS_FILE)
        )
        new_topics = NewTopics(self.topics, self.clock)
        self.context = BrokerContext(
            config=self.config,
            clock=self.clock,
            file_system=self.disk,
            store=self.store,
            limits=RemotingLimits(),
            settings=self.settings,
            stats=self.stats,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            clients=self.clients,
            locks=QueueLocks(self.clock, self.config.queue_lock_expiry_ms),
            modes=RequestModes(JsonTable(self.disk, MODES_FILE)),
            identity=LogIdentity(
                JsonTable(self.disk, IDENTITY_FILE), self.store.store_id, lambda: self.store.epoch
            ),
            new_topics=new_topics,
            new_groups=NewGroups(self.groups, new_topics, self.clock),
        )
        admin = AdminFeature(
            self.context,
            routes_announced=self._tell_routes,
            popped_until=lambda _key: None,
            delay_offsets=lambda: self.delay_offsets,
        )
        pull = PullFeature(self.context, master_is_there=lambda: False)
        pop = PopFeature(self.context, pulls=pull.pulls, route=_no_route)
        clients = ClientsFeature(self.context)
        processors: list[Processor] = [ReopenGivenUpProcessor(store=self.store)]
        for feature in (clients, pull, pop, admin):
            processors += feature.processors()
        self.handlers: dict[int, Handler] = {}
        for processor in processors:
            self.handlers.update(processor.handlers())

    async def _tell_routes(self) -> None:
        await asyncio.sleep(0)
        self.told.append(len(self.topics))

    def ask(self, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
        """The answer that a client would get."""
        connection: Any = OpenConnection()
        request = RemotingCommand(code, ext, body, opaque=7)
        try:
            answer: Any = self.handlers[code](connection, request)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer))
        except RmqError as error:
            answer = failure_reply(connection, request, error)
        assert answer.is_response
        assert answer.opaque == 7
        return answer

    def put(self, topic: str, count: int = 1, queue_id: int = 0, step_ms: int = 0) -> None:
        """Store messages, each `step_ms` after the one before."""
        for number in range(count):
            if number:
                self.clock.advance(step_ms)
            assert self.store.append(Message(topic, b"body", queue_id)).ok
        self.store.flush()

    def subscribe(self, group: str, *topics: str) -> OpenConnection:
        """A live member of a group."""
        connection: Any = OpenConnection()
        subscriptions = tuple(parse_tag_expression(topic, "*") for topic in topics)
        consumer = ConsumerData(group, subscriptions=subscriptions)
        self.clients.heartbeat(connection, HeartbeatData("id", consumers=(consumer,)), 0, 409)
        return connection  # type: ignore[no-any-return]

    def close(self) -> None:
        self.store.close()


async def _awaited(answer: Any) -> Any:
    return await answer


async def _no_route(_topic: str) -> None:
    return None
