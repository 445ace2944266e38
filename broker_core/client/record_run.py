"""Stored records as they come over the wire, cut into runs of consecutive queue offsets.

The records of an answer lie one behind the other but come from anywhere in the broker's log. The
column codec finds records by log position, so a run carries, beside the bytes, a queue unit for
each record and the pieces of the log that its bytes are. One walk over the sizes makes both;
contents are proven by the codec when the columns are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from broker_core.codec.column_batch import Buffer
from broker_core.codec.json_fields import I64_MAX
from broker_core.codec.message_queue import MessageQueue
from broker_core.codec.record_columns import decode_columns
from broker_core.codec.record_layout import CHECK_CHECKSUMS, FIXED_SIZE, UNIT
from broker_core.errors import MalformedRecord

# TOTALSIZE, QUEUEOFFSET and PHYSICALOFFSET.
_PLACE = Struct(">i16xqq")


class RecordRun(NamedTuple):
    """Records `first_offset` to `first_offset + count - 1` of one queue, none missing."""

    first_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    pieces: tuple[memoryview, ...]
    """The records one behind the other, byte for byte as the broker stores them."""
    units: bytes
    """A consume-queue unit for each record, without tag codes."""
    spans: list[tuple[int, memoryview]]
    """(log position, bytes): the same records as pieces of the log, by position."""

    @property
    def until_offset(self) -> int:
        """The offset after the last record."""
        return self.first_offset + self.count

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(map(len, self.pieces))

    @property
    def records(self) -> bytes | memoryview:
        """All records in one buffer; a run that was joined copies them."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def columns(
        self, queue: MessageQueue, wanted: int, verify: int = CHECK_CHECKSUMS
    ) -> dict[str, object]:
        """Columns by `codec.column_names`; raises `CorruptRecord` for a record that is not right.

        Proves each record's structure, queue, offset and checksums: the whole-record one where the
        broker writes it, the body's otherwise. Bodies stay compressed; column `sys_flag` tells.
        """
        return decode_columns(
            self.spans, self.units, self.first_offset, queue.queue_id, queue.topic.encode(),
            wanted, verify,
        )  # fmt: skip


def join_runs(runs: Sequence[RecordRun]) -> RecordRun:
    """One run of neighbouring ones, sharing their bytes."""
    if len(runs) == 1:
        return runs[0]
    spans = [span for run in runs for span in run.spans]
    return RecordRun(
        runs[0].first_offset,
        sum(run.count for run in runs),
        tuple(piece for run in runs for piece in run.pieces),
        b"".join([run.units for run in runs]),
        sorted(spans, key=_position_of),
    )


def _position_of(span: tuple[int, memoryview]) -> int:
    return span[0]


def cut_runs(records: Buffer, start: int, until: int | None) -> list[RecordRun]:
    """The runs of an answer to a pull from offset `start`; records from `until` on are left out.

    Raises `MalformedRecord` when sizes do not add up, offsets do not rise or begin before `start`.
    """
    view = memoryview(records)
    end = len(view)
    limit = I64_MAX if until is None else until
    unpack, pack = _PLACE.unpack_from, UNIT.pack
    runs: list[RecordRun] = []
    units: list[bytes] = []
    # (log position, where in `view`) of each piece of the log in the run
    pieces: list[tuple[int, int]] = []
    at = run_start = 0
    first_offset = expected = start
    next_position = -1
    while at < end:
        if end - at < FIXED_SIZE:
            raise MalformedRecord(at, f"{end - at} bytes are less than a record")
        size, offset, position = unpack(view, at)
        if not FIXED_SIZE <= size <= end - at:
            raise MalformedRecord(at, f"a record of {size} bytes, {end - at} are left")
        if offset < expected:
            raise MalformedRecord(at, f"queue offset {offset} where {expected} was due")
        if offset >= limit:
            break
        if offset != expected:
            if units:
                runs.append(_run(first_offset, units, pieces, view[run_start:at], run_start))
            units, pieces = [], []
            run_start, first_offset, next_position = at, offset, -1
        if position != next_position:
            pieces.append((position, at))
        next_position = position + size
        units.append(pack(position, size, 0))
        expected = offset + 1
        at += size
    if units:
        runs.append(_run(first_offset, units, pieces, view[run_start:at], run_start))
    return runs


def _run(
    first_offset: int,
    units: list[bytes],
    pieces: list[tuple[int, int]],
    records: memoryview,
    records_start: int,
) -> RecordRun:
    ends = [at for _, at in pieces[1:]]
    ends.append(records_start + len(records))
    spans = [
        (position, records[at - records_start : end - records_start])
        for (position, at), end in zip(pieces, ends, strict=True)
    ]
    # The codec searches by position; a queue need not be in the order of its log.
    spans.sort(key=_position_of)
    return RecordRun(first_offset, len(units), (records,), b"".join(units), spans)
