"""Rebalance: which queues this client consumes.

    wanted    this member's share of the queues (broadcasting: all queues)
    assigned  being consumed           leaving   released, until its last listener call has ended

A queue starts only when its lock (orderly) and its start offset are known. Failures are retried
soon.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping

from broker_core.client.connection.instance import ClientInstance
from broker_core.client.pull.queue_offsets import QueueOffsets
from broker_core.client.pull.queue_reader import QueueReader, ReadDoors
from broker_core.client.push.assigned_queue import AssignedQueue
from broker_core.client.push.locking import QueueLocking
from broker_core.client.push.offset_keeper import OffsetKeeper
from broker_core.client.push.types import PushSettings
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.json.fields import list_field
from broker_core.codec.wire.bodies.heartbeat_data import FROM_FIRST_OFFSET, FROM_LAST_OFFSET
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.errors import BrokerNotExist, InvalidArgument, RmqError, UnexpectedAnswer
from broker_core.protocol_codes import RequestCode, ResponseCode

_log = logging.getLogger(__name__)


class Rebalance:
    """Owns the assigned queues of one consumer.

    `begin(assigned)` starts the work on a queue, `ended(assigned)` waits for its last call.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        settings: PushSettings,
        keeper: OffsetKeeper,
        subscriptions: Mapping[str, SubscriptionData],
        *,
        begin: Callable[[AssignedQueue], object],
        ended: Callable[[AssignedQueue], Awaitable[None]],
        wake: Callable[[], object],
    ) -> None:
        self.assigned: dict[MessageQueue, AssignedQueue] = {}
        self.locking = QueueLocking(client, group)
        self._client = client
        self._group = group
        self._settings = settings
        self._keeper = keeper
        self._subscriptions = subscriptions
        self._begin = begin
        self._ended = ended
        self._wake = wake
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        # Start offsets of queues that were reset; they override saved offsets.
        self._fixed_starts: dict[MessageQueue, int] = {}

    async def run_once(self) -> bool:
        """Assign and release queues. Returns False if something failed and must be retried soon."""
        is_complete = True
        wanted: set[MessageQueue] = set()
        for topic in list(self._subscriptions):
            try:
                queues = await self._wanted(topic)
            except RmqError as error:
                _log.info("queues of %s for %s are not known: %s", topic, self._group, error)
                queues = [queue for queue in self.assigned if queue.topic == topic]
                is_complete = False
            wanted.update(queues)
        for queue in [queue for queue in self.assigned if queue not in wanted]:
            self.remove(queue)
        for queue in self._fixed_starts.keys() - wanted:
            del self._fixed_starts[queue]
        missing = [queue for queue in sorted(wanted) if queue not in self.assigned]
        begun = await self._add([queue for queue in missing if queue not in self._leaving])
        return is_complete and begun == len(missing)

    # Life cycle of a queue

    def remove(self, queue: MessageQueue) -> None:
        """Release a queue; its progress is saved after the last listener call."""
        assigned = self.assigned.pop(queue, None)
        if assigned is None:
            return
        # Concurrent consumers release it at once, orderly ones after the call under way.
        if self._settings.orderly:
            assigned.leave()
        else:
            assigned.drop()
        self._start_leaving(assigned, None)

    def restart(self, assigned: AssignedQueue, offset: int) -> None:
        """Discard the backlog of a queue and restart it at `offset`."""
        if self.assigned.get(assigned.queue) is not assigned:
            return
        del self.assigned[assigned.queue]
        assigned.drop()
        self._keeper.put(assigned.queue, offset)
        self._start_leaving(assigned, offset)

    async def remove_all(self) -> None:
        """Release all queues and wait for it."""
        for queue in list(self.assigned):
            self.remove(queue)
        if self._leaving:
            await asyncio.wait(self._leaving.values())

    async def refresh_locks(self) -> None:
        """Renew the locks; queues whose lock was lost or had expired are restarted."""
        if not self.assigned:
            return
        clock = self._client.clock
        asked_at = clock.monotonic()
        granted, refused = await self.locking.lock(list(self.assigned))
        for queue in granted:
            assigned = self.assigned.get(queue)
            if assigned is None:
                continue
            if assigned.is_locked(clock.monotonic(), self._settings):
                assigned.locked_at = asked_at
                assigned.changed.set()
            else:
                # The lock had expired: another member may have consumed the queue meanwhile.
                self._lose(assigned)
        for queue in refused:
            assigned = self.assigned.get(queue)
            if assigned is not None:
                _log.warning("%s is locked by another member", queue)
                self._lose(assigned)

    def _lose(self, assigned: AssignedQueue) -> None:
        del self.assigned[assigned.queue]
        assigned.drop()
        self._keeper.forget(assigned.queue)
        self._start_leaving(assigned, None)

    def _start_leaving(self, assigned: AssignedQueue, restart_at: int | None) -> None:
        task = asyncio.ensure_future(self._leave(assigned, restart_at))
        self._leaving[assigned.queue] = task
        task.add_done_callback(_report)

    async def _leave(self, assigned: AssignedQueue, restart_at: int | None) -> None:
        queue = assigned.queue
        try:
            await assigned.cancel_tasks()
            await self._ended(assigned)
            await self._keeper.persist([queue])
            if restart_at is not None:
                self._fixed_starts[queue] = restart_at
            else:
                if self._settings.needs_locks:
                    await self.locking.unlock([queue])
                self._keeper.forget(queue)
            assigned.drop()
        finally:
            del self._leaving[queue]
            self._wake()

    async def _wanted(self, topic: str) -> list[MessageQueue]:
        queues = await self._client.routes.subscribe_queues(topic)
        if not self._settings.is_clustering:
            return list(queues)
        if not queues:
            return []
        members = await self._members(queues)
        if self._client.client_id not in members:
            # The broker does not know this client yet, or no longer.
            self._client.heartbeats.send_soon()
            raise UnexpectedAnswer(f"a broker does not list {self._client.client_id} as a member")
        return self._settings.allocation(queues, members, self._client.client_id)

    async def _members(self, queues: Iterable[MessageQueue]) -> list[str]:
        """The members of the group, from any broker of the topic."""
        names = list({queue.broker_name for queue in queues})
        random.shuffle(names)
        failure: RmqError = BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, "the topic has no broker")
        for name in names:
            ext = {"consumerGroup": self._group}
            command = RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext)
            try:
                answer = await self._client.ask_broker(name, command, or_any=True)
                return _member_list(answer)
            except RmqError as error:
                failure = error
        raise failure

    async def _add(self, queues: list[MessageQueue]) -> int:
        """Start these queues. Returns how many were started."""
        locked_at = self._client.clock.monotonic()
        if self._settings.needs_locks and queues:
            granted, _ = await self.locking.lock(queues)
            queues = [queue for queue in queues if queue in granted]
        added = await asyncio.gather(*(self._add_one(queue, locked_at) for queue in queues))
        return sum(added)

    async def _add_one(self, queue: MessageQueue, locked_at: float) -> bool:
        client = self._client
        try:
            offset = self._fixed_starts.pop(queue, None)
            if offset is None:
                self._keeper.forget(queue)
                offset = await self._start_offset(queue)
        except RmqError as error:
            _log.warning("%s is not started yet, its progress cannot be read: %s", queue, error)
            return False
        subscription = self._subscriptions.get(queue.topic)
        if subscription is None:
            return False
        doors = ReadDoors(client.remoting, client.routes, client.capabilities)
        reader = QueueReader(doors, queue, self._group, subscription)
        assigned = AssignedQueue(reader, offset)
        assigned.locked_at = locked_at if self._settings.needs_locks else None
        self.assigned[queue] = assigned
        self._begin(assigned)
        return True

    async def _start_offset(self, queue: MessageQueue) -> int:
        """The group's progress; if it has none, the offset that `settings.from_where` asks for.

        Raises when the broker does not answer: a queue must not start at a guessed offset.
        """
        kept = await self._keeper.read(queue)
        if kept is not None:
            return kept
        offsets = QueueOffsets(self._client)
        is_retry = queue.topic.startswith(RETRY_TOPIC_PREFIX)
        if self._settings.from_where == FROM_LAST_OFFSET:
            # A retry queue starts at 0, so that no message sent back by a member is skipped.
            return 0 if is_retry else await offsets.max_offset(queue)
        if self._settings.from_where == FROM_FIRST_OFFSET:
            return await offsets.min_offset(queue)
        if is_retry:
            return await offsets.max_offset(queue)
        return await offsets.offset_by_time(queue, self._settings.from_timestamp_ms)


def _member_list(answer: RemotingCommand) -> list[str]:
    try:
        found = parse_json(answer.body)
        if not isinstance(found, dict):
            raise InvalidArgument("not an object")
        members = [str(member) for member in list_field(found, "consumerIdList")]
    except RmqError as error:
        raise UnexpectedAnswer(f"the list of members: {error}") from None
    if not members:
        raise UnexpectedAnswer("the list of members is empty")
    return members


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("releasing a queue failed", exc_info=error)
