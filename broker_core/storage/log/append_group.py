"""Append groups: a header record that makes the records after it one atomic unit.

A group is a stretch of the log that begins with one header record in topic `GROUP_TOPIC`:

    header body (big-endian)            then the group's records, in order, up to `end`
    0   4  magic "RMQG"
    4   4  format version
    8   8  start: log position of this header
    16  8  end: log position after the last record of the group
    24  8  count: records that follow the header
    32  n  note: the caller's bytes (the sink keeps its batch identity here)

Recovery keeps a group only when every record up to `end` is valid, otherwise it cuts the log at
`start`; no part of a group is dispatched before all of it is durable. The rule needs no side file
and no extra sync, and applies to a copied log as well (docs/decisions/004).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

from broker_core.codec.native import inspect_run, measure_batch
from broker_core.codec.records.column_batch import ColumnBatch, check_queues, encode_places
from broker_core.codec.records.record_layout import BLANK_RESERVE
from broker_core.codec.wire.topic_name import APPEND_GROUP_TOPIC
from broker_core.errors import InvalidArgument, MalformedRecord
from broker_core.storage.log.commit_log import RecordRun, TemplateRun
from broker_core.storage.staging.staged_run import PrivateMemory, StagedRun

GROUP_TOPIC = APPEND_GROUP_TOPIC.encode()
GROUP_QUEUE = (GROUP_TOPIC, 0)
NOTE_SIZE_MAX = 1 << 20

_HEADER = struct.Struct(">4sIqqq")
_MAGIC = b"RMQG"
_VERSION = 1


class GroupHeader(NamedTuple):
    """Decoded header body."""

    start: int
    end: int
    record_count: int
    note: bytes


class GroupLayout(NamedTuple):
    """Layout of a group, and the number of records that each run adds to each queue."""

    header: ColumnBatch
    header_size: int
    start: int
    end: int
    record_count: int
    counts: tuple[array[int], ...]


class InspectedRun(NamedTuple):
    """Result of the inspection of a run; independent of its later position."""

    record_count: int
    counts: array[int]
    size: int


Inspected = tuple[InspectedRun, ...]


def checked_runs(runs: Any) -> tuple[RecordRun, ...]:
    """The runs as a tuple; `InvalidArgument` for anything else."""
    if not isinstance(runs, (list, tuple)):
        raise InvalidArgument(f"runs must be a list or tuple, not {type(runs).__name__}")
    for run in runs:
        if isinstance(run, StagedRun):
            continue
        if not isinstance(run, TemplateRun):
            raise InvalidArgument(f"a run must be a TemplateRun, not {type(run).__name__}")
        if not isinstance(run.records, (bytes, bytearray, memoryview)):
            raise InvalidArgument(f"records must be bytes, not {type(run.records).__name__}")
        check_queues(run.queues)
    return tuple(runs)


def encode_header(header: GroupHeader) -> bytes:
    """Body of the header record."""
    head = _HEADER.pack(_MAGIC, _VERSION, header.start, header.end, header.record_count)
    return head + header.note


def decode_header(body: bytes, position: int) -> GroupHeader:
    """Raises `MalformedRecord` when the body is not a header of the record at `position`."""
    if len(body) < _HEADER.size:
        raise MalformedRecord(position, "append-group header is too short")
    magic, version, start, end, count = _HEADER.unpack_from(body)
    if magic != _MAGIC or version != _VERSION:
        raise MalformedRecord(position, "append-group header has an unknown magic or version")
    if start != position or end < start or count < 0:
        raise MalformedRecord(position, "append-group header is of another position")
    return GroupHeader(start, end, count, bytes(body[_HEADER.size :]))


def place(position: int, size: int, segment_size: int) -> int:
    """Position of the next record of `size` in a log that ends at `position`."""
    rest = segment_size - position % segment_size
    return position + rest if size + BLANK_RESERVE > rest else position


def plan_group(
    runs: tuple[RecordRun, ...],
    note: bytes,
    position: int,
    segment_size: int,
    header_of: HeaderBatch,
    check_crc: int,
    message_size_max: int,
    inspected: Inspected = (),
) -> GroupLayout:
    """Verify every run and lay the group out from the log's end. Writes nothing.

    Runs that were `inspected` are walked only where a file ends inside of them.
    """
    draft = header_of(encode_header(GroupHeader(0, 0, 0, note)))
    header_size, _ = measure_batch(draft)
    if header_size + BLANK_RESERVE > segment_size:
        raise MalformedRecord(0, f"the note of {len(note)} bytes does not fit into one file")
    start = place(position, header_size, segment_size)
    cursor = start + header_size
    total = 0
    counts = []
    memory = PrivateMemory()
    for number, run in enumerate(runs):
        size = run.size
        known = inspected[number] if inspected else None
        fits = cursor % segment_size + size + BLANK_RESERVE <= segment_size
        if known is not None and known.size == size and fits:
            count, cursor, per_queue = known.record_count, cursor + size, known.counts
        else:
            count, cursor, found = inspect_run(
                run.load(memory),
                len(run.queues),
                cursor,
                segment_size,
                encode_places(run.queues),
                len(draft.store_host),
                check_crc,
                message_size_max,
            )
            per_queue = array("q", found)
        total += count
        counts.append(per_queue)
    header = header_of(encode_header(GroupHeader(start, cursor, total, note)))
    return GroupLayout(header, header_size, start, cursor, total, tuple(counts))


def inspect_runs(
    runs: Iterable[RecordRun],
    segment_size: int,
    store_host_size: int,
    check_crc: int,
    message_size_max: int,
) -> Inspected:
    """Verify runs ahead of `plan_group`, on any thread; raises `MalformedRecord`."""
    found, memory = [], PrivateMemory()
    for run in runs:
        count, _, per_queue = inspect_run(
            run.load(memory),
            len(run.queues),
            0,
            segment_size,
            encode_places(run.queues),
            store_host_size,
            check_crc,
            message_size_max,
        )
        found.append(InspectedRun(count, array("q", per_queue), run.size))
    return tuple(found)


class HeaderBatch:
    """Makes the one-row batch of a header record."""

    def __init__(self, store_host: bytes, born_timestamp: int, append_crc: bool) -> None:
        self._store_host = store_host
        self._born_timestamp = born_timestamp
        self._append_crc = append_crc

    def __call__(self, body: bytes) -> ColumnBatch:
        return ColumnBatch(
            count=1,
            queues=(GROUP_QUEUE,),
            queue_index=None,
            body=(body, array("q", (0, len(body))), 8),
            tags=None,
            keys=None,
            properties=None,
            born_timestamp=self._born_timestamp,
            born_host=self._store_host,
            store_host=self._store_host,
            append_crc=self._append_crc,
        )
