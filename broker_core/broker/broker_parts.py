"""The tables and services of one broker, built on an open store. Connects, decides nothing."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.broker_stats import BrokerStats
from broker_core.broker.client_table import ClientTable
from broker_core.broker.delayed_delivery import DelayedDelivery
from broker_core.broker.group_table import GROUPS_FILE, GroupTable
from broker_core.broker.member_notice import MemberNotice
from broker_core.broker.name_server_registration import NameServerRegistration
from broker_core.broker.offset_table import OFFSETS_FILE, OffsetTable
from broker_core.broker.pending_pulls import PendingPulls
from broker_core.broker.processors.broker_info import BrokerInfoProcessor
from broker_core.broker.processors.bulk_transfer import BulkTransferProcessor
from broker_core.broker.processors.consumer_members import ConsumerMembersProcessor
from broker_core.broker.processors.consumer_offset import ConsumerOffsetProcessor
from broker_core.broker.processors.end_transaction import EndTransactionProcessor
from broker_core.broker.processors.group_admin import GroupAdminProcessor
from broker_core.broker.processors.heartbeat import HeartbeatProcessor
from broker_core.broker.processors.offset_lookup import OffsetLookupProcessor
from broker_core.broker.processors.pull_message import PullMessageProcessor
from broker_core.broker.processors.query_message import QueryMessageProcessor
from broker_core.broker.processors.queue_lock import QueueLockProcessor
from broker_core.broker.processors.send_back import SendBackProcessor
from broker_core.broker.processors.send_message import SendMessageProcessor
from broker_core.broker.processors.sink_publish import SinkPublishProcessor
from broker_core.broker.processors.slave_metadata import SlaveMetadataProcessor
from broker_core.broker.processors.topic_admin import TopicAdminProcessor
from broker_core.broker.queue_locks import QueueLocks
from broker_core.broker.request_router import RequestRouter
from broker_core.broker.send_hooks import SendHooks
from broker_core.broker.send_plan import SendPlanner
from broker_core.broker.sink_batches import SINKS_FILE, SinkBatches
from broker_core.broker.sink_publisher import SinkPublisher
from broker_core.broker.sink_staging import SinkStaging
from broker_core.broker.slave_reads import SlaveReads
from broker_core.broker.topic_table import TOPICS_FILE, TopicTable
from broker_core.broker.transaction_check import TransactionCheck
from broker_core.broker.transaction_progress import TRANSACTION_PROGRESS_FILE
from broker_core.broker.transactions import Transactions
from broker_core.codec.sql_filter import sql_problem
from broker_core.codec.unique_key import UniqueKeys
from broker_core.config import RemotingLimits, delay_levels_ms
from broker_core.runtime.clock import Clock
from broker_core.storage.file_system import FileSystem
from broker_core.storage.json_table import JsonTable
from broker_core.store.message_store import MessageStore

DELAY_OFFSETS_FILE = "config/delayOffset.json"
HOUR_MS = 3_600_000


class BrokerParts:
    """Everything a running broker consists of, but for its sockets."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        file_system: FileSystem,
        store: MessageStore,
        limits: RemotingLimits,
    ) -> None:
        self.config = config
        self.clock = clock
        self.store = store
        self._file_system = file_system
        self._limits = limits
        self.topics = self._topic_table()
        self.groups = GroupTable(
            self._table(GROUPS_FILE),
            clock,
            auto_create=config.auto_create_group,
            groups_max=config.groups_max,
        )
        self.offsets = OffsetTable(
            self._table(OFFSETS_FILE),
            clock,
            end_offset=lambda topic, queue_id: store.offsets(topic, queue_id)[1],
            offsets_max=config.offsets_max,
        )
        self.clients = ClientTable(
            clock,
            config.client_expiry_ms,
            MemberNotice(self.groups),
            defer=asyncio.get_running_loop().call_soon,
            consumers_per_group_max=config.consumers_per_group_max,
            producer_groups_max=config.groups_max,
        )
        self.locks = QueueLocks(clock, config.queue_lock_expiry_ms)
        self.stats = BrokerStats(clock, store.stats)
        self.pending = PendingPulls(clock)
        self.hooks = SendHooks()
        self.levels_ms = delay_levels_ms(config.store.message_delay_level)
        self.delayed = DelayedDelivery(
            store=store,
            table=self._table(DELAY_OFFSETS_FILE),
            clock=clock,
            levels=self.levels_ms,
            stats=self.stats,
        )
        self.transactions = self._transactions()
        self.transaction_check = self._transaction_check()
        self.sinks = SinkBatches(
            store=store,
            table=self._table(SINKS_FILE),
            clock=clock,
            once_keep_ms=2 * config.store.staging_expiry_ms,
        )
        self.registration = NameServerRegistration(config, self.topics)
        self.router = self._router()
        store.on_arrival(self.pending.arrived)

    def _transactions(self) -> Transactions:
        return Transactions(
            store=self.store,
            offsets=self.offsets,
            topics=self.topics,
            table=self._table(TRANSACTION_PROGRESS_FILE),
            clock=self.clock,
            delay_level_max=len(self.levels_ms),
            stats=self.stats,
        )

    def _transaction_check(self) -> TransactionCheck:
        config = self.config
        return TransactionCheck(
            transactions=self.transactions,
            clients=self.clients,
            broker_name=config.broker_name,
            timeout_ms=config.transaction_timeout_ms,
            interval_ms=config.transaction_check_interval_ms,
            checks_max=config.transaction_check_max,
            age_max_ms=config.store.file_reserved_hours * HOUR_MS,
        )

    def _table(self, path: str) -> JsonTable:
        return JsonTable(self._file_system, path)

    def _topic_table(self) -> TopicTable:
        config = self.config
        return TopicTable(
            self._table(TOPICS_FILE),
            self.clock,
            cluster_name=config.cluster_name,
            broker_name=config.broker_name,
            auto_create=bool(config.auto_create_topic),
            default_queue_count=config.default_topic_queue_count,
            trace_topic=config.trace_topic_enable,
            topics_max=config.topics_max,
            queues_per_topic_max=config.queues_per_topic_max,
        )

    def _router(self) -> RequestRouter:
        config, store, stats = self.config, self.store, self.stats
        tables: dict[str, Any] = {"topics": self.topics, "groups": self.groups}
        planner = self._planner()
        self.suffix = planner.suffix
        pulls = PullMessageProcessor(
            config=config,
            store=store,
            offsets=self.offsets,
            clients=self.clients,
            stats=stats,
            pending=self.pending,
            slave_reads=self._slave_reads(),
            **tables,
        )
        return RequestRouter(
            (
                SendMessageProcessor(
                    config=config,
                    store=store,
                    topics=self.topics,
                    planner=planner,
                    stats=stats,
                    hooks=self.hooks,
                    routes_told=self.registration.announced,
                ),
                pulls,
                BulkTransferProcessor(
                    store=store,
                    pulls=pulls,
                    planner=planner,
                    stats=stats,
                    clock=self.clock,
                    frame_size_max=self._limits.frame_size_max,
                ),
                SendBackProcessor(
                    store=store,
                    level_count=len(self.levels_ms),
                    stats=stats,
                    broker_permission=config.broker_permission,
                    **tables,
                ),
                EndTransactionProcessor(store=store, transactions=self.transactions),
                HeartbeatProcessor(
                    clients=self.clients,
                    sql_problem=sql_problem if config.property_filter_enable else None,
                    **tables,
                ),
                ConsumerMembersProcessor(clients=self.clients),
                ConsumerOffsetProcessor(
                    offsets=self.offsets,
                    clients=self.clients,
                    queue_offsets=store.offsets,
                    **tables,
                ),
                QueueLockProcessor(locks=self.locks, **tables),
                self._sink_requests(planner),
                *self._administration(),
            )
        )

    def _sink_requests(self, planner: SendPlanner) -> SinkPublishProcessor:
        store, settings = self.store, self.config.store
        staging = SinkStaging(
            store=store,
            clock=self.clock,
            check_queue=planner.check_queue,
            message_size_max=settings.message_size_max,
            segment_size=settings.commit_log_file_size,
            expiry_ms=settings.staging_expiry_ms,
            delay_level_max=len(self.levels_ms),
        )
        publisher = SinkPublisher(
            store=store, batches=self.sinks, staging=staging, stats=self.stats
        )
        return SinkPublishProcessor(
            store=store, batches=self.sinks, staging=staging, publisher=publisher
        )

    def _administration(self) -> tuple[Any, ...]:
        named: dict[str, Any] = {
            "broker_name": self.config.broker_name,
            "store": self.store,
            "topics": self.topics,
            "offsets": self.offsets,
            "clients": self.clients,
            "stats": self.stats,
            "queues_per_topic_max": self.config.queues_per_topic_max,
        }
        return (
            TopicAdminProcessor(routes_told=self.registration.announced, **named),
            GroupAdminProcessor(groups=self.groups, **named),
            OffsetLookupProcessor(store=self.store),
            QueryMessageProcessor(store=self.store),
            self._slave_requests(),
            BrokerInfoProcessor(
                config=self.config,
                clock=self.clock,
                store=self.store,
                stats=self.stats,
                delay_offsets=lambda: self.delayed.offsets,
                limits=self._limits,
            ),
        )

    def _slave_reads(self) -> SlaveReads:
        return SlaveReads(
            self.config,
            self.store,
            is_slave=lambda: not self.config.is_master,
            master_is_there=lambda: False,
            memory_size=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )

    def _slave_requests(self) -> SlaveMetadataProcessor:
        return SlaveMetadataProcessor(
            broker_name=self.config.broker_name,
            is_master=lambda: self.config.is_master,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            sinks=self.sinks,
            delays=lambda: (self.delayed.version, self.delayed.offsets),
            transactions=self.transactions.progress_object,
        )

    def _planner(self) -> SendPlanner:
        config = self.config
        keys = UniqueKeys(
            self.store.store_host[:-4], os.getpid(), int.from_bytes(os.urandom(4), "big")
        )
        return SendPlanner(
            topics=self.topics,
            groups=self.groups,
            locks=self.locks,
            broker_permission=config.broker_permission,
            suffix_properties={
                "MSG_REGION": config.region_id,
                "TRACE_ON": "true" if config.trace_on else "false",
                "CLUSTER": config.cluster_name,
            },
            delay_level_max=len(self.levels_ms),
            message_size_max=config.store.message_size_max,
            new_unique_key=lambda: keys.next(self.clock.wall_ms() % (31 * 86_400_000)),
            reject_transactions=config.reject_transactions,
        )
