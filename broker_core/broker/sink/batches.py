"""Table of sinks and their last batches, in memory and in `config/sinkBatches.json`.

The log decides. A batch is one append group whose note names it (`sink_messages.py`), so the batch
and the fact that it was published are one unit on disk. The file is a copy of the notes up to some
point; a start reads the notes after it. It exists because retention removes old notes with their
log files, and it is saved before that.

A note is entered only when its group is durable, so a power cut cannot remove a batch that the file
has. Event loop only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from broker_core.broker.sink.sink_record import (
    Decision,
    PreparedBatch,
    PublishedBatch,
    Sink,
    parse_sink,
    sink_object,
)
from broker_core.codec.json.fields import (
    object_field,
    text_field,
    whole_field,
)
from broker_core.codec.wire.bodies.sink_messages import (
    BATCH_NOTE,
    ENROL_NOTE,
    PART_NOTE,
    PREPARE_NOTE,
    RESERVE_NOTE,
    BatchIdentity,
    SinkNote,
    SinkStatus,
    is_same_content,
    parse_note,
)
from broker_core.codec.wire.topic_name import APPEND_GROUP_TOPIC
from broker_core.errors import (
    CorruptStore,
    DiskFailed,
    InvalidArgument,
    LimitReached,
    SinkBatchOld,
    SinkContentDiffers,
    SinkFenced,
    StoreUnusable,
)
from broker_core.protocol_codes import ResponseCode
from broker_core.runtime.clock import Clock, SteadyTime
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.log.append_group import decode_header
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)

SINKS_FILE: Final = "config/sinkBatches.json"
SINKS_MAX: Final = 20_000
# A sink without a batch for longer may be evicted when the table is full.
KEEP_MS: Final = 7 * 86_400_000
# A batch job has one run, which retries its commit for about a minute. Later commits find nothing
# staged and are refused, so they cannot publish anything twice.
ONCE_KEEP_MS: Final = 600_000
# Batches of a sink that are remembered to recognize repeats.
BATCHES_KEPT: Final = 8
RUNS_KEPT: Final = 64
# Decided batches on several brokers, whose parts another broker may not have completed.
DECISIONS_KEPT: Final = 32
# Log position of entries in files of earlier versions, which did not store it.
UNKNOWN: Final = -1

_NOTES = APPEND_GROUP_TOPIC
_READ_COUNT: Final = 64
_READ_SIZE: Final = 4 << 20


class UnsavedSinks(NamedTuple):
    """Snapshot of the table to be written."""

    table: dict[str, Any]
    change_count: int


class SinkBatches:
    """Sinks by id. Loads on construction; the store must be open and fully dispatched."""

    def __init__(
        self,
        *,
        store: MessageStore,
        table: JsonTable,
        clock: Clock,
        sinks_max: int = SINKS_MAX,
        keep_ms: int = KEEP_MS,
        once_keep_ms: int = ONCE_KEEP_MS,
        prepared_keep_ms: int = 7_200_000,
    ) -> None:
        self._store = store
        self._table = table
        self._time = SteadyTime(clock)
        self._sinks_max = sinks_max
        self._keep_ms = keep_ms
        self._once_keep_ms = once_keep_ms
        self._prepared_keep_ms = prepared_keep_ms
        self._sinks: dict[str, Sink] = {}
        # Every note below this offset is entered; log position of the last one.
        self._entered = 0
        self._last_position = UNKNOWN
        self._change_count = self._saved_change_count = 0
        self._is_writing = False
        self._load()
        store.before_clean(self.save)

    def __len__(self) -> int:
        return len(self._sinks)

    def find(self, sink: str) -> Sink | None:
        """A sink that has published, or that a run has announced."""
        return self._sinks.get(sink)

    def status(self, sink: str) -> SinkStatus:
        """Answer to SINK_STATUS."""
        found = self._sinks.get(sink)
        if found is None:
            return SinkStatus(False)
        run = found.runs[0] if found.runs else ""
        content = found.batches[-1].content if found.batches else ""
        published_by = found.batches[-1].run if found.batches else ""
        return SinkStatus(
            True,
            found.last,
            run,
            found.lineage,
            content,
            found.silent_since_ms,
            found.is_coordinator,
            published_by,
            found.coordinator,
            found.query,
            found.prepared.token if found.prepared is not None else 0,
        )

    # Decisions

    def judge(self, identity: BatchIdentity) -> PublishedBatch | None:
        """None if the batch is to be published; the published batch if it is a repeat of that one.

        Raises `SinkFenced`, `SinkBatchOld`, `SinkContentDiffers` or `LimitReached`.
        """
        self.check_run(identity)
        sink = self._sinks.get(identity.sink)
        if sink is None or identity.batch > sink.last:
            return None
        known = sink.find(identity.batch)
        if known is not None and not is_same_content(known.content, identity.content):
            raise SinkContentDiffers(
                ResponseCode.SINK_CONTENT_DIFFERS,
                f"batch {identity.batch} of sink {identity.sink} was published by run {known.run} "
                f"with other content ({known.content}, now {identity.content}): the checkpoint is "
                "a copy or an older state, the query gives other rows each time and its "
                "checkpointLocation is not an option of this write, or two jobs have the same "
                "batchId. Use a new checkpoint or another sinkId",
            )
        if known is not None and (
            known is sink.batches[-1]
            or known.run == identity.run
            or (known.content and identity.content)
        ):
            return known
        raise SinkBatchOld(
            ResponseCode.SINK_BATCH_OLD,
            f"batch {identity.batch} of sink {identity.sink} comes too late, {sink.last} is "
            "published already: the checkpoint was restored from an older state. Use a new "
            "checkpoint or another sinkId",
        )

    def check_run(self, identity: BatchIdentity) -> None:
        """Raise `SinkFenced` or `LimitReached` unless this run may write to the sink."""
        sink = self._sinks.get(identity.sink)
        if sink is None:
            self._make_room(identity.sink)
            return
        if identity.query and sink.query and identity.query != sink.query:
            raise SinkFenced(
                ResponseCode.SINK_FENCED,
                f"sink {identity.sink} belongs to query {sink.query}, which published batch "
                f"{sink.last} last, not to query {identity.query}: a query that starts over counts "
                "its batches from 0, and they would be taken for those of the other one. Nothing "
                f"of batch {identity.batch} was written. Start query {sink.query} again with its "
                f"checkpoint, or give query {identity.query} another sinkId",
            )
        if identity.lineage and sink.lineage and identity.lineage != sink.lineage:
            raise SinkFenced(
                ResponseCode.SINK_FENCED,
                f"sink {identity.sink} belongs to checkpoint {sink.lineage}, not to "
                f"{identity.lineage}: a copied checkpoint must not write as the original. Use "
                "another sinkId",
            )
        if identity.run in sink.runs[1:]:
            raise SinkFenced(
                ResponseCode.SINK_FENCED,
                f"run {identity.run} of sink {identity.sink} was replaced by run {sink.runs[0]}: "
                "only the latest one writes",
            )

    def prepared_ids(self) -> Iterator[str]:
        """Staging ids of prepared parts."""
        for sink in self._sinks.values():
            if sink.prepared is not None:
                yield from (part.staging_id for part in sink.prepared.parts)

    def is_current(self, identity: BatchIdentity) -> bool:
        """Whether this is the latest run of the sink."""
        sink = self._sinks.get(identity.sink)
        return sink is not None and sink.runs[:1] == [identity.run]

    def enter(self, note: SinkNote, offset: int, position: int, end: int, time_ms: int) -> None:
        """Enter a durable note."""
        identity = note.identity
        sink = self._sinks.setdefault(identity.sink, Sink())
        if identity.run not in sink.runs and note.kind != ENROL_NOTE:
            sink.runs.insert(0, identity.run)
            del sink.runs[RUNS_KEPT:]
        sink.lineage = identity.lineage or sink.lineage
        sink.query = identity.query or sink.query
        sink.once = identity.once
        sink.silent_since_ms = time_ms
        if note.kind in (BATCH_NOTE, PART_NOTE):
            place = (offset, position, end, note.token, note.others, note.attempt)
            sink.batches.append(
                PublishedBatch(identity.batch, identity.run, identity.content, *place)
            )
            del sink.batches[:-BATCHES_KEPT]
            sink.prepared = None
            sink.is_coordinator |= note.kind == BATCH_NOTE
            if note.kind == BATCH_NOTE and note.token:
                sink.decisions.append(Decision(identity.batch, note.token, offset, note.attempt))
                del sink.decisions[:-DECISIONS_KEPT]
        elif note.kind == RESERVE_NOTE:
            # Never decreases, even if the log lost its end: another broker may hold a part of it.
            if note.token > sink.reserved[1]:
                sink.reserved = (identity.batch, note.token, note.attempt)
            sink.is_coordinator = True
        elif note.kind == PREPARE_NOTE:
            sink.prepared = PreparedBatch(identity, note.token, note.parts, offset, note.attempt)
        elif note.kind == ENROL_NOTE:
            sink.coordinator = note.others[0]
        if offset >= self._entered:
            self._entered, self._last_position = offset + 1, position
        self._change_count += 1
        sink.change = self._change_count

    # Copies

    @property
    def change_count(self) -> int:
        """Number of changes since the start."""
        return self._change_count

    def as_object(self, since: int = -1) -> dict[str, Any]:
        """The sinks that changed after `since`, as JSON of the file."""
        found = {n: sink_object(s) for n, s in self._sinks.items() if s.change > since}
        return {
            "storeId": self._store.store_id,
            "notesEntered": self._entered,
            "lastNoteAt": self._last_position,
            "sinks": found,
        }

    def copy(self, found: Mapping[str, Any]) -> None:
        """Apply a master's table; raises `InvalidArgument` if it cannot be read."""
        entered = whole_field(found, "notesEntered", least=0)
        position = whole_field(found, "lastNoteAt", UNKNOWN)
        sinks = object_field(found, "sinks")
        parsed = {name: parse_sink(object_field(sinks, name)) for name in sinks}
        self._sinks.update(parsed)
        self._entered, self._last_position = entered, position
        self._change_count += 1

    def settle(self) -> bool:
        """Make the table agree with the log, before this broker decides about batches.

        True if entries were not in the log and were removed.
        """
        low, high = self._store.offsets(_NOTES, 0)
        is_lost = self._entered > high
        is_other = not is_lost and self._is_other_history(low)
        if is_lost or is_other:
            # It is unknown where another history began to differ: read all notes.
            self._forget_lost(high if is_lost else low)
        for offset, position, end, time_ms, note in self._notes(max(self._entered, low), high):
            self.enter(note, offset, position, end, time_ms)
        return is_lost or is_other

    # The file

    @property
    def has_unsaved(self) -> bool:
        """Whether there are changes that the file does not have."""
        return self._change_count != self._saved_change_count

    def save(self) -> bool:
        """Write the file if there are changes; waits for the disk."""
        unsaved = self.unsaved()
        if unsaved is None:
            return False
        self.write(unsaved)
        self.written(unsaved)
        return True

    def unsaved(self) -> UnsavedSinks | None:
        """Snapshot for `write`; None if nothing changed.

        Raises `DiskFailed` while another write is running.
        """
        if not self.has_unsaved:
            return None
        if self._is_writing:
            raise DiskFailed(f"{SINKS_FILE} is being written; try again when that is done")
        self._forget_jobs()
        table = self.as_object()
        self._is_writing = True
        return UnsavedSinks(table, self._change_count)

    @names_disk_errors
    def write(self, unsaved: UnsavedSinks) -> None:
        """Write a snapshot, on any thread; `written` must follow."""
        try:
            self._table.save(unsaved.table)
        finally:
            self._is_writing = False

    def written(self, unsaved: UnsavedSinks) -> None:
        """`write` has returned: only later changes are unsaved."""
        self._saved_change_count = unsaved.change_count

    def _load(self) -> None:
        stored = self._table.load()
        if stored is not None:
            try:
                self._take(stored)
            except InvalidArgument as error:
                raise StoreUnusable(f"{SINKS_FILE}: {error}. Repair the file") from error
        low = self._store.offsets(_NOTES, 0)[0]
        if self._entered < low and stored is not None:
            raise CorruptStore(
                SINKS_FILE,
                self._entered,
                f"the notes of batches up to {low} are in neither the file nor the log",
                "Restore the file, or remove it if no sink of this broker will repeat a batch",
            )
        if self.settle():
            # The next notes reuse the offsets of the lost ones. With the old file a start would
            # skip them.
            self.save()

    def _is_other_history(self, low: int) -> bool:
        """Whether the log has another note at the place of the last entered one."""
        last = self._entered - 1
        if last < low or self._last_position == UNKNOWN:
            return False
        found = self._store.get(_NOTES, 0, last, 1, size_max=_READ_SIZE).messages()
        return not found or found[0].physical_offset != self._last_position

    def _notes(self, offset: int, high: int) -> Iterator[tuple[int, int, int, int, SinkNote]]:
        while offset < high:
            result = self._store.get(_NOTES, 0, offset, _READ_COUNT, size_max=_READ_SIZE)
            messages = result.messages()
            if not messages:
                raise CorruptStore(_NOTES, offset, "a note is missing", "Restore the log")
            for record in messages:
                header = decode_header(record.body, record.physical_offset)
                try:
                    note = parse_note(header.note)
                except InvalidArgument as error:
                    raise StoreUnusable(
                        f"the note of the group at log position {header.start}: {error}"
                    ) from error
                if note is not None:
                    yield (
                        record.queue_offset,
                        header.start,
                        header.end,
                        record.store_timestamp,
                        note,
                    )
                offset = record.queue_offset + 1

    def _take(self, stored: Mapping[str, Any]) -> None:
        if text_field(stored, "storeId", "") != self._store.store_id:
            # Table of another log.
            _log.warning("%s belongs to another log and is ignored", SINKS_FILE)
            self._change_count += 1
            return
        self._entered = whole_field(stored, "notesEntered", least=0)
        self._last_position = whole_field(stored, "lastNoteAt", UNKNOWN)
        sinks = object_field(stored, "sinks")
        for name in sinks:
            self._sinks[name] = parse_sink(object_field(sinks, name))

    def _forget_lost(self, high: int) -> None:
        """The log lost its end after the file was saved: forget batches that it does not have."""
        _log.warning(
            "%s names %d notes, of which the log has %d at most", SINKS_FILE, self._entered, high
        )
        for sink in self._sinks.values():
            sink.forget_from(high)
        self._entered, self._last_position = high, UNKNOWN
        self._change_count += 1

    def _forget_jobs(self) -> None:
        """Evict batch jobs, which are not repeated later than a few minutes after their commit.

        A job with a prepared part stays as long as staged data does.
        """
        now_ms = self._time.now_ms
        old = []
        for name, sink in self._sinks.items():
            keep_ms = self._once_keep_ms if sink.prepared is None else self._prepared_keep_ms
            if sink.once and sink.silent_since_ms < now_ms - keep_ms:
                old.append(name)
        for name in old:
            del self._sinks[name]

    def _make_room(self, name: str) -> None:
        if len(self._sinks) < self._sinks_max:
            return
        self._forget_jobs()
        if len(self._sinks) < self._sinks_max:
            return
        oldest = min(self._sinks, key=lambda known: self._sinks[known].silent_since_ms)
        silent_ms = self._time.now_ms - self._sinks[oldest].silent_since_ms
        if silent_ms < self._keep_ms:
            raise LimitReached(
                f"no room for sink {name}: this broker knows {len(self._sinks)} sinks, at most "
                f"{self._sinks_max}, and each has published within {self._keep_ms // 86_400_000} "
                "days"
            )
        _log.warning("sink %s is evicted: no batch for %d days", oldest, silent_ms // 86_400_000)
        del self._sinks[oldest]
        self._change_count += 1
