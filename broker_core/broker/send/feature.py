"""Sends: plain and planned messages, bulk sends, messages sent back by consumers, replies."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.request_router import Processor
from broker_core.broker.scheduled.timer_intake import Recalled
from broker_core.broker.scheduled.timer_message import TimerRules
from broker_core.broker.send.bulk_send import BulkSendProcessor
from broker_core.broker.send.hooks import SendHooks
from broker_core.broker.send.once import SendOnceProcessor
from broker_core.broker.send.plan import SendPlanner
from broker_core.broker.send.processor import SendMessageProcessor
from broker_core.broker.send.reply import ReplyMessageProcessor
from broker_core.broker.send.send_back import SendBackProcessor
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.codec.wire.unique_key import UniqueKeys

_MONTH_MS = 31 * 86_400_000


class SendFeature(Feature):
    """`planner` decides how a send is stored, `take_burst` stores plain sends that came together.

    `routes_announced()` waits until the name servers know the topics; `recall(topic, key, due_ms)`
    cancels a timer message.
    """

    def __init__(
        self,
        context: BrokerContext,
        *,
        routes_announced: Callable[[], Awaitable[object]],
        recall: Callable[[str, str, int], Recalled],
    ) -> None:
        self._context = context
        self.hooks = SendHooks()
        self.planner = _planner(context, recall)
        self._sends = SendMessageProcessor(
            config=context.config,
            store=context.store,
            topics=context.topics,
            planner=self.planner,
            stats=context.stats,
            hooks=self.hooks,
            routes_announced=routes_announced,
            new_topics=context.new_topics,
            limits=context.limits,
        )
        self._send_back = SendBackProcessor(
            store=context.store,
            topics=context.topics,
            groups=context.groups,
            level_count=len(context.delay_levels_ms),
            stats=context.stats,
            broker_permission=context.config.broker_permission,
        )
        self.take_burst = self._sends.bursts.frame_handler

    def processors(self) -> tuple[Processor, ...]:
        """Handlers of everything that producers store."""
        context, config = self._context, self._context.config
        trace = "true" if config.trace_on else "false"
        once = SendOnceProcessor(
            store=context.store, topics=context.topics, planner=self.planner, stats=context.stats
        )
        return (
            self._sends,
            *((once,) if config.store.message_index_enable else ()),
            BulkSendProcessor(
                store=context.store,
                planner=self.planner,
                stats=context.stats,
                clock=context.clock,
            ),
            self._send_back,
            ReplyMessageProcessor(
                store=context.store,
                clock=context.clock,
                clients=context.clients,
                planner=self.planner,
                answer_fields={"MSG_REGION": config.region_id, "TRACE_ON": trace},
                stores_replies=config.store_replies,
            ),
        )

    def settings_changed(self, config: BrokerConfig) -> None:
        """Apply the broker's permission and whether transactions are rejected."""
        self._sends.reconfigure(config)
        self._send_back.reconfigure(config.broker_permission)
        self.planner.reconfigure(config.broker_permission, config.reject_transactions)


def _planner(context: BrokerContext, recall: Callable[[str, str, int], Recalled]) -> SendPlanner:
    config, clock = context.config, context.clock
    host = context.store.store_host[:-4]
    keys = UniqueKeys(host, os.getpid(), int.from_bytes(os.urandom(4), "big"))
    return SendPlanner(
        topics=context.topics,
        groups=context.groups,
        locks=context.locks,
        broker_permission=config.broker_permission,
        suffix_properties={
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.trace_on else "false",
            "CLUSTER": config.cluster_name,
        },
        delay_level_max=len(context.delay_levels_ms),
        message_size_max=config.store.message_size_max,
        new_unique_key=lambda: keys.next(clock.wall_ms() % _MONTH_MS),
        reject_transactions=config.reject_transactions,
        timer_rules=TimerRules(config.timer_enable, config.timer_delay_max_s * 1000),
        now_ms=clock.wall_ms,
        recall=recall,
        broker_name=config.broker_name,
    )
