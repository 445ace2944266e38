"""Wire forms of the exactly-once sink: staged blocks, publications, their answers, group notes.

    STAGE_APPEND body   u16 queues, per queue { u32 id, u16 size, topic }, then template records
    other bodies        JSON objects with a version `v`
    group note          "RMQS" and a JSON object: what an append group is for, kept in the log

Pure. Texts that name a sink, a run or a checkpoint are short and printable, because they end up in
logs and files.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.json_fields import (
    I64_MAX,
    flag_field,
    list_field,
    object_field,
    text_field,
    whole_field,
    whole_number,
)
from broker_core.codec.message_properties import DELAY, REAL_QID, REAL_TOPIC
from broker_core.codec.record_columns import encode_batch, measure_batch
from broker_core.errors import InvalidArgument

VERSION: Final = 1
DELAY_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
NAME_SIZE_MAX: Final = 512
PARTS_MAX: Final = 10_000
IDS_MAX: Final = 100_000
BROKERS_MAX: Final = 1_000
QUEUES_MAX: Final = 4_096

# In a description of rows: their number and bytes.
_ROWS_WORDS_MIN: Final = 2
_TEMPLATE: Final = -1
# The encoder leaves room for the blank at the end of a log file.
_SPARE_SIZE: Final = 8
_NOTE_MAGIC: Final = b"RMQS"
_COUNT: Final = struct.Struct(">H")
_QUEUE: Final = struct.Struct(">IH")
_U32_MAX: Final = (1 << 32) - 1

QueueKeys = tuple[tuple[bytes, int], ...]
# topic -> queue id -> (first offset, offset after the last)
OffsetRanges = dict[str, dict[int, tuple[int, int]]]
# (batch, token, name) of attempts that published: all of them from the batch of the first one on. A
# token of 0 is none; (-1, 0, "") comes first when none was forgotten.
Decisions = tuple[tuple[int, int, str], ...]


class BatchIdentity(NamedTuple):
    """Who publishes what.

    `run` changes with every start of the writer; `lineage` names what stays (a checkpoint), `query`
    is the id of the query, which another checkpoint does not have, and `content` says what is in
    the batch whatever the run (see `is_same_content`). Empty ones are not compared.
    """

    sink: str
    batch: int
    run: str
    lineage: str = ""
    content: str = ""
    once: bool = False
    """The sink has no other batch than this one (a batch job): it may be forgotten sooner."""
    query: str = ""


class StagedPart(NamedTuple):
    """A sealed staging id, and what the broker must find under it."""

    staging_id: str
    record_count: int
    size: int
    checksum: int


class Publication(NamedTuple):
    """What SINK_PUBLISH asks for. Phases and token are for batches on several brokers."""

    identity: BatchIdentity
    parts: tuple[StagedPart, ...] = ()
    phase: str = ""
    token: int = 0
    others: tuple[str, ...] = ()
    """DECIDE: the brokers that have prepared the rest of the batch; ENROL: the coordinator."""
    decided: Decisions = ()
    """For PREPARE: what the coordinator said when the attempt was reserved."""
    attempt: str = ""
    """The name of the attempt, which RESERVE made up. `token` only says which one is newer: a
    coordinator that lost the end of its log gives a number out again, but never a name."""


# All of it is on one broker: publish it.
WHOLE: Final = ""
# The coordinator promises to decide nothing but this attempt, and names it. Its number is above the
# one that `token` has.
RESERVE: Final = "reserve"
# A broker keeps its part, durably and invisibly, until it is completed.
PREPARE: Final = "prepare"
# The coordinator publishes its own part, and with it the decision.
DECIDE: Final = "decide"
# A broker publishes its part of a batch that was decided.
COMPLETE: Final = "complete"
# A broker learns which other one decides about all batches of the sink.
ENROL: Final = "enrol"
_PHASES: Final = (WHOLE, RESERVE, PREPARE, DECIDE, COMPLETE, ENROL)


class PublishAnswer(NamedTuple):
    """What SINK_PUBLISH says."""

    is_repeat: bool
    """The batch had been published before; what was staged this time is dropped."""
    batch: int
    offsets: OffsetRanges
    token: int = 0
    """Of the attempt that published `batch`, if that is on several brokers."""
    others: tuple[str, ...] = ()
    """The brokers that have, or may still lack, the rest of `batch`."""
    reserved: int = 0
    """RESERVE: the number of the new attempt; `batch` is the last published one then."""
    decided: Decisions = ()
    """RESERVE: the attempts that published the last batches on several brokers."""
    attempt: str = ""
    """The name of the attempt that `token` numbers."""
    reserved_attempt: str = ""
    """RESERVE: the name of the new attempt."""


class SinkStatus(NamedTuple):
    """What SINK_STATUS says; `batch` is -1 when nothing was published."""

    is_known: bool
    batch: int = -1
    run: str = ""
    lineage: str = ""
    content: str = ""
    published_ms: int = 0
    is_coordinator: bool = False
    """This broker has decided batches of the sink, so it decides the next one."""
    published_by: str = ""
    """The run that published `batch`; `run` may have announced itself since."""
    coordinator: str = ""
    """The name of the other broker that decides, where it is known."""
    query: str = ""
    """The query that the sink belongs to."""
    prepared: int = 0
    """The number of the attempt that this broker keeps a part of; 0: none."""


class SinkNote(NamedTuple):
    """What the note of an append group says."""

    kind: str
    identity: BatchIdentity
    token: int = 0
    others: tuple[str, ...] = ()
    parts: tuple[StagedPart, ...] = ()
    attempt: str = ""


# A batch is published; this broker decided it.
BATCH_NOTE: Final = "batch"
# This broker's part of a batch that another one decided is published.
PART_NOTE: Final = "part"
# A run took over.
RUN_NOTE: Final = "run"
RESERVE_NOTE: Final = "reserve"
PREPARE_NOTE: Final = "prepare"
# Another broker decides.
ENROL_NOTE: Final = "enrol"
_NOTE_KINDS: Final = (BATCH_NOTE, PART_NOTE, RUN_NOTE, RESERVE_NOTE, PREPARE_NOTE, ENROL_NOTE)


# Staged blocks


def delayed_queue(level: int) -> tuple[bytes, int]:
    """Where rows wait that are to be seen after delay level `level`, 1 or more."""
    return DELAY_TOPIC.encode(), level - 1


def delay_properties(topic: str, queue_id: int, level: int) -> bytes:
    """What the property text of such a row contains: where it goes when its time has come."""
    pairs = ((DELAY, level), (REAL_TOPIC, topic), (REAL_QID, queue_id))
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()


def encode_blocks(batch: ColumnBatch, size_max: int) -> Iterator[tuple[int, memoryview]]:
    """The rows as bodies of STAGE_APPEND, each of about `size_max` bytes at most: (rows, body).

    The records are templates: complete but for their places in a log.
    """
    _, largest = measure_batch(batch)
    head = block_head(batch.queues)
    size_max = max(size_max, len(head) + largest + _SPARE_SIZE)
    row = 0
    while row < batch.count:
        block = bytearray(size_max)
        block[: len(head)] = head
        # Each block counts its own records per queue.
        ordinals = memoryview(array("q", bytes(8 * len(batch.queues))))
        after, end = encode_batch(batch, row, ordinals, 0, block, len(head), len(block), _TEMPLATE)
        yield after - row, memoryview(block)[:end]
        row = after


def block_head(queues: QueueKeys) -> bytes:
    """What comes before the records in the body of STAGE_APPEND."""
    if not 1 <= len(queues) <= QUEUES_MAX:
        raise InvalidArgument(f"{len(queues)} queues in one block: give 1 to {QUEUES_MAX}")
    parts = [_COUNT.pack(len(queues))]
    for topic, queue_id in queues:
        parts += (_QUEUE.pack(queue_id, len(topic)), topic)
    return b"".join(parts)


def parse_block(body: bytes | memoryview) -> tuple[QueueKeys, memoryview]:
    """Queues and records of a STAGE_APPEND body."""
    view = memoryview(body)
    if len(view) < _COUNT.size:
        raise InvalidArgument("the block is cut")
    count = _COUNT.unpack_from(view)[0]
    if not 1 <= count <= QUEUES_MAX:
        raise InvalidArgument(f"{count} queues in one block: give 1 to {QUEUES_MAX}")
    at = _COUNT.size
    queues = []
    for _ in range(count):
        if len(view) - at < _QUEUE.size:
            raise InvalidArgument("the queue table of the block is cut")
        queue_id, size = _QUEUE.unpack_from(view, at)
        at += _QUEUE.size
        if len(view) - at < size:
            raise InvalidArgument("the queue table of the block is cut")
        queues.append((bytes(view[at : at + size]), queue_id))
        at += size
    return tuple(queues), view[at:]


# Requests and answers


def encode_publication(publication: Publication) -> bytes:
    """Body of SINK_PUBLISH."""
    found = _identity_object(publication.identity)
    found |= _attempt_object(publication.token, publication.others, publication.parts)
    found |= {"phase": publication.phase, "decided": publication.decided}
    found |= {"attempt": publication.attempt}
    return orjson.dumps(found)


def parse_publication(body: bytes | memoryview) -> Publication:
    """Raises `InvalidArgument` for anything that no client of ours sends."""
    found = _object(body)
    phase = text_field(found, "phase", WHOLE)
    if phase not in _PHASES:
        raise InvalidArgument(f"phase is {phase[:40]!r}: this broker does not know it")
    token, others, parts = _parse_attempt(found)
    decided = _parse_decisions(found)
    attempt = _parse_attempt_name(found)
    return Publication(_parse_identity(found), parts, phase, token, others, decided, attempt)


def encode_ids(staging_ids: Sequence[str]) -> bytes:
    """Body of STAGE_DROP."""
    return orjson.dumps({"v": VERSION, "ids": list(staging_ids)})


def parse_ids(body: bytes | memoryview) -> list[str]:
    """Staging ids to drop."""
    found = list_field(_object(body), "ids")
    if len(found) > IDS_MAX or not all(isinstance(item, str) for item in found):
        raise InvalidArgument(f"ids: give at most {IDS_MAX} texts")
    return list(found)


def encode_publish_answer(answer: PublishAnswer) -> bytes:
    """Body of the answer to SINK_PUBLISH."""
    offsets = {
        topic: {str(queue_id): list(pair) for queue_id, pair in queues.items()}
        for topic, queues in answer.offsets.items()
    }
    return orjson.dumps(
        {
            "v": VERSION, "repeat": answer.is_repeat, "batch": answer.batch, "offsets": offsets,
            "token": answer.token, "others": answer.others, "reserved": answer.reserved,
            "decided": answer.decided, "attempt": answer.attempt,
            "reservedAttempt": answer.reserved_attempt,
        }
    )  # fmt: skip


def parse_publish_answer(body: bytes | memoryview) -> PublishAnswer:
    """What the broker said."""
    found = _object(body)
    topics = object_field(found, "offsets")
    offsets: OffsetRanges = {}
    for topic in topics:
        queues = object_field(topics, topic)
        offsets[topic] = {
            whole_number(queue_id, "queue", 0, _U32_MAX): _parse_range(queues[queue_id])
            for queue_id in queues
        }
    token, others, _ = _parse_attempt(found)
    return PublishAnswer(
        flag_field(found, "repeat"), whole_field(found, "batch"), offsets, token, others,
        whole_field(found, "reserved", 0), _parse_decisions(found), _parse_attempt_name(found),
        text_field(found, "reservedAttempt", ""),
    )  # fmt: skip


def encode_status(status: SinkStatus) -> bytes:
    """Body of the answer to SINK_STATUS."""
    return orjson.dumps(
        {
            "v": VERSION, "known": status.is_known, "batch": status.batch, "run": status.run,
            "lineage": status.lineage, "content": status.content, "time": status.published_ms,
            "coordinator": status.is_coordinator, "publishedBy": status.published_by,
            "decidedBy": status.coordinator, "query": status.query, "prepared": status.prepared,
        }
    )  # fmt: skip


def parse_status(body: bytes | memoryview) -> SinkStatus:
    """What the broker said."""
    found = _object(body)
    return SinkStatus(
        flag_field(found, "known"),
        whole_field(found, "batch", -1),
        text_field(found, "run", ""),
        text_field(found, "lineage", ""),
        text_field(found, "content", ""),
        whole_field(found, "time", 0),
        flag_field(found, "coordinator", False),
        text_field(found, "publishedBy", ""),
        text_field(found, "decidedBy", ""),
        text_field(found, "query", ""),
        whole_field(found, "prepared", 0),
    )


# Notes


def encode_note(note: SinkNote) -> bytes:
    """The note of an append group."""
    found = _identity_object(note.identity) | {"kind": note.kind}
    if note.token or note.others:
        found |= _attempt_object(note.token, note.others, note.parts)
        found |= {"attempt": note.attempt}
    return _NOTE_MAGIC + orjson.dumps(found)


def parse_note(data: bytes) -> SinkNote | None:
    """None for the note of somebody else; `InvalidArgument` for one that cannot be read.

    A note of a newer version is not skipped: its batch would be published a second time.
    """
    if not data.startswith(_NOTE_MAGIC):
        return None
    found = _object(data[len(_NOTE_MAGIC) :])
    kind = text_field(found, "kind")
    if kind not in _NOTE_KINDS:
        raise InvalidArgument(f"kind is {kind[:40]!r}: written by a newer version")
    identity, attempt = _parse_identity(found, least=-1), _parse_attempt(found)
    return SinkNote(kind, identity, *attempt, _parse_attempt_name(found))


def checked_name(value: str, what: str, *, required: bool = True) -> str:
    """`value`, if it may name a sink, a run or a checkpoint."""
    if not value and not required:
        return value
    if not 1 <= len(value) <= NAME_SIZE_MAX or not value.isprintable():
        raise InvalidArgument(f"{what} must be 1 to {NAME_SIZE_MAX} printable characters")
    return value


def is_same_content(known: str, asked: str) -> bool:
    """Whether two descriptions of a batch can be of the same batch; an empty one says nothing.

    Descriptions are words with a label. `offsets:` is what the query wrote down about the batch
    before it began: the same for every repeat, whatever rows the query makes of it, and another
    one for every other batch. `rows:` has the number of rows, their bytes and a digest of them;
    earlier versions had no digest. `offsets:` decides where both have it.
    """
    if not known or not asked or known == asked:
        return True
    ours, theirs = _labelled(known), _labelled(asked)
    if "offsets" in ours and "offsets" in theirs:
        return ours["offsets"] == theirs["offsets"]
    rows, others = ours.get("rows", []), theirs.get("rows", [])
    count = min(len(rows), len(others))
    return count >= _ROWS_WORDS_MIN and rows[:count] == others[:count]


def _labelled(content: str) -> dict[str, list[str]]:
    found = (word.split(":") for word in content.split())
    return {label: values for label, *values in found}


def _identity_object(identity: BatchIdentity) -> dict[str, Any]:
    return {
        "v": VERSION, "sink": identity.sink, "batch": identity.batch, "run": identity.run,
        "lineage": identity.lineage, "content": identity.content, "once": identity.once,
        "query": identity.query,
    }  # fmt: skip


def _parse_identity(found: Mapping[str, Any], least: int = 0) -> BatchIdentity:
    return BatchIdentity(
        checked_name(text_field(found, "sink"), "sink"),
        whole_field(found, "batch", least=least),
        checked_name(text_field(found, "run"), "run"),
        checked_name(text_field(found, "lineage", ""), "lineage", required=False),
        checked_name(text_field(found, "content", ""), "content", required=False),
        flag_field(found, "once", False),
        checked_name(text_field(found, "query", ""), "query", required=False),
    )


def _parse_attempt_name(found: Mapping[str, Any]) -> str:
    return checked_name(text_field(found, "attempt", ""), "attempt", required=False)


def _attempt_object(
    token: int, others: Sequence[str], parts: Sequence[StagedPart]
) -> dict[str, Any]:
    return {"token": token, "others": list(others), "parts": [list(part) for part in parts]}


def _parse_attempt(
    found: Mapping[str, Any],
) -> tuple[int, tuple[str, ...], tuple[StagedPart, ...]]:
    others = list_field(found, "others")
    if len(others) > BROKERS_MAX or not all(isinstance(name, str) for name in others):
        raise InvalidArgument(f"others: give at most {BROKERS_MAX} names of brokers")
    parts = list_field(found, "parts")
    if len(parts) > PARTS_MAX:
        raise InvalidArgument(f"{len(parts)} parts in one batch: give at most {PARTS_MAX}")
    names = tuple(checked_name(name, "the name of a broker") for name in others)
    return whole_field(found, "token", 0, least=0), names, tuple(map(parse_part, parts))


def _parse_decisions(found: Mapping[str, Any]) -> Decisions:
    decided = list_field(found, "decided")
    if len(decided) > BROKERS_MAX:
        raise InvalidArgument(f"decided: give at most {BROKERS_MAX} attempts")
    return tuple(map(_parse_decision, decided))


def parse_part(item: Any) -> StagedPart:
    """A part as JSON lists have it."""
    if not isinstance(item, list) or len(item) != 4 or not isinstance(item[0], str):
        raise InvalidArgument("a part is not [id, count, size, checksum]")
    if not all(type(number) is int and 0 <= number <= I64_MAX for number in item[1:]):
        raise InvalidArgument("a part has a number that is none")
    return StagedPart(*item)


def _parse_range(item: Any) -> tuple[int, int]:
    if not isinstance(item, list) or len(item) != 2 or not all(type(n) is int for n in item):
        raise InvalidArgument("two numbers were expected: [first, next]")
    return item[0], item[1]


def _parse_decision(item: Any) -> tuple[int, int, str]:
    """Earlier versions had no names."""
    fields = [*item, ""] if isinstance(item, list) and len(item) == 2 else item
    if not isinstance(fields, list) or list(map(type, fields)) != [int, int, str]:
        raise InvalidArgument("a decision is not [batch, token, name]")
    return fields[0], fields[1], fields[2]


def _object(body: bytes | memoryview) -> Mapping[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidArgument(f"not JSON: {error!s:.100}") from None
    if not isinstance(found, dict):
        raise InvalidArgument("not a JSON object")
    version = whole_field(found, "v", 0)
    if version != VERSION:
        raise InvalidArgument(f"version {version} of a sink message; this side knows {VERSION}")
    return found
