"""Stores all plain sends of one wake-up together: one append, one buffer of answers.

Takes only plain sends (see `codec/wire/plain_send.py`), also a single one, to topics that have
taken one before and have not changed since; topics and queues may be mixed. Everything else is left
to the router, in order. Used only where no request has to be handled on its own: without accounts,
hooks and request timing.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker_core.broker.client_address import born_host
from broker_core.broker.send.hooks import SendHooks
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.native import codec_backend, read_sends
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.record_layout import I32
from broker_core.codec.wire.frame_parser import FrameParser
from broker_core.codec.wire.hot_replies import REPLY_ENDING
from broker_core.config import RemotingLimits
from broker_core.protocol_codes import PutStatus
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import FrameHandler
from broker_core.storage.derived.consume_queue_set import QueueKey
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

# Limits the time of one turn of the loop; the rest is taken right after.
BURST_MAX: Final = 256

_PUT_OK: Final = PutStatus.PUT_OK


class SendBursts:
    """Knows which topics are ready. Takes nothing while the broker is not writable."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        stats: BrokerStats,
        hooks: SendHooks,
        suffix: bytes,
        answer_constants: bytes,
        limits: RemotingLimits,
        message_size_max: int,
        is_writable: bool,
    ) -> None:
        self._store = store
        self._writes = store.writes
        self._is_async = store.is_async
        self._topics = topics
        self._stats = stats
        self._hooks = hooks
        self._suffix = suffix
        self._constants = answer_constants
        self._frame_size_max = limits.frame_size_max
        self._header_size_max = limits.header_size_max
        self._body_size_max = message_size_max
        # Topic -> number of writable queues, as of `_version`.
        self._ready: dict[str, int] = {}
        self._version = topics.version
        self._is_writable = is_writable

    def reconfigure(self, *, is_writable: bool) -> None:
        """Apply the broker's write permission."""
        self._is_writable = is_writable

    @property
    def frame_handler(self) -> FrameHandler | None:
        """`take`; None with the Python codec.

        With the Python codec the general decoder is faster, and no topic becomes ready. A burst
        would only parse each send a second time.
        """
        return self.take if codec_backend() == "native" else None

    def note_ready(self, topic: str, queue_count: int) -> None:
        """A plain message was stored to this topic, which has `queue_count` writable queues."""
        self._forget_changed()
        self._ready[topic] = queue_count

    def take(self, connection: Connection, data: bytes, start: int, count_max: int) -> int:
        """Store and answer sends from `data[start:]`; returns where the first untaken frame is."""
        if not self._is_writable or self._hooks:
            return start
        self._forget_changed()
        burst = read_sends(
            data,
            start,
            self._ready,
            self._suffix,
            self._frame_size_max,
            self._header_size_max,
            self._body_size_max,
            min(count_max, BURST_MAX),
        )
        if burst is None:
            return start
        (
            end,
            count,
            queues,
            index,
            bodies,
            body_ends,
            texts,
            text_ends,
            born,
            marks,
            flag,
            sys_flag,
        ) = burst
        result = self._writes.append_rows(
            ColumnBatch(
                count,
                queues,
                index,
                (bodies, body_ends, 8),
                None,
                None,
                (texts, text_ends, 8),
                flag,
                sys_flag,
                born,
                born_host(connection),
                self._writes.store_host,
            )
        )
        if result is None:
            return start
        if result.message_count < count:
            # The file is full; an ordinary append begins the next one.
            end = _end_of(data, start, result.message_count)
        self._count(queues, index, result)
        replies = self._writes.replies(result, marks, texts, self._constants, REPLY_ENDING)
        if self._is_async:
            connection.send_encoded(replies)
        else:
            self._answer_when_safe(connection, result, replies, end - start)
        return end

    def _count(self, queues: tuple[QueueKey, ...], index: bytes, result: PutResult) -> None:
        if len(queues) == 1:
            size = result.end_position - result.position
            self._stats.put_each(queues[0][0].decode(), result.message_count, size)
            return
        counted = self._writes.counted(result, index, len(queues))
        for (topic, _), (count, size) in zip(queues, counted, strict=True):
            # None of a queue whose rows did not fit into the file.
            if count:
                self._stats.put_each(topic.decode(), count, size)

    def _forget_changed(self) -> None:
        version = self._topics.version
        if version is not self._version:
            self._version = version
            self._ready.clear()

    def _answer_when_safe(
        self, connection: Connection, result: PutResult, replies: bytes, size: int
    ) -> None:
        count = result.message_count
        cost = connection.load.begin_many(count, size)
        self._writes.when_acknowledged(
            result, partial(self._answer_later, connection, replies, count, cost)
        )

    def _answer_later(
        self, connection: Connection, replies: bytes, count: int, cost: int, status: PutStatus
    ) -> None:
        connection.load.end_many(count, cost)
        if status is _PUT_OK:
            connection.send_encoded(replies)
            return
        parser = FrameParser()
        parser.receive_data(replies)
        while (reply := parser.next_command()) is not None:
            reply.code = status.response_code
            reply.remark = status.name
            if not status.stored:
                reply.ext.clear()
                reply.remark = f"not stored safely: {status.name}"
            connection.send(reply)


def _end_of(data: bytes, start: int, count: int) -> int:
    """Where the frame after `count` others begins."""
    for _ in range(count):
        start += 4 + int(I32.unpack_from(data, start)[0])
    return start
