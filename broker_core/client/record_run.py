"""Stored records as they come over the wire, cut into runs of consecutive queue offsets.

The column codec finds records by queue units, so a run carries, beside the bytes, a unit for each
record. Their positions are places of the run's own (see `codec.wire_runs`): the records of an
answer lie one behind the other but come from anywhere in the broker's log. Contents are proven by
the codec when the columns are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker_core.codec.column_batch import Buffer
from broker_core.codec.json_fields import I64_MAX
from broker_core.codec.message_queue import MessageQueue
from broker_core.codec.record_columns import cut_wire_runs, decode_columns
from broker_core.codec.record_layout import CHECK_CHECKSUMS, DAMAGE_ONLY, ELSEWHERE
from broker_core.codec.wire_runs import wire_place


class RecordRun(NamedTuple):
    """Records `first_offset` to `first_offset + count - 1` of one queue, none missing."""

    first_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    pieces: tuple[memoryview, ...]
    """The records one behind the other, byte for byte as the broker stores them."""
    units: bytes
    """A consume-queue unit for each record, without tag codes."""
    spans: list[tuple[int, memoryview]]
    """(position, bytes) of the pieces, as the units mean positions; rising."""

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
        self, queue: MessageQueue, wanted: int, verify: int = CHECK_CHECKSUMS | DAMAGE_ONLY
    ) -> dict[str, object]:
        """Columns by `codec.column_names`; raises `CorruptRecord` for a record that is not right.

        Proves each record's structure, queue, offset and checksums: the whole-record one where the
        broker writes it, the body's otherwise. Bodies stay compressed; column `sys_flag` tells.
        """
        return decode_columns(
            self.spans, self.units, self.first_offset, queue.queue_id, queue.topic.encode(),
            wanted, verify | ELSEWHERE,
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
    runs = []
    for first_offset, count, begin, end, units in cut_wire_runs(
        view, start, I64_MAX if until is None else until
    ):
        piece = view[begin:end]
        span = (wire_place(first_offset), piece)
        runs.append(RecordRun(first_offset, count, (piece,), units, [span]))
    return runs
