"""Receipt handles of POP consumers, the header fields around them, and batches of acks.

A handle is the text `extraInfo` (and the property POP_CK), eight words with one space between:

    word  meaning                          word  meaning
    0     first offset of that pop         4     0 the topic, 1 its retry topic, 2 its later form
    1     pop time, epoch milliseconds     5     broker name
    2     invisible time, milliseconds     6     queue id
    3     revive queue                     7     offset of the message

Apache's brokers put the number of a revive queue into word 3. Here it is a mark of the group, so
that a handle of one group cannot acknowledge messages of another; 999 means a pop in order, as in
Apache's brokers. Further words are ignored.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

from broker_core.codec.json.dialect import parse_object
from broker_core.codec.json.fields import (
    I32_MAX,
    I64_MAX,
    list_field,
    object_field,
    text_field,
    whole_field,
    whole_number,
)
from broker_core.codec.wire.bodies.message_queue import QUEUE_ID_MAX
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.errors import InvalidArgument

POP_CK: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
# Topic and group names may contain the separator of retry topic names, so two groups can share a
# retry topic. This property names the group of a message.
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
# Removed from what a group sends to its own retry topic: another group would consume it as popped.
NOT_POPPED: Final[Mapping[str, str]] = {FIRST_POP_TIME: "", ORIGIN_GROUP: ""}

ORDER_MARK: Final = 999
HANDLE_SIZE_MAX: Final = 1024
# Of one BATCH_ACK_MESSAGE: its size, its entries, the bits of an entry, and the messages that all
# of them acknowledge. Consumers pop 32 messages at a time.
BATCH_SIZE_MAX: Final = 1 << 20
ACKS_MAX: Final = 4096
BITS_MAX: Final = 1 << 17
ACKED_MAX: Final = 8192

_WORDS: Final = 8


class PopHandle(NamedTuple):
    """A receipt for one message."""

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    mark: int
    topic_type: str
    broker_name: str
    queue_id: int
    offset: int

    def text(self) -> str:
        """The string that consumers send back."""
        return " ".join(map(str, self))


class BatchAck(NamedTuple):
    """Messages of one pop that are acknowledged together."""

    group: str
    topic: str
    queue_id: int
    mark: int
    pop_time_ms: int
    start_offset: int
    bits: bytes
    """Bit per offset from the first one on, lowest bit first."""

    @property
    def message_count(self) -> int:
        """How many messages are acknowledged."""
        return int.from_bytes(self.bits, "little").bit_count()

    @property
    def offsets(self) -> Iterator[int]:
        """Offsets of the messages, ascending."""
        for number, byte in enumerate(self.bits):
            while byte:
                lowest = byte & -byte
                yield self.start_offset + 8 * number + lowest.bit_length() - 1
                byte ^= lowest


class PopSpan(NamedTuple):
    """The messages of one pop from one queue; `counts` has earlier deliveries of some of them."""

    topic: str
    queue_id: int
    start_offset: int
    offsets: Sequence[int]
    counts: Mapping[int, int] = {}


def parse_handle(text: str) -> PopHandle:
    """Parse a handle; raises `InvalidArgument` for anything else."""
    words = text.split(" ") if len(text) <= HANDLE_SIZE_MAX else []
    if len(words) < _WORDS:
        raise InvalidArgument("extraInfo is not the receipt handle of a popped message")
    return PopHandle(
        whole_number(words[0], "extraInfo: start offset", 0, I64_MAX),
        whole_number(words[1], "extraInfo: pop time", 0, I64_MAX),
        whole_number(words[2], "extraInfo: invisible time", 0, I64_MAX),
        whole_number(words[3], "extraInfo: revive queue", 0, I32_MAX),
        words[4],
        words[5],
        whole_number(words[6], "extraInfo: queue id", 0, QUEUE_ID_MAX),
        whole_number(words[7], "extraInfo: offset", 0, I64_MAX),
    )


def group_mark(group: str) -> int:
    """Word 3 of the handles of a group."""
    mark = crc32(group.encode("utf-8", "replace")) & I32_MAX
    return mark if mark != ORDER_MARK else mark - 1


def pop_retry_topic(group: str, topic: str) -> str:
    """The retry topic for messages that a group popped and did not acknowledge in time."""
    if topic.startswith(RETRY_TOPIC_PREFIX):
        return topic
    return f"{RETRY_TOPIC_PREFIX}{group}_{topic}"


def topic_type(topic: str) -> str:
    """Word 4 of a handle."""
    if not topic.startswith(RETRY_TOPIC_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


def real_topic(group: str, topic: str, kind: str) -> str:
    """The real topic of a handle for a message that the consumer received as one of `topic`."""
    if kind == "2" and not topic.startswith(RETRY_TOPIC_PREFIX):
        return f"{RETRY_TOPIC_PREFIX}{group}+{topic}"
    return pop_retry_topic(group, topic) if kind == "1" else topic


def span_fields(spans: Iterable[PopSpan], *, is_order: bool) -> dict[str, str]:
    """The response fields with the offsets of its messages."""
    starts, offsets, counts = [], [], []
    for span in spans:
        place = f"{topic_type(span.topic)} {span.queue_id}"
        starts.append(f"{place} {span.start_offset}")
        offsets.append(f"{place} {','.join(map(str, span.offsets))}")
        kind = topic_type(span.topic)
        counts += [f"{kind} qo{span.queue_id}%{at} {n}" for at, n in span.counts.items() if n]
    fields = {"startOffsetInfo": ";".join(starts), "msgOffsetInfo": ";".join(offsets)}
    if is_order and counts:
        fields["orderCountInfo"] = ";".join(counts)
    return fields


def parse_batch_acks(body: bytes | memoryview) -> tuple[str, list[BatchAck]]:
    """Broker name and acks of a BATCH_ACK_MESSAGE."""
    found, items = _batch(body)
    acks = []
    count = 0
    for item in items:
        ack = _batch_ack(item)
        count += ack.message_count
        if count > ACKED_MAX:
            raise InvalidArgument(f"acks has more than {ACKED_MAX} messages: send several requests")
        acks.append(ack)
    return text_field(found, "brokerName", ""), acks


def batch_ack_names(body: bytes | memoryview) -> set[tuple[str, str]]:
    """The groups and topics of a BATCH_ACK_MESSAGE, without what is acknowledged in them."""
    return {_names_of(item) for item in _batch(body)[1]}


def _batch(body: bytes | memoryview) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    if len(body) > BATCH_SIZE_MAX:
        raise InvalidArgument(f"a batch of {len(body)} bytes, at most {BATCH_SIZE_MAX}")
    found = parse_object(body)
    items = list_field(found, "acks")
    if len(items) > ACKS_MAX:
        raise InvalidArgument(f"acks has {len(items)} entries: give at most {ACKS_MAX}")
    return found, [object_field({"ack": item}, "ack") for item in items]


def _names_of(found: Mapping[str, Any]) -> tuple[str, str]:
    group = text_field(found, "c")
    # Apache's retry flag is a string; some clients write it as a number.
    kind = str(found.get("r", "0"))[:1]
    return group, real_topic(group, text_field(found, "t"), kind)


def _batch_ack(found: Mapping[str, Any]) -> BatchAck:
    return BatchAck(
        *_names_of(found),
        whole_field(found, "q", least=0, most=QUEUE_ID_MAX),
        whole_field(found, "rq", least=0, most=I32_MAX),
        whole_field(found, "pt", least=0),
        whole_field(found, "so", least=0),
        _bits(found.get("b")),
    )


def _bits(found: object) -> bytes:
    """Java's `BitSet` as bytes, lowest first: base64, or an array of signed bytes."""
    if isinstance(found, str) and len(found) <= BITS_MAX // 4:
        try:
            return base64.b64decode(found, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidArgument("b is not base64") from None
    elif isinstance(found, list) and len(found) <= BITS_MAX // 8:
        if not all(type(item) is int and -128 <= item <= 255 for item in found):
            raise InvalidArgument("b is not an array of bytes")
        return bytes(item & 0xFF for item in found)
    raise InvalidArgument(f"b is missing or has more than {BITS_MAX} bits")
