"""Small stores at rest on a simulated disk, and the right answer to everything one can ask them.

A sample is the bytes of a store directory plus its answers. Three of them: after a clean close,
after a kill, and after retention has removed the first files.
"""

from __future__ import annotations

import dataclasses
import itertools
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from broker_core.codec.records import column_names
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.staged_block import StagedPart
from broker_core.config import StoreConfig
from broker_core.protocol_codes import GetStatus
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.log.append_group import GROUP_TOPIC
from broker_core.storage.log.segment_file import segment_name
from broker_core.storage.log.segment_sequence import COMMIT_LOG_DIR
from broker_core.storage.staging.staging_area import encode_template
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk

CONFIG = StoreConfig(
    commit_log_file_size=1024,
    consume_queue_file_size=80,
    index_hash_slots=4,
    index_entries_max=8,
    message_size_max=512,
    file_reserved_hours=1,
)
TABLE_PATH = "config/topics.json"
OLD_TABLE = {"dataVersion": {"counter": 1}, "topics": {"orders": {"queues": 2}}}
NEW_TABLE = {"dataVersion": {"counter": 2}, "topics": {"orders": {"queues": 2}, "bills": {}}}
EVERY_COLUMN = (column_names.MESSAGE_ID << 1) - 1
HOUR_MS = 3_600_000

Tree = dict[str, bytes]
Question = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Sample:
    """A store at rest and what it must answer."""

    name: str
    tree: Tree
    older: Tree
    """The same directory when it was half as full."""
    wall_ms: int
    staged: StagedPart
    answers: Mapping[Question, Any] = dataclasses.field(default_factory=dict)
    records: tuple[tuple[int, int], ...] = ()
    """Start and end position of every record."""
    log_end: int = 0

    def disk(self, tree: Tree | None = None) -> SimulatedDisk:
        """A fresh disk, with these bytes or others."""
        disk = SimulatedDisk(clock=ManualClock(self.wall_ms))
        for path, content in (self.tree if tree is None else tree).items():
            disk.put(path, content, self.wall_ms)
        return disk

    def record_at(self, position: int) -> tuple[int, int] | None:
        """The record that this byte of the log belongs to."""
        return next(((a, b) for a, b in self.records if a <= position < b), None)


def log_path(base: int) -> str:
    """The log file that starts at this position."""
    return f"{COMMIT_LOG_DIR}/{segment_name(base)}"


def open_store(disk: SimulatedDisk) -> MessageStore:
    """With the sample's file sizes and the disk's clock."""
    return MessageStore.open(disk, CONFIG, clock=disk.clock)


def closed_sample() -> Sample:
    """After a clean close."""
    disk = SimulatedDisk(clock=ManualClock())
    filled = _fill(disk, reopen=False)
    filled.store.close()
    return _finished("closed", disk, filled)


def killed_sample() -> Sample:
    """After a kill: half of it is covered by the last checkpoint, half by the log alone."""
    disk = SimulatedDisk(clock=ManualClock())
    filled = _fill(disk, reopen=True)
    return _finished("killed", disk.kill(), filled)


def trimmed_sample() -> Sample:
    """After retention removed the first log file, more puts and a clean close."""
    clock = ManualClock()
    disk = SimulatedDisk(clock=clock)
    filled = _fill(disk, reopen=False)
    store = filled.store
    clock.advance(2 * HOUR_MS)
    # The second file is still young enough to stay.
    disk.file_node(log_path(CONFIG.commit_log_file_size)).modified_ms = clock.wall_ms()
    assert store.clean(manual=True) > 0, "retention removed no file"
    _put(disk, store, "orders", 0, 200)
    store.flush()
    store.close()
    return _finished("trimmed", disk, filled)


def ask(store: MessageStore, disk: SimulatedDisk, staged: StagedPart, question: Question) -> Any:
    """The store's answer, in a form that can be compared."""
    kind, *rest = question
    if kind == "get":
        topic, queue_id, low, high = rest
        found = store.get(topic, queue_id, low, high - low)
        return found.status, found.next_offset, found.records
    if kind == "columns":
        columns = store.read_columns(*rest, EVERY_COLUMN)
        return {name: _plain(value) for name, value in columns.items()}
    if kind == "staged":
        with store.staging.open_runs([staged]) as runs:
            return [(run.queues, bytes(run.records)) for run in runs]
    if kind == "table":
        return JsonTable(disk, TABLE_PATH).load()
    if kind == "identity":
        return store.store_id, store.epoch
    if kind == "queues":
        return store.queues()
    methods: dict[str, Callable[..., Any]] = {
        "offsets": store.offsets,
        "at": store.message_at,
        "query": store.query,
        "time": store.offset_by_time,
    }
    return methods[kind](*rest)


def one_by_one(question: Question) -> Iterator[Question]:
    """A question about a range, as questions about single messages."""
    kind, topic, queue_id, low, high = question
    for offset in range(low, high):
        yield kind, topic, queue_id, offset, offset + 1


def is_range(question: Question) -> bool:
    """Whether `one_by_one` can split it."""
    return question[0] in ("get", "columns") and question[4] - question[3] > 1


def _plain(value: Any) -> Any:
    """Columns are buffers, or pairs of them."""
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return bytes(value) if hasattr(value, "__len__") and not isinstance(value, str) else value


def _put(disk: SimulatedDisk, store: MessageStore, topic: str, queue_id: int, number: int) -> None:
    assert isinstance(disk.clock, ManualClock)
    disk.clock.advance(7)
    message = Message(
        topic,
        b"%s %d " % (topic.encode(), number) + bytes(range(number % 40)),
        queue_id=queue_id,
        tags=f"t{number % 3}" if number % 4 else "",
        keys=f"k{number} shared" if number % 2 else "",
        properties={"origin": f"line {number}"} if number % 2 else {},
        born_host=("::1", 9) if number % 6 == 5 else None,
    )
    result = store.append(message)
    assert result.ok, result


class _Filled(NamedTuple):
    store: MessageStore
    older: Tree
    staged: StagedPart


def _fill(disk: SimulatedDisk, *, reopen: bool) -> _Filled:
    """Two topics, three queues, an append group, a staged batch, a table; nothing is waiting."""
    store = open_store(disk)
    for number in range(9):
        _put(disk, store, "orders", number % 2, number)
    _put(disk, store, "bills", 0, 9)
    store.flush()
    JsonTable(disk, TABLE_PATH).save(OLD_TABLE)
    older = disk.tree()
    if reopen:
        store.close()
        older = disk.tree()
        store = open_store(disk)
    assert store.append_group([encode_template(_batch(4))], b"group note").ok
    for number in range(10, 15):
        _put(disk, store, "orders", number % 2, number)
    store.flush()
    JsonTable(disk, TABLE_PATH).save(NEW_TABLE)
    staging_id = store.staging.begin()
    store.staging.append(staging_id, encode_template(_batch(2)), 2)
    return _Filled(store, older, store.staging.seal(staging_id))


def _batch(count: int) -> ColumnBatch:
    host = encode_host(("127.0.0.1", 10911))
    bodies = [b"row %d of a batch" % row for row in range(count)]
    ends = (0, *itertools.accumulate(len(body) for body in bodies))
    keys = b"".join(b"g%d" % row for row in range(count))
    return ColumnBatch(
        count=count,
        queues=((b"orders", 0), (b"bills", 0)),
        queue_index=array("i", (row % 2 for row in range(count))),
        body=(b"".join(bodies), array("q", ends), 8),
        keys=(keys, array("q", range(0, 2 * count + 1, 2)), 8),
        born_timestamp=1_700_000_000_000,
        born_host=host,
        store_host=host,
    )


def _finished(name: str, disk: SimulatedDisk, filled: _Filled) -> Sample:
    staged = filled.staged
    draft = Sample(name, disk.tree(), filled.older, disk.clock.wall_ms(), staged)
    reference = draft.disk()
    store = open_store(reference)
    records, questions = _everything(store)
    answers = {question: ask(store, reference, staged, question) for question in questions}
    log_end = store.log_range[1]
    store.close()
    assert answers["table",] == NEW_TABLE
    return dataclasses.replace(draft, answers=answers, records=records, log_end=log_end)


def _everything(store: MessageStore) -> tuple[tuple[tuple[int, int], ...], list[Question]]:
    """Where the records are, and every question about them."""
    questions: list[Question] = [("queues",), ("identity",), ("staged",), ("table",)]
    records: list[tuple[int, int]] = []
    keys: set[tuple[str, str]] = set()
    for topic, queue_id in store.queues():
        low, high = store.offsets(topic, queue_id)
        queue = (topic, queue_id)
        questions.append(("offsets", *queue))
        if low == high:
            continue
        for question in (("get", *queue, low, high), ("columns", *queue, low, high)):
            questions += [question, *one_by_one(question)]
        found = store.get(topic, queue_id, low, high - low)
        assert found.status is GetStatus.FOUND
        assert found.message_count == high - low
        sizes = _sizes(found.records)
        for message, size in zip(found.messages(), sizes, strict=True):
            records.append((message.physical_offset, message.physical_offset + size))
            questions.append(("at", message.physical_offset))
            if message.queue_offset % 2 == 0:
                questions.append(("time", *queue, message.store_timestamp))
            keys.update((topic, key) for key in message.properties.get("KEYS", "").split())
        questions.append(("time", *queue, message.store_timestamp + 1))
    assert (GROUP_TOPIC.decode(), 0) in store.queues()
    questions += [("query", topic, key) for topic, key in sorted(keys)]
    return tuple(sorted(records)), list(dict.fromkeys(questions))


def _sizes(records: bytes) -> list[int]:
    sizes = []
    start = 0
    while start < len(records):
        sizes.append(int.from_bytes(records[start : start + 4], "big"))
        start += sizes[-1]
    return sizes
