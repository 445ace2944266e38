"""Retries of popped messages whose invisible time expires without an acknowledgement.

A copy goes to the group's retry topic, or to its dead letters after the last retry. Once the copy
is as durable as a send, the message is done in its own queue. Messages of an orderly pop stay, and
their queue delivers them again. So do messages that cannot be copied now: the disk is full, the
broker is read-only, or there is no room for another topic.

Owns one timer and one task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from broker_core.broker.pop.ledger import LeaseState
from broker_core.broker.pop.ledger_table import DueLease, PopLedgers
from broker_core.broker.retry_policy import times_max
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.message_properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    change_properties,
)
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.pop_handle import FIRST_POP_TIME, ORIGIN_GROUP, POP_CK, pop_retry_topic
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.errors import RmqError
from broker_core.runtime.cancelled import end_tasks
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

_log = logging.getLogger(__name__)

# Leases handled in one turn of the loop.
LEASES_MAX: Final = 8
# Delay until a stored copy that is not durable yet is checked again.
AGAIN_MS: Final = 1_000


class _Copy(NamedTuple):
    due: DueLease
    offset: int
    result: PutResult


class PopRetries:
    """Event loop only. `wake(group, topic)` reports that messages can be popped again."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        ledgers: PopLedgers,
        clock: Clock,
        stats: BrokerStats,
        wake: Callable[[str, str], object],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._ledgers = ledgers
        self._clock = clock
        self._stats = stats
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def watch(self) -> None:
        """Adapt the timer: there may be an earlier deadline."""
        if self._is_stopped or self._task is not None:
            return
        due = self._ledgers.next_deadline
        if due is None:
            return
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        delay = max(due - self._clock.monotonic(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay, self._begin)

    async def stop(self) -> None:
        """Stop; messages that are not moved yet are popped again after the next start."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            await end_tasks((self._task,))
            self._task = None

    async def move_due(self) -> None:
        """Handle all expired leases."""
        while not self._is_stopped:
            found = self._ledgers.due(LEASES_MAX)
            if not found:
                return
            copies: list[_Copy] = []
            for due in found:
                copies += self._copies(due)
            for copy in copies:
                await self._settle(copy)
            # With ASYNC_FLUSH nothing above has awaited.
            await asyncio.sleep(0)

    def _begin(self) -> None:
        self._timer = None
        if not self._is_stopped and self._task is None:
            self._task = asyncio.ensure_future(self.move_due())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            _log.error("moving expired pops to retry topics failed", exc_info=task.exception())
        self.watch()

    def _copies(self, due: DueLease) -> list[_Copy]:
        copies = []
        kept = []
        for offset in due.ledger.offsets_of(due.lease):
            result = due.lease.copies.pop(offset, None) or self._copied(due, offset)
            if result is not None and result.ok:
                copies.append(_Copy(due, offset, result))
            elif due.ledger.lease_of(offset) is due.lease:
                kept.append(offset)
        if kept:
            due.ledger.keep(kept)
            self._wake(due.key[0], due.key[1])
        return copies

    def _copied(self, due: DueLease, offset: int) -> PutResult | None:
        """Append the copy of one message; None when it is deleted, or stays in its queue."""
        group, topic, queue_id = due.key
        try:
            messages = self._store.get(topic, queue_id, offset, 1).messages()
            if not messages or messages[0].queue_offset != offset:
                # Deleted by retention.
                self._ledgers.done(due.key, due.ledger, offset)
                return None
            config = self._groups.find(group)
            limit = times_max(-1 if config is None else config.retry_times_max, None)
            is_dead = messages[0].reconsume_times + due.ledger.tries_of(offset) >= limit
            if due.lease.is_order and not is_dead:
                return None
            result = self._append(due, messages[0], is_dead=is_dead)
        except RmqError as error:
            _log.warning("%s-%d redelivers message %d itself: %s", topic, queue_id, offset, error)
            return None
        if not result.ok:
            problem = f"{result.status.name} {result.remark}".rstrip()
            _log.warning("%s-%d redelivers message %d itself: %s", topic, queue_id, offset, problem)
        return result

    def _append(self, due: DueLease, record: MessageRecord, *, is_dead: bool) -> PutResult:
        group, topic, _ = due.key
        properties = record.properties
        origin_topic, origin_id = record.topic, record.message_id
        if topic.startswith(RETRY_TOPIC_PREFIX):
            origin_topic = properties.get(RETRY_TOPIC, record.topic)
            origin_id = properties.get(ORIGIN_MESSAGE_ID, record.message_id)
        changes = {
            RETRY_TOPIC: origin_topic,
            ORIGIN_MESSAGE_ID: origin_id,
            ORIGIN_GROUP: group,
            WAIT: "false",
            POP_CK: "",
        }
        if not record.reconsume_times or FIRST_POP_TIME not in properties:
            changes[FIRST_POP_TIME] = str(due.lease.pop_time_ms)
        if is_dead:
            target = self._topics.create_dlq(group)
            changes |= {DLQ_ORIGIN_TOPIC: origin_topic, DLQ_ORIGIN_MESSAGE_ID: origin_id}
        else:
            name = pop_retry_topic(group, topic)
            target = self._topics.find(name) or self._topics.put(TopicConfig(name, 1, 1))
        result = self._store.append_text(
            target.name,
            0,
            record.body,
            change_properties(record.property_text, changes),
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=encode_host(record.born_host),
            reconsume_times=record.reconsume_times + due.ledger.tries_of(record.queue_offset) + 1,
        )
        if result.ok:
            self._stats.put(target.name, 1, result.end_position - result.position)
            self._stats.send_back(group, origin_topic)
            if is_dead:
                self._stats.dlq(group, origin_topic)
        return result

    async def _settle(self, copy: _Copy) -> None:
        """Mark a message as done once its copy is durable."""
        due = copy.due
        result = await self._store.acknowledged(copy.result)
        if result.ok:
            self._ledgers.done(due.key, due.ledger, copy.offset)
            if due.lease.is_order and not due.ledger.offsets_of(due.lease):
                self._wake(due.key[0], due.key[1])
            return
        # The copy is in the log, and a second one would be a duplicate: wait for this one. It
        # belongs to this lease; after a reset another lease may need its own copy.
        due.lease.copies[copy.offset] = copy.result
        if due.lease.state is LeaseState.MOVING:
            self._ledgers.again(due, AGAIN_MS)
