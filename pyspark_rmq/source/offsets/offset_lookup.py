"""Asks brokers for first, last and committed offsets, offsets of a time, and log identities."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from broker_core import (
    MASTER_ID,
    Admin,
    ClientInstance,
    MessageQueue,
    PullConsumer,
    TopicEnds,
    ask_topic_ends,
    errors,
)
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.start_position import Anchor, Position, Positions
from pyspark_rmq.source.offsets.stream_position import StoreIdentity
from pyspark_rmq.source.retry import is_passing, pause

_log = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")

_ASKED_AT_ONCE: Final = 64
_SAMPLE_ROWS: Final = 8
_TIME_STEP: Final = 32


class Look(NamedTuple):
    """Answers of brokers at one moment."""

    ends: dict[MessageQueue, int]
    stores: dict[str, StoreIdentity]
    silent: dict[str, errors.RmqError]
    """Brokers that may answer later, with the reason."""
    at_slaves: set[str]
    """Brokers whose slave answered: their queues may be longer than it knows."""
    has_run: dict[str, bool]
    """Broker -> whether its log has everything that was read before, if it knows."""
    same: dict[MessageQueue, int]
    """Queues of brokers that lack some of it -> up to where they are the same, if it is known."""

    def name(self, broker: str, store: StoreIdentity) -> None:
        """Merge the identity from the answer about one of several topics of a broker."""
        known = self.stores.get(broker, store)
        is_same = (known.store_id, known.epoch) == (store.store_id, store.epoch)
        self.stores[broker] = known.farther(store) if is_same else store

    def note_silence(self, broker: str, error: errors.RmqError) -> None:
        """Remember the reason; raises errors that are not worth a retry."""
        # A missing topic says nothing about its broker.
        if isinstance(error, errors.TopicNotExist):
            return
        if not is_passing(error):
            raise error
        self.silent.setdefault(broker, error)


class OffsetLookup:
    """Requests about queues, each retried as the options say."""

    def __init__(self, client: ClientInstance, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._admin = Admin(client)
        self._consumer = PullConsumer(client, options.reader_group)
        # Queues whose progress the last commit could not store.
        self._uncommitted: set[MessageQueue] = set()

    async def look(
        self, queues: Iterable[MessageQueue], read: Mapping[str, StoreIdentity] | None = None
    ) -> Look:
        """Ends of queues, identities of logs, and brokers that did not answer.

        Brokers of this project answer with all of it per topic, and only with durable offsets.
        `read` has the identities of the logs that were read before.
        """
        known = read or {}
        nameless = StoreIdentity()
        wanted: dict[tuple[str, str], list[MessageQueue]] = {}
        for queue in queues:
            wanted.setdefault((queue.topic, queue.broker_name), []).append(queue)
        at_once, failed = await _each(
            wanted,
            lambda key: self._tried(lambda: self._topic_ends(*key, known.get(key[1], nameless))),
        )
        found = Look({}, {}, {}, set(), {}, {})
        for (_, broker), error in failed.items():
            found.note_silence(broker, error)
        single: list[MessageQueue] = []
        for (topic, broker), answer in at_once.items():
            if answer is None:
                single += wanted[topic, broker]
                continue
            if answer.store_id:
                # Empty: a slave that does not know yet which log it copies.
                named = StoreIdentity(answer.store_id, answer.epoch, answer.run, answer.runs)
                found.name(broker, named)
            if answer.has_run is not None:
                found.has_run[broker] = answer.has_run and found.has_run.get(broker, True)
            if answer.from_slave:
                found.at_slaves.add(broker)
            for queue in wanted[topic, broker]:
                # Skip queues that no longer exist, for example in a topic that shrank.
                if queue.queue_id < len(answer.ends):
                    found.ends[queue] = answer.ends[queue.queue_id]
                if queue.queue_id < len(answer.same):
                    found.same[queue] = answer.same[queue.queue_id]
        if single:
            await self._look_singly(single, found)
        return found

    async def _topic_ends(self, topic: str, broker: str, read: StoreIdentity) -> TopicEnds | None:
        group = self._options.reader_group
        return await ask_topic_ends(self._client, topic, broker, group, read.run, read.runs)

    async def _look_singly(self, queues: Sequence[MessageQueue], found: Look) -> None:
        ends, failed = await _each(queues, lambda q: self._tried(lambda: self._admin.max_offset(q)))
        found.ends.update(ends)
        for queue, error in failed.items():
            found.note_silence(queue.broker_name, error)
        found.stores.update(await self.stores({queue.broker_name for queue in ends}))

    async def begins(
        self, queues: Iterable[MessageQueue]
    ) -> tuple[dict[MessageQueue, int], dict[MessageQueue, errors.RmqError]]:
        """First readable offset of each queue, and the errors of those that are unknown."""
        return await _each(queues, lambda q: self._tried(lambda: self._admin.min_offset(q)))

    async def resolve(
        self, positions: Positions, queues: Sequence[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """Offsets of `positions` as of now; raises `InvalidConfig` if they do not fit."""
        positions.check_queues(queues)
        asked = (positions.default, *positions.named.values())
        ends: Mapping[MessageQueue, int] = {}
        if any(position.anchor in (Anchor.LATEST, Anchor.OFFSET) for position in asked):
            found = await self.look(queues)
            for error in found.silent.values():
                raise error
            ends = found.ends
            for queue, end in ends.items():
                anchor, number = positions.of(queue)
                # The master may have more messages than its slave.
                if anchor is Anchor.OFFSET and queue.broker_name not in found.at_slaves:
                    positions.check_end(queue, number, end)
        return await _all(queues, lambda queue: self._resolved(positions, queue, ends))

    async def stores(
        self, brokers: Iterable[str], read: Mapping[str, StoreIdentity] | None = None
    ) -> dict[str, StoreIdentity]:
        """Log identity of each broker; brokers that do not answer are left out.

        A broker that has everything that was `read` of it keeps that identity.
        """
        known = read or {}
        found, _ = await _each(
            brokers, lambda broker: self._store(broker, known.get(broker, StoreIdentity()))
        )
        return {broker: store for broker, store in found.items() if store is not None}

    async def _store(self, broker: str, read: StoreIdentity) -> StoreIdentity | None:
        """None: a broker of this project that does not know it yet."""
        for attempt in range(self._options.lookup_retries + 1):
            if attempt:
                await pause(self._options.lookup_retry_interval_ms / 1000)
            found = await self._named(broker, read)
            if found is not None:
                return found
            # Busy, or now a slave that does not know yet which log it copies.
            self._client.routes.refresh_broker_soon(broker)
        return None

    async def _named(self, broker: str, read: StoreIdentity) -> StoreIdentity | None:
        """Identity from the master or, while it is not reachable, from a slave.

        Logs of Apache brokers have no identity.
        """
        routes, capabilities = self._client.routes, self._client.capabilities
        failure: errors.RmqError | None = None
        for broker_id, address in sorted(routes.brokers().get(broker, {}).items()):
            try:
                # Not cached: the store behind the address may have been replaced.
                known = await capabilities.ask(address, read.run)
            except (errors.ConnectionLost, errors.RequestTimeout) as error:
                failure = failure or error
                continue
            is_other = capabilities.is_known(address) and not known.topic_ends
            if known.store_id or (is_other and broker_id == MASTER_ID):
                store = StoreIdentity(known.store_id, known.epoch, known.run)
                if not read.run or store.store_id != read.store_id:
                    return store
                if known.has_run is None:
                    # Older releases are identified by epoch; unsure brokers are asked again.
                    return None if known.is_unsure else store._replace(run=read.run, runs=read.runs)
                return read if known.has_run else store
        if failure is not None:
            raise failure
        return None

    async def row_size(self, queue: MessageQueue, end: int) -> int | None:
        """Approximate record size of a queue, as a power of two."""
        try:
            result = await self._consumer.pull(
                queue, max(0, end - _SAMPLE_ROWS), max_count=_SAMPLE_ROWS
            )
        except errors.RmqError as error:
            _log.info("no sample of %s: %s", queue, error)
            return None
        if not result.messages:
            return None
        return 1 << (len(result.records) // len(result.messages)).bit_length()

    async def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the progress of a group; failures are logged."""
        _, failed = await _each(
            offsets, lambda queue: self._admin.commit_offset(group, queue, offsets[queue])
        )
        for queue, error in failed.items():
            if queue not in self._uncommitted:
                _log.warning("progress of %s in %s is not committed: %s", group, queue, error)
        for queue in sorted(self._uncommitted - failed.keys()):
            _log.warning("progress of %s in %s is committed again", group, queue)
        self._uncommitted = {*failed}

    # Inside

    async def _resolved(
        self, positions: Positions, queue: MessageQueue, ends: Mapping[MessageQueue, int]
    ) -> int:
        position = positions.of(queue)
        anchor, number = position
        if anchor is Anchor.OFFSET:
            return number
        if anchor is Anchor.LATEST:
            end = ends.get(queue, 0)
            if not number:
                return end
            return max(end - number, await self._tried(lambda: self._admin.min_offset(queue)))
        if anchor is Anchor.EARLIEST:
            begin = await self._tried(lambda: self._admin.min_offset(queue))
            if not number:
                return begin
            return min(begin + number, await self._tried(lambda: self._admin.max_offset(queue)))
        if anchor is Anchor.COMMITTED:
            return await self._committed(queue)
        return await self._at_time(positions, position, queue)

    async def _committed(self, queue: MessageQueue) -> int:
        group = self._options.group
        found = await self._tried(lambda: self._admin.committed_offset(group, queue))
        begin = await self._tried(lambda: self._admin.min_offset(queue))
        # A group without a committed offset has read nothing.
        return begin if found is None else found

    async def _at_time(self, positions: Positions, position: Position, queue: MessageQueue) -> int:
        is_ago = position.anchor is Anchor.AGO
        now_ms = self._client.clock.wall_ms()
        time_ms = max(0, now_ms - position.number) if is_ago else position.number
        begin = await self._tried(lambda: self._admin.min_offset(queue))
        end = await self._tried(lambda: self._admin.max_offset(queue))
        found = await self._tried(lambda: self._admin.offset_by_time(queue, time_ms))
        found = await self._first_from(queue, min(max(found, begin), end), end, time_ms)
        if found >= end and positions.strict_times and not is_ago:
            raise errors.InvalidArgument(
                f"option {positions.option}: queue {queue.queue_id} of {queue.topic} on"
                f" {queue.broker_name} has no message stored at {time_ms} or later; set"
                " startingOffsetsByTimestampStrategy=latest to begin at its end"
            )
        return found

    async def _first_from(self, queue: MessageQueue, offset: int, end: int, time_ms: int) -> int:
        """First message at or after a time: some brokers return the message before it."""
        while offset < end:
            at = offset
            result = await self._tried(
                lambda: self._consumer.pull(queue, at, max_count=_TIME_STEP)  # noqa: B023
            )
            if not result.messages:
                break
            for message in result.messages:
                if message.record.store_timestamp >= time_ms:
                    return message.record.queue_offset
            offset = result.next_offset
        return min(offset, end)

    async def _tried(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry as the options say; no further try after `pollTimeoutMs`, if the broker hangs."""
        now = self._client.clock.monotonic
        until = now() + self._options.poll_timeout_ms / 1000
        for _ in range(self._options.lookup_retries):
            try:
                return await ask()
            except errors.RmqError as error:
                if not is_passing(error) or now() >= until:
                    raise
            await pause(self._options.lookup_retry_interval_ms / 1000)
        return await ask()


async def _each(
    keys: Iterable[K], ask: Callable[[K], Awaitable[T]]
) -> tuple[dict[K, T], dict[K, errors.RmqError]]:
    """Answers and errors; a limited number of requests at a time."""
    wanted = list(keys)
    found: dict[K, T] = {}
    failed: dict[K, errors.RmqError] = {}
    for first in range(0, len(wanted), _ASKED_AT_ONCE):
        part = wanted[first : first + _ASKED_AT_ONCE]
        answers = await asyncio.gather(*(ask(key) for key in part), return_exceptions=True)
        for key, answer in zip(part, answers, strict=True):
            if isinstance(answer, errors.RmqError):
                failed[key] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[key] = answer
    return found, failed


async def _all(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    found, failed = await _each(keys, ask)
    for error in failed.values():
        raise error
    return found
