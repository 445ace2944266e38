"""POP consumption: ledgers of messages in flight, held pops, retries, and queue assignment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.pop.acknowledgement import PopAckProcessor
from broker_core.broker.pop.assignment import AssignmentProcessor, RequestModeProcessor
from broker_core.broker.pop.ledger_table import PopLedgers
from broker_core.broker.pop.pending import PendingPops
from broker_core.broker.pop.processor import PopMessageProcessor
from broker_core.broker.pop.reads import PopReads
from broker_core.broker.pop.retries import PopRetries
from broker_core.broker.pull.processor import PullMessageProcessor
from broker_core.broker.request_router import Processor
from broker_core.codec.wire.bodies.route_data import TopicRoute


class PopFeature(Feature):
    """`ledgers` has the messages in flight, `pending` the held pops.

    `pulls` checks who may read what; `route(topic)` asks a name server.
    """

    def __init__(
        self,
        context: BrokerContext,
        *,
        pulls: PullMessageProcessor,
        route: Callable[[str], Awaitable[TopicRoute | None]],
    ) -> None:
        self._context = context
        self._pulls = pulls
        self._route = route
        store = context.store
        self.pending = PendingPops(context.clock)
        self.ledgers = PopLedgers(
            context.offsets,
            context.clock,
            queue_offsets=store.offsets,
            queue_limit=context.config.pop_in_flight_max,
        )
        self._reads = PopReads(
            broker_name=context.config.broker_name,
            store=store,
            topics=context.topics,
            ledgers=self.ledgers,
            clock=context.clock,
        )
        self._retries = PopRetries(
            store=store,
            topics=context.topics,
            groups=context.groups,
            ledgers=self.ledgers,
            clock=context.clock,
            stats=context.stats,
            wake=self.pending.wake,
        )
        store.on_arrival(self.pending.arrived)

    def processors(self) -> tuple[Processor, ...]:
        """Handlers of pops, acknowledgements and assignment."""
        context, config = self._context, self._context.config
        return (
            PopMessageProcessor(
                reads=self._reads,
                pulls=self._pulls,
                pending=self.pending,
                stats=context.stats,
                size_max=config.store.read_size_max,
                taken=self._retries.watch,
            ),
            PopAckProcessor(
                broker_name=config.broker_name,
                store=context.store,
                topics=context.topics,
                ledgers=self.ledgers,
                changed=self._retries.watch,
                freed=self.pending.wake,
            ),
            RequestModeProcessor(topics=context.topics, modes=context.modes),
            AssignmentProcessor(
                broker_name=config.broker_name,
                topics=context.topics,
                clients=context.clients,
                modes=context.modes,
                route=self._route,
            ),
        )

    def release(self) -> None:
        """Answer the held pops."""
        self.pending.release_all()

    async def stop(self) -> None:
        """End the retries; messages in flight are popped again after the next start."""
        await self._retries.stop()
