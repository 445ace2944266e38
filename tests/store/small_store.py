"""Stores with small files on a simulated disk, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker_core.codec.records.checkpoint_page import CheckpointPage, decode_checkpoint
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.config import StoreConfig
from broker_core.protocol_codes import GetStatus
from broker_core.storage.log.commit_log import TemplateRun
from broker_core.storage.staging.staging_area import encode_template
from broker_core.storage.state.checkpoint import CHECKPOINT_FILE
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.codec.codec_backends import batch_of, column
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk

SMALL: dict[str, Any] = {
    "commit_log_file_size": 16 << 10,
    "consume_queue_file_size": 20 * 20,
    "index_hash_slots": 8,
    "index_entries_max": 32,
}


def new_disk(**options: Any) -> SimulatedDisk:
    """A disk with a clock of its own."""
    return SimulatedDisk(clock=ManualClock(), **options)


def open_small(disk: SimulatedDisk, **settings: Any) -> MessageStore:
    """Open with small files; `settings` override them."""
    return MessageStore.open(disk, StoreConfig(**{**SMALL, **settings}), clock=disk.clock)


def put_all(store: MessageStore, topic: str, bodies: Iterable[bytes], **fields: Any) -> None:
    """Append and flush messages that must be accepted."""
    for body in bodies:
        result = store.append(Message(topic, body, **fields))
        assert result.ok, result
    store.flush()


def numbered(count: int, size: int = 0, first: int = 0) -> list[bytes]:
    """Bodies `0`, `1`, ... padded to `size`."""
    return [str(number).encode().ljust(size, b".") for number in range(first, first + count)]


def bodies(store: MessageStore, topic: str, queue_id: int = 0, start: int | None = None) -> list:
    """Every readable body of a queue from `start` (default: its minimum) on."""
    low, high = store.offsets(topic, queue_id)
    offset = low if start is None else start
    found = []
    while offset < high:
        result = store.get(topic, queue_id, offset)
        assert result.status is GetStatus.FOUND, result
        found += [message.body for message in result.messages()]
        offset = result.next_offset
    return found


def rows(*values: bytes, topic: bytes = b"T", queue_id: int = 0, **fields: Any) -> ColumnBatch:
    """A batch for one queue."""
    return batch_of(*values, **{"queues": ((topic, queue_id),), **fields})


def run_of(*values: bytes, topic: bytes = b"T", queue_id: int = 0, **fields: Any) -> TemplateRun:
    """A template run for one queue."""
    return encode_template(rows(*values, topic=topic, queue_id=queue_id, **fields))


def keyed(*keys: bytes, **fields: Any) -> ColumnBatch:
    """A batch of empty bodies with these keys."""
    return rows(*(b"" for _ in keys), keys=column(*keys), **fields)


def apache_page(disk: SimulatedDisk) -> CheckpointPage:
    """The page with which Apache's recovery would begin."""
    return decode_checkpoint(disk.content(CHECKPOINT_FILE))
