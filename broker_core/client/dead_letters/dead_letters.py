"""Lists, reads and replays the messages of dead-letter topics.

Progress is the committed offset of `REPLAY_GROUP` in each queue of a dead-letter topic. A replay
sends one message, waits until it is stored, commits the offset after it, and continues with the
next. If it ends between the two, the next run sends that message again, with the same id and the
same property `REPLAY_OF`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final, NamedTuple

from broker_core.client.admin.admin import Admin
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.connection.lifecycle import Lifecycle
from broker_core.client.dead_letters.letter import DeadLetter
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.result import SendResult
from broker_core.client.pull.consumer import PullConsumer
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.topic_name import DLQ_TOPIC_PREFIX
from broker_core.errors import (
    GroupNotExist,
    InvalidArgument,
    RmqError,
)

REPLAY_GROUP: Final = "RMQ_DLQ_REPLAY"
"""The consumer group whose committed offsets tell what was replayed."""


class DeadTopic(NamedTuple):
    """A dead-letter topic. `waiting` are the messages that were not replayed."""

    topic: str
    group: str
    """The consumer group whose dead letters these are; "" for a topic of an application."""
    queues: int = 0
    messages: int = 0
    waiting: int = 0
    problem: str = ""
    """Why the numbers are missing; "" if they are not."""


class Replayed(NamedTuple):
    """A dead letter that was sent again, or in a dry run would be. `result` is None then."""

    place: str
    message_id: str
    target: str
    result: SendResult | None = None


class _Range(NamedTuple):
    """The offsets of one queue, and the first that was not replayed."""

    queue: MessageQueue
    first: int
    next: int
    end: int

    def check(self) -> None:
        """Raise if the record of replays cannot be of this queue."""
        if self.next > self.end:
            queue = f"queue {self.queue.queue_id} of {self.queue.topic} at {self.queue.broker_name}"
            raise InvalidArgument(
                f"{queue} ends at offset {self.end}, and replays are recorded up to {self.next}: "
                "the topic was recreated, or its broker has lost messages. Set the offset of "
                f"group {REPLAY_GROUP} in this topic (rmq admin offset reset)"
            )


class DeadLetters(Lifecycle):
    """`start` before use and `stop` at the end, or `async with`.

    A `ClientInstance` is shared; from a `ClientConfig` the object creates its own.
    """

    def __init__(self, client: ClientInstance | ClientConfig) -> None:
        self._owns_client = isinstance(client, ClientConfig)
        self.client = ClientInstance(client) if isinstance(client, ClientConfig) else client
        self._admin = Admin(self.client)
        self._consumer = PullConsumer(self.client, REPLAY_GROUP)

    async def start(self) -> None:
        """Start the client; connections are opened on demand."""
        await self.client.start()

    async def stop(self) -> None:
        """Stop the client unless it is shared."""
        if self._owns_client:
            await self.client.stop()

    async def topics(self, *names: str) -> list[DeadTopic]:
        """The dead-letter topics of these names, without names those of all consumer groups.

        Without names, a topic that this account may not read has a `problem` instead of numbers.
        """
        if names:
            return [await self._topic(name) for name in names]
        found = []
        for name in await self._admin.topics():
            if name.startswith(DLQ_TOPIC_PREFIX):
                try:
                    found.append(await self._topic(name))
                except RmqError as error:
                    found.append(DeadTopic(name, _group_of(name), problem=str(error)))
        return found

    async def read(
        self, topic: str, *, max_count: int = 32, replayed: bool = False
    ) -> list[DeadLetter]:
        """The first messages of a topic that were not replayed; with `replayed`, of all."""
        _check_count(max_count)
        found: list[DeadLetter] = []
        for part in await self._ranges(topic):
            start = part.first if replayed else part.next
            async with contextlib.aclosing(self._letters(part, start)) as letters:
                async for letter in letters:
                    if len(found) == max_count:
                        return found
                    found.append(letter)
        return found

    async def replay(
        self,
        topic: str,
        *,
        to: str | None = None,
        max_count: int | None = None,
        dry_run: bool = False,
        on_sent: Callable[[Replayed], object] | None = None,
    ) -> list[Replayed]:
        """Send the messages of a dead-letter topic that were not replayed again, oldest first.

        Each goes to the topic that it was for, or to `to`, which must exist. `dry_run` sends and
        records nothing. Messages that arrive meanwhile are left for the next run. Run one replay
        of a topic at a time. An error ends it; what was sent before is recorded. `on_sent` is
        called with each message after it was recorded.
        """
        if max_count is not None:
            _check_count(max_count)
        done: list[Replayed] = []
        known: set[str] = set()
        async with Producer(self.client, REPLAY_GROUP, coalesce=False) as producer:
            for part in await self._ranges(topic):
                part.check()
                async with contextlib.aclosing(self._letters(part, part.next)) as letters:
                    async for letter in letters:
                        if len(done) == max_count:
                            return done
                        done.append(await self._send(producer, letter, to, known, dry_run))
                        if on_sent is not None:
                            on_sent(done[-1])
        return done

    async def _send(
        self,
        producer: Producer,
        letter: DeadLetter,
        to: str | None,
        known: set[str],
        dry_run: bool,
    ) -> Replayed:
        target = to or letter.origin_topic
        await self._check_target(letter, target, known)
        replayed = Replayed(letter.place, letter.message.message_id, target)
        if dry_run:
            return replayed
        changes = letter.replay_changes(target)
        result = await producer.send_copy(letter.replayed_message(), target, changes)
        await self._consumer.commit(letter.queue, letter.offset + 1)
        return replayed._replace(result=result)

    async def _check_target(self, letter: DeadLetter, target: str, known: set[str]) -> None:
        if not target:
            text = f"dead letter {letter.place} does not name its original topic"
            raise InvalidArgument(f"{text}; name the topic to send it to")
        if target == letter.queue.topic:
            raise InvalidArgument(f"dead letters of {target} cannot be replayed to {target}")
        if target not in known:
            # A send could create it: a mistyped topic is an error.
            await self.client.name_servers.route(target)
            known.add(target)

    async def _topic(self, name: str) -> DeadTopic:
        parts = await self._ranges(name)
        return DeadTopic(
            name,
            _group_of(name),
            len(parts),
            sum(part.end - part.first for part in parts),
            sum(max(part.end - part.next, 0) for part in parts),
        )

    async def _ranges(self, topic: str) -> list[_Range]:
        parts = []
        offsets = await self._admin.topic_offsets(topic)
        for queue, (first, end) in sorted(offsets.items()):
            try:
                committed = await self._consumer.committed(queue)
            except GroupNotExist:
                committed = None
            parts.append(_Range(queue, first, max(committed or 0, first), end))
        return parts

    async def _letters(self, part: _Range, start: int) -> AsyncGenerator[DeadLetter, None]:
        if start >= part.end:
            return
        # Messages may expire before they are read.
        stream = self._consumer.stream(part.queue, start, part.end, allow_gaps=True)
        async with stream:
            async for message in stream.messages():
                yield DeadLetter(message)


def _group_of(topic: str) -> str:
    return topic[len(DLQ_TOPIC_PREFIX) :] if topic.startswith(DLQ_TOPIC_PREFIX) else ""


def _check_count(count: int) -> None:
    if type(count) is not int or count < 1:
        raise InvalidArgument(f"max_count {count!r:.40} is not a whole number from 1")
