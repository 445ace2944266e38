"""Everything that an open store holds: the log by an own parser, queues and index as served.

The parser here shares no code with the store. Results are remembered by their bytes: thousands of
crash states differ in a few sectors, so most of their files were parsed before.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, NamedTuple

from broker_core.errors import CorruptStore
from broker_core.protocol_codes import GetStatus
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.message_store import MessageStore
from tests.crash.history import GROUP_HEADER_SIZE, GROUP_TOPIC, Properties, QueueKey, Sent
from tests.fakes.simulated_disk import SimulatedDisk

TABLE_PATHS = ("config/topics.json", "config/consumerOffset.json")
NO_SUCH_KEY = "no such key"

_HEAD = struct.Struct(">iIiiiqqiq8sq8siqi")
_MAGIC = 0xDAA320A7
_BLANK_MAGIC = 0xCBD43194
_ENTRY = struct.Struct(">iqii")
_UNIT = struct.Struct(">qiq")
_PRE_BLANK_SIZE = 0x7FFFFFFF


class LogRecord(NamedTuple):
    """One record of the log."""

    position: int
    size: int
    offset: int
    sent: Sent
    tags_code: int
    index_hashes: tuple[int, ...]


class QueueDump(NamedTuple):
    """What readers of one queue get."""

    min_offset: int
    max_offset: int
    units: tuple[tuple[int, int, int], ...]
    served: tuple[tuple[int, int, Sent], ...]
    """Offset, position and message."""


class Dump(NamedTuple):
    """One open store."""

    log_start: int
    log_end: int
    epoch: int
    records: tuple[LogRecord, ...]
    queues: dict[QueueKey, QueueDump]
    index: tuple[tuple[int, int], ...]
    tables: dict[str, int | None]
    rebuilt: int
    """Derived files that were found damaged, at open or on the way."""

    def differences(self, other: Dump) -> list[str]:
        """What a repeated recovery changed; the epoch may grow and old index entries may go."""
        changed = []
        for name in ("log_start", "log_end", "records", "queues", "index"):
            mine, its = self._part(name), other._part(name)
            if mine != its:
                changed.append(f"I17 {name}: {its} and then {mine}")
        return changed

    def _part(self, name: str) -> Any:
        if name == "index":
            return [entry for entry in self.index if entry[1] >= self.log_start]
        if name == "queues":
            return {k: (q.max_offset, q.units) for k, q in self.queues.items() if q.max_offset}
        return getattr(self, name)


@names_disk_errors
def dump_store(store: MessageStore, disk: SimulatedDisk) -> Dump:
    """Read everything."""
    start, end = store.log_range
    heals = _count_heals(store)
    queues = {key: _dump_queue(store, *key) for key in store.queues()}
    # A query for an unknown key makes the index read (and repair) every file.
    store.query("t0", NO_SUCH_KEY)
    rebuilt = store.recovery.rebuilt_queues + heals.count
    return Dump(
        start,
        end,
        store.epoch,
        read_log(disk, start, end),
        queues,
        _index_entries(store),
        {path: _table(disk, path) for path in TABLE_PATHS},
        rebuilt,
    )


class _Heals:
    """Counts how often the reader had to rebuild a queue."""

    def __init__(self, heal: Any) -> None:
        self.count = 0
        self._heal = heal

    def __call__(self, damaged: Any) -> None:
        self.count += 1
        self._heal(damaged)


def _count_heals(store: MessageStore) -> _Heals:
    reader = store.reads
    if not isinstance(reader._heal_queue, _Heals):
        reader._heal_queue = _Heals(reader._heal_queue)
    return reader._heal_queue


def _dump_queue(store: MessageStore, topic: str, queue_id: int) -> QueueDump:
    low, high = store.offsets(topic, queue_id)
    queue = store._opened.queues.find(topic.encode(), queue_id)
    assert queue is not None
    served: list[tuple[int, int, Sent]] = []
    offset = low
    while offset < high:
        result = store.get(topic, queue_id, offset, 10_000, size_max=1 << 24)
        assert result.status is GetStatus.FOUND, f"{topic}-{queue_id} at {offset}: {result.status}"
        served += _served(result.records)
        assert result.next_offset > offset
        offset = result.next_offset
    units = tuple(_UNIT.iter_unpack(queue.read(low, high - low)))
    return QueueDump(low, high, units, tuple(served))


@functools.lru_cache(maxsize=4096)
def _served(data: bytes) -> tuple[tuple[int, int, Sent], ...]:
    found = []
    start = 0
    while start < len(data):
        record = parse_record(data, start)
        assert record is not None, f"what a reader got is no record at byte {start}"
        found.append((record.offset, record.position, record.sent))
        start += record.size
    return tuple(found)


def _table(disk: SimulatedDisk, path: str) -> int | None:
    try:
        table = JsonTable(disk, path).load()
    except CorruptStore:
        return -1
    return None if table is None else int(table["value"])


def _index_entries(store: MessageStore) -> tuple[tuple[int, int], ...]:
    index = store._opened.index
    if index is None:
        return ()
    entries: list[tuple[int, int]] = []
    for file in index.files:
        end = index.used_size(file)
        data = bytes(file.view[index._entries_at + _ENTRY.size : end])
        entries += [(key_hash, position) for key_hash, position, _, _ in _ENTRY.iter_unpack(data)]
    return tuple(entries)


# The log


def read_log(disk: SimulatedDisk, start: int, end: int) -> tuple[LogRecord, ...]:
    """Every record of `[start, end)` by the files alone."""
    names = disk.list("commitlog")
    found: list[LogRecord] = []
    for name in names:
        base = int(name)
        content = bytes(disk.content(f"commitlog/{name}"))
        if base < end and base + len(content) > start:
            found += _file_records(content, base, min(end - base, len(content)))
    return tuple(record for record in found if record.position >= start)


@functools.lru_cache(maxsize=2048)
def _file_records(content: bytes, base: int, limit: int) -> tuple[LogRecord, ...]:
    found = []
    start = 0
    while start < limit:
        size, magic = struct.unpack_from(">iI", content, start)
        if magic == _BLANK_MAGIC:
            break
        record = parse_record(content, start)
        assert record is not None, f"no record at {base + start}, the log ends at {base + limit}"
        assert record.position == base + start, f"the record at {base + start} belongs elsewhere"
        found.append(record)
        start += size
    return tuple(found)


def parse_record(data: bytes, start: int) -> LogRecord | None:
    """The record at `data[start]`; checksums are the store's business."""
    fields = _HEAD.unpack_from(data, start)
    size, magic, _, queue_id, _, offset, position = fields[:7]
    if magic != _MAGIC:
        return None
    body_at = start + _HEAD.size
    topic_at = body_at + fields[14]
    topic_size = data[topic_at]
    topic = data[topic_at + 1 : topic_at + 1 + topic_size].decode("ascii")
    text_at = topic_at + 1 + topic_size + 2
    text = data[text_at : start + size].decode("utf-8")
    pairs = [pair.partition("\x01")[::2] for pair in text.split("\x02") if pair]
    properties: Properties = frozenset((n, v) for n, v in pairs if n != "__CRC32#")
    body = data[body_at:topic_at]
    if topic == GROUP_TOPIC:
        body = bytes(GROUP_HEADER_SIZE) + body[GROUP_HEADER_SIZE:]
    named = dict(properties)
    hashes = tuple(_index_hash(f"{topic}#{key}") for key in named.get("KEYS", "").split() if key)
    code = _java_hash(named["TAGS"]) if named.get("TAGS") else 0
    sent = Sent((topic, queue_id), body, properties)
    return LogRecord(position, size, offset, sent, code, hashes)


@functools.lru_cache(maxsize=4096)
def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _index_hash(text: str) -> int:
    value = abs(_java_hash(text))
    return 0 if value == 1 << 31 else value
