"""The verdicts: what a store may hold after a crash, given the answers that its clients got.

`check` compares one dump with a frozen history and returns every broken invariant as a line that
begins with its id. Nothing here looks at how the store works, only at what it promised.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.crash.history import Frozen, QueueKey
from tests.crash.store_dump import Dump, LogRecord, QueueDump


def check(
    dump: Dump,
    history: Frozen,
    *,
    killed: bool = False,
    derived_lost: bool = False,
    disk_failed: bool = False,
) -> list[str]:
    """Broken invariants; empty when all hold.

    `killed`: only the process died, so that what it stored is there. `derived_lost`: queues and
    index were deleted before the store was opened, so that numbers of empty queues are gone.
    `disk_failed`: operations returned errors, so that derived files may have to be rebuilt.
    """
    return [
        *_log_bounds(dump, history, killed=killed),
        *_log_content(dump, history),
        *_groups(dump, history),
        *_queues(dump, history, derived_lost=derived_lost),
        *_index(dump),
        *_seen(dump, history),
        *_tables(dump, history),
        *_files(dump, history, expected=derived_lost or disk_failed),
    ]


def _log_bounds(dump: Dump, history: Frozen, *, killed: bool) -> Iterator[str]:
    promised = history.kept_end if killed else history.safe_end
    if dump.log_end < promised:
        yield f"I1 lost: the log ends at {dump.log_end}, {promised} was acknowledged"
    if dump.log_start > history.start_max:
        yield f"I1 lost: the log starts at {dump.log_start}, allowed {history.start_max}"
    if dump.log_start < history.start_min:
        yield f"retention came back: start {dump.log_start}, removed below {history.start_min}"


def _log_content(dump: Dump, history: Frozen) -> Iterator[str]:
    """One comparison for I2, I3, I4 and I6: the log is a stretch of what was sent, in order."""
    expected = history.records
    if history.pending is not None:
        expected = {**expected, **{r.position: r for r in history.pending.records}}
    found: dict[int, LogRecord] = {record.position: record for record in dump.records}
    for position, record in found.items():
        placed = expected.get(position)
        if placed is None:
            staged = " (staged, never published)" if record.sent.body in history.staged else ""
            yield f"I3 phantom: no message like that at {position} was sent{staged}"
        elif placed.sent != record.sent:
            yield f"I3 phantom: {record.sent} at {position}, sent was {placed.sent}"
        elif placed.offset != record.offset:
            yield f"I4 offset: {record.offset} at {position}, answered {placed.offset}"
    for position, placed in expected.items():
        if dump.log_start <= position < dump.log_end and position not in found:
            yield f"I2 hole: {placed.sent.key} {placed.offset} at {position} is missing"


def _groups(dump: Dump, history: Frozen) -> Iterator[str]:
    for start, end in history.groups:
        if start < dump.log_end < end:
            yield f"group [{start}, {end}) was cut at {dump.log_end}"


def _queues(dump: Dump, history: Frozen, *, derived_lost: bool) -> Iterator[str]:
    by_queue: dict[QueueKey, list[LogRecord]] = {}
    for record in dump.records:
        by_queue.setdefault(record.sent.key, []).append(record)
    nothing = QueueDump(0, 0, (), ())
    for key in sorted(by_queue.keys() | dump.queues.keys()):
        queue = dump.queues.get(key, nothing)
        expected = by_queue.get(key, [])
        floor = 0 if derived_lost else history.deleted.get(key, 0)
        if key[0] in history.deleting:
            floor = max(floor, queue.min_offset)
        if queue.min_offset == queue.max_offset and derived_lost and not expected:
            continue
        yield from _queue(key, queue, [r for r in expected if r.offset >= floor])
    if derived_lost:
        return
    for key, end in history.next_offsets.items():
        known = max((r.offset + 1 for r in by_queue.get(key, ())), default=0)
        safe = max(known, _safe_offset(history, key, end, dump.log_end))
        if dump.queues.get(key, nothing).max_offset < safe:
            yield f"I4 numbering: {key} ends at {dump.queues.get(key, nothing)[:2]}, was {safe}"


def _safe_offset(history: Frozen, key: QueueKey, end: int, log_end: int) -> int:
    """The offset that a queue had reached with what is not cut away."""
    lost = [r.offset for p, r in history.records.items() if p >= log_end and r.sent.key == key]
    return min(lost, default=end)


def _queue(key: QueueKey, queue: QueueDump, expected: list[LogRecord]) -> Iterator[str]:
    units = tuple((r.position, r.size, r.tags_code) for r in expected)
    if queue.units != units:
        yield f"I5 queue {key}: units {queue.units}, the log says {units}"
    served = tuple((r.offset, r.position, r.sent) for r in expected)
    if queue.served != served:
        yield f"I5 queue {key}: serves {queue.served}, the log says {served}"
    first = expected[0].offset if expected else queue.max_offset
    if expected and (queue.min_offset, queue.max_offset) != (first, expected[-1].offset + 1):
        yield f"I6 queue {key}: offsets {queue[:2]}, the log says {first}..{expected[-1].offset}"


def _index(dump: Dump) -> Iterator[str]:
    expected = tuple((h, r.position) for r in dump.records for h in r.index_hashes)
    found = tuple(entry for entry in dump.index if entry[1] >= dump.log_start)
    if found != expected:
        yield f"I5 index: {found}, the log says {expected}"


def _seen(dump: Dump, history: Frozen) -> Iterator[str]:
    """A power cut may take what ASYNC_FLUSH showed early; ends that readers keep are durable."""
    if dump.epoch < history.epoch:
        yield f"the epoch went back from {history.epoch} to {dump.epoch}"
    if not history.sync:
        return
    for record, _ in history.visible.values():
        if record.position >= dump.log_end:
            yield f"I7 visible before durable: {record} was read and is lost"


def _tables(dump: Dump, history: Frozen) -> Iterator[str]:
    for path, (saved, *unanswered) in history.tables.items():
        found = dump.tables.get(path)
        if found != saved and found not in unanswered:
            yield f"table {path}: {found}, saved was {saved}, under way {unanswered}"


def _files(dump: Dump, history: Frozen, *, expected: bool) -> Iterator[str]:
    """No sync failed, so nothing that a checkpoint vouches for may be damaged."""
    if dump.rebuilt and not expected and not history.deleting:
        yield f"I5 order: {dump.rebuilt} queues did not match their checkpoint"
