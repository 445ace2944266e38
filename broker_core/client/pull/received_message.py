"""A message as a consumer gets it: the stored record, its queue and the decompressed body.

Properties and body are decoded on first use. So counting or skipping a message costs nothing, and a
body that cannot be decompressed is an error of that one message, raised on access (S08).
"""

from __future__ import annotations

from collections.abc import Iterator

from broker_core.client.connection.config import DECOMPRESSED_SIZE_MAX
from broker_core.client.pull.message_display import message_html, message_line, message_text
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.compression import decompress_body
from broker_core.codec.records.host_address import HostAddress
from broker_core.codec.records.message_record import COMPRESSED, MessageRecord, decode_record
from broker_core.codec.records.record_layout import I32
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.errors import CorruptRecord, MalformedRecord


class ReceivedMessage:
    """One message of one queue. Compared by identity."""

    __slots__ = ("_body", "_properties", "_size_max", "queue", "reconsume_times", "record")

    def __init__(
        self,
        record: MessageRecord,
        queue: MessageQueue,
        decompressed_size_max: int = DECOMPRESSED_SIZE_MAX,
    ) -> None:
        self.record = record
        self.queue = queue
        self.reconsume_times = record.reconsume_times
        self._size_max = decompressed_size_max
        self._properties: dict[str, str] | None = None
        self._body: bytes | None = None

    def __repr__(self) -> str:
        return message_line(self)

    def describe(self) -> str:
        """Every field and the whole body as text."""
        return message_text(self)

    def _repr_html_(self) -> str:
        return message_html(self)

    @property
    def topic(self) -> str:
        """The topic that the message was sent to; for a retry not the topic of its queue."""
        if self.record.topic.startswith(RETRY_TOPIC_PREFIX):
            return self.properties.get(names.RETRY_TOPIC, self.record.topic)
        return self.record.topic

    @property
    def body(self) -> bytes:
        """The body as it was sent; raises when it cannot be decompressed within the limit."""
        if self._body is None:
            stored, sys_flag = self.record.body, self.record.sys_flag
            is_plain = not sys_flag & COMPRESSED
            self._body = stored if is_plain else decompress_body(stored, sys_flag, self._size_max)
        return self._body

    def with_sys_flag(self, sys_flag: int) -> ReceivedMessage:
        """The same message with another system flag, which says how the body is compressed."""
        return ReceivedMessage(self.record._replace(sys_flag=sys_flag), self.queue, self._size_max)

    @property
    def properties(self) -> dict[str, str]:
        """Properties by name; decoded once, so do not change it."""
        if self._properties is None:
            self._properties = self.record.properties
        return self._properties

    @property
    def tags(self) -> str:
        """The tag; "" without one."""
        return self.properties.get(names.TAGS, "")

    @property
    def keys(self) -> str:
        """Index keys, separated by spaces; "" without any."""
        return self.properties.get(names.KEYS, "")

    @property
    def message_id(self) -> str:
        """The producer's id; the broker's if there is none."""
        return self.properties.get(names.UNIQ_KEY) or self.record.message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id: host and log position of this record."""
        return self.record.message_id

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def physical_offset(self) -> int:
        """Its position in the broker's log."""
        return self.record.physical_offset

    @property
    def flag(self) -> int:
        """The sender's flag."""
        return self.record.flag

    @property
    def born_timestamp(self) -> int:
        """When it was sent, epoch milliseconds of the sender's clock."""
        return self.record.born_timestamp

    @property
    def born_host(self) -> HostAddress:
        """The sender's address."""
        return self.record.born_host

    @property
    def store_timestamp(self) -> int:
        """When it was stored, epoch milliseconds of the broker's clock."""
        return self.record.store_timestamp

    @property
    def size(self) -> int:
        """Bytes of the stored body and the property text."""
        return len(self.record.body) + len(self.record.property_text)


def decode_messages(
    records: Buffer,
    queue: MessageQueue,
    decompressed_size_max: int = DECOMPRESSED_SIZE_MAX,
) -> list[ReceivedMessage]:
    """The messages of an answer's body, checksums verified. Raises `MalformedRecord`."""
    return [
        ReceivedMessage(record, queue, decompressed_size_max) for record in _decode_each(records)
    ]


def _decode_each(records: Buffer) -> Iterator[MessageRecord]:
    view = memoryview(records)
    at = 0
    while at < len(view):
        if len(view) - at < I32.size:
            raise MalformedRecord(at, "an answer ends inside a record")
        (size,) = I32.unpack_from(view, at)
        if not 0 < size <= len(view) - at:
            raise MalformedRecord(at, f"a record of {size} bytes, {len(view) - at} are left")
        try:
            yield decode_record(view, at, limit=at + size)
        except CorruptRecord as error:
            raise MalformedRecord(at, error.reason) from None
        at += size
