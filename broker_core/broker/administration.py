"""The processors that administrators talk to, built on the tables of one broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from broker_core.broker.broker_stats import BrokerStats
from broker_core.broker.client_table import ClientTable
from broker_core.broker.group_table import GroupTable
from broker_core.broker.live_settings import LiveSettings
from broker_core.broker.offset_table import OffsetKey, OffsetTable
from broker_core.broker.processors.assignment import AssignmentProcessor
from broker_core.broker.processors.broker_settings import BrokerSettingsProcessor
from broker_core.broker.processors.cleanup import CleanupProcessor
from broker_core.broker.processors.client_relays import ClientRelaysProcessor
from broker_core.broker.processors.consume_stats import ConsumeStatsProcessor
from broker_core.broker.processors.group_admin import GroupAdminProcessor
from broker_core.broker.processors.offset_reset import OffsetResetProcessor
from broker_core.broker.processors.queue_inspection import QueueInspectionProcessor
from broker_core.broker.processors.request_mode import RequestModeProcessor
from broker_core.broker.processors.stats_view import StatsViewProcessor
from broker_core.broker.processors.subscription_queries import SubscriptionQueriesProcessor
from broker_core.broker.processors.topic_admin import TopicAdminProcessor
from broker_core.broker.processors.transaction_resume import TransactionResumeProcessor
from broker_core.broker.request_modes import RequestModes
from broker_core.broker.request_router import Processor
from broker_core.broker.table_changes import TableChanges
from broker_core.broker.topic_table import TopicTable
from broker_core.codec.group_config import GroupConfig
from broker_core.codec.route_data import TopicRoute
from broker_core.codec.topic_config import TopicConfig
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore


def administration(
    *,
    settings: LiveSettings,
    clock: Clock,
    store: MessageStore,
    topics: TopicTable,
    groups: GroupTable,
    offsets: OffsetTable,
    clients: ClientTable,
    stats: BrokerStats,
    topic_changes: TableChanges[TopicConfig],
    group_changes: TableChanges[GroupConfig],
    modes: RequestModes,
    popped_until: Callable[[OffsetKey], int | None] = lambda key: None,
    routes_told: Callable[[], Awaitable[object]] | None = None,
    route: Callable[[str], Awaitable[TopicRoute | None]] | None = None,
) -> tuple[Processor, ...]:
    """Every processor of administration that needs only these."""
    config = settings.config
    tables: dict[str, Any] = {"topics": topics, "offsets": offsets, "clients": clients}
    named: dict[str, Any] = {"broker_name": config.broker_name, "store": store, **tables}
    limited: dict[str, Any] = {
        **named,
        "stats": stats,
        "queues_per_topic_max": config.queues_per_topic_max,
    }
    return (
        TopicAdminProcessor(routes_told=routes_told, changes=topic_changes, **limited),
        GroupAdminProcessor(groups=groups, changes=group_changes, **limited),
        ConsumeStatsProcessor(
            address=config.address,
            clock=clock,
            groups=groups,
            stats=stats,
            popped_until=popped_until,
            **named,
        ),
        SubscriptionQueriesProcessor(address=config.address, offsets=offsets, clients=clients),
        OffsetResetProcessor(groups=groups, **named),
        ClientRelaysProcessor(broker_name=config.broker_name, store=store, clients=clients),
        QueueInspectionProcessor(store=store, topics=topics, clients=clients),
        CleanupProcessor(store=store, topics=topics, offsets=offsets),
        StatsViewProcessor(stats=stats),
        BrokerSettingsProcessor(settings=settings),
        TransactionResumeProcessor(store=store),
        RequestModeProcessor(topics=topics, modes=modes),
        AssignmentProcessor(
            broker_name=config.broker_name,
            topics=topics,
            clients=clients,
            modes=modes,
            route=route,
        ),
    )
