"""One store on a simulated disk under a scripted client, and the history of the answers.

`StoreRun` has one method per thing that a client or an operator can do. After each the history
knows the answer; before each file operation the observer may look at both.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from array import array
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from broker_core.codec.records.column_batch import Column, ColumnBatch
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.staged_block import StagedPart
from broker_core.config import StoreConfig
from broker_core.errors import DiskFailed, StagingRefused
from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.storage.files.file_system import DiskUsage
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.staging.staging_area import encode_template
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from broker_core.store.writes.put_result import PutResult
from tests.crash.checker import check
from tests.crash.history import Append, Frozen, History, QueueKey, Sent
from tests.crash.store_dump import TABLE_PATHS, dump_store
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk

HOUR_MS = 3_600_000
QUEUES: tuple[QueueKey, ...] = (("t0", 0), ("t0", 1), ("t1", 0), ("t2", 1))
BODY_SIZES = (24, 100, 100, 100, 300)
HOST = encode_host(("127.0.0.1", 10911))

Result = TypeVar("Result")


class Observer(Protocol):
    """Looks at the disk before each of its operations."""

    def before(self, run: StoreRun, number: int) -> None:
        """Operation `number` of `run.disk` comes next."""


class StoreRun:
    """See the module."""

    def __init__(
        self,
        config: StoreConfig,
        seed: int,
        observer: Observer | None = None,
        disk: SimulatedDisk | None = None,
        queues: Sequence[QueueKey] = QUEUES,
    ) -> None:
        self.config = config
        self.queues = queues
        self.rng = random.Random(seed)
        self.clock = ManualClock() if disk is None else disk.clock
        self.observer = observer
        self.history = History(
            config.commit_log_file_size,
            sync=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            crc=config.append_record_crc,
        )
        self.store: MessageStore | None = None
        self.disk = SimulatedDisk(clock=self.clock, seed=seed) if disk is None else disk
        self.loop = asyncio.new_event_loop()
        self._next_id = 0
        self._staged: list[tuple[StagedPart, list[Sent]]] = []
        self._read_to: dict[QueueKey, int] = {}
        self._watch(self.disk)

    def close_loop(self) -> None:
        """The run is over."""
        self.loop.close()

    def freeze(self) -> Frozen:
        """The history at this moment, with what the store itself claims in public."""
        frozen = self.history.freeze()
        if self.store is not None:
            frozen.safe_end = max(frozen.safe_end, self.store.flushed_position)
        return frozen

    # Opening and closing

    def open(self) -> None:
        """Open, check what is there, and go on from it."""
        self.store = None
        frozen = self.history.freeze()
        store = MessageStore.open(self.disk, self.config, clock=self.clock)
        dump = dump_store(store, self.disk)
        broken = check(dump, frozen)
        assert not broken, broken
        offsets = {key: (queue.min_offset, queue.max_offset) for key, queue in dump.queues.items()}
        self.history.restarted(dump.log_start, dump.log_end, offsets, dump.epoch)
        self.store = store
        self._read_to.clear()
        store.on_arrival(self._arrived)

    def close(self) -> None:
        """Clean stop."""
        store = self._open_store
        self.store = None
        store.close()
        if not store.fenced:
            self.history.everything_safe()

    def reopen(self) -> None:
        """Clean stop and start."""
        self.close()
        self.open()

    def kill(self) -> None:
        """The process is killed and started again."""
        self.store = None
        self._watch(self.disk.kill())
        self.open()

    def cut_power(self) -> None:
        """Power is cut here, with some outcome for what was not synced, and comes back."""
        self.store = None
        self.history.kept_end = self.history.safe_end
        states = list(self.disk.crash_states(8, self.rng))
        self._watch(self.disk.reboot(self.rng.choice(states)))
        self.open()

    # Appending

    def put(self) -> None:
        """One message."""
        message = self.message()
        append = self.history.invoke([message])
        named = dict(message.properties)
        result = self.wait(
            self._open_store.put(
                Message(
                    message.key[0],
                    message.body,
                    message.key[1],
                    tags=named.pop("TAGS", ""),
                    keys=named.pop("KEYS", ""),
                    properties=named,
                )
            )
        )
        self._answered(append, result)

    def put_batch(self, *, together: bool = False) -> None:
        """A column batch over several queues."""
        messages = [self.message() for _ in range(self.rng.randint(2, 5 if together else 8))]
        append = self.history.invoke(messages, together=together)
        batch = column_batch(messages, self.config.append_record_crc)
        self._answered(append, self.wait(self._open_store.put_batch(batch, together=together)))

    def put_together(self) -> None:
        """A batch that must stay in one file."""
        self.put_batch(together=True)

    def put_rows(self) -> None:
        """Rows of several queues that came together; those that do not fit into the file wait."""
        end, messages = self.history.log_end, []
        for _ in range(self.rng.randint(2, 8)):
            message = self.message()
            size = message.size(self.config.append_record_crc)
            if self.history.place(end, size) != end:
                break
            messages.append(message)
            end += size
        if not messages:
            self.put()
            return
        append = self.history.invoke(messages)
        batch = column_batch(messages, self.config.append_record_crc)
        store = self._open_store
        result = store.writes.append_rows(batch)
        if result is None:
            # As a broker does; the general route says why.
            self._answered(append, self.wait(store.put_batch(batch)))
        else:
            assert result.message_count == len(messages)
            self._answered(append, self.wait(store.writes.acknowledged(result)))

    def put_group(self) -> None:
        """An append group of one to three runs, as a rule over several files."""
        runs = [
            [self.message() for _ in range(self.rng.randint(1, 6))]
            for _ in range(self.rng.randint(1, 3))
        ]
        note = b"group %d" % self._next_id
        append = self.history.invoke([message for run in runs for message in run], note=note)
        crc = self.config.append_record_crc
        templates = [encode_template(column_batch(run, crc)) for run in runs]
        result = self.wait(self._open_store.put_group(templates, note))
        self._answered(append, result, durable=True)

    def stage(self) -> None:
        """Write a batch ahead."""
        staging = self._open_store.staging
        staging_id = staging.begin()
        messages: list[Sent] = []
        for _ in range(self.rng.randint(1, 2)):
            part = [self.message() for _ in range(self.rng.randint(1, 4))]
            self.history.staged.update(message.body for message in part)
            template = encode_template(column_batch(part, self.config.append_record_crc))
            staging.append(staging_id, template, len(part))
            messages += part
        self._staged.append((staging.seal(staging_id), messages))

    def publish(self) -> None:
        """Turn what is staged into a group; a power cut may have taken it."""
        if not self._staged:
            self.stage()
        taken, self._staged = self._staged[:2], self._staged[2:]
        messages = [message for _, part in taken for message in part]
        note = b"publish %d" % self._next_id
        append = self.history.invoke(messages, note=note)
        try:
            result = self.wait(self._open_store.publish([batch for batch, _ in taken], note))
        except StagingRefused:
            self.history.refused(append)
            return
        self._answered(append, result, durable=True)

    def _answered(self, append: Append, result: PutResult, *, durable: bool = False) -> None:
        if result.status is PutStatus.UNKNOWN_ERROR and result.position < 0:
            # The store is fenced; only the next open can say what is in the log.
            return
        if result.position < 0:
            self.history.refused(append)
            return
        assert (result.position, result.end_position) == (append.start, append.end), (
            f"{result} instead of {append}"
        )
        self.history.accepted(append)
        if result.ok and (durable or self.history.sync):
            self.history.acknowledged(append)
        self.settle()

    # Reading, time, retention, tables

    def read(self) -> None:
        """Readers catch up on every queue."""
        for topic, queue_id in self._open_store.queues():
            self._read_queue(topic, queue_id)

    def tick(self) -> None:
        """Time passes and the periodic work is done."""
        self._advance(self.rng.choice((50, 250, 600, 1_200, 5_000, 11_000)))
        self._may_remove()
        self._open_store.scheduler.tick()
        self._removed()

    def checkpoint(self) -> None:
        """Enough time for a dispatch checkpoint to be due, twice."""
        for _ in range(2):
            self._advance(11_000)
            self._may_remove()
            self._open_store.scheduler.tick()
            self._removed()

    def flush(self) -> None:
        """Make everything durable and visible, in every mode."""
        self._open_store.flush()
        self.history.everything_safe()
        self.settle()

    def clean(self) -> None:
        """Retention, by age or because the disk is nearly full."""
        self._may_remove()
        if self.rng.random() < 0.5:
            self._advance(2 * HOUR_MS)
            self._open_store.clean(manual=True)
        else:
            self.disk.reported_usage = DiskUsage(88, 12)
            self._open_store.clean()
            self.disk.reported_usage = None
        self._removed()

    def delete_topic(self) -> None:
        """An operator removes a topic."""
        topic = self.rng.choice(self.queues)[0]
        self.history.deleting.add(topic)
        self._open_store.delete_topic(topic)
        self.settle()
        for key, end in self.history.next_offsets.items():
            if key[0] == topic:
                self.history.deleted[key] = end
        self.history.deleting.discard(topic)

    def save_table(self) -> None:
        """A metadata table is replaced."""
        path = self.rng.choice(TABLE_PATHS)
        self._next_id += 1
        self.history.tables[path] = *self.history.tables.get(path, (None,)), self._next_id
        JsonTable(self.disk, path).save({"value": self._next_id, "text": "x" * 700})
        self.history.tables[path] = (self._next_id,)

    # Bookkeeping

    def message(self) -> Sent:
        """A message that no other equals."""
        rng = self.rng
        self._next_id += 1
        size = rng.choice(BODY_SIZES)
        body = b"%d:" % self._next_id + rng.randbytes(size)
        named = {}
        if rng.random() < 0.6:
            named["TAGS"] = rng.choice(("red", "green"))
        if rng.random() < 0.6:
            named["KEYS"] = " ".join(
                f"k{rng.randrange(8)}" for _ in range(1 if rng.random() < 0.7 else 2)
            )
        if rng.random() < 0.15:
            named["long"] = "p" * rng.choice((100, 600, 1_100))
        return Sent(rng.choice(self.queues), body, frozenset(named.items()))

    def settle(self) -> None:
        """Take over what the store claims in public after a call."""
        store = self._open_store
        statistics = store.stats()
        self.history.safe_end = max(self.history.safe_end, store.flushed_position)
        self.history.kept_end = max(self.history.kept_end, statistics["committed_position"])
        self.history.forget_below(statistics["log_start"])

    def wait(self, call: Coroutine[Any, Any, Result]) -> Result:
        """The answer of a call that may wait for the disk."""
        return self.loop.run_until_complete(call)

    @property
    def _open_store(self) -> MessageStore:
        assert self.store is not None, "the store is not open"
        return self.store

    def _advance(self, ms: int) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(ms)

    def _may_remove(self) -> None:
        """Retention never touches the last file."""
        last = self.history.log_end - self.history.log_end % self.history.file_size
        self.history.start_max = max(self.history.start_max, last)

    def _removed(self) -> None:
        """Retention has answered: the start that readers see is the one that stays."""
        self.settle()
        if not self._open_store.fenced:
            self.history.start_max = self._open_store.log_range[0]

    def _arrived(self, topic: bytes, queue_id: int, _: int) -> None:
        # A refused reader gets nothing; other readers are not affected.
        with contextlib.suppress(DiskFailed):
            self._read_queue(topic.decode("ascii"), queue_id)

    def _read_queue(self, topic: str, queue_id: int) -> None:
        store = self.store
        if store is None:
            return
        key = topic, queue_id
        low, high = store.offsets(topic, queue_id)
        offset = max(self._read_to.get(key, 0), low)
        while offset < high:
            result = store.get(topic, queue_id, offset, 1_000, size_max=1 << 24)
            for message in result.messages():
                self.history.saw(key, message.queue_offset, message.physical_offset)
            offset = result.next_offset
        self._read_to[key] = offset

    def _watch(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        if self.observer is not None:
            observer = self.observer
            disk.on_operation = lambda number: observer.before(self, number)


def column_batch(messages: Sequence[Sent], crc: bool) -> ColumnBatch:
    """The messages as one batch, queues in order of appearance."""
    queues = list(dict.fromkeys(message.key for message in messages))
    numbers = {key: number for number, key in enumerate(queues)}
    named = [dict(message.properties) for message in messages]
    others = [
        "".join(f"{n}\x01{v}\x02" for n, v in sorted(p.items()) if n not in ("TAGS", "KEYS"))
        for p in named
    ]
    return ColumnBatch(
        count=len(messages),
        queues=tuple((topic.encode(), queue_id) for topic, queue_id in queues),
        queue_index=array("i", [numbers[message.key] for message in messages]),
        body=_column([message.body for message in messages]),
        tags=_column([p.get("TAGS", "").encode() for p in named]),
        keys=_column([p.get("KEYS", "").encode() for p in named]),
        properties=_column([text.encode() for text in others]),
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
        append_crc=crc,
    )


def _column(values: Sequence[bytes]) -> Column:
    offsets = array("q", [0])
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return b"".join(values), offsets, 8


Step = Callable[[StoreRun], None]
