"""The one door to a store: open, put, get, query, look up, close.

Owned by one thread. Without `start` it works inline: `flush` makes everything durable and visible
on the caller's thread. After `start` it serves an event loop: a flush thread waits for the disk, a
background thread prepares files and writes checkpoints, and `put` answers when its promise is met.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from broker_core.codec.column_batch import ColumnBatch, check_batch
from broker_core.codec.message_record import MessageRecord
from broker_core.config import StoreConfig
from broker_core.errors import InvalidArgument, StoreClosed, StoreUnusable
from broker_core.protocol_codes import GetStatus, PutStatus
from broker_core.runtime.clock import Clock, SystemClock
from broker_core.storage.append_group import Inspected, checked_runs
from broker_core.storage.commit_log import RecordRun
from broker_core.storage.file_system import DiskUsage, FileSystem
from broker_core.storage.posix_file_system import PosixFileSystem
from broker_core.storage.staging import StagedBatch, StagingArea
from broker_core.store.argument_checks import check_integer, check_numbers, encoded_text
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.filtered_read import RecordFilter
from broker_core.store.group_ranges import group_ranges
from broker_core.store.message import Message
from broker_core.store.message_reader import GetResult
from broker_core.store.opening import RecoveryReport
from broker_core.store.prepared_offsets import prepared_offsets
from broker_core.store.put_result import PutResult
from broker_core.store.send_rows import SendRows
from broker_core.store.store_parts import StoreParts
from broker_core.store.store_replication import StoreReplication

TIME_MAX = (1 << 63) - 1


class MessageStore:
    """See the module. Every method but `put*` returns at once or blocks only for the disk."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._closed = False

    @classmethod
    def open(
        cls,
        root: str | Path | FileSystem,
        config: StoreConfig | None = None,
        *,
        clock: Clock | None = None,
    ) -> MessageStore:
        """Open or create the store in directory `root`, recovering it when it needs that."""
        if not isinstance(root, (str, Path)) and not hasattr(root, "boot_id"):
            raise InvalidArgument(f"root must be a path or a FileSystem, not {root!r:.80}")
        if config is not None and not isinstance(config, StoreConfig):
            raise InvalidArgument(f"config must be a StoreConfig, not {config!r:.80}")
        own = isinstance(root, (str, Path))
        file_system: Any = PosixFileSystem(root) if isinstance(root, (str, Path)) else root
        try:
            parts = StoreParts.open(
                file_system, config or StoreConfig(), clock or SystemClock(), os.getpid()
            )
        except BaseException as error:
            if own:
                file_system.close()
            if isinstance(error, OSError):
                raise StoreUnusable(f"the store cannot be opened: {error}") from error
            raise
        parts.owns_file_system = own
        return cls(parts)

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def start(self) -> None:
        """Serve the running event loop: start the threads and the periodic work."""
        self._open_parts().start(asyncio.get_running_loop())

    @names_disk_errors
    def close(self) -> None:
        """Flush, dispatch, checkpoint, remove `abort`, release everything. Safe to call twice.

        A fenced store is only released: `abort` stays and the next open recovers it. Raises
        `StoreFenced` when the last flush fails; everything is released then, too.
        """
        if not self._closed:
            self._closed = True
            self._parts.close()

    # Puts

    def append(self, message: Message) -> PutResult:
        """Append without waiting for the disk; PUT_OK means no more than "in the log"."""
        if self._closed:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        return self._parts.appender.append_message(message)

    def append_text(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        text: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = b"",
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> PutResult:
        """`append` for a server: properties as the text that came, hosts as bytes.

        The caller has checked the types; sizes and names are checked here.
        """
        if self._closed:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        return self._parts.appender.append_text(
            topic, queue_id, body, text, flag, sys_flag,
            born_timestamp, born_host, reconsume_times, prepared_offset,
        )  # fmt: skip

    @property
    def send_rows(self) -> SendRows:
        """`append_text` for many messages at once."""
        return SendRows(self._open_parts())

    def append_batch(self, batch: ColumnBatch, *, together: bool = False) -> PutResult:
        """Append all rows or none; `together` keeps them in one file, as RocketMQ's batches."""
        check_batch(batch)
        if self._closed:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        return self._parts.appender.append(batch, together=together)

    async def put(self, message: Message) -> PutResult:
        """Append and wait for what the mode promises."""
        result = self.append(message)
        return await self.acknowledged(result) if message.wants_wait else result

    async def put_batch(self, batch: ColumnBatch, *, together: bool = False) -> PutResult:
        """`put` for a column batch."""
        return await self.acknowledged(self.append_batch(batch, together=together))

    def when_durable(
        self, result: PutResult, callback: Callable[[BaseException | None], None]
    ) -> None:
        """Call `callback(None)` once a group is durable, or with the error if it never will be.

        The way for a server that answers many requests per wake-up: no task and no future each.
        """
        self._parts.when_durable(result[3], callback)

    def when_acknowledged(self, result: PutResult, callback: Callable[[PutStatus], object]) -> None:
        """`acknowledged` without a future: `callback(status)`, at once with ASYNC_FLUSH."""
        if not result.ok or self._parts.answers_at_once:
            callback(result.status)
        else:
            self._parts.acks.when(result.end_position, callback)

    def message_ids(self, result: PutResult) -> str:
        """Offset ids of a batch that was appended `together`, separated by commas."""
        # Producers ask whose sync ends while the store is being closed, too.
        return self._parts.message_ids(result.position, result.message_count)

    async def acknowledged(self, result: PutResult) -> PutResult:
        """Wait until an append is durable (SYNC_FLUSH) and say so in the status."""
        if not result.ok or self._parts.answers_at_once:
            return result
        status = await self._parts.acks.wait(result.end_position)
        return result if status is PutStatus.PUT_OK else result._replace(status=status)

    def put_now(self, message: Message) -> PutResult:
        """Append, flush and dispatch on this thread; for programs without an event loop."""
        result = self.append(message)
        if result.ok:
            self.flush()
        return result

    # Append groups and staging

    def append_group(
        self, runs: Sequence[RecordRun], note: bytes = b"", inspected: Inspected = ()
    ) -> PutResult:
        """Append the records of all runs as one unit (see `storage/append_group.py`).

        `inspected` is what `inspect_runs` said of them: work that a thread can do before.
        """
        if self._closed:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        if inspected and len(inspected) != len(runs):
            raise InvalidArgument(f"{len(inspected)} runs are inspected, {len(runs)} given")
        return self._parts.appender.append_group(checked_runs(runs), note, inspected)

    def inspect_runs(self, runs: Sequence[RecordRun]) -> Inspected:
        """Verify runs ahead of `append_group`; on any thread. Raises `MalformedRecord`."""
        return self._any_thread_parts().appender.inspect_runs(checked_runs(runs))

    async def prepare_room(self, size: int) -> None:
        """Have the files made that a group of `size` bytes takes, while others are served."""
        await self._open_parts().prepare_room(size)

    async def put_group(self, runs: Sequence[RecordRun], note: bytes = b"") -> PutResult:
        """Append a group and wait until all of it is durable, whatever the flush mode."""
        return await self.group_acknowledged(self.append_group(runs, note))

    async def publish(self, batches: Sequence[StagedBatch], note: bytes = b"") -> PutResult:
        """Turn sealed staged batches into one append group and drop them once it is durable."""
        staging = self._open_parts().staging
        with staging.open_runs(batches) as runs:
            result = self.append_group(runs, note)
        if result.ok:
            staging.claim(batches)
        result = await self.group_acknowledged(result)
        if result.ok:
            for batch in batches:
                staging.recycle(batch.staging_id)
        return result

    @names_disk_errors
    def publish_now(self, batches: Sequence[StagedBatch], note: bytes = b"") -> PutResult:
        """`publish` without an event loop."""
        staging = self._open_parts().staging
        with staging.open_runs(batches) as runs:
            result = self.append_group(runs, note)
        if result.ok:
            self.flush()
            for batch in batches:
                staging.drop(batch.staging_id)
        return result

    async def group_acknowledged(self, result: PutResult) -> PutResult:
        """Wait until an appended group is durable and with that visible."""
        parts = self._parts
        if not result.ok or parts.shows_groups():
            return result
        # A group is a promise of its own: it waits for the disk in every flush mode.
        parts.flush.flush_soon()
        status = await parts.group_acks.wait(result.end_position)
        return result if status is PutStatus.PUT_OK else result._replace(status=status)

    async def group_on_disk(self, result: PutResult) -> None:
        """Wait until the disk has a group, where `group_acknowledged` does not wait for that."""
        parts = self._parts
        if not parts.groups_at_once:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: BaseException | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        parts.flush.flushed.when(result.end_position, settle)
        parts.flush.flush_soon()
        await done

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message of a queue gets, visible or not."""
        check_numbers(queue_id=queue_id)
        return self._open_parts().appender.next_offset((_name(topic), queue_id))

    @names_disk_errors
    def group_ranges(self, start: int, end: int) -> dict[tuple[str, int], tuple[int, int]]:
        """First and next offset of every queue in the append group at `[start, end)`."""
        check_numbers(start=start, end=end)
        return group_ranges(self._open_parts().log, start, end)

    @property
    def staging(self) -> StagingArea:
        """Batches written ahead of their publication; threads that prove them ask, too."""
        return self._any_thread_parts().staging

    # Flush and dispatch on demand

    @names_disk_errors
    def flush(self) -> None:
        """Make everything appended durable and visible; raises `StoreFenced` when it cannot be."""
        parts = self._open_parts()
        parts.flush.flush_all()
        parts.upkeep.dispatch()

    @names_disk_errors
    def set_retention(self, config: StoreConfig) -> None:
        """Keep messages as long as `config` says from now on; its other settings are ignored."""
        self._open_parts().upkeep.set_retention(config)

    def clean(self, *, manual: bool = False) -> int:
        """Apply retention now; returns the log start. `manual` ignores the hour of the day."""
        return self._open_parts().upkeep.clean(manual=manual)

    def before_clean(self, save: Callable[[], object]) -> None:
        """Call `save()` before log files are removed; when it raises, they stay."""
        if not callable(save):
            raise InvalidArgument(f"save must be callable, not {save!r:.80}")
        self._open_parts().upkeep.before_clean.append(save)

    def on_arrival(self, listener: Callable[[bytes, int, int], None]) -> None:
        """Call `listener(topic, queue_id, max_offset)` when a queue has new readable messages."""
        if not callable(listener):
            raise InvalidArgument(f"listener must be callable, not {listener!r:.80}")
        self._open_parts().dispatcher.on_arrival(listener)

    # Reads

    @names_disk_errors
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int | None = None,
        *,
        size_max: int | None = None,
        tag_codes: Collection[int] | None = None,
        record_filter: RecordFilter | None = None,
    ) -> GetResult:
        """Records from a queue offset on; the status says what to do when there are none.

        Without limits of their own, `read_count_max` and `read_size_max` of the store apply. A
        `record_filter` decides by the properties of a message instead of its tag code.
        """
        parts = self._open_parts()
        count_max = parts.config.read_count_max if count_max is None else count_max
        check_numbers(queue_id=queue_id, count_max=count_max)
        # Any number is an offset: the status corrects those outside the queue.
        check_integer("offset", offset)
        if tag_codes is not None and not isinstance(tag_codes, Collection):
            raise InvalidArgument(f"tag_codes must be a collection, not {tag_codes!r:.80}")
        limit = parts.config.read_size_max if size_max is None else size_max
        check_numbers(size_max=limit)
        started = parts.clock.monotonic()
        result = parts.reader.get(
            _name(topic), queue_id, offset, count_max, limit, tag_codes, record_filter
        )
        ms = (parts.clock.monotonic() - started) * 1000
        parts.stats.get(result.status, result.message_count, len(result.records), ms)
        return result

    @names_disk_errors
    def read_columns(
        self, topic: str, queue_id: int, start: int, until: int, wanted: int
    ) -> dict[str, Any]:
        """Exactly `[start, until)` as column buffers; `wanted` is a mask of `record_columns`."""
        parts = self._open_parts()
        check_numbers(queue_id=queue_id, start=start, until=until, wanted=wanted)
        columns = parts.reader.columns(_name(topic), queue_id, start, until, wanted)
        parts.stats.get(GetStatus.FOUND, until - start, 0)
        return columns

    @names_disk_errors
    def message_at(self, position: int) -> MessageRecord | None:
        """The message whose record starts at a log position."""
        check_numbers(position=position)
        parts = self._open_parts()
        return parts.reader.at(position) if position < parts.dispatcher.position else None

    @names_disk_errors
    def record_at(self, position: int) -> bytes | None:
        """The stored bytes of the message whose record starts at a log position."""
        check_numbers(position=position)
        parts = self._open_parts()
        return parts.reader.record_at(position) if position < parts.dispatcher.position else None

    @names_disk_errors
    def query(
        self, topic: str, key: str, count_max: int = 32, begin_ms: int = 0, end_ms: int = TIME_MAX
    ) -> list[MessageRecord]:
        """Messages by key or unique key within a time range."""
        parts = self._open_parts()
        check_numbers(count_max=count_max, begin_ms=begin_ms, end_ms=end_ms)
        name = encoded_text("key", key)
        return parts.reader.query(_name(topic), name, count_max, begin_ms, end_ms)

    @names_disk_errors
    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """First offset stored at or after a time."""
        check_numbers(queue_id=queue_id, timestamp_ms=timestamp_ms)
        return self._open_parts().reader.offset_by_time(_name(topic), queue_id, timestamp_ms)

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Readable offsets `[min, max)` of a queue; (0, 0) when there is none."""
        check_numbers(queue_id=queue_id)
        parts = self._open_parts()
        queue = parts.queues.find(_name(topic), queue_id)
        return (0, 0) if queue is None else (queue.min_offset, parts.reader.end_of(queue))

    @names_disk_errors
    def durable_offset(self, topic: str, queue_id: int) -> int:
        """Offsets below this one survive a power cut, in every flush mode."""
        check_numbers(queue_id=queue_id)
        return self._open_parts().durable_offset(_name(topic), queue_id)

    @names_disk_errors
    def store_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Store time of one message in epoch milliseconds."""
        check_numbers(queue_id=queue_id, offset=offset)
        parts = self._open_parts()
        queue = parts.queues.find(_name(topic), queue_id)
        return None if queue is None else parts.reader.store_time(queue, offset)

    @names_disk_errors
    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """(position, size, tag code) of readable entries `[offset, offset + count)`."""
        check_numbers(queue_id=queue_id, offset=offset, count=count)
        return self._open_parts().reader.units(_name(topic), queue_id, offset, count)

    @names_disk_errors
    def prepared_offsets(self, start: int) -> Iterator[tuple[int, int]]:
        """(position, PREPARED TRANSACTION OFFSET) of visible records that have one.

        Records from log position `start` on, where one must begin, or from the log's first one.
        """
        check_numbers(start=start)
        parts = self._open_parts()
        start = max(start, parts.log.start)
        return prepared_offsets(parts.log, start, parts.dispatcher.position)

    def queues(self) -> list[tuple[str, int]]:
        """Every (topic, queue id) that holds or held messages."""
        return sorted((q.topic.decode("ascii"), q.queue_id) for q in self._open_parts().queues)

    @names_disk_errors
    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic; returns how many. Its records go with retention."""
        return self._open_parts().upkeep.delete_topic(_name(topic))

    @property
    def replication(self) -> StoreReplication:
        """The log as bytes, and what slaves have to do with puts."""
        return StoreReplication(self._open_parts())

    # State

    @property
    def boot_id(self) -> str:
        """Of the machine, as the store's state names it."""
        return self._parts.flush.state.boot_id

    @property
    def store_id(self) -> str:
        """Identity of this log."""
        return self._parts.flush.state.store_id

    @property
    def is_async(self) -> bool:
        """Whether a put is acknowledged at once, before it is durable and copied."""
        return self._parts.answers_at_once

    @property
    def store_host(self) -> bytes:
        """Address and port that records carry."""
        return self._parts.appender.store_host

    @property
    def epoch(self) -> int:
        """Changes when messages that readers may have seen could be gone."""
        return self._parts.flush.state.epoch

    @property
    def recovery(self) -> RecoveryReport:
        """What opening found and did."""
        return self._parts.report

    @property
    def log_range(self) -> tuple[int, int]:
        """First and end position of the log."""
        return self._parts.log.start, self._parts.log.position

    @property
    def flushed_position(self) -> int:
        """Everything below is durable."""
        return self._parts.flush.flushed.position

    @property
    def dispatched_position(self) -> int:
        """Everything below is visible to readers."""
        return self._parts.dispatcher.position

    @property
    def fenced(self) -> bool:
        """A sync failed; nothing is acknowledged any more."""
        return self._parts.flush.failure is not None

    @names_disk_errors
    def disk_usage(self) -> DiskUsage:
        """Space on the partition of the store."""
        return self._open_parts().disk_usage()

    def stats(self) -> dict[str, Any]:
        """Counters since the store was opened."""
        return self._parts.statistics()

    def _open_parts(self) -> StoreParts:
        self._any_thread_parts().catch_up()
        return self._parts

    def _any_thread_parts(self) -> StoreParts:
        """Without the dispatch that is due, which only the owner may do."""
        if self._closed:
            raise StoreClosed("the store is closed; open it again")
        return self._parts


def _name(topic: str) -> bytes:
    return encoded_text("topic", topic)
