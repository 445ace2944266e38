"""Calls a listener with the messages of subscribed topics, sharing them with the group's members.

    rebalance ─► fetching ─► backlog ─► listener ─► progress ─► broker (or a file)

Delivery is at least once: a message is acknowledged after its listener succeeded, and progress
never passes an unacknowledged message. `stop` finishes the calls under way, commits the progress
and leaves the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from broker_core.client.connection.backoff import Backoff
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance, ConsumerRegistration
from broker_core.client.connection.lifecycle import Lifecycle
from broker_core.client.push.assigned_queue import AssignedQueue
from broker_core.client.push.broker_callbacks import BrokerCallbacks
from broker_core.client.push.concurrent import ConcurrentConsumption
from broker_core.client.push.fetching import QueueFetching
from broker_core.client.push.listener_call import ListenerCall
from broker_core.client.push.local_offsets import LocalOffsets
from broker_core.client.push.offset_keeper import BrokerOffsets, MemoryOffsets, OffsetKeeper
from broker_core.client.push.orderly import OrderlyConsumption
from broker_core.client.push.rebalance import Rebalance
from broker_core.client.push.send_back import SendBack
from broker_core.client.push.stats import ConsumeStats
from broker_core.client.push.types import RECONSUME_TIMES_DEFAULT, Listener, PushSettings
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.heartbeat_data import CONSUME_PASSIVELY, ConsumerData
from broker_core.codec.wire.bodies.subscription_data import (
    TAG,
    SubscriptionData,
    parse_tag_expression,
    subscription_object,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX, topic_name_problem
from broker_core.errors import InvalidArgument, RmqError, TopicNotExist
from broker_core.protocol_codes import RequestCode
from broker_core.runtime.clock import sleep

_log = logging.getLogger(__name__)

# First retry delay of an incomplete rebalance; then with exponential back-off.
_RETRY_FIRST_MS: Final = 500


class PushConsumer(Lifecycle):
    """A member of a consumer group, whose listener gets the messages.

    `subscribe`, then `start`, or use it with `async with`; `stop` at the end.

    `listener(messages, context)` may be a coroutine function; plain functions run on threads.
    `changes` are fields of `PushSettings`.
    """

    def __init__(
        self,
        client: ClientInstance | ClientConfig,
        group: str,
        listener: Listener,
        settings: PushSettings | None = None,
        **changes: Any,
    ) -> None:
        self._owns_client = isinstance(client, ClientConfig)
        self.client = ClientInstance(client) if isinstance(client, ClientConfig) else client
        self.group = group
        self.settings = dataclasses.replace(settings or PushSettings(), **changes)
        self.subscriptions: dict[str, SubscriptionData] = {}
        clock = self.client.clock
        self.stats = ConsumeStats(clock)
        self.keeper: OffsetKeeper = self._new_keeper()
        self.listener = ListenerCall(listener, self.settings.concurrency, group)
        times = self.settings.reconsume_times_max
        send_back = SendBack(
            self.client, group, RECONSUME_TIMES_DEFAULT if times is None else times
        )
        kind = OrderlyConsumption if self.settings.orderly else ConcurrentConsumption
        self._consumption = kind(
            self.settings, self.listener, self.keeper, send_back, self.stats, clock
        )
        self.rebalance = Rebalance(
            self.client,
            group,
            self.settings,
            self.keeper,
            self.subscriptions,
            begin=self._begin,
            ended=self._ended,
            wake=self.rebalance_soon,
        )
        self._fetching = QueueFetching(
            self.settings,
            self.keeper,
            self.stats,
            clock,
            decompressed_size_max=self.client.config.decompressed_size_max,
            fetched=self._consumption.fetched,
            moved=self._moved,
        )
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_started = self._is_stopped = False

    # Subscriptions

    def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Consume messages of `topic` with these tags (`A || B`) or that match a SQL92 text."""
        problem = topic_name_problem(topic)
        if problem is not None:
            raise InvalidArgument(f"{problem}: {topic!r:.140}")
        version = self.client.clock.wall_ms()
        if expression_type == TAG:
            subscription = parse_tag_expression(topic, expression, version)
        else:
            subscription = SubscriptionData(
                topic, expression, version=version, expression_type=expression_type
            )
        self.subscriptions[topic] = subscription
        self._subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; its queues are released soon."""
        if self.subscriptions.pop(topic, None) is not None:
            self._subscriptions_changed()

    # Start and stop

    async def start(self) -> None:
        """Join the group; raises when an expression is refused or no name server answers."""
        if self._is_started or self._is_stopped:
            raise InvalidArgument(f"consumer group {self.group} was started or stopped before")
        if not self.subscriptions:
            raise InvalidArgument(f"consumer group {self.group} has no subscription")
        self._is_started = True
        try:
            await self._join()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Finish the calls under way, commit progress, leave the group."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._is_started:
            await self._leave()
        self.listener.close()
        if isinstance(self.keeper, LocalOffsets):
            self.keeper.close()
        if self._owns_client:
            await self.client.stop()

    def rebalance_soon(self) -> None:
        """Rebalance without waiting for the interval."""
        self._wake.set()

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for assigned in self.rebalance.assigned.values():
            await assigned.cancel_tasks()
            assigned.leave()
        await self._consumption.stop(self.settings.stop_wait_ms)
        with contextlib.suppress(OSError):
            await self.keeper.persist()
        await self.rebalance.remove_all()
        await self.client.remove_consumer(self.group)

    async def _join(self) -> None:
        await self.client.start()
        await self._find_routes()
        for subscription in self.subscriptions.values():
            await self._check_subscription(subscription)
        if self.settings.is_clustering:
            retry_topic = RETRY_TOPIC_PREFIX + self.group
            self.subscriptions[retry_topic] = SubscriptionData(
                retry_topic, version=self.client.clock.wall_ms()
            )
        self.client.add_consumer(
            ConsumerRegistration(
                self.group, self._describe, self.rebalance_soon, self._callbacks().handlers()
            )
        )
        self.client.routes.on_change(self._route_changed)
        await self.client.send_heartbeats()
        self._run(self._rebalance_for_ever())
        self._run(self._persist_for_ever())
        if self.settings.needs_locks:
            self._run(self._lock_for_ever())

    async def _check_subscription(self, subscription: SubscriptionData) -> None:
        """Raise a broker's refusal of a SQL92 expression; tags need no check."""
        if subscription.is_by_tag:
            return
        try:
            queues = await self.client.routes.subscribe_queues(subscription.topic)
        except TopicNotExist:
            return
        body = emit_json(
            {
                "clientId": self.client.client_id,
                "group": self.group,
                "subscriptionData": subscription_object(subscription),
            }
        )
        for name in sorted({queue.broker_name for queue in queues}):
            command = RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, {}, body)
            await self.client.ask_broker(name, command, or_any=True)

    def _new_keeper(self) -> OffsetKeeper:
        if self.settings.is_clustering:
            return BrokerOffsets(self.client, self.group)
        if self.settings.offsets_directory is None:
            return MemoryOffsets()
        return LocalOffsets(self.settings.offsets_directory, self.group)

    def _callbacks(self) -> BrokerCallbacks:
        return BrokerCallbacks(
            self.client,
            self.settings,
            self.subscriptions,
            self.keeper,
            self.rebalance,
            self.listener,
            self.stats,
        )

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            CONSUME_PASSIVELY,
            self.settings.model,
            self.settings.from_where,
            tuple(self.subscriptions.values()),
        )

    def _subscriptions_changed(self) -> None:
        if self._is_started:
            self.client.heartbeats.send_soon()
            self.rebalance_soon()

    def _route_changed(self, topic: str) -> None:
        if topic in self.subscriptions:
            self.rebalance_soon()

    async def _find_routes(self) -> None:
        for topic in self.subscriptions:
            # The topic may be created later.
            with contextlib.suppress(TopicNotExist):
                await self.client.routes.route(topic)

    def _begin(self, assigned: AssignedQueue) -> None:
        self._consumption.begin(assigned)
        task = asyncio.ensure_future(self._fetching.run(assigned))
        assigned.tasks.add(task)
        task.add_done_callback(assigned.tasks.discard)
        task.add_done_callback(_report)

    def _ended(self, assigned: AssignedQueue) -> Awaitable[None]:
        return self._consumption.ended(assigned)

    def _moved(self, assigned: AssignedQueue, offset: int) -> None:
        text = "%s cannot be read at %d; continues at %d"
        _log.warning(text, assigned.queue, assigned.backlog.next_offset, offset)
        self.rebalance.restart(assigned, offset)

    def _run(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(_report)

    async def _rebalance_for_ever(self) -> None:
        retries = Backoff(_RETRY_FIRST_MS, self.settings.rebalance_interval_ms)
        while True:
            self._wake.clear()
            is_complete = await self.rebalance.run_once()
            if is_complete:
                retries.reset()
            pause_s = (
                self.settings.rebalance_interval_ms / 1000 if is_complete else retries.next_s()
            )
            await self._woken_or(pause_s)

    async def _woken_or(self, seconds: float) -> None:
        waiter = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            waiter.cancel()

    async def _persist_for_ever(self) -> None:
        await self._every(self.client.config.offset_persist_interval_ms, self._persist)

    async def _lock_for_ever(self) -> None:
        await self._every(self.settings.lock_interval_ms, self.rebalance.refresh_locks)

    async def _persist(self) -> None:
        try:
            await self.keeper.persist()
        except OSError as error:
            _log.warning("progress of %s could not be saved: %s", self.group, error)

    async def _every(self, interval_ms: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await sleep(interval_ms / 1000)
            try:
                await work()
            except RmqError as error:
                _log.warning("%s: %s", self.group, error)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a task of a push consumer failed", exc_info=error)
