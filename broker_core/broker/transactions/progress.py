"""Finds the open half messages at the start, and saves progress for a short next start.

Three sources; the first two are RocketMQ's:

offsets     of the half and the op queue under `CID_RMQ_SYS_TRANS` in `consumerOffset.json`: halves
            below the first have ended; op records from the second on name those above that have
op queue    read from its offset to its end
log         a commit whose op record is missing, because the broker died between the two, is found
            by its copy, which names the half. `transactionProgress.json` says up to which position
            every copy has its op record; a start walks the log from there

Offsets and file are only written once the log is durable up to what they refer to: no power cut
can lose the copy of a half that is recorded as committed.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.transactions.half_message import HALF_QUEUE, ended_offsets, half_position
from broker_core.broker.transactions.open_transactions import BEFORE_START, OpenTransactions
from broker_core.codec.json.fields import (
    I64_MAX,
    object_field,
    text_field,
    whole_field,
    whole_number,
)
from broker_core.codec.wire.topic_name import (
    TRANSACTION_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)
from broker_core.errors import InvalidArgument, RmqError, StoreUnusable
from broker_core.runtime.worker import Worker
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)

TRANSACTION_PROGRESS_FILE: Final = "config/transactionProgress.json"
# The position is saved again after this much log, which bounds the scan of the next start.
GROWTH_MAX: Final = 64 << 20
# Halves whose check counts are saved, oldest first; the counts of others restart at 0.
CHECKS_KEPT: Final = 10_000

_READ_COUNT: Final = 256
_READ_SIZE: Final = 1 << 20
_OP_MARKS_MAX: Final = 1_024


class _Snapshot(NamedTuple):
    """Progress to save. It may be written once the log is durable up to `end`."""

    half_offset: int
    op_offset: int
    position: int
    end: int


class TransactionProgress:
    """Owns the window of open halves. Event loop only; files are written by the worker."""

    def __init__(
        self, *, store: MessageStore, offsets: OffsetTable, table: JsonTable, worker: Worker
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._table = table
        self._worker = worker
        self.window = OpenTransactions(0)
        # Halves that op records of another broker name although its offset had passed them.
        self.ended_before: frozenset[int] = frozenset()
        # Half offset -> position of its copy, for copies whose op record is missing.
        self.without_op: dict[int, int] = {}
        self._op_offset = 0
        # (op offset, half offset): op records below the first name only halves below the second.
        self._op_marks: deque[tuple[int, int]] = deque()
        self._saved_position = -1
        self._has_new_checks = False
        self._waiting: _Snapshot | None = None
        self._saving = False

    # Loading

    def load(self) -> None:
        """Find the open halves.

        Raises `StoreUnusable` for a file with impossible content, `CorruptStore` for damage.
        """
        low = self._stored_offset(TRANSACTION_HALF_TOPIC)
        self._op_offset = self._stored_offset(TRANSACTION_OP_TOPIC)
        self.window = OpenTransactions(low)
        self.window.extend(self._ends(TRANSACTION_HALF_TOPIC)[1], BEFORE_START)
        stored = self._table.load()
        checks: dict[int, int] = {}
        if stored is not None:
            try:
                checks = self._take(stored)
            except InvalidArgument as error:
                text = f"{TRANSACTION_PROGRESS_FILE}: {error}. Repair the file"
                raise StoreUnusable(text) from error
        self._read_ops(low)
        self._read_log()
        for offset, count in checks.items():
            if self.window.is_open(offset):
                self.window.set_checks(offset, count)

    def _stored_offset(self, topic: str) -> int:
        stored = self._offsets.query(TRANSACTION_GROUP, topic, HALF_QUEUE) or 0
        low, high = self._ends(topic)
        if topic == TRANSACTION_HALF_TOPIC and stored < low:
            _log.warning("retention may have removed half messages before they ended")
        return min(max(stored, low), high)

    def _ends(self, topic: str) -> tuple[int, int]:
        return self._store.offsets(topic, HALF_QUEUE)

    def _take(self, stored: Mapping[str, Any]) -> dict[int, int]:
        position = whole_field(stored, "logPosition", -1, least=-1)
        same_log = text_field(stored, "storeId", "") == self._store.store_id
        if not same_log or position > self._store.dispatched_position:
            return {}
        self._saved_position = position
        table = object_field(stored, "checks")
        return {
            whole_number(offset, "offset", 0, I64_MAX): whole_field(table, offset, least=0)
            for offset in table
        }

    def _read_ops(self, low: int) -> None:
        """Close the halves that op records name."""
        offset, high = self._op_offset, self._ends(TRANSACTION_OP_TOPIC)[1]
        before: set[int] = set()
        while offset < high:
            found = self._store.get(
                TRANSACTION_OP_TOPIC, HALF_QUEUE, offset, _READ_COUNT, size_max=_READ_SIZE
            )
            for record in found.messages():
                for half_offset in ended_offsets(record):
                    self.window.close(half_offset)
                    if half_offset < low:
                        before.add(half_offset)
            if found.next_offset <= offset:
                break
            offset = found.next_offset
        self.ended_before = frozenset(before)
        self._op_marks.append((high, self.window.high))

    def _read_log(self) -> None:
        """Close the halves whose copy is in the log; a copy always follows its half."""
        positions, offsets = self._open_positions()
        if not positions:
            return
        start = max(self._saved_position, positions[0])
        size = self._store.dispatched_position - start
        if size > GROWTH_MAX:
            _log.info("looking for committed messages in the last %d MB of the log", size >> 20)
        for copy_position, prepared in self._store.prepared_offsets(start):
            position = half_position(prepared)
            if position is None:
                continue
            at = bisect_left(positions, position)
            is_open = at < len(positions) and positions[at] == position
            if is_open and self.window.close(offsets[at]):
                self.without_op[offsets[at]] = copy_position

    def _open_positions(self) -> tuple[array[int], array[int]]:
        """Log positions of the open halves, ascending, and their offsets."""
        positions, offsets = array("q"), array("q")
        for number in self.window.blocks():
            of_block = self.window.open_in(number)
            first = of_block[0]
            count = of_block[-1] + 1 - first
            units = self._store.units(TRANSACTION_HALF_TOPIC, HALF_QUEUE, first, count)
            for offset in of_block:
                positions.append(units[offset - first][0])
                offsets.append(offset)
        return positions, offsets

    # Keeping

    def note_checks(self) -> None:
        """Check counts have changed and must be saved."""
        self._has_new_checks = True

    def save_when_due(self, position: int) -> None:
        """Save changes once they are durable. Copies below `position` have their op records."""
        self._note_ops()
        if self._waiting is None:
            self._waiting = self._snapshot(position)
        if self._waiting.end <= self._store.flushed_position and not self._saving:
            waiting, self._waiting = self._waiting, None
            self._set_offsets(waiting)
            if self._has_new_checks or self._has_grown(waiting.position):
                self._save(waiting)

    def close(self, position: int) -> None:
        """Make all durable and save it. A failure is only logged: the next start reads more."""
        self._worker.run(lambda: None)
        try:
            self._store.flush()
            self._note_ops()
            snapshot = self._snapshot(position)
            self._set_offsets(snapshot)
            if self._has_new_checks or self.window.open_count:
                self._table.save(self.content(snapshot.position))
        except (RmqError, OSError) as error:
            _log.warning("the progress of transactions is not up to date: %s", error)

    def _snapshot(self, position: int) -> _Snapshot:
        return _Snapshot(self.window.low, self._op_offset, position, self._store.log_range[1])

    def _note_ops(self) -> None:
        """Advance the op offset past records that name only ended halves."""
        end = self._ends(TRANSACTION_OP_TOPIC)[1]
        marks = self._op_marks
        if not marks or end > marks[-1][0]:
            marks.append((end, self.window.high))
        low = self.window.low
        while marks and marks[0][1] <= low:
            self._op_offset = max(self._op_offset, marks.popleft()[0])
        if len(marks) > _OP_MARKS_MAX:
            # The later of two entries implies the earlier one.
            self._op_marks = deque(list(marks)[1::2])

    def _set_offsets(self, snapshot: _Snapshot) -> None:
        """Store the offsets, even over values set otherwise: memory is authoritative."""
        for topic, offset in (
            (TRANSACTION_HALF_TOPIC, snapshot.half_offset),
            (TRANSACTION_OP_TOPIC, snapshot.op_offset),
        ):
            low, high = self._ends(topic)
            if (low, high) != (0, 0):
                place = TRANSACTION_GROUP, topic, HALF_QUEUE
                self._offsets.reset(*place, min(max(offset, low), high))

    def _has_grown(self, position: int) -> bool:
        low = self.window.low
        units = self._store.units(TRANSACTION_HALF_TOPIC, HALF_QUEUE, low, 1)
        return bool(units) and position - max(self._saved_position, units[0][0]) > GROWTH_MAX

    def _save(self, snapshot: _Snapshot) -> None:
        self._has_new_checks = False
        self._saving = True
        content = self.content(snapshot.position)
        self._worker.submit(
            lambda: self._table.save(content),
            lambda _, error: self._saved(snapshot.position, error),
        )

    def content(self, position: int) -> dict[str, Any]:
        """Content of the file when copies below `position` have their op records."""
        checks: dict[str, int] = {}
        for number in self.window.blocks():
            if len(checks) >= CHECKS_KEPT:
                break
            for offset in self.window.open_in(number):
                count = self.window.checks(offset)
                if count:
                    checks[str(offset)] = count
        return {"checks": checks, "logPosition": position, "storeId": self._store.store_id}

    def _saved(self, position: int, error: BaseException | None) -> None:
        self._saving = False
        if error is None:
            self._saved_position = position
            return
        _log.warning("%s cannot be written, trying again: %s", TRANSACTION_PROGRESS_FILE, error)
        self._has_new_checks = True
