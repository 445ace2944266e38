"""One message <-> one commit-log record. For many, see the functions of `codec.native`.

`MessageRecord` keeps the property text as it is stored, without the checksum property;
`MessageRecord.properties` is the mapping.
"""

from __future__ import annotations

from struct import error as StructError
from typing import Final, NamedTuple
from zlib import crc32

from broker_core.codec.records import record_reasons as reasons
from broker_core.codec.records.column_batch import Buffer
from broker_core.codec.records.host_address import HostAddress, decode_host, encode_host
from broker_core.codec.records.message_properties import decode_properties
from broker_core.codec.records.record_layout import (
    BORN_HOST_IPV6,
    CHECK_CHECKSUMS,
    CRC_MASK,
    CRC_TAIL_SIZE,
    HEADERS,
    HOST_BITS,
    I16,
    IPV6_HOST_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTY_TEXT_MAX,
    SIZE_MAX,
    STORE_HOST_IPV6,
    TOPIC_MAX,
    TOPIC_V1_MAX,
    crc_tail,
    looks_like_crc_tail,
)
from broker_core.codec.records.record_parse import (
    RecordFault,
    as_view,
    is_topic_text,
    parse_record,
    properties_end,
    verify_checksums,
)
from broker_core.codec.wire.message_id import encode_message_id
from broker_core.errors import CorruptRecord, InvalidArgument

COMPRESSED: Final = 0x01
COMPRESSION_TYPE_BITS: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300

LOCAL_HOST: Final[HostAddress] = ("127.0.0.1", 10911)


class MessageRecord(NamedTuple):
    """A message as the log stores it. The IPv6 bits of `sys_flag` follow from the hosts."""

    topic: str
    queue_id: int
    body: bytes
    property_text: bytes = b""
    """`name 0x01 value 0x02 ...` without the checksum property; see `message_properties`."""
    flag: int = 0
    sys_flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    born_timestamp: int = 0
    born_host: HostAddress = LOCAL_HOST
    store_timestamp: int = 0
    store_host: HostAddress = LOCAL_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def properties(self) -> dict[str, str]:
        """Properties by name, decoded at each call."""
        return decode_properties(self.property_text)

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return encode_message_id(self.store_host, self.physical_offset)


def encode_record(record: MessageRecord, append_crc: bool = True) -> bytes:
    """The bytes of a record; raises `InvalidArgument` if it exceeds a limit of the format."""
    magic, topic_field = _topic_field(record.topic)
    text = _stored_text(record.property_text, append_crc)
    born_host, store_host = encode_host(record.born_host), encode_host(record.store_host)
    hosts = _host_bits(born_host, store_host)
    size = _record_size(hosts, len(record.body), len(topic_field), len(text))
    for name in ("queue_id", "queue_offset", "physical_offset"):
        if getattr(record, name) < 0:
            raise InvalidArgument(f"{name} is negative")
    try:
        header = HEADERS[hosts >> 4].pack(
            size,
            magic,
            crc32(record.body) & CRC_MASK,
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            record.sys_flag & ~HOST_BITS | hosts,
            record.born_timestamp,
            born_host,
            record.store_timestamp,
            store_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
            len(record.body),
        )
    except StructError as error:
        raise InvalidArgument(f"a number of the record does not fit its field: {error}") from None
    if not append_crc:
        return b"".join((header, record.body, topic_field, I16.pack(len(text)), text))
    covered = b"".join(
        (header, record.body, topic_field, I16.pack(len(text)), text[:-CRC_TAIL_SIZE])
    )
    return covered + crc_tail(crc32(covered) & CRC_MASK)


def decode_record(
    buf: Buffer,
    start: int = 0,
    *,
    limit: int | None = None,
    position: int | None = None,
    check_crc: int = CHECK_CHECKSUMS,
) -> MessageRecord:
    """The record at `buf[start:limit]`, or `CorruptRecord`.

    `position` is the log position of these bytes, which the record must contain; None accepts any.
    """
    view = as_view(buf)
    end = len(view) if limit is None else limit
    if not 0 <= start <= end <= len(view):
        raise ValueError(reasons.BAD_RANGE)
    try:
        parsed = parse_record(view, start, end)
        if position is not None and parsed.physical_offset != position:
            raise RecordFault(reasons.BAD_POSITION)  # noqa: TRY301
        if check_crc:
            verify_checksums(view, start, parsed, check_crc)
    except RecordFault as fault:
        raise CorruptRecord("", start if position is None else position, fault.reason) from None
    return MessageRecord(
        topic=parsed.topic.decode("ascii"),
        queue_id=parsed.queue_id,
        body=view[parsed.body_start : parsed.body_end].tobytes(),
        property_text=view[parsed.properties_start : properties_end(view, parsed)].tobytes(),
        flag=parsed.flag,
        sys_flag=parsed.sys_flag,
        queue_offset=parsed.queue_offset,
        physical_offset=parsed.physical_offset,
        born_timestamp=parsed.born_timestamp,
        born_host=decode_host(parsed.born_host),
        store_timestamp=parsed.store_timestamp,
        store_host=decode_host(parsed.store_host),
        reconsume_times=parsed.reconsume_times,
        prepared_transaction_offset=parsed.prepared_offset,
    )


def _host_bits(born_host: bytes, store_host: bytes) -> int:
    return (BORN_HOST_IPV6 if len(born_host) == IPV6_HOST_SIZE else 0) | (
        STORE_HOST_IPV6 if len(store_host) == IPV6_HOST_SIZE else 0
    )


def _topic_field(topic: str) -> tuple[int, bytes]:
    """Magic; TOPICLEN and TOPIC."""
    raw = topic.encode("utf-8", "replace")
    if not 1 <= len(raw) <= TOPIC_MAX:
        raise InvalidArgument(reasons.BAD_TOPIC_LENGTH)
    if not is_topic_text(raw):
        raise InvalidArgument(reasons.BAD_TOPIC_NAME)
    if len(raw) <= TOPIC_V1_MAX:
        return MAGIC_V1, bytes((len(raw),)) + raw
    return MAGIC_V2, I16.pack(len(raw)) + raw


def _stored_text(text: bytes, append_crc: bool) -> bytes:
    """Property text as stored; with `append_crc` its last 20 bytes are a placeholder."""
    if text and text[-1] != 2:
        text += b"\x02"
    if append_crc:
        text += bytes(CRC_TAIL_SIZE)
    elif looks_like_crc_tail(text[-CRC_TAIL_SIZE:]):
        raise InvalidArgument(reasons.PROPERTIES_UNSAFE)
    if len(text) > PROPERTY_TEXT_MAX:
        raise InvalidArgument(reasons.PROPERTIES_TOO_LONG)
    return text


def _record_size(hosts: int, body_size: int, topic_field_size: int, text_size: int) -> int:
    size = HEADERS[hosts >> 4].size + body_size + topic_field_size + I16.size + text_size
    if size > SIZE_MAX:
        raise InvalidArgument(reasons.RECORD_TOO_LONG)
    return size
