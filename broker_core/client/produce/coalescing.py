"""Coalesces small sends of one event-loop turn into batch requests, at a tenth of the cost each.

Sends are collected until the next turn of the event loop, which adds no latency. Fewer than
`COALESCE_FROM` go one by one and spread over the queues as usual. A batch is stored completely or
not at all. If a broker refuses a batch because of its content, its messages are sent one by one, so
that only the invalid ones fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from broker_core.client.produce.engine import SendEngine
from broker_core.client.produce.failures import is_worth_another_try
from broker_core.client.produce.pending_send import PendingSend, batch_item
from broker_core.errors import NotAcknowledged, RmqError, SystemBusy, UnexpectedAnswer

# Fewer sends than this in one turn are not coalesced.
COALESCE_FROM: Final = 32
_BATCH_COUNT: Final = (16, 512)
_BATCH_SIZE_MAX: Final = 128 << 10
_FRESH_MAX: Final = 65_536
# The text of a batch request; the messages have their own inside.
_BATCH_TEXT: Final = "WAIT\x01true\x02"

# Errors after which the messages may be stored, or which concern all of them alike.
_FINAL: Final = (SystemBusy, UnexpectedAnswer, NotAcknowledged)


class Coalescer:
    """Takes sends that may share a request, and hands singles and batches to the engine."""

    def __init__(self, engine: SendEngine, waiting_size_max: int) -> None:
        self._engine = engine
        self._waiting_size_max = waiting_size_max
        self._fresh: list[PendingSend] = []
        self._fresh_size = 0
        self._is_scheduled = False
        # Messages in batches under way
        self._carried = 0

    @property
    def unfinished(self) -> int:
        """Sends without a result that the engine does not count."""
        return len(self._fresh) + self._carried

    def submit(self, request: PendingSend) -> None:
        """Send it with the others of this turn."""
        self._fresh.append(request)
        self._fresh_size += request.size
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self.release)
        elif self._fresh_size > self._waiting_size_max or len(self._fresh) >= _FRESH_MAX:
            # A long turn: hand over now, because the engine enforces the limits.
            self.release()

    def release(self) -> None:
        """Hand over what was collected."""
        self._is_scheduled = False
        fresh, self._fresh = self._fresh, []
        self._fresh_size = 0
        topics: dict[str, list[PendingSend]] = {}
        for request in fresh:
            topics.setdefault(request.topic, []).append(request)
        for topic, requests in topics.items():
            if len(requests) < COALESCE_FROM:
                for request in requests:
                    self._hand_over(request)
            else:
                queues = self._engine.queue_count(topic)
                for part in _parts(requests, queues):
                    self._send_batch(part)

    def _hand_over(self, request: PendingSend) -> None:
        try:
            self._engine.submit(request)
        except RmqError as error:
            if not request.future.done():
                request.future.set_exception(error)

    def _send_batch(self, requests: list[PendingSend]) -> None:
        first = requests[0]
        carrier: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        batch = PendingSend(
            first.topic,
            b"".join([batch_item(r.body, r.text, int(r.flag)) for r in requests]),
            _BATCH_TEXT,
            [str(r.unique_ids) for r in requests],
            carrier,
            born_ms=int(first.born),
            attempts=first.attempts_left,
            timeout_s=first.timeout_s,
        )
        self._carried += len(requests)
        carrier.add_done_callback(partial(self._distribute, requests))
        self._hand_over(batch)

    def _distribute(self, requests: list[PendingSend], carrier: asyncio.Future[Any]) -> None:
        self._carried -= len(requests)
        error = carrier.exception()
        if error is None:
            for request, result in zip(requests, carrier.result(), strict=True):
                if not request.future.done():
                    request.future.set_result(result)
        elif isinstance(error, NotAcknowledged):
            _fail_each(requests, error)
        elif isinstance(error, RmqError) and _is_about_the_content(error):
            for request in requests:
                if not request.future.done():
                    self._hand_over(request)
        else:
            for request in requests:
                if not request.future.done():
                    request.future.set_exception(error)


def _is_about_the_content(error: RmqError) -> bool:
    return not is_worth_another_try(error) and not isinstance(error, _FINAL)


def _fail_each(requests: list[PendingSend], error: NotAcknowledged) -> None:
    """Fail each request with the result of its own message."""
    results = error.result if isinstance(error.result, tuple) else (error.result,) * len(requests)
    for request, result in zip(requests, results, strict=True):
        if not request.future.done():
            request.future.set_exception(NotAcknowledged(str(error), result))


def _parts(requests: list[PendingSend], queue_count: int) -> Iterator[list[PendingSend]]:
    """Splits into about as many consecutive parts as there are queues, within the limits."""
    least, most = _BATCH_COUNT
    count_max = min(max(-(-len(requests) // max(queue_count, 1)), least), most)
    part: list[PendingSend] = []
    size = 0
    for request in requests:
        if part and (len(part) >= count_max or size + request.size > _BATCH_SIZE_MAX):
            yield part
            part, size = [], 0
        part.append(request)
        size += request.size
    yield part
