"""Progress of each delay level, in memory, in `delayOffset.json` and in the log.

The file has RocketMQ's format and two fields of ours: the log, and the position in it up to which
the offsets include every delivered copy. After that position the log is authoritative, because a
delivered copy names its waiting record. So a start scans only what was written since the last save,
and after a crash exactly the missing copies are delivered. A save waits until what it refers to is
durable: no power cut can lose a copy whose message is recorded as delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.broker.scheduled.delayed_message import waiting_position
from broker_core.codec.json.fields import object_field, text_field, whole_field, whole_number
from broker_core.codec.wire.bodies.topic_config import (
    DataVersion,
    data_version_object,
    parse_data_version,
)
from broker_core.codec.wire.topic_name import SCHEDULE_TOPIC
from broker_core.errors import CorruptRecord, InvalidArgument, RmqError, StoreUnusable
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import Worker
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)

DELAY_OFFSETS_FILE: Final = "config/delayOffset.json"
# Without deliveries the position is saved again after this much log, which bounds the scan of the
# next start.
GROWTH_MAX: Final = 64 << 20

_LEVELS_MAX: Final = 1 << 20


class _Snapshot(NamedTuple):
    """Offsets that include every copy below `position`."""

    offsets: dict[int, int]
    position: int
    version: DataVersion


class DelayProgress:
    """Next offset to deliver per delay queue. Event loop only; files are written by the worker."""

    def __init__(
        self, *, store: MessageStore, table: JsonTable, clock: Clock, worker: Worker
    ) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._worker = worker
        self._offsets: dict[int, int] = {}
        self._version = DataVersion()
        self._is_changed = False
        self._saved_position = -1
        self._waiting: _Snapshot | None = None
        self._saving = False

    # Progress

    @property
    def by_level(self) -> dict[int, int]:
        """Next offset by level, which is the queue id plus 1."""
        return {queue_id + 1: offset for queue_id, offset in sorted(self._offsets.items())}

    @property
    def version(self) -> DataVersion:
        """Data version of the last save."""
        return self._version

    def offset(self, queue_id: int) -> int:
        """The next offset to deliver that retention has not deleted."""
        low, _ = self._store.offsets(SCHEDULE_TOPIC, queue_id)
        offset = self._offsets.get(queue_id, 0)
        if offset >= low:
            return offset
        _log.warning(
            "delay level %d: retention has removed %d messages before they were delivered",
            queue_id + 1,
            low - offset,
        )
        self.advance(queue_id, low)
        return low

    def advance(self, queue_id: int, offset: int) -> None:
        """Every message below `offset` is delivered, or cannot be."""
        self._offsets[queue_id] = offset
        self._is_changed = True

    # Loading

    def load(self) -> None:
        """Read the file, then the log after its position.

        Raises `StoreUnusable` for a file with impossible content, `CorruptStore` for damage.
        """
        stored = self._table.load()
        position = -1
        if stored is not None:
            try:
                position = self._take(stored)
            except InvalidArgument as error:
                raise StoreUnusable(f"{DELAY_OFFSETS_FILE}: {error}. Repair the file") from error
        # Save soon, so that the next start has a position.
        self._is_changed = position < 0
        self._enter_queues()
        self._read_log(position)

    def _take(self, stored: Mapping[str, Any]) -> int:
        self._version = parse_data_version(stored.get("dataVersion"))
        table = object_field(stored, "offsetTable")
        for level in table:
            queue_id = whole_number(level, "level", 1, _LEVELS_MAX) - 1
            self._offsets[queue_id] = whole_field(table, level, least=0)
        position = whole_field(stored, "logPosition", -1, least=-1)
        same_log = text_field(stored, "storeId", "") == self._store.store_id
        # From another broker or another log: the offsets are valid, the position is not.
        if not same_log or position > self._store.dispatched_position:
            return -1
        self._saved_position = position
        return position

    def _enter_queues(self) -> None:
        """Move offsets into their queues: another broker saves them before the log is durable."""
        for queue_id, offset in self._offsets.items():
            low, high = self._store.offsets(SCHEDULE_TOPIC, queue_id)
            self._offsets[queue_id] = min(max(offset, low), high)

    def _read_log(self, position: int) -> None:
        """Account for the copies in the log after `position`.

        A copy follows its waiting record, so nothing before the oldest undelivered one matters.
        """
        oldest = self._oldest_pending()
        if oldest is None:
            return
        start = max(position, oldest)
        size = self._store.dispatched_position - start
        if size > GROWTH_MAX:
            _log.info("looking for delivered messages in the last %d MB of the log", size >> 20)
        for _, prepared in self._store.prepared_offsets(start):
            waits_at = waiting_position(prepared)
            if waits_at is not None and waits_at >= oldest:
                self._delivered(waits_at)

    def _oldest_pending(self) -> int | None:
        """Log position of the first waiting record that the offsets do not count as delivered."""
        found = []
        for topic, queue_id in self._store.queues():
            if topic != SCHEDULE_TOPIC:
                continue
            units = self._store.units(topic, queue_id, self.offset(queue_id), 1)
            found += [position for position, _, _ in units]
        return min(found, default=None)

    def _delivered(self, waits_at: int) -> None:
        try:
            record = self._store.message_at(waits_at)
        except CorruptRecord as error:
            # It cannot be delivered a second time: its record is unreadable.
            _log.warning("a delivered message can no longer be read: %s", str(error))
            return
        if record is None or record.topic != SCHEDULE_TOPIC:
            return
        queue_id, offset = record.queue_id, record.queue_offset
        units = self._store.units(SCHEDULE_TOPIC, queue_id, offset, 1)
        # Another broker may have deleted the topic and counted from 0 again.
        if units and units[0][0] == waits_at and offset >= self.offset(queue_id):
            self.advance(queue_id, offset + 1)

    # Saving

    def save_when_durable(self, *, is_due: bool) -> None:
        """Save the progress since the last save, once it is durable. Call this regularly.

        A save begins if `is_due`, or after 64 MB of other traffic.
        """
        if self._saving:
            return
        end = self._store.log_range[1]
        has_grown = end - self._saved_position > GROWTH_MAX
        if self._waiting is None and ((is_due and self._is_changed) or has_grown):
            self._waiting = self._snapshot(end)
        waiting = self._waiting
        if waiting is not None and waiting.position <= self._store.flushed_position:
            self._waiting = None
            self._saving = True
            content = self._content(waiting)
            self._worker.submit(
                lambda: self._table.save(content), lambda _, error: self._saved(waiting, error)
            )

    def close(self) -> None:
        """Make all durable and save it. A failure is only logged: the next start reads more."""
        self._worker.run(lambda: None)
        try:
            self._store.flush()
            self._table.save(self._content(self._snapshot(self._store.log_range[1])))
        except (RmqError, OSError) as error:
            _log.warning("%s is not up to date: %s", DELAY_OFFSETS_FILE, error)

    def _snapshot(self, end: int) -> _Snapshot:
        self._is_changed = False
        version = DataVersion(self._version.counter + 1, 0, self._clock.wall_ms())
        return _Snapshot(self.by_level, end, version)

    def _content(self, snapshot: _Snapshot) -> dict[str, Any]:
        return {
            "dataVersion": data_version_object(snapshot.version),
            "offsetTable": {str(level): offset for level, offset in snapshot.offsets.items()},
            "logPosition": snapshot.position,
            "storeId": self._store.store_id,
        }

    def _saved(self, snapshot: _Snapshot, error: BaseException | None) -> None:
        self._saving = False
        if error is None:
            self._saved_position = snapshot.position
            self._version = snapshot.version
            return
        _log.warning("%s cannot be written, trying again: %s", DELAY_OFFSETS_FILE, error)
        self._is_changed = True
