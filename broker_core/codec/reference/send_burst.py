"""Many plain sends at once: the twin of `send_burst.c`.

`read_sends` reads frames that arrived together as the columns of one batch, as long as each is a
plain send to a topic that is ready. `join_sent_replies` builds the replies from the stored records,
`count_records` adds up their sizes. Frames that are left over go through the general decoder.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from typing import Final

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.record_layout import (
    IPV4_HOST_SIZE,
    IPV6_HOST_SIZE,
    RECORD_SIZE_MIN,
    TRANSACTION_BITS,
)
from broker_core.codec.reference.plain_send import ONE, PlainSendFields, read_plain_send
from broker_core.codec.wire.remoting_command import FRAME_HEAD

__all__ = ["count_records", "join_sent_replies", "read_sends"]

SendBurst = tuple[
    int, int, tuple[tuple[bytes, int], ...], bytes, bytes, bytes, bytes, bytes, bytes, bytes, int,
    int,
]  # fmt: skip
"""End of the last frame taken, count, queues, queue index (int32 each), bodies, their offsets
(int64), property texts, their offsets, born times (int64), marks, flag, sysFlag.

A mark is three int64: the request's id, and start and size of the unique key within the texts.
"""

_MARK: Final = struct.Struct("=qqq")
_FIRST_BYTES: Final = b'{"code":%d,' % ONE
_QUEUES_MAX: Final = 256
_GROUPS_MAX: Final = 1 << 16
# Size, queue id, queue offset of a record.
_RECORD: Final = struct.Struct(">i8xi4xq")


def read_sends(
    data: Buffer,
    start: int,
    ready: Mapping[str, int],
    suffix: Buffer,
    frame_size_max: int,
    header_size_max: int,
    body_size_max: int,
    count_max: int,
    /,
) -> SendBurst | None:
    """The plain sends from `start` on; None when the frame there is none or is incomplete.

    `ready` maps the writable topics to the number of their queues. All sends of a burst have the
    same flags. The burst ends before a frame that exceeds a limit, and at `count_max`.
    """
    view = memoryview(data).cast("B")
    if not 0 <= start <= len(view):
        raise ValueError(reasons.BAD_RANGE)
    rows = _Rows(bytes(suffix))
    while rows.count < count_max:
        frame = _open_frame(view, start, frame_size_max, header_size_max, body_size_max)
        if frame is None:
            break
        header, body, end = frame
        fields = read_plain_send(header, b"", ONE)
        if fields is None or fields[4] & TRANSACTION_BITS:
            break
        if fields[3] >= ready.get(fields[2], 0) or not rows.add(fields, body):
            break
        start = end
    return rows.burst(start) if rows.count else None


def _open_frame(
    view: memoryview, start: int, frame_size_max: int, header_size_max: int, body_size_max: int
) -> tuple[memoryview, memoryview, int] | None:
    if len(view) - start < FRAME_HEAD.size + len(_FIRST_BYTES) + 1:
        return None
    length, header_size = FRAME_HEAD.unpack_from(view, start)
    end = start + 4 + length
    if not 4 <= length <= frame_size_max - 4 or end > len(view):
        return None
    # The upper byte is the header type; only 0 is JSON.
    if not len(_FIRST_BYTES) < header_size <= min(length - 4, header_size_max):
        return None
    header_at = start + FRAME_HEAD.size
    body_at = header_at + header_size
    if end - body_at > body_size_max:
        return None
    if bytes(view[header_at : header_at + len(_FIRST_BYTES)]) != _FIRST_BYTES:
        return None
    return view[header_at:body_at], view[body_at:end], end


class _Rows:
    """The sends read so far."""

    def __init__(self, suffix: bytes) -> None:
        self._suffix = suffix
        self.count = 0
        self._flags = (0, 0)
        self._queues: dict[tuple[bytes, int], int] = {}
        self._queue_index = array("i")
        self._bodies, self._texts = bytearray(), bytearray()
        self._body_offsets, self._text_offsets = array("q", (0,)), array("q", (0,))
        self._born = array("q")
        self._marks = bytearray()

    def add(self, fields: PlainSendFields, body: memoryview) -> bool:
        """Add one send; False if it belongs to another burst."""
        opaque, _, topic, queue_id, sys_flag, born, flag, text, unique = fields
        if self.count and self._flags != (flag, sys_flag):
            return False
        queue = (topic.encode(), queue_id)
        if queue not in self._queues:
            if len(self._queues) == _QUEUES_MAX:
                return False
            self._queues[queue] = len(self._queues)
        self._flags = (flag, sys_flag)
        self._queue_index.append(self._queues[queue])
        at = 0 if text.startswith(b"UNIQ_KEY\x01") else text.index(b"\x02UNIQ_KEY\x01") + 1
        unique_at = len(self._texts) + at + len(b"UNIQ_KEY\x01")
        self._marks += _MARK.pack(opaque, unique_at, len(unique))
        self._bodies += body
        self._body_offsets.append(len(self._bodies))
        self._texts += text + self._suffix
        self._text_offsets.append(len(self._texts))
        self._born.append(born)
        self.count += 1
        return True

    def burst(self, end: int) -> SendBurst:
        return (
            end, self.count, tuple(self._queues), self._queue_index.tobytes(), bytes(self._bodies),
            self._body_offsets.tobytes(), bytes(self._texts), self._text_offsets.tobytes(),
            self._born.tobytes(), bytes(self._marks), *self._flags,
        )  # fmt: skip


def join_sent_replies(
    records: Buffer,
    start: int,
    count: int,
    host: Buffer,
    position: int,
    marks: Buffer,
    texts: Buffer,
    constants: Buffer,
    ending: Buffer,
) -> bytes:
    """The replies to `count` sends whose records begin at `start`, log position `position`.

    `constants` are fields common to all replies, `ending` is the end of a header behind its id; see
    `hot_replies`.
    """
    view, names, address = memoryview(records).cast("B"), bytes(texts), bytes(host)
    if (
        not 0 <= start <= len(view) or count < 1 or len(memoryview(marks)) // _MARK.size < count
        or len(address) not in (IPV4_HOST_SIZE, IPV6_HOST_SIZE)
    ):  # fmt: skip
        raise ValueError(reasons.BAD_RANGE)
    prefix, fields, end = address.hex().upper().encode(), bytes(constants), bytes(ending)
    replies = bytearray()
    text_end = 0
    for row in range(count):
        opaque, unique_at, unique_size = _MARK.unpack_from(marks, row * _MARK.size)
        size = queue_id = queue_offset = 0
        if start + RECORD_SIZE_MIN <= len(view):
            size, queue_id, queue_offset = _RECORD.unpack_from(view, start)
        if not RECORD_SIZE_MIN <= size <= len(view) - start or not (
            text_end <= unique_at <= unique_at + unique_size <= len(names)
        ):
            raise ValueError(reasons.BAD_RANGE)
        text_end = unique_at + unique_size
        header = (
            b'{"code":0,"extFields":{%b"msgId":"%b%016X","queueId":"%d","queueOffset":"%d",'
            b'"transactionId":"%b"},"flag":1,"language":"PYTHON","opaque":%d%b'
            % (
                fields, prefix, position & ((1 << 64) - 1), queue_id, queue_offset,
                names[unique_at:text_end], opaque, end,
            )
        )  # fmt: skip
        replies += FRAME_HEAD.pack(4 + len(header), len(header)) + header
        start += size
        position += size
    return bytes(replies)


def count_records(
    records: Buffer, start: int, count: int, index: Buffer, groups: int
) -> tuple[tuple[int, int], ...]:
    """Number and size of the records of each group, for `count` records that begin at `start`.

    `index` (int32 each) has the number of each record's group, which is less than `groups`.
    """
    view, numbers = memoryview(records).cast("B"), memoryview(index).cast("B")
    if (
        not 0 <= start <= len(view) or count < 1 or len(numbers) // 4 < count
        or not 1 <= groups <= _GROUPS_MAX
    ):  # fmt: skip
        raise ValueError(reasons.BAD_RANGE)
    counts, sizes = [0] * groups, [0] * groups
    for group in numbers[: 4 * count].cast("i"):
        size = 0
        if start + RECORD_SIZE_MIN <= len(view):
            size = _RECORD.unpack_from(view, start)[0]
        if not RECORD_SIZE_MIN <= size <= len(view) - start or not 0 <= group < groups:
            raise ValueError(reasons.BAD_RANGE)
        counts[group] += 1
        sizes[group] += size
        start += size
    return tuple(zip(counts, sizes, strict=True))
