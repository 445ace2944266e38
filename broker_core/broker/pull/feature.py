"""Reading by offset: pulls and held pulls, our bulk and local reads, look-ups of messages."""

from __future__ import annotations

import os
from collections.abc import Callable

from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.pull.bulk_pull import BulkPullProcessor
from broker_core.broker.pull.key_query import QueryMessageProcessor
from broker_core.broker.pull.local_range import LocalRangeProcessor
from broker_core.broker.pull.offset_lookup import OffsetLookupProcessor
from broker_core.broker.pull.pending import PendingPulls
from broker_core.broker.pull.processor import PullMessageProcessor
from broker_core.broker.pull.queue_inspection import QueueInspectionProcessor
from broker_core.broker.pull.slave_reads import SlaveReads
from broker_core.broker.pull.topic_ends import TopicEndsProcessor
from broker_core.broker.request_router import Processor
from broker_core.broker.settings.broker_config import BrokerConfig


class PullFeature(Feature):
    """`pulls` checks and answers reads, `pending` holds those that wait for a message.

    `master_is_there()` says whether a slave reaches its master.
    """

    def __init__(self, context: BrokerContext, *, master_is_there: Callable[[], bool]) -> None:
        self._context = context
        config = context.config
        self.pending = PendingPulls(context.clock)
        self.pulls = PullMessageProcessor(
            config=config,
            store=context.store,
            topics=context.topics,
            groups=context.groups,
            offsets=context.offsets,
            clients=context.clients,
            stats=context.stats,
            pending=self.pending,
            new_groups=context.new_groups,
            slave_reads=SlaveReads(
                config,
                context.store,
                is_slave=lambda: not config.is_master,
                master_is_there=master_is_there,
                memory_size=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            ),
        )
        context.store.on_arrival(self.pending.arrived)

    def processors(self) -> tuple[Processor, ...]:
        """Handlers of all reads but pops."""
        context, config, store = self._context, self._context.config, self._context.store
        return (
            self.pulls,
            BulkPullProcessor(pulls=self.pulls, frame_size_max=context.limits.frame_size_max),
            TopicEndsProcessor(
                store=store,
                pulls=self.pulls,
                identity=context.identity,
                is_slave=not config.is_master,
            ),
            LocalRangeProcessor(store=store, pulls=self.pulls, directory=config.store_root),
            OffsetLookupProcessor(store=store),
            QueryMessageProcessor(store=store, index_query_max=config.store.index_query_max),
            QueueInspectionProcessor(store=store, topics=context.topics, clients=context.clients),
        )

    def settings_changed(self, config: BrokerConfig) -> None:
        """Apply permissions and long polling."""
        self.pulls.reconfigure(config)

    def release(self) -> None:
        """Answer the held pulls."""
        self.pending.release_all()
