"""The tables and services of one broker, built on an open store. Connects, decides nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from broker_core.broker.access_resources import BrokerResources
from broker_core.broker.administration import administration
from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.broker_security import inner_client
from broker_core.broker.broker_stats import BrokerStats
from broker_core.broker.client_table import ClientTable
from broker_core.broker.delayed_delivery import DelayedDelivery
from broker_core.broker.group_table import GROUPS_FILE, GroupTable
from broker_core.broker.live_settings import LIVE_SETTINGS_FILE, LiveSettings
from broker_core.broker.log_identity import IDENTITY_FILE, LogIdentity
from broker_core.broker.member_notice import MemberNotice
from broker_core.broker.name_server_registration import NameServerRegistration
from broker_core.broker.new_groups import NewGroups
from broker_core.broker.new_topics import NewTopics
from broker_core.broker.offset_table import OFFSETS_FILE, OffsetTable
from broker_core.broker.pending_pulls import PendingPulls
from broker_core.broker.pop_consumption import PopConsumption
from broker_core.broker.processors.broker_info import BrokerInfoProcessor
from broker_core.broker.processors.bulk_transfer import BulkTransferProcessor
from broker_core.broker.processors.consumer_members import ConsumerMembersProcessor
from broker_core.broker.processors.consumer_offset import ConsumerOffsetProcessor
from broker_core.broker.processors.end_transaction import EndTransactionProcessor
from broker_core.broker.processors.heartbeat import HeartbeatProcessor
from broker_core.broker.processors.local_range import LocalRangeProcessor
from broker_core.broker.processors.offset_lookup import OffsetLookupProcessor
from broker_core.broker.processors.pull_message import PullMessageProcessor
from broker_core.broker.processors.query_message import QueryMessageProcessor
from broker_core.broker.processors.queue_lock import QueueLockProcessor
from broker_core.broker.processors.recall_message import RecallMessageProcessor
from broker_core.broker.processors.replication_admin import ReplicationAdminProcessor
from broker_core.broker.processors.reply_message import ReplyMessageProcessor
from broker_core.broker.processors.send_back import SendBackProcessor
from broker_core.broker.processors.send_message import SendMessageProcessor
from broker_core.broker.processors.sink_publish import SinkPublishProcessor
from broker_core.broker.processors.slave_metadata import SlaveMetadataProcessor
from broker_core.broker.processors.topic_ends import TopicEndsProcessor
from broker_core.broker.queue_locks import QueueLocks
from broker_core.broker.replication_role import ReplicationRole
from broker_core.broker.request_modes import MODES_FILE, RequestModes
from broker_core.broker.request_router import RequestRouter
from broker_core.broker.retry_owners import RetryOwners
from broker_core.broker.send_hooks import SendHooks
from broker_core.broker.send_plan import SendPlanner
from broker_core.broker.send_planning import send_planner
from broker_core.broker.sink_batches import SINKS_FILE, SinkBatches
from broker_core.broker.sink_publisher import SinkPublisher
from broker_core.broker.sink_staging import SinkStaging
from broker_core.broker.slave_metadata import SLAVE_COMMITS_FILE, CopiedTables, SlaveMetadata
from broker_core.broker.slave_metadata_format import tables_token
from broker_core.broker.slave_reads import SlaveReads
from broker_core.broker.slave_refusals import refused_on_a_slave
from broker_core.broker.timer_delivery import TimerDelivery
from broker_core.broker.topic_table import TOPICS_FILE, TopicTable
from broker_core.broker.transaction_check import TransactionCheck
from broker_core.broker.transaction_progress import TRANSACTION_PROGRESS_FILE
from broker_core.broker.transactions import Transactions
from broker_core.codec.sql_filter import sql_problem
from broker_core.config import RemotingLimits, delay_levels_ms
from broker_core.protocol_codes import BrokerRole
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
        replication: ReplicationRole,
    ) -> None:
        self.config = config
        self.clock = clock
        self.store = store
        self.replication = replication
        self.promotion: Callable[[BrokerRole], object] = lambda role: None
        self.newer_master: Callable[[int], object] = lambda epoch: None
        """Begins the change of a slave into a master; the broker that has these parts sets it."""
        self._file_system = file_system
        self._limits = limits
        self.topics = self._topic_table()
        self.groups = self._group_table()
        self.offsets = OffsetTable(
            self._table(OFFSETS_FILE),
            clock,
            end_offset=lambda topic, queue_id: store.replication.queue_end(topic, queue_id),
            offsets_max=config.offsets_max,
        )
        self.clients = self._client_table()
        self.locks = QueueLocks(clock, config.queue_lock_expiry_ms)
        self.stats = BrokerStats(clock, store.stats)
        self.pending = PendingPulls(clock)
        self.modes = RequestModes(self._table(MODES_FILE))
        self.pops = self._pops()
        self.hooks = SendHooks()
        self.levels_ms = delay_levels_ms(config.store.message_delay_level)
        self.delayed = DelayedDelivery(
            store=store,
            table=self._table(DELAY_OFFSETS_FILE),
            clock=clock,
            levels=self.levels_ms,
            stats=self.stats,
        )
        self.timers = self._timers()
        self.transactions = self._transactions()
        self.transaction_check = self._transaction_check()
        self.sinks = self._sinks()
        self.identity = self._identity()
        self.registration = NameServerRegistration(config, self.topics)
        self.registration.on_master(self._master_told)
        self.slave_metadata = None if config.is_master else self._slave_metadata()
        self.settings = LiveSettings(config, clock, self._table(LIVE_SETTINGS_FILE))
        self.settings.on_change(self._settings_changed)
        self.settings.check_with(self._settings_problem)
        self.new_topics = NewTopics(self.topics, clock)
        self.new_groups = NewGroups(self.groups, self.new_topics, clock)
        self.router = self._router()
        store.on_arrival(self.pending.arrived)
        store.send_rows.tell_soon_if(lambda: len(self.pending) + len(self.pops.pending) > 0)
        # Last, so that everyone hears of it.
        self.settings.resume()

    def _pops(self) -> PopConsumption:
        return PopConsumption(
            self.config,
            self.clock,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            stats=self.stats,
        )

    def _group_table(self) -> GroupTable:
        return GroupTable(
            self._table(GROUPS_FILE),
            self.clock,
            auto_create=self.config.auto_create_group,
            groups_max=self.config.groups_max,
        )

    def _client_table(self) -> ClientTable:
        return ClientTable(
            self.clock,
            self.config.client_expiry_ms,
            MemberNotice(self.groups),
            defer=asyncio.get_running_loop().call_soon,
            consumers_per_group_max=self.config.consumers_per_group_max,
            producer_groups_max=self.config.groups_max,
        )

    def _settings_changed(self, config: BrokerConfig) -> None:
        """What an administrator may change while the broker runs: `live_settings`."""
        self.topics.set_auto_create(bool(config.auto_create_topic))
        self.groups.set_auto_create(config.auto_create_group)
        self.transaction_check.reconfigure(
            config.transaction_timeout_ms,
            config.transaction_check_interval_ms,
            config.transaction_check_max,
            config.store.file_reserved_hours * HOUR_MS,
        )
        self.timers.reconfigure(config.store.file_reserved_hours)
        self.store.set_retention(config.store)
        self.registration.reconfigure(config)

    def _settings_problem(self, config: BrokerConfig) -> str | None:
        hours = config.store.file_reserved_hours
        problem = self.timers.reserve_problem(hours)
        return None if problem is None else f"fileReservedTime={hours}: {problem}"

    def _master_told(self) -> None:
        found = self.registration
        self.replication.master_is(found.master_address, found.master_ha_address)

    def _timers(self) -> TimerDelivery:
        return TimerDelivery(
            store=self.store,
            file_system=self._file_system,
            clock=self.clock,
            reserved_hours=self.config.store.file_reserved_hours,
            stats=self.stats,
        )

    def _sinks(self) -> SinkBatches:
        return SinkBatches(
            store=self.store,
            table=self._table(SINKS_FILE),
            clock=self.clock,
            prepared_keep_ms=2 * self.config.store.staging_expiry_ms,
        )

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
        self.settings.on_change(pulls.reconfigure)
        return RequestRouter(
            (
                *self._sends(planner),
                pulls,
                *self.pops.processors(pulls),
                BulkTransferProcessor(
                    store=store,
                    pulls=pulls,
                    planner=planner,
                    stats=stats,
                    clock=self.clock,
                    frame_size_max=self._limits.frame_size_max,
                    identity=self.identity,
                    of_replication=self.replication.capabilities,
                    newer_master=lambda epoch: self.newer_master(epoch),
                ),
                TopicEndsProcessor(
                    store=store,
                    pulls=pulls,
                    identity=self.identity,
                    is_slave=not config.is_master,
                ),
                LocalRangeProcessor(store=store, pulls=pulls, directory=config.store_root),
                EndTransactionProcessor(store=store, transactions=self.transactions),
                *self._timers_and_replies(planner),
                HeartbeatProcessor(
                    clients=self.clients,
                    new_groups=self.new_groups,
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
            ),
            {} if config.is_master else refused_on_a_slave(),
        )

    def _planner(self) -> SendPlanner:
        tables: dict[str, Any] = {"topics": self.topics, "groups": self.groups}
        level_max = len(self.levels_ms)
        own = (self.config, self.store, self.clock)
        return send_planner(*own, self.locks, self.timers, level_max, **tables)

    def _sends(self, planner: SendPlanner) -> tuple[Any, ...]:
        named: dict[str, Any] = {"store": self.store, "topics": self.topics, "stats": self.stats}
        sends = SendMessageProcessor(
            config=self.config,
            planner=planner,
            hooks=self.hooks,
            routes_told=self.registration.announced,
            new_topics=self.new_topics,
            limits=self._limits,
            **named,
        )
        self.take_sends = sends.bursts.take
        send_back = SendBackProcessor(
            groups=self.groups,
            level_count=len(self.levels_ms),
            broker_permission=self.config.broker_permission,
            **named,
        )
        self.settings.on_change(sends.reconfigure)
        self.settings.on_change(lambda new: send_back.reconfigure(new.broker_permission))
        self.settings.on_change(
            lambda new: planner.reconfigure(new.broker_permission, new.reject_transactions)
        )
        return sends, send_back

    def _timers_and_replies(self, planner: SendPlanner) -> tuple[Any, ...]:
        config = self.config
        named: dict[str, Any] = {"store": self.store, "clock": self.clock}
        trace = "true" if config.trace_on else "false"
        return (
            RecallMessageProcessor(
                topics=self.topics,
                timers=self.timers,
                broker_name=config.broker_name,
                delay_max_ms=config.timer_delay_max_s * 1000,
                is_enabled=config.recall_enable and config.timer_enable,
                **named,
            ),
            ReplyMessageProcessor(
                clients=self.clients,
                planner=planner,
                answer_fields={"MSG_REGION": config.region_id, "TRACE_ON": trace},
                stores_replies=config.store_replies,
                **named,
            ),
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
        owners = RetryOwners(self.topics, self.groups, self.offsets)
        self.access_resources = BrokerResources(store, staging, self.topics, owners)
        publisher = SinkPublisher(
            store=store, batches=self.sinks, staging=staging, stats=self.stats
        )
        return SinkPublishProcessor(
            store=store,
            batches=self.sinks,
            staging=staging,
            publisher=publisher,
            # Files that clients write cannot be checked against what each of them may do.
            local_root="" if self.config.acl_enable else self.config.store_root,
        )

    def _administration(self) -> tuple[Any, ...]:
        return (
            *administration(
                settings=self.settings,
                clock=self.clock,
                store=self.store,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                clients=self.clients,
                stats=self.stats,
                topic_changes=self.new_topics.changes,
                group_changes=self.new_groups.changes,
                modes=self.modes,
                popped_until=self.pops.ledgers.next_of,
                routes_told=self.registration.announced,
                route=self.registration.route,
            ),
            OffsetLookupProcessor(store=self.store),
            QueryMessageProcessor(
                store=self.store, index_query_max=self.config.store.index_query_max
            ),
            self._slave_requests(),
            ReplicationAdminProcessor(
                broker_name=self.config.broker_name,
                status=self.replication.status,
                tables=lambda: tables_token(self.topics.version, self.groups.version),
                promote=lambda role: self.promotion(role),
            ),
            BrokerInfoProcessor(
                config=self.config,
                clock=self.clock,
                store=self.store,
                stats=self.stats,
                delay_offsets=lambda: self.delayed.offsets,
                limits=self._limits,
            ),
        )

    def _slave_metadata(self) -> SlaveMetadata:
        tables = CopiedTables(
            self.topics,
            self.groups,
            self.offsets,
            self.sinks,
            self.modes,
            self.identity,
            self._table(DELAY_OFFSETS_FILE),
            self._table(TRANSACTION_PROGRESS_FILE),
            self._table(SLAVE_COMMITS_FILE),
        )
        return SlaveMetadata(
            broker_name=self.config.broker_name,
            store=self.store,
            tables=tables,
            master_address=self._master_address,
            log_id=self._log_id,
            clock=self.clock,
            may_copy=lambda: bool(self.replication.status().get("is_copying")),
            client=inner_client(self.config),
        )

    def _identity(self) -> LogIdentity:
        return LogIdentity(
            self._table(IDENTITY_FILE),
            self.store.store_id,
            lambda: self.store.epoch,
            lambda: not self.config.is_master,
            history=lambda: self.replication.history,
            log_end=lambda: self.store.log_range[1],
        )

    def _log_id(self) -> str:
        """Two brokers with the same one have logs that agree: the last run of a master in them."""
        current = self.replication.history.current
        return "" if current is None else current.owner

    def _master_address(self) -> str:
        """Where the master serves clients: told, or the port before a replication port of ours."""
        host, _, port = self.config.ha_master_address.rpartition(":")
        return self.registration.master_address or (f"{host}:{int(port) - 1}" if port else "")

    def _slave_reads(self) -> SlaveReads:
        return SlaveReads(
            self.config,
            self.store,
            is_slave=lambda: not self.config.is_master,
            master_is_there=lambda: bool(
                self.slave_metadata and self.slave_metadata.master_is_there
            ),
            memory_size=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )

    def _slave_requests(self) -> SlaveMetadataProcessor:
        return SlaveMetadataProcessor(
            broker_name=self.config.broker_name,
            is_master=self.config.is_master,
            log_id=self._log_id,
            identity=self.identity,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            sinks=self.sinks,
            modes=self.modes,
            delays=lambda: (self.delayed.version, self.delayed.offsets),
            transactions=self.transactions.progress_object,
        )
