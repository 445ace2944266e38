"""The current queues of a subscription.

Topics and queues come and go while a query runs. New ones are found within
`partition.metadata.cache.ttl.ms`. Missing ones are kept, because a broker that restarts is not in
the routes for a while.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

from broker_core import ClientInstance, MessageQueue, errors
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.retry import is_passing, pause

_log = logging.getLogger(__name__)

Queues = tuple[MessageQueue, ...]

_WAIT_STEP_S: Final = 0.1


class TopicDiscovery:
    """Caches the answers of name servers."""

    def __init__(self, client: ClientInstance, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._known: dict[str, Queues] = {}
        self._asked_at: float | None = None
        self._is_cut_off = False
        self.missing_since: dict[str, float] = {}
        """Topics that no name server knows any more -> since when (s)."""

    async def first_queues(self) -> Queues:
        """Queues at the start of a query; waits for topics up to `waitForTopicMs`.

        Raises `TopicNotExist` for a named topic that does not exist.
        """
        clock = self._client.clock
        deadline = clock.monotonic() + self._options.wait_for_topic_ms / 1000
        while True:
            try:
                found = await self._found({})
                if found or self._options.topic_pattern:
                    break
            except errors.RmqError as error:
                if not is_passing(error) or clock.monotonic() >= deadline:
                    raise
            if clock.monotonic() >= deadline:
                names = ", ".join(self._options.topics or self._options.assigned)
                raise errors.TopicNotExist(
                    errors.TopicNotExist.response_code, f"topic {names} has no readable queue"
                )
            await pause(_WAIT_STEP_S)
        self._known, self._asked_at = found, clock.monotonic()
        return self._all()

    def remember(self, queues: Iterable[MessageQueue]) -> None:
        """Add queues that were read before."""
        for queue in sorted(queues):
            known = self._known.get(queue.topic, ())
            if queue not in known:
                self._known[queue.topic] = (*known, queue)

    async def queues(self) -> Queues:
        """All known queues; unchanged while no name server answers."""
        now = self._client.clock.monotonic()
        if (
            self._asked_at is not None
            and (now - self._asked_at) * 1000 < self._options.route_ttl_ms
        ):
            return self._all()
        try:
            found = await self._found(self._known)
        except errors.RmqError as error:
            if not self._known or not is_passing(error):
                raise
            if not self._is_cut_off:
                _log.warning("topics cannot be looked up for now: %s", error)
            self._is_cut_off = True
            return self._all()
        if self._is_cut_off:
            _log.warning("topics are looked up again")
        self._is_cut_off = False
        self._asked_at = now
        self._known = {
            **self._known,
            **{
                topic: _with_absent(self._known.get(topic, ()), new) for topic, new in found.items()
            },
        }
        return self._all()

    def _all(self) -> Queues:
        return tuple(sorted(queue for queues in self._known.values() for queue in queues))

    async def _found(self, known: Mapping[str, Queues]) -> dict[str, Queues]:
        found: dict[str, Queues] = {}
        topics = await self.topics()
        if self._options.topic_pattern:
            # Also look for known topics that are no longer listed.
            topics = sorted({*topics, *known})
        for topic in topics:
            try:
                found[topic] = await self._queues_of(topic)
            except errors.TopicNotExist as error:
                if topic in known:
                    self.missing_since.setdefault(topic, self._client.clock.monotonic())
                elif not self._options.topic_pattern:
                    raise errors.TopicNotExist(
                        error.code,
                        errors.explained(
                            f"topic {topic} does not exist at"
                            f" {self._options.connection.shown}: create it, or set"
                            " waitForTopicMs to wait for it",
                            "topic-not-found",
                        ),
                    ) from None
            else:
                self.missing_since.pop(topic, None)
        return found

    async def topics(self, default_pattern: str = "") -> list[str]:
        """The topics of the subscription, existing or not; else those of `default_pattern`."""
        options = self._options
        pattern = options.topic_pattern
        if not pattern:
            if options.topics or options.assigned or not default_pattern:
                return list(options.topics or options.assigned)
            pattern = default_pattern
        info = await self._client.name_servers.cluster_info()
        listed = sorted((await self._client.name_servers.topic_list()).topics)
        wanted = [topic for topic in listed if re.fullmatch(pattern, topic)]
        # Retry and dead-letter topics are read only if the pattern starts with %.
        if not pattern.startswith("%"):
            wanted = [topic for topic in wanted if not info.is_system_topic(topic)]
        # Messages of `deadLetterTopic` would come back as bad records.
        return [topic for topic in wanted if topic != options.payload.dead_letter_topic]

    async def _queues_of(self, topic: str) -> Queues:
        queues = await self._client.routes.subscribe_queues(topic, refresh=True)
        assigned = self._options.assigned.get(topic)
        if not assigned:
            return queues
        brokers = sorted({queue.broker_name for queue in queues})
        wanted = []
        for broker, queue_ids in assigned.items():
            name = broker
            if not name:
                if len(brokers) != 1:
                    raise errors.InvalidArgument(
                        f"option assign names no broker for {topic}, which is on"
                        f" {', '.join(brokers) or 'none'}"
                    )
                [name] = brokers
            wanted += [MessageQueue(topic, name, queue_id) for queue_id in queue_ids]
        missing = sorted(set(wanted) - set(queues))
        if missing and topic not in self._known:
            raise errors.InvalidArgument(
                f"option assign names {_shown(missing[0])}, which does not exist; there are:"
                f" {', '.join(map(_shown, queues[:20]))}"
            )
        return tuple(sorted(wanted))


def _with_absent(known: Queues, found: Queues) -> Queues:
    """Queues of a route, plus known queues of brokers that are not in it."""
    brokers = {queue.broker_name for queue in found}
    absent = (queue for queue in known if queue.broker_name not in brokers)
    return tuple(sorted((*found, *absent)))


def _shown(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
