"""POP consumption of one broker, put together: ledgers, waiting pops, retries, processors."""

from __future__ import annotations

from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.broker_stats import BrokerStats
from broker_core.broker.group_table import GroupTable
from broker_core.broker.offset_table import OffsetTable
from broker_core.broker.pending_pops import PendingPops
from broker_core.broker.pop_ledgers import PopLedgers
from broker_core.broker.pop_reads import PopReads
from broker_core.broker.pop_retries import PopRetries
from broker_core.broker.processors.pop_ack import PopAckProcessor
from broker_core.broker.processors.pop_message import PopMessageProcessor
from broker_core.broker.processors.pull_message import PullMessageProcessor
from broker_core.broker.request_router import Processor
from broker_core.broker.topic_table import TopicTable
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore


class PopConsumption:
    """Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._stats = stats
        self.pending = PendingPops(clock)
        self.ledgers = PopLedgers(
            offsets,
            clock,
            queue_offsets=store.offsets,
            queue_limit=config.pop_in_flight_max,
        )
        self._reads = PopReads(
            broker_name=config.broker_name,
            store=store,
            topics=topics,
            ledgers=self.ledgers,
            clock=clock,
        )
        self._retries = PopRetries(
            store=store,
            topics=topics,
            groups=groups,
            ledgers=self.ledgers,
            clock=clock,
            stats=stats,
            wake=self.pending.wake,
        )
        store.on_arrival(self.pending.arrived)

    def processors(self, pulls: PullMessageProcessor) -> tuple[Processor, ...]:
        """What answers the requests of POP consumers; `pulls` knows who may read what."""
        return (
            PopMessageProcessor(
                reads=self._reads,
                pulls=pulls,
                pending=self.pending,
                stats=self._stats,
                size_max=self._config.store.read_size_max,
                taken=self._retries.watch,
            ),
            PopAckProcessor(
                broker_name=self._config.broker_name,
                store=self._store,
                topics=self._topics,
                ledgers=self.ledgers,
                changed=self._retries.watch,
                freed=self.pending.wake,
            ),
        )

    async def stop(self) -> None:
        """End; what is in flight is popped again after the next start."""
        await self._retries.stop()
