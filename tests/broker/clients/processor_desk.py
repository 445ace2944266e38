"""Processors of clients with their tables, called without a socket."""

from __future__ import annotations

from typing import Any

from broker_core.broker.clients.heartbeat import HeartbeatProcessor
from broker_core.broker.clients.locks import QueueLockProcessor
from broker_core.broker.clients.members import ConsumerMembersProcessor
from broker_core.broker.clients.offsets import ConsumerOffsetProcessor
from broker_core.broker.tables.client_table import ClientTable, MemberNotice
from broker_core.broker.tables.queue_locks import QueueLocks
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from tests.broker.broker_tables import (
    ask,
    group_table,
    offset_table,
    topic_table,
)
from tests.store.small_store import new_disk


class Desk:
    """The four processors over one set of tables."""

    def __init__(self, sql_problem: Any = None, **settings: Any) -> None:
        self.disk = new_disk()
        self.ranges: dict[tuple[str, int], tuple[int, int]] = {}
        self.topics = topic_table(self.disk, **settings.get("topics", {}))
        self.groups = group_table(self.disk, **settings.get("groups", {}))
        self.offsets = offset_table(
            self.disk, end_offset=lambda topic, queue: self.range(topic, queue)[1]
        )
        self.clients = ClientTable(self.disk.clock, 120_000, MemberNotice(self.groups))
        self.locks = QueueLocks(self.disk.clock)
        tables = {"clients": self.clients, "groups": self.groups, "topics": self.topics}
        processors: list[Any] = [
            HeartbeatProcessor(**tables, sql_problem=sql_problem),
            ConsumerMembersProcessor(clients=self.clients),
            ConsumerOffsetProcessor(**tables, offsets=self.offsets, queue_offsets=self.range),
            QueueLockProcessor(**tables, locks=self.locks),
        ]
        self.handlers: dict[int, Any] = {}
        for processor in processors:
            self.handlers.update(processor.handlers())

    def range(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self.ranges.get((topic, queue_id), (0, 0))

    def ask(self, code: int, *args: Any, **ext: Any) -> RemotingCommand:
        return ask(self.handlers, code, *args, **ext)

    def beat(self, connection: Any, client_id: str = "c", *groups: str) -> None:
        consumers = tuple(
            ConsumerData(group, subscriptions=(SubscriptionData("T1", version=1),))
            for group in groups or ("CG",)
        )
        body = encode_heartbeat(HeartbeatData(client_id, ("PG",), consumers))
        assert self.ask(RequestCode.HEART_BEAT, connection, body).code == 0
