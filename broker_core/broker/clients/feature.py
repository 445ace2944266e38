"""Clients of the broker: heartbeats, group members, consumer offsets, queue locks, relays."""

from __future__ import annotations

from broker_core.broker.clients.heartbeat import HeartbeatProcessor
from broker_core.broker.clients.locks import QueueLockProcessor
from broker_core.broker.clients.members import ConsumerMembersProcessor
from broker_core.broker.clients.offsets import ConsumerOffsetProcessor
from broker_core.broker.clients.relays import ClientRelaysProcessor
from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.request_router import Processor
from broker_core.codec.sql.filter import sql_problem


class ClientsFeature(Feature):
    """Saves the consumer offsets at the end; `upkeep` saves them in between."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def processors(self) -> tuple[Processor, ...]:
        """Handlers of requests that every client sends."""
        context = self._context
        config, store = context.config, context.store
        return (
            HeartbeatProcessor(
                clients=context.clients,
                groups=context.groups,
                topics=context.topics,
                new_groups=context.new_groups,
                sql_problem=sql_problem if config.property_filter_enable else None,
            ),
            ConsumerMembersProcessor(clients=context.clients),
            ConsumerOffsetProcessor(
                offsets=context.offsets,
                topics=context.topics,
                groups=context.groups,
                clients=context.clients,
                queue_offsets=store.offsets,
            ),
            QueueLockProcessor(
                locks=context.locks,
                groups=context.groups,
                topics=context.topics,
                clients=context.clients,
            ),
            ClientRelaysProcessor(
                broker_name=config.broker_name, store=store, clients=context.clients
            ),
        )

    async def stop(self) -> None:
        """Save the consumer offsets, with the commits of every feature that stopped before."""
        self._context.offsets.save()
