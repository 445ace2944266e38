"""The planner of sends, made from what a broker was told."""

from __future__ import annotations

import os

from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.group_table import GroupTable
from broker_core.broker.queue_locks import QueueLocks
from broker_core.broker.send_plan import SendPlanner
from broker_core.broker.timer_delivery import TimerDelivery
from broker_core.broker.timer_message import TimerRules
from broker_core.broker.topic_table import TopicTable
from broker_core.codec.unique_key import UniqueKeys
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore


def send_planner(
    config: BrokerConfig,
    store: MessageStore,
    clock: Clock,
    locks: QueueLocks,
    timers: TimerDelivery,
    delay_level_max: int,
    *,
    topics: TopicTable,
    groups: GroupTable,
) -> SendPlanner:
    """What decides how each send is stored."""
    keys = UniqueKeys(store.store_host[:-4], os.getpid(), int.from_bytes(os.urandom(4), "big"))
    return SendPlanner(
        topics=topics,
        groups=groups,
        locks=locks,
        broker_permission=config.broker_permission,
        suffix_properties={
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.trace_on else "false",
            "CLUSTER": config.cluster_name,
        },
        delay_level_max=delay_level_max,
        message_size_max=config.store.message_size_max,
        new_unique_key=lambda: keys.next(clock.wall_ms() % (31 * 86_400_000)),
        reject_transactions=config.reject_transactions,
        timer_rules=TimerRules(config.timer_enable, config.timer_delay_max_s * 1000),
        now_ms=clock.wall_ms,
        recall=timers.recall,
        broker_name=config.broker_name,
    )
