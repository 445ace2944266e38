"""Sends lines as messages, with many requests in flight; every answer is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from broker_core.cli.exit_codes import CommandFailed
from broker_core.cli.messages.json_lines import json_message
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.errors import MessageTooLarge

IN_FLIGHT_MAX: Final = 256
# Maximum bytes of the bodies of one batch, without properties.
_BATCH_SIZE_MAX: Final = 1 << 20
# The answer lists an id for every message, and has to fit into a header.
_BATCH_COUNT_MAX: Final = 1_000


class LineShape(NamedTuple):
    """Fields that all messages share, and the separator of the key."""

    topic: str
    key_separator: bytes | None = None
    tags: str = ""
    properties: Mapping[str, str] = {}
    delay_level: int = 0
    is_json: bool = False
    sharding_key: str | None = None

    def message(self, line: bytes) -> OutgoingMessage:
        """The message of one line; a line without a separator has no key."""
        if self.is_json:
            return json_message(line, self._message(b"", ""))
        key = b""
        if self.key_separator is not None:
            before, separator, after = line.partition(self.key_separator)
            if separator:
                key, line = before, after
        try:
            keys = key.decode("utf-8")
        except UnicodeDecodeError:
            raise CommandFailed(f"the key {key[:60]!r} is not UTF-8") from None
        return self._message(line, keys)

    def _message(self, body: bytes, keys: str) -> OutgoingMessage:
        return OutgoingMessage(
            self.topic,
            body,
            self.tags,
            keys,
            self.properties,
            self.delay_level,
            sharding_key=self.sharding_key,
        )


class LineSender:
    """Sends in the order of the lines; stops at the first failure.

    Requests to one broker are answered in order, so that the messages of a queue are in the order
    of their lines unless one had to be sent again.
    """

    def __init__(self, producer: Producer, shape: LineShape, batch_count: int = 1) -> None:
        self._producer = producer
        self._shape = shape
        self._batch_count = min(batch_count, _BATCH_COUNT_MAX)
        self._on_the_way: set[asyncio.Future[Any]] = set()
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()
        self._taken = 0
        self.read = 0
        """Lines that were taken."""
        self.acknowledged = 0
        """Messages that the broker has promised to keep."""

    async def send(self, lines: Iterable[bytes]) -> None:
        """Send all of `lines`; waits while too many are in flight. Raises the first failure."""
        for batch in self._batches(lines):
            while len(self._on_the_way) >= IN_FLIGHT_MAX and self._failure is None:
                await self._change()
            self._raise_failure()
            self._begin(batch)
        # Acknowledgements are counted, and a failure seen, while input is slow.
        await asyncio.sleep(0)

    async def finish(self) -> None:
        """Wait for everything in flight. Raises the first failure."""
        while self._on_the_way:
            await self._change()
        self._raise_failure()

    def _begin(self, batch: list[OutgoingMessage]) -> None:
        self.read += len(batch)
        sent: asyncio.Future[Any]
        try:
            if len(batch) == 1:
                sent = self._producer.send(batch[0])
            else:
                sent = self._producer.send_batch(batch)
        except MessageTooLarge as error:
            which = f"line {self.read}" if len(batch) == 1 else f"lines up to {self.read}"
            raise CommandFailed(f"{which}: {error}") from None
        self._on_the_way.add(sent)
        count = len(batch)
        sent.add_done_callback(lambda future: self._done(future, count))

    def _done(self, sent: asyncio.Future[Any], count: int) -> None:
        self._on_the_way.discard(sent)
        if sent.cancelled():
            self._failure = self._failure or asyncio.CancelledError()
        elif sent.exception() is not None:
            self._failure = self._failure or sent.exception()
        else:
            self.acknowledged += count
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _batches(self, lines: Iterable[bytes]) -> Iterator[list[OutgoingMessage]]:
        batch: list[OutgoingMessage] = []
        size = 0
        for line in lines:
            self._taken += 1
            try:
                message = self._shape.message(line)
            except CommandFailed as error:
                raise CommandFailed(f"line {self._taken}: {error}") from None
            if batch and (
                len(batch) >= self._batch_count
                or size + len(message.body) > _BATCH_SIZE_MAX
                or _goes_alone(message)
                or _goes_alone(batch[-1])
            ):
                yield batch
                batch, size = [], 0
            batch.append(message)
            size += len(message.body)
        if batch:
            yield batch


def _goes_alone(message: OutgoingMessage) -> bool:
    """Whether a message has a sharding key or a delivery time, so that it cannot be in a batch."""
    return bool(message.sharding_key or message.delay_level or message.has_time)
