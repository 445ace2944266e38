"""Wire forms of the exactly-once sink: staged blocks, publications, answers and group notes.

    STAGE_APPEND body   u16 queues, per queue { u32 id, u16 size, topic }, then template records
    other bodies        JSON objects with a version `v`
    group note          "RMQS" and a JSON object, stored in the header of an append group

Pure. Names of sinks, runs and checkpoints are short and printable, because they appear in logs and
files. `docs/sink.md` has the glossary.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from broker_core.codec.json.fields import (
    I64_MAX,
    flag_field,
    list_field,
    object_field,
    text_field,
    whole_field,
    whole_number,
)
from broker_core.codec.native import encode_batch, measure_batch, new_buffer
from broker_core.codec.records.column_batch import QUEUE_PLACE, TEMPLATE, Buffer, ColumnBatch
from broker_core.codec.records.record_layout import BLANK_RESERVE
from broker_core.codec.records.staged_block import QueueKeys, StagedPart
from broker_core.errors import InvalidArgument

VERSION: Final = 1
NAME_SIZE_MAX: Final = 512
PARTS_MAX: Final = 10_000
IDS_MAX: Final = 100_000
BROKERS_MAX: Final = 1_000
QUEUES_MAX: Final = 4_096

# The words that every `rows:` description has: number and bytes.
_ROWS_WORDS_MIN: Final = 2
# id, count, size, checksum
_PART_FIELDS: Final = 4
_NOTE_MAGIC: Final = b"RMQS"
_COUNT: Final = struct.Struct(">H")
_U32_MAX: Final = (1 << 32) - 1

# topic -> queue id -> (first offset, offset after the last)
OffsetRanges = dict[str, dict[int, tuple[int, int]]]
# (batch, token, name) of decided attempts, complete from the batch of the first one on. Token 0 is
# no attempt; (-1, 0, "") comes first if none was forgotten.
Decisions = tuple[tuple[int, int, str], ...]


class BatchIdentity(NamedTuple):
    """A batch of a sink, and who writes it.

    `run` changes with every start of the query, `lineage` is its checkpoint location, `query` its
    id. `content` describes the rows of the batch (see `is_same_content`). Empty fields are not
    compared.
    """

    sink: str
    batch: int
    run: str
    lineage: str = ""
    content: str = ""
    once: bool = False
    """A batch job: the sink has no other batch and may be evicted sooner."""
    query: str = ""


class Publication(NamedTuple):
    """Request SINK_PUBLISH. Phase, token and attempt are for batches on several brokers."""

    identity: BatchIdentity
    parts: tuple[StagedPart, ...] = ()
    phase: str = ""
    token: int = 0
    others: tuple[str, ...] = ()
    """DECIDE: the brokers that have prepared the other parts; ENROL: the coordinator."""
    decided: Decisions = ()
    """PREPARE: the coordinator's decisions when the attempt was reserved."""
    attempt: str = ""
    """Name of the attempt, from RESERVE. `token` is its number and only orders attempts: a
    coordinator that lost the end of its log may reuse a number, but never a name."""


# All parts are on one broker: publish them.
WHOLE: Final = ""
# The coordinator names a new attempt, numbered above `token`; only this one can be decided.
RESERVE: Final = "reserve"
# A broker makes its parts durable, still invisible, until COMPLETE.
PREPARE: Final = "prepare"
# The coordinator publishes its own parts together with the decision.
DECIDE: Final = "decide"
# A broker publishes its prepared parts of a decided batch.
COMPLETE: Final = "complete"
# A broker notes which other broker is the coordinator of the sink.
ENROL: Final = "enrol"
_PHASES: Final = (WHOLE, RESERVE, PREPARE, DECIDE, COMPLETE, ENROL)


class PublishAnswer(NamedTuple):
    """Answer to SINK_PUBLISH."""

    is_repeat: bool
    """The batch was published before; the parts of this request are dropped."""
    batch: int
    offsets: OffsetRanges
    token: int = 0
    """Number of the attempt that published `batch`, if that is on several brokers."""
    others: tuple[str, ...] = ()
    """The brokers that have the other parts of `batch`, published or only prepared."""
    reserved: int = 0
    """RESERVE: the number of the new attempt; `batch` is the last published one then."""
    decided: Decisions = ()
    """RESERVE: the attempts that published the last batches on several brokers."""
    attempt: str = ""
    """Name of the attempt with number `token`."""
    reserved_attempt: str = ""
    """RESERVE: name of the new attempt."""


class SinkStatus(NamedTuple):
    """Answer to SINK_STATUS; `batch` is -1 if nothing was published."""

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
    """Number of the attempt that this broker has prepared; 0: none."""


class SinkNote(NamedTuple):
    """Note of an append group."""

    kind: str
    identity: BatchIdentity
    token: int = 0
    others: tuple[str, ...] = ()
    parts: tuple[StagedPart, ...] = ()
    attempt: str = ""


# A batch, or this broker's parts of it, is published; this broker decided it.
BATCH_NOTE: Final = "batch"
# This broker's parts of a batch that another broker decided are published.
PART_NOTE: Final = "part"
# A new run of the query replaces earlier ones.
RUN_NOTE: Final = "run"
RESERVE_NOTE: Final = "reserve"
PREPARE_NOTE: Final = "prepare"
# Another broker is the coordinator.
ENROL_NOTE: Final = "enrol"
_NOTE_KINDS: Final = (BATCH_NOTE, PART_NOTE, RUN_NOTE, RESERVE_NOTE, PREPARE_NOTE, ENROL_NOTE)


# Staged blocks


def encode_blocks(
    batch: ColumnBatch, size_max: int, digest: Buffer | None = None
) -> Iterator[tuple[int, memoryview]]:
    """Yield bodies of STAGE_APPEND of about `size_max` bytes as (rows, body).

    Records are templates: complete but for their log positions. Their digest is added to `digest`.
    """
    _, largest = measure_batch(batch)
    head = block_head(batch.queues)
    size_max = max(size_max, len(head) + largest + BLANK_RESERVE)
    row = 0
    while row < batch.count:
        block = new_buffer(size_max)
        block[: len(head)] = head
        # Each block counts its own records per queue.
        ordinals = memoryview(array("q", bytes(8 * len(batch.queues))))
        after, end = encode_batch(
            batch, row, ordinals, 0, block, len(head), len(block), TEMPLATE, digest
        )
        yield after - row, block[:end]
        row = after


def block_head(queues: QueueKeys) -> bytes:
    """Queue table at the start of a STAGE_APPEND body."""
    if not 1 <= len(queues) <= QUEUES_MAX:
        raise InvalidArgument(f"{len(queues)} queues in one block: give 1 to {QUEUES_MAX}")
    parts = [_COUNT.pack(len(queues))]
    for topic, queue_id in queues:
        parts += (QUEUE_PLACE.pack(queue_id, len(topic)), topic)
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
        if len(view) - at < QUEUE_PLACE.size:
            raise InvalidArgument("the queue table of the block is cut")
        queue_id, size = QUEUE_PLACE.unpack_from(view, at)
        at += QUEUE_PLACE.size
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
    """Raises `InvalidArgument` for a malformed request."""
    found = _object(body)
    phase = text_field(found, "phase", WHOLE)
    if phase not in _PHASES:
        raise InvalidArgument(f"phase {phase[:40]!r} is unknown to this broker")
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
        raise InvalidArgument(f"ids: give at most {IDS_MAX} strings")
    return list(found)


def encode_publish_answer(answer: PublishAnswer) -> bytes:
    """Body of the answer to SINK_PUBLISH."""
    offsets = {
        topic: {str(queue_id): list(pair) for queue_id, pair in queues.items()}
        for topic, queues in answer.offsets.items()
    }
    return orjson.dumps(
        {
            "v": VERSION,
            "repeat": answer.is_repeat,
            "batch": answer.batch,
            "offsets": offsets,
            "token": answer.token,
            "others": answer.others,
            "reserved": answer.reserved,
            "decided": answer.decided,
            "attempt": answer.attempt,
            "reservedAttempt": answer.reserved_attempt,
        }
    )


def parse_publish_answer(body: bytes | memoryview) -> PublishAnswer:
    """Parse the answer to SINK_PUBLISH."""
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
        flag_field(found, "repeat"),
        whole_field(found, "batch"),
        offsets,
        token,
        others,
        whole_field(found, "reserved", 0),
        _parse_decisions(found),
        _parse_attempt_name(found),
        text_field(found, "reservedAttempt", ""),
    )


def encode_status(status: SinkStatus) -> bytes:
    """Body of the answer to SINK_STATUS."""
    return orjson.dumps(
        {
            "v": VERSION,
            "known": status.is_known,
            "batch": status.batch,
            "run": status.run,
            "lineage": status.lineage,
            "content": status.content,
            "time": status.published_ms,
            "coordinator": status.is_coordinator,
            "publishedBy": status.published_by,
            "decidedBy": status.coordinator,
            "query": status.query,
            "prepared": status.prepared,
        }
    )


def parse_status(body: bytes | memoryview) -> SinkStatus:
    """Parse the answer to SINK_STATUS."""
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
    """None if the note is not the sink's; `InvalidArgument` if it cannot be read.

    A note of a newer version is an error: if it were skipped, its batch could be published twice.
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
    """`value` if it is a valid name of a sink, a run or a checkpoint."""
    if not value and not required:
        return value
    if not 1 <= len(value) <= NAME_SIZE_MAX or not value.isprintable():
        raise InvalidArgument(f"{what} must be 1 to {NAME_SIZE_MAX} printable characters")
    return value


def is_same_content(known: str, asked: str) -> bool:
    """Whether two descriptions may belong to the same batch; an empty one matches any.

    A description consists of labelled words. `offsets:` is a hash of the range that Spark stored
    before the batch began: the same for every repeat, different for every other batch. `rows:` has
    the number of rows, their bytes and a digest; earlier versions had no digest. `offsets:` decides
    if both have it. `topics:` is a hash of the number of rows of each topic and must be the same if
    both have it.
    """
    if not known or not asked or known == asked:
        return True
    ours, theirs = _labelled(known), _labelled(asked)
    if "topics" in ours and "topics" in theirs and ours["topics"] != theirs["topics"]:
        return False
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
        "v": VERSION,
        "sink": identity.sink,
        "batch": identity.batch,
        "run": identity.run,
        "lineage": identity.lineage,
        "content": identity.content,
        "once": identity.once,
        "query": identity.query,
    }


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
    return {"token": token, "others": list(others), "parts": [part_fields(p) for p in parts]}


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


def part_fields(part: StagedPart) -> list[Any]:
    """A part as a JSON list, without the name of its broker, which receives it."""
    return list(part[:_PART_FIELDS])


def parse_part(item: Any) -> StagedPart:
    """A part from a JSON list."""
    if not isinstance(item, list) or len(item) != _PART_FIELDS or not isinstance(item[0], str):
        raise InvalidArgument("a part is not [id, count, size, checksum]")
    if not all(type(number) is int and 0 <= number <= I64_MAX for number in item[1:]):
        raise InvalidArgument("a part has a field that is not an integer from 0 to 2^63 - 1")
    return StagedPart(*item)


def _parse_range(item: Any) -> tuple[int, int]:
    if not isinstance(item, list) or len(item) != 2 or not all(type(n) is int for n in item):
        raise InvalidArgument("an offset range is not [first, next]")
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
        raise InvalidArgument(
            f"version {version} of a sink message is not supported; this side reads {VERSION}"
        )
    return found
