"""Consumer offsets: how far each group has consumed each queue, in `consumerOffset.json`.

Owned by the event loop; only `write` may run on another thread. Two rules hold for every entry:

never backwards   A commit below the stored offset is ignored. During a rebalance the old owner of
                  a queue may commit an older offset than the new one; RocketMQ accepts it, and
                  everything in between is consumed again. Only `reset` moves backwards.
never past the end
                  A commit above the end of its queue is ignored, and offsets are lowered to the end
                  when the table is loaded. After a power cut without sync flush other messages take
                  those offsets, and a group that is "ahead" would skip them. A consumer that
                  survived the power cut still commits its old offset; the answer to its next pull
                  corrects it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from broker_core.broker.request_fields import checked_group, checked_topic
from broker_core.codec.json.fields import object_field, whole_field, whole_number
from broker_core.codec.wire.bodies.message_queue import QUEUE_ID_MAX
from broker_core.codec.wire.bodies.topic_config import (
    DataVersion,
    data_version_object,
    parse_data_version,
)
from broker_core.codec.wire.topic_name import group_name_problem, topic_name_problem
from broker_core.errors import InvalidArgument, LimitReached, StoreUnusable
from broker_core.runtime.clock import Clock
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors

_log = logging.getLogger(__name__)

OFFSETS_FILE: Final = "config/consumerOffset.json"
# A member that is notified of a reset takes ten seconds to drop a queue, and commits its old
# position every five seconds until then.
RESET_SETTLES_MS: Final = 30_000

# End offset of a queue: the one that its next message gets.
EndOffset = Callable[[str, int], int]


# Group, topic and queue id.
OffsetKey = tuple[str, str, int]


class OffsetChanges(NamedTuple):
    """Changes since some change count, for copies of the table."""

    offsets: dict[OffsetKey, int]
    removed: list[OffsetKey]
    went_back: set[OffsetKey]
    """Those of `offsets` that a reset has lowered; commits only raise them."""


class UnsavedOffsets(NamedTuple):
    """A copy of the table, and the change count that it includes."""

    table: dict[str, Any]
    change_count: int


class OffsetTable:
    """Offsets by group, topic and queue. Loads, and lowers offsets past the log, when constructed.

    `end_offset(topic, queue_id)` must answer from the opened store.
    """

    def __init__(
        self,
        table: JsonTable,
        clock: Clock,
        *,
        end_offset: EndOffset,
        offsets_max: int = 2_000_000,
    ) -> None:
        self._table = table
        self._clock = clock
        self._end_offset = end_offset
        self._offsets_max = offsets_max
        self._groups: dict[str, dict[str, dict[int, int]]] = {}
        self._count = 0
        self._version = DataVersion()
        self._change_count = 0
        self._saved_change_count = 0
        # Resets to report with the next pull of their queue; commits are ignored until then.
        self._held: dict[OffsetKey, int] = {}
        # Reported resets: (target, until when commits are still ignored). A pull from the target
        # ends it.
        self._settling: dict[tuple[str, str, int], tuple[int, float]] = {}
        self._reset_listeners: list[Callable[[OffsetKey], object]] = []
        # Key -> number of its latest change, latest last; kept after the first `changes_since`.
        self._journal: dict[OffsetKey, int] | None = None
        self._journal_start = 0
        self._backs: dict[OffsetKey, int] = {}
        self._load()

    # Committing and asking

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store that a group has consumed up to `offset` (exclusive).

        False if ignored: it goes back, is past the end, or the queue is being reset.
        """
        queues = self._queues(group, topic)
        stored = queues.get(queue_id)
        if stored is not None:
            if offset <= stored:
                return False
            if self.has_resets and self._is_being_reset((group, topic, queue_id)):
                return False
        if not 0 <= offset <= self._end_offset(topic, queue_id):
            return False
        self._set(group, topic, queue_id, offset)
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The stored offset; None when the group never committed one."""
        return self._queues(group, topic).get(queue_id)

    def reset(
        self, group: str, topic: str, queue_id: int, offset: int, *, until_pulled: bool = False
    ) -> None:
        """Set an offset in either direction.

        `until_pulled` ignores commits until `take_reset` has notified a member of the group and it
        pulls from the new offset: before that it would commit its own, later position.
        """
        end = self._end_offset(topic, queue_id)
        if not 0 <= offset <= end:
            raise InvalidArgument(
                f"offset {offset} is outside queue {queue_id} of {topic[:255]}: give 0 to {end}"
            )
        key = (group, topic, queue_id)
        stored = self._queues(group, topic).get(queue_id)
        if stored != offset:
            self._set(group, topic, queue_id, offset)
            if self._journal is not None and stored is not None and offset < stored:
                self._backs[key] = self._change_count
        self._held.pop(key, None)
        self._settling.pop(key, None)
        if until_pulled:
            self._held[key] = offset
        for listener in self._reset_listeners:
            listener(key)

    def on_reset(self, listener: Callable[[OffsetKey], object]) -> None:
        """Call `listener(key)` after every reset, also one that leaves the offset as it was."""
        self._reset_listeners.append(listener)

    @property
    def has_resets(self) -> bool:
        """Whether any reset was not yet reported to and followed by a consumer."""
        return bool(self._held or self._settling)

    def take_reset(self, group: str, topic: str, queue_id: int, pulled: int) -> int | None:
        """Where a pull from `pulled` must continue after a reset. Reported once, and not to a pull
        that is there already.
        """
        key = (group, topic, queue_id)
        settling = self._settling.get(key)
        if settling is not None and settling[0] == pulled:
            del self._settling[key]
        target = self._held.pop(key, None)
        if target is None or target == pulled:
            return None
        self._settling[key] = (target, self._clock.monotonic() + RESET_SETTLES_MS / 1000)
        return target

    def obey_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The target of a reset, reported once; for POP, where the broker keeps the position."""
        key = (group, topic, queue_id)
        settling = self._settling.pop(key, None)
        return self._held.pop(key, None if settling is None else settling[0])

    # Copies

    @property
    def change_count(self) -> int:
        """Number of changes in this run."""
        return self._change_count

    def changes_since(self, change_count: int) -> OffsetChanges | None:
        """The changes after that count; None when only the whole table has them."""
        if self._journal is None:
            self._journal, self._journal_start = {}, self._change_count
        if not self._journal_start <= change_count <= self._change_count:
            return None
        changes = OffsetChanges({}, [], set())
        for key in reversed(self._journal):
            if self._journal[key] <= change_count:
                break
            group, topic, queue_id = key
            offset = self.query(group, topic, queue_id)
            if offset is None:
                changes.removed.append(key)
                continue
            changes.offsets[key] = offset
            if self._backs.get(key, -1) > change_count:
                changes.went_back.add(key)
        return changes

    def copy(self, key: OffsetKey, offset: int, *, backwards: bool = False) -> bool:
        """Copy a master's offset; False while the queue here is shorter.

        Then the end of the queue is stored, and the caller retries later: another message may get
        the offset of one that never arrived here. Not a change for `changes_since`.
        """
        group, topic, queue_id = key
        end = self._end_offset(topic, queue_id)
        wanted = min(max(offset, 0), end)
        stored = self._queues(group, topic).get(queue_id)
        if stored is None or wanted > stored or (backwards and wanted != stored):
            journal, self._journal = self._journal, None
            try:
                self._set(group, topic, queue_id, wanted)
            finally:
                self._journal = journal
        return offset <= end

    # Listing

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have an offset in a topic."""
        return {group for group, topics in self._groups.items() if topic in topics}

    def topics_of(self, group: str) -> set[str]:
        """The topics in which a group has an offset."""
        return set(self._groups.get(group, ()))

    def queues_of(self, group: str, topic: str) -> dict[int, int]:
        """Offset by queue; a copy."""
        return dict(self._queues(group, topic))

    def __len__(self) -> int:
        return self._count

    @property
    def version(self) -> DataVersion:
        """Data version of the last save."""
        return self._version

    def as_object(self) -> dict[str, Any]:
        """The table in RocketMQ's shape, as slaves and the file get it."""
        return {
            "dataVersion": data_version_object(self._version),
            "offsetTable": {
                f"{topic}@{group}": dict(queues)
                for group, topics in self._groups.items()
                for topic, queues in topics.items()
            },
        }

    # Forgetting

    def remove_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            self._remove(group, topic)

    def remove_queue(self, group: str, topic: str, queue_id: int) -> None:
        queues = dict(self._queues(group, topic))
        if queues.pop(queue_id, None) is None:
            return
        self._remove(group, topic)
        for kept, offset in queues.items():
            self._set(group, topic, kept, offset)

    def remove_topic(self, topic: str) -> None:
        """Remove a topic from every group: a new topic of that name starts at 0."""
        for group in self.groups_of(topic):
            self._remove(group, topic)

    # Saving

    @property
    def has_unsaved(self) -> bool:
        """Whether the file is behind."""
        return self._change_count != self._saved_change_count

    def save(self) -> bool:
        """Write the table if it changed; returns whether it did."""
        unsaved = self.unsaved()
        if unsaved is None:
            return False
        self.write(unsaved)
        self.written(unsaved)
        return True

    def unsaved(self) -> UnsavedOffsets | None:
        """The argument for `write`; None when nothing changed since the last save."""
        if not self.has_unsaved:
            return None
        self._version = DataVersion(self._version.counter + 1, 0, self._clock.wall_ms())
        return UnsavedOffsets(self.as_object(), self._change_count)

    @names_disk_errors
    def write(self, unsaved: UnsavedOffsets) -> None:
        """Write and wait for the disk; on any thread, one call at a time."""
        self._table.save(unsaved.table)

    def written(self, unsaved: UnsavedOffsets) -> None:
        """`write` has returned; only later changes are unsaved now."""
        self._saved_change_count = unsaved.change_count

    def _is_being_reset(self, key: tuple[str, str, int]) -> bool:
        if key in self._held:
            return True
        settling = self._settling.get(key)
        if settling is None:
            return False
        if self._clock.monotonic() < settling[1]:
            return True
        del self._settling[key]
        return False

    def _queues(self, group: str, topic: str) -> Mapping[int, int]:
        topics = self._groups.get(group)
        return (topics.get(topic) or _NO_QUEUES) if topics else _NO_QUEUES

    def _set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self._queues(group, topic)
        if queue_id not in queues:
            if self._count >= self._offsets_max:
                raise LimitReached(
                    f"no room for the offset of {group[:255]} in {topic[:255]}: this broker has "
                    f"{self._count} offsets, at most {self._offsets_max} (offsetsMax)"
                )
            if not 0 <= queue_id <= QUEUE_ID_MAX:
                raise InvalidArgument(f"queue {queue_id} of {topic[:255]} cannot exist")
            if not queues:
                checked_group(group)
                checked_topic(topic)
            self._count += 1
        self._groups.setdefault(group, {}).setdefault(topic, {})[queue_id] = offset
        self._change_count += 1
        if self._journal is not None:
            self._note(group, topic, queue_id)

    def _note(self, group: str, topic: str, queue_id: int) -> None:
        assert self._journal is not None
        key = (group, topic, queue_id)
        # The latest change comes last, so that `changes_since` stops at the first known one.
        self._journal.pop(key, None)
        self._journal[key] = self._change_count

    def _remove(self, group: str, topic: str) -> None:
        topics = self._groups[group]
        queues = topics.pop(topic)
        if not topics:
            del self._groups[group]
        for queue_id in queues:
            self._held.pop((group, topic, queue_id), None)
            self._settling.pop((group, topic, queue_id), None)
        self._count -= len(queues)
        self._change_count += 1
        if self._journal is not None:
            for queue_id in queues:
                self._note(group, topic, queue_id)

    def _load(self) -> None:
        stored = self._table.load()
        if stored is None:
            return
        try:
            self._version = parse_data_version(stored.get("dataVersion"))
            table = object_field(stored, "offsetTable")
            for key in table:
                self._take(key, object_field(table, key))
        except InvalidArgument as error:
            raise StoreUnusable(f"{OFFSETS_FILE}: {error}. Repair the file") from error

    def _take(self, key: str, found: Mapping[str, Any]) -> None:
        topic, _, group = key.partition("@")
        problem = topic_name_problem(topic) or group_name_problem(group)
        if problem is not None:
            _log.warning("%s: %r is ignored: %s", OFFSETS_FILE, key[:300], problem)
            return
        queues = {}
        for text in found:
            queue_id = whole_number(text, "queue", 0, QUEUE_ID_MAX)
            offset = whole_field(found, text)
            queues[queue_id] = self._within_log(group, topic, queue_id, offset)
        if queues:
            self._groups.setdefault(group, {})[topic] = queues
            self._count += len(queues)

    def _within_log(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        end = self._end_offset(topic, queue_id)
        if 0 <= offset <= end:
            return offset
        _log.warning(
            "%s: %s had offset %d in queue %d of %s, which ends at %d",
            OFFSETS_FILE,
            group,
            offset,
            queue_id,
            topic,
            end,
        )
        self._change_count += 1
        return min(max(offset, 0), end)


_NO_QUEUES: Final[Mapping[int, int]] = {}
