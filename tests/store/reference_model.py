"""What a store must answer, in the simplest words: a list of records and a few numbers.

The model computes for itself where records lie, how they are numbered and what readers may see. It
gets what the disk decided (how far the log is durable, which files retention took).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

GROUP_TOPIC = "rmq_sys_append_group"
GROUP_HEADER_SIZE = 32
COLLISIONS = 64


class Row(NamedTuple):
    """One message to append."""

    topic: str
    queue_id: int
    body: bytes
    tag: str = ""
    key: str = ""

    @property
    def size(self) -> int:
        """Bytes of its record: fixed fields, topic, body, properties, checksum property."""
        properties = sum(len(f"NAME\1{text}\2") for text in (self.tag, self.key) if text)
        return 91 + len(self.topic) + len(self.body) + properties + 20


class Record(NamedTuple):
    """One message in the log; `group_end` is the end of its append group, or 0."""

    row: Row
    position: int
    queue_offset: int
    stored_ms: int
    group_end: int

    @property
    def end(self) -> int:
        return self.position + self.row.size


class ReferenceModel:
    """`records` is the whole log, also what retention or a deletion has hidden."""

    def __init__(self, file_size: int) -> None:
        self.file_size = file_size
        self.records: list[Record] = []
        self.end = self.start = 0
        self.durable = self.limit = 0
        self._deleted: dict[str, int] = {}

    def append(self, rows: Iterable[Row], stored_ms: int, *, together: bool = False) -> Record:
        """Every row in order; returns the first record."""
        rows = list(rows)
        if together:
            self.end = self._place(sum(row.size for row in rows))
        first = len(self.records)
        for row in rows:
            self._add(row, stored_ms, 0)
        return self.records[first]

    def append_group(self, rows: list[Row], note: bytes, stored_ms: int) -> Record:
        """Header and rows as one unit."""
        header = Row(GROUP_TOPIC, 0, bytes(GROUP_HEADER_SIZE) + note)
        first, before = len(self.records), self.end
        for row in (header, *rows):
            self._add(row, stored_ms, 0)
        group_end = self.end
        self.records[first:] = [r._replace(group_end=group_end) for r in self.records[first:]]
        assert group_end > before
        return self.records[first]

    def cut(self, end: int) -> None:
        """A crash took everything that does not end at or before `end`."""
        self.records = [r for r in self.records if max(r.end, r.group_end) <= end]
        self.end = end

    def last_stored_ms(self) -> int:
        return max((r.stored_ms for r in self.records), default=0)

    def delete_topic(self, topic: str) -> None:
        """Hide what is there; numbers go on."""
        self._deleted[topic] = len(self.records)

    def visible(self) -> list[Record]:
        """What dispatch has shown: up to the limit, and groups only when they are durable."""
        shown = []
        for record in self.records:
            if record.end > self.limit or record.group_end > self.durable:
                break
            shown.append(record)
        return shown

    def queues(self) -> set[tuple[str, int]]:
        return {(r.row.topic, r.row.queue_id) for r in self.visible()}

    def readable(self, topic: str, queue_id: int) -> tuple[list[Record], int]:
        """Messages of a queue that can be read, and its end."""
        deleted = self._deleted.get(topic, 0)
        shown = self.visible()
        all_of_it = [r for r in shown if (r.row.topic, r.row.queue_id) == (topic, queue_id)]
        hidden = set(self.records[:deleted])
        kept = [r for r in all_of_it if r.position >= self.start and r not in hidden]
        return kept, len(all_of_it)

    def by_key(self, topic: str, key: str, count: int) -> list[Record]:
        """The newest `count` messages with this key, oldest first; deletion does not hide them."""
        found = [
            r
            for r in self.visible()
            if r.row.topic == topic and r.row.key == key and r.position >= self.start
        ]
        return found[-count:] if count else []

    def by_time(self, topic: str, queue_id: int, time_ms: int) -> int:
        kept, end = self.readable(topic, queue_id)
        return next((r.queue_offset for r in kept if r.stored_ms >= time_ms), end)

    def _add(self, row: Row, stored_ms: int, group_end: int) -> None:
        position = self._place(row.size)
        number = sum(r.row[:2] == row[:2] for r in self.records)
        self.records.append(Record(row, position, number, stored_ms, group_end))
        self.end = position + row.size

    def _place(self, size: int) -> int:
        """At the end, or in the next file when fewer than 8 bytes would be left behind it."""
        rest = self.file_size - self.end % self.file_size
        return self.end + rest if size + 8 > rest else self.end
