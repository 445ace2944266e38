"""Administration: topics, groups, offset resets, statistics, clean-up, settings, broker info."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from broker_core.broker.admin.broker_info import BrokerInfoProcessor
from broker_core.broker.admin.broker_settings import BrokerSettingsProcessor
from broker_core.broker.admin.cleanup import CleanupProcessor
from broker_core.broker.admin.consume_stats import ConsumeStatsProcessor
from broker_core.broker.admin.groups import GroupAdminProcessor
from broker_core.broker.admin.offset_reset import OffsetResetProcessor
from broker_core.broker.admin.stats_view import StatsViewProcessor
from broker_core.broker.admin.subscription_queries import SubscriptionQueriesProcessor
from broker_core.broker.admin.topics import TopicAdminProcessor
from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.request_router import Processor
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.tables.offset_table import OffsetKey


class AdminFeature(Feature):
    """`routes_announced()` waits until the name servers know the topics; `popped_until(key)` is the
    next offset of a group that pops; `delay_offsets()` has the next offset of each delay level.
    """

    def __init__(
        self,
        context: BrokerContext,
        *,
        routes_announced: Callable[[], Awaitable[object]],
        popped_until: Callable[[OffsetKey], int | None],
        delay_offsets: Callable[[], Mapping[int, int]],
    ) -> None:
        self._context = context
        self._routes_announced = routes_announced
        self._popped_until = popped_until
        self._delay_offsets = delay_offsets

    def processors(self) -> tuple[Processor, ...]:
        """Handlers of requests that administrators send."""
        context = self._context
        config, store, stats = context.config, context.store, context.stats
        topics, groups, offsets = context.topics, context.groups, context.offsets
        clients, name = context.clients, config.broker_name
        return (
            TopicAdminProcessor(
                broker_name=name,
                store=store,
                topics=topics,
                changes=context.new_topics.changes,
                offsets=offsets,
                clients=clients,
                stats=stats,
                routes_announced=self._routes_announced,
                queues_per_topic_max=config.queues_per_topic_max,
            ),
            GroupAdminProcessor(
                broker_name=name,
                store=store,
                topics=topics,
                groups=groups,
                changes=context.new_groups.changes,
                offsets=offsets,
                clients=clients,
                stats=stats,
                queues_per_topic_max=config.queues_per_topic_max,
            ),
            ConsumeStatsProcessor(
                broker_name=name,
                address=config.address,
                clock=context.clock,
                store=store,
                topics=topics,
                groups=groups,
                offsets=offsets,
                clients=clients,
                stats=stats,
                popped_until=self._popped_until,
            ),
            SubscriptionQueriesProcessor(address=config.address, offsets=offsets, clients=clients),
            OffsetResetProcessor(
                broker_name=name,
                store=store,
                topics=topics,
                groups=groups,
                offsets=offsets,
                clients=clients,
            ),
            CleanupProcessor(store=store, topics=topics, offsets=offsets),
            StatsViewProcessor(stats=stats),
            BrokerSettingsProcessor(settings=context.settings),
            BrokerInfoProcessor(
                config=config,
                clock=context.clock,
                store=store,
                stats=stats,
                delay_offsets=self._delay_offsets,
                limits=context.limits,
            ),
        )

    def settings_changed(self, config: BrokerConfig) -> None:
        """Apply the creation of topics and groups, and the retention of the store."""
        context = self._context
        context.topics.set_auto_create(bool(config.auto_create_topic))
        context.groups.set_auto_create(config.auto_create_group)
        context.store.set_retention(config.store)
