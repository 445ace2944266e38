"""What the features of a broker share: configuration, clock, store, tables and statistics."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.settings.live_settings import LIVE_SETTINGS_FILE, LiveSettings
from broker_core.broker.tables.broker_stats import BrokerStats, MetricTallies
from broker_core.broker.tables.client_table import ClientTable, MemberNotice
from broker_core.broker.tables.group_table import GROUPS_FILE, GroupTable
from broker_core.broker.tables.log_identity import IDENTITY_FILE, LogIdentity
from broker_core.broker.tables.new_groups import NewGroups
from broker_core.broker.tables.new_topics import NewTopics
from broker_core.broker.tables.offset_table import OFFSETS_FILE, OffsetTable
from broker_core.broker.tables.queue_locks import QueueLocks
from broker_core.broker.tables.request_modes import MODES_FILE, RequestModes
from broker_core.broker.tables.topic_table import TOPICS_FILE, TopicTable
from broker_core.config import RemotingLimits, delay_levels_ms
from broker_core.replication.log_epochs import EpochHistory
from broker_core.runtime.clock import Clock
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.message_store import MessageStore


@dataclasses.dataclass(frozen=True)
class BrokerContext:
    """One object for each start of a broker. The tables belong to the event loop."""

    config: BrokerConfig
    """As configured; `settings.config` has the changes made since."""
    clock: Clock
    file_system: FileSystem
    store: MessageStore
    limits: RemotingLimits
    settings: LiveSettings
    stats: BrokerStats
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientTable
    locks: QueueLocks
    modes: RequestModes
    identity: LogIdentity
    new_topics: NewTopics
    new_groups: NewGroups

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delay of each level, level 1 first."""
        return delay_levels_ms(self.config.store.message_delay_level)

    def table(self, path: str) -> JsonTable:
        """A JSON file of the store directory."""
        return JsonTable(self.file_system, path)


def open_context(
    config: BrokerConfig,
    clock: Clock,
    file_system: FileSystem,
    store: MessageStore,
    limits: RemotingLimits,
    *,
    history: Callable[[], EpochHistory],
    peer_clock: Clock | None = None,
) -> BrokerContext:
    """Load the tables of an open store. `history()` has the epochs of its log.

    `peer_clock` measures how long clients are silent; without it `clock` does.

    Needs a running event loop.
    """

    def table(path: str) -> JsonTable:
        return JsonTable(file_system, path)

    topics = TopicTable(
        table(TOPICS_FILE),
        clock,
        cluster_name=config.cluster_name,
        broker_name=config.broker_name,
        auto_create=bool(config.auto_create_topic),
        default_queue_count=config.default_topic_queue_count,
        trace_topic=config.trace_topic_enable,
        topics_max=config.topics_max,
        queues_per_topic_max=config.queues_per_topic_max,
    )
    groups = GroupTable(
        table(GROUPS_FILE),
        clock,
        auto_create=config.auto_create_group,
        groups_max=config.groups_max,
    )
    offsets = OffsetTable(
        table(OFFSETS_FILE),
        clock,
        end_offset=lambda topic, queue_id: store.replication.queue_end(topic, queue_id),
        offsets_max=config.offsets_max,
    )
    clients = ClientTable(
        peer_clock or clock,
        config.client_expiry_ms,
        MemberNotice(groups),
        defer=asyncio.get_running_loop().call_soon,
        consumers_per_group_max=config.consumers_per_group_max,
        producer_groups_max=config.groups_max,
    )
    tallies = MetricTallies() if config.metrics_exporter == "PROM" else None
    identity = LogIdentity(
        table(IDENTITY_FILE),
        store.store_id,
        lambda: store.epoch,
        lambda: not config.is_master,
        history=history,
        log_end=lambda: store.log_range[1],
    )
    new_topics = NewTopics(topics, clock)
    return BrokerContext(
        config=config,
        clock=clock,
        file_system=file_system,
        store=store,
        limits=limits,
        settings=LiveSettings(config, clock, table(LIVE_SETTINGS_FILE)),
        stats=BrokerStats(clock, store.stats, tallies=tallies),
        topics=topics,
        groups=groups,
        offsets=offsets,
        clients=clients,
        locks=QueueLocks(peer_clock or clock, config.queue_lock_expiry_ms),
        modes=RequestModes(table(MODES_FILE)),
        identity=identity,
        new_topics=new_topics,
        new_groups=NewGroups(groups, new_topics, clock),
    )
