"""The requests of clients to a store and its answers: all that the checker relies on.

Kept by the workload, never by the store. The layout of the log is modelled here a second time
(record sizes, the roll at a file's end), so that the exact position of every record is known before
the store answers. A frozen copy is taken before each file operation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

GROUP_TOPIC = "rmq_sys_append_group"
FIXED_SIZE = 91
CRC_SIZE = 20
BLANK_SIZE = 8
GROUP_HEADER_SIZE = 32

QueueKey = tuple[str, int]
Properties = frozenset[tuple[str, str]]


class Sent(NamedTuple):
    """One message as its sender knows it; bodies are unique."""

    key: QueueKey
    body: bytes
    properties: Properties = frozenset()

    def size(self, crc: bool) -> int:
        """Bytes of its record."""
        text = sum(len(name) + len(value) + 2 for name, value in self.properties)
        return FIXED_SIZE + len(self.body) + len(self.key[0]) + text + (CRC_SIZE if crc else 0)


class Placed(NamedTuple):
    """A message at the place that the log gives it."""

    position: int
    size: int
    offset: int
    sent: Sent

    @property
    def end(self) -> int:
        """Position behind the record."""
        return self.position + self.size


class Append(NamedTuple):
    """One call that appends: all of its records, in order."""

    records: tuple[Placed, ...]
    whole: bool
    """Whether it is all or nothing after a crash."""

    @property
    def start(self) -> int:
        """Position of the first record."""
        return self.records[0].position

    @property
    def end(self) -> int:
        """Position behind the last record."""
        return self.records[-1].end


@dataclasses.dataclass
class Frozen:
    """What was promised at one moment; see `History` for the fields."""

    records: dict[int, Placed]
    pending: Append | None
    groups: tuple[tuple[int, int], ...]
    log_end: int
    safe_end: int
    kept_end: int
    start_min: int
    start_max: int
    visible: dict[tuple[QueueKey, int], tuple[Placed, int]]
    next_offsets: dict[QueueKey, int]
    deleted: dict[QueueKey, int]
    deleting: frozenset[str]
    tables: dict[str, tuple[int | None, ...]]
    epoch: int
    sync: bool
    staged: frozenset[bytes]


class History:
    """Grows with the workload; `freeze` copies it."""

    def __init__(self, file_size: int, *, sync: bool, crc: bool = True) -> None:
        self.file_size = file_size
        self.sync = sync
        self.crc = crc
        self.records: dict[int, Placed] = {}
        """Every accepted record that may still be in the log, by position."""
        self.pending: Append | None = None
        """The append whose answer has not come yet."""
        self.groups: list[tuple[int, int]] = []
        self.log_end = 0
        self.safe_end = 0
        """Everything below survives a power cut: it was acknowledged, or recovered."""
        self.kept_end = 0
        """Everything below survives a kill of the process."""
        self.start_min = self.start_max = 0
        """Retention has removed at least / at most what is below."""
        self.visible: dict[tuple[QueueKey, int], tuple[Placed, int]] = {}
        """What a reader got, and in which epoch."""
        self.next_offsets: dict[QueueKey, int] = {}
        self.deleted: dict[QueueKey, int] = {}
        """Queues of deleted topics: entries below the offset never come back."""
        self.deleting: set[str] = set()
        """Topics whose deletion was asked for and not answered."""
        self.tables: dict[str, tuple[int | None, ...]] = {}
        """Saved value, then those whose saving has no answer yet."""
        self.epoch = 0
        self.staged: set[bytes] = set()

    def freeze(self) -> Frozen:
        """An independent copy."""
        return Frozen(
            dict(self.records),
            self.pending,
            tuple(self.groups),
            self.log_end,
            self.safe_end,
            self.kept_end,
            self.start_min,
            self.start_max,
            dict(self.visible),
            dict(self.next_offsets),
            dict(self.deleted),
            frozenset(self.deleting),
            dict(self.tables),
            self.epoch,
            self.sync,
            frozenset(self.staged),
        )

    # Layout

    def place(self, position: int, size: int) -> int:
        """Where a record (or a batch kept together) of `size` bytes goes."""
        rest = self.file_size - position % self.file_size
        return position + rest if size + BLANK_SIZE > rest else position

    def invoke(
        self, messages: Sequence[Sent], *, together: bool = False, note: bytes | None = None
    ) -> Append:
        """An append was asked for; `note` makes it a group with a header record."""
        messages = [_header(note), *messages] if note is not None else list(messages)
        position = self.log_end
        if together:
            position = self.place(position, sum(m.size(self.crc) for m in messages))
        offsets: dict[QueueKey, int] = {}
        placed = []
        for message in messages:
            size = message.size(self.crc)
            position = self.place(position, size)
            offset = offsets.get(message.key, self.next_offsets.get(message.key, 0))
            offsets[message.key] = offset + 1
            placed.append(Placed(position, size, offset, message))
            position += size
        self.pending = Append(tuple(placed), whole=note is not None)
        if note is not None:
            self.groups.append((self.pending.start, self.pending.end))
        return self.pending

    # Answers

    def accepted(self, append: Append) -> None:
        """The log has it."""
        self.pending = None
        self.log_end = append.end
        for record in append.records:
            self.records[record.position] = record
            self.next_offsets[record.sent.key] = record.offset + 1

    def refused(self, append: Append) -> None:
        """The store said that nothing was written."""
        self.pending = None
        if append.whole:
            self.groups.remove((append.start, append.end))

    def acknowledged(self, append: Append) -> None:
        """The sender has the answer that it is durable."""
        self.safe_end = max(self.safe_end, append.end)
        self.kept_end = max(self.kept_end, append.end)

    def everything_safe(self) -> None:
        """A flush, a clean stop or a recovery made all that is there durable."""
        self.safe_end = self.kept_end = self.log_end

    def saw(self, key: QueueKey, offset: int, position: int) -> None:
        """A reader got the message at `offset`."""
        record = self.records.get(position)
        if record is None and self.pending is not None:
            record = next((r for r in self.pending.records if r.position == position), None)
        assert record is not None, (
            f"read {key} {offset}: no message like that at {position} was sent"
        )
        assert (record.sent.key, record.offset) == (key, offset), f"{record} is not {key} {offset}"
        self.visible[key, offset] = record, self.epoch

    def forget_below(self, log_start: int) -> None:
        """The log starts there now; `start_max` comes down only when retention has answered."""
        self.start_min = log_start
        self.start_max = max(self.start_max, log_start)

    def restarted(
        self, log_start: int, log_end: int, offsets: dict[QueueKey, tuple[int, int]], epoch: int
    ) -> None:
        """A store was opened and checked; what is in it is the past from now on."""
        if self.pending is not None and self.pending.start < log_end:
            for record in self.pending.records:
                if record.end <= log_end:
                    self.records[record.position] = record
        self.pending = None
        for key, (low, _) in offsets.items():
            if key[0] in self.deleting:
                self.deleted[key] = low
        self.deleting.clear()
        self.records = {p: r for p, r in self.records.items() if p < log_end}
        self.groups = [group for group in self.groups if group[1] <= log_end]
        self.log_end = log_end
        self.next_offsets = {key: high for key, (_, high) in offsets.items()}
        self.epoch = epoch
        self.everything_safe()
        self.start_min = self.start_max = log_start
        self.visible = {
            place: (record, epoch)
            for place, (record, _) in self.visible.items()
            if record.position < log_end
        }


def _header(note: bytes) -> Sent:
    # The body is the store's own affair up to the note, which ends it.
    return Sent((GROUP_TOPIC, 0), bytes(GROUP_HEADER_SIZE) + note)
