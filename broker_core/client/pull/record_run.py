"""Stored records as they come over the wire, cut into runs of consecutive queue offsets.

The column codec finds records by queue units, so a run carries a unit for each record beside the
bytes. The positions in the units are the run's own (see `wire_place`), because the records of an
answer are adjacent but come from anywhere in the broker's log. The codec verifies the contents when
it makes the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.native import cut_wire_runs, decode_columns
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.record_layout import (
    CHECK_CHECKSUMS,
    DAMAGE_ONLY,
    ELSEWHERE,
    wire_place,
)
from broker_core.codec.wire.bodies.message_queue import MessageQueue


class RecordRun(NamedTuple):
    """Records `first_offset` to `first_offset + count - 1` of one queue, none missing."""

    first_offset: int
    count: int  # type: ignore[assignment]  # hides the unused tuple.count
    pieces: tuple[memoryview, ...]
    """The adjacent records, byte for byte as the broker stores them."""
    units: bytes
    """A consume-queue unit for each record, without tag codes."""
    spans: list[tuple[int, memoryview]]
    """(position, bytes) of the pieces, in the positions of the units, ascending."""

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
        """All records in one buffer; copies if the run has several pieces."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def columns(
        self, queue: MessageQueue, wanted: int, verify: int = CHECK_CHECKSUMS | DAMAGE_ONLY
    ) -> dict[str, object]:
        """Columns by `column_names`; raises `CorruptRecord` for an invalid record.

        Verifies each record's structure, queue, offset and checksum: that of the whole record if
        the broker writes one, otherwise that of the body. Bodies stay compressed; see `sys_flag`.
        """
        return decode_columns(
            self.spans,
            self.units,
            self.first_offset,
            queue.queue_id,
            queue.topic.encode(),
            wanted,
            verify | ELSEWHERE,
        )


def join_runs(runs: Sequence[RecordRun]) -> RecordRun:
    """Joins adjacent runs without copying."""
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
    runs = []
    for first_offset, count, begin, end, units in cut_wire_runs(
        view, start, I64_MAX if until is None else until
    ):
        piece = view[begin:end]
        span = (wire_place(first_offset), piece)
        runs.append(RecordRun(first_offset, count, (piece,), units, [span]))
    return runs
