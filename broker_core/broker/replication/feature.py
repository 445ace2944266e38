"""Replication between the brokers of one name: a slave's copy of the tables, and its requests.

The log itself is copied by `role`, which `Broker` starts and stops with its replication port.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.replication.capabilities import CapabilitiesProcessor
from broker_core.broker.replication.metadata_copy import (
    SLAVE_COMMITS_FILE,
    CopiedTables,
    SlaveMetadata,
)
from broker_core.broker.replication.metadata_format import tables_token
from broker_core.broker.replication.metadata_requests import SlaveMetadataProcessor
from broker_core.broker.replication.registration import NameServerRegistration
from broker_core.broker.replication.replication_admin import ReplicationAdminProcessor
from broker_core.broker.replication.role import ReplicationRole
from broker_core.broker.request_router import Processor
from broker_core.broker.scheduled.feature import ScheduledFeature
from broker_core.broker.security.broker_security import inner_client
from broker_core.broker.sink.batches import SinkBatches
from broker_core.broker.transactions.feature import TransactionsFeature
from broker_core.protocol_codes import BrokerRole


class ReplicationFeature(Feature):
    """`slave_metadata` copies the master's tables; None on a master.

    `promote(role)` begins the promotion of this slave; `newer_master(epoch)` is called when a peer
    claims to be a newer master.
    """

    def __init__(
        self,
        context: BrokerContext,
        *,
        role: ReplicationRole,
        registration: NameServerRegistration,
        scheduled: ScheduledFeature,
        transactions: TransactionsFeature,
        sinks: SinkBatches,
        promote: Callable[[BrokerRole], object],
        newer_master: Callable[[int], object],
    ) -> None:
        self._context = context
        self._role = role
        self._registration = registration
        self._scheduled = scheduled
        self._transactions = transactions
        self._sinks = sinks
        self._promote = promote
        self._newer_master = newer_master
        self.slave_metadata = None if context.config.is_master else self._slave_metadata()

    def master_is_there(self) -> bool:
        """Whether this is a slave that reaches its master."""
        return self.slave_metadata is not None and self.slave_metadata.master_is_there

    def processors(self) -> tuple[Processor, ...]:
        """Handlers of requests between brokers, and of those about replication."""
        context, config, delayed = self._context, self._context.config, self._scheduled.delayed
        return (
            CapabilitiesProcessor(
                store=context.store,
                identity=context.identity,
                frame_size_max=context.limits.frame_size_max,
                sends_once=config.store.message_index_enable,
                of_replication=self._role.capabilities,
                newer_master=self._newer_master,
            ),
            SlaveMetadataProcessor(
                broker_name=config.broker_name,
                is_master=config.is_master,
                log_id=self._log_id,
                identity=context.identity,
                store=context.store,
                topics=context.topics,
                groups=context.groups,
                offsets=context.offsets,
                sinks=self._sinks,
                modes=context.modes,
                delays=lambda: (delayed.version, delayed.offsets),
                transactions=self._transactions.service.progress_object,
            ),
            ReplicationAdminProcessor(
                broker_name=config.broker_name,
                status=self._role.status,
                tables=lambda: tables_token(context.topics.version, context.groups.version),
                promote=self._promote,
                expect_epoch=self._role.expect_epoch,
            ),
        )

    async def start(self) -> None:
        """A slave begins to copy the tables."""
        if self.slave_metadata is not None:
            self.slave_metadata.start()

    async def stop(self) -> None:
        """End the copy."""
        if self.slave_metadata is not None:
            await self.slave_metadata.stop()

    def _slave_metadata(self) -> SlaveMetadata:
        context = self._context
        return SlaveMetadata(
            broker_name=context.config.broker_name,
            store=context.store,
            tables=CopiedTables(
                context.topics,
                context.groups,
                context.offsets,
                self._sinks,
                context.modes,
                context.identity,
                self._scheduled.delay_table,
                self._transactions.progress_table,
                context.table(SLAVE_COMMITS_FILE),
            ),
            master_address=self._master_address,
            log_id=self._log_id,
            clock=context.clock,
            may_copy=lambda: bool(self._role.status().get("is_copying")),
            client=inner_client(context.config),
        )

    def _log_id(self) -> str:
        """Identifies the last run of a master in the log. Logs with the same id agree."""
        current = self._role.history.current
        return "" if current is None else current.owner

    def _master_address(self) -> str:
        """Where the master serves clients: as registered, else the port before its HA port."""
        host, _, port = self._context.config.ha_master_address.rpartition(":")
        return self._registration.master_address or (f"{host}:{int(port) - 1}" if port else "")
