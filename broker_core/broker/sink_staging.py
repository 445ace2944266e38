"""Staged records on their way in: who stages them, for which batch, and whether they may be sent.

    begin ─► append, append, … ─► seal ─► published, dropped, swept or expired

Everything that an ordinary send would be refused for is refused here, block by block, so that a
publication finds only records that may be published. Owned by the event loop. What is kept in
memory is gone after a restart: sealed data can be published then all the same, because its id
cannot be guessed and its checksum must match; data that was not sealed cannot, and expires.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice
from typing import Final

from broker_core.broker.sink_limits import naming_properties
from broker_core.broker.system_topics import SCHEDULE_TOPIC
from broker_core.codec import message_properties as names
from broker_core.codec.json_fields import whole_number
from broker_core.codec.message_record import decode_record
from broker_core.codec.record_columns import body_crc, find_unusual, inspect_run
from broker_core.codec.record_layout import REQUIRE_CHECKSUM
from broker_core.codec.record_run_loops import encode_places
from broker_core.codec.send_request import SendRequest
from broker_core.codec.sink_messages import BatchIdentity, QueueKeys, StagedPart
from broker_core.errors import (
    InvalidArgument,
    LimitReached,
    MalformedRecord,
    MessageTooLarge,
    NoPermission,
    RemoteError,
    StagingRefused,
    SystemBusy,
)
from broker_core.protocol_codes import ResponseCode
from broker_core.runtime.clock import Clock
from broker_core.storage.commit_log import TemplateRun
from broker_core.storage.staging import StagedBatch, StagingArea
from broker_core.store.message_store import MessageStore

# Each has an open file.
DRAFTS_MAX: Final = 1_024
# A sink that asked for a place so recently may want another one.
WANTING_S: Final = 600.0
# Of larger batches not every request renews the time of every part.
_RENEWED_MAX: Final = 128
_RENEWALS: Final = 16

_DEFAULT_TOPIC: Final = "TBW102"
_DEFAULT_QUEUE_COUNT: Final = 4
_SIZE_AND_FLAG: Final = struct.Struct(">i32xi")
_PREPARED: Final = struct.Struct(">q")
_PREPARED_AT: Final = 76
_BODY_SIZE: Final = struct.Struct(">i")
_V6_GROWTH: Final = 12
_TRANSACTION: Final = 0x0C
_I32_MAX: Final = (1 << 31) - 1
_SCHEDULE: Final = SCHEDULE_TOPIC.encode()

# Sink, batch and run
_BatchKey = tuple[str, int, str]


class _Batch:
    """What one run stages for one batch: all of it is under way as long as one part is."""

    __slots__ = ("ids", "renewed", "touched")

    def __init__(self, now: float) -> None:
        self.ids: set[str] = set()
        self.touched = now
        # When the staging area was told.
        self.renewed = now


class _Draft:
    """One staging id that is being written or waits to be published."""

    __slots__ = ("batch", "blocks", "identity", "is_proven", "part", "topics")

    def __init__(self, identity: BatchIdentity, batch: _Batch) -> None:
        self.identity = identity
        self.batch = batch
        # Where its records go
        self.topics: set[str] = set()
        # Checksum of each block, to know one that comes again.
        self.blocks = array("L")
        # What was sealed
        self.part: StagedPart | None = None
        # Every record was looked at when it came.
        self.is_proven = False


class SinkStaging:
    """The staging ids of this run of the broker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        clock: Clock,
        check_queue: Callable[[SendRequest], object],
        message_size_max: int,
        segment_size: int,
        expiry_ms: int,
        delay_level_max: int = 0,
        drafts_max: int = DRAFTS_MAX,
    ) -> None:
        self._store = store
        self._clock = clock
        self._check_queue = check_queue
        self._message_size_max = message_size_max
        self._segment_size = segment_size
        self._expiry_s = expiry_ms / 1000
        self._delay_level_max = delay_level_max
        self._drafts_max = drafts_max
        self._drafts: dict[str, _Draft] = {}
        self._batches: dict[_BatchKey, _Batch] = {}
        # Sink -> when it asked for a place last; the latest comes last.
        self._asked: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._drafts)

    def sink_of(self, staging_id: str) -> str | None:
        """Whom a writer stages for; None when it is not known, or not any more."""
        draft = self._drafts.get(staging_id)
        return None if draft is None else draft.identity.sink

    def topics_of(self, staging_id: str) -> frozenset[str]:
        """The topics that a writer has staged records for, as far as it is known."""
        draft = self._drafts.get(staging_id)
        return frozenset() if draft is None else frozenset(draft.topics)

    def begin(self, identity: BatchIdentity) -> str:
        """A fresh id for one writer of a batch."""
        self._forget_expired()
        self._note_asked(identity.sink)
        self._check_writers(identity.sink)
        now = self._clock.monotonic()
        batch = self._batches.setdefault(_key(identity), _Batch(now))
        self._renew(batch)
        try:
            staging_id = self._staging.begin()
            self._drafts[staging_id] = _Draft(identity, batch)
            batch.ids.add(staging_id)
        finally:
            if not batch.ids:
                del self._batches[_key(identity)]
        return staging_id

    def append(self, staging_id: str, index: int, queues: QueueKeys, records: memoryview) -> int:
        """Take block number `index`; a block that came before is not taken twice.

        Returns the number of records in it.
        """
        draft = self._draft(staging_id)
        checksum = body_crc(records)
        if index < len(draft.blocks) and checksum == draft.blocks[index]:
            # The answer was lost, not the block.
            return 0
        if draft.part is not None or index != len(draft.blocks):
            state = f"expects block {len(draft.blocks)}" if draft.part is None else "is sealed"
            raise StagingRefused(f"{staging_id} {state}, not block {index}")
        self.check_queues(queues)
        count = self._checked(queues, records)
        run = TemplateRun(queues, records)
        self._check_share(draft, self._staging.growth_of(staging_id, run))
        with naming_properties():
            self._staging.append(staging_id, run, count)
        draft.blocks.append(checksum)
        draft.topics.update(_topics(queues, records))
        self._renew(draft.batch)
        return count

    def seal(self, staging_id: str) -> StagedPart:
        """No more blocks come; the same answer again to whoever asks again."""
        draft = self._draft(staging_id)
        if draft.part is None:
            draft.part = StagedPart(*self._staging.seal(staging_id))
            draft.is_proven = True
            self._renew(draft.batch)
        return draft.part

    def grow(self, staging_id: str, size: int) -> int:
        """A writer on this machine writes the file itself, and is about to reach this size.

        Returns the size that it was granted before.
        """
        draft = self._draft(staging_id)
        if draft.part is not None or draft.blocks:
            raise StagingRefused(f"{staging_id} is sealed, or blocks were sent for it")
        self._check_share(draft, self._staging.growth_until(staging_id, size))
        with naming_properties():
            before = self._staging.grow(staging_id, size)
        self._renew(draft.batch)
        return before

    def seal_written(self, part: StagedPart) -> StagedPart:
        """`seal` for a file that its writer wrote itself; its records are proven later."""
        draft = self._draft(part.staging_id)
        if draft.part is None:
            if draft.blocks:
                raise StagingRefused(f"blocks were sent for {part.staging_id}")
            self._check_share(draft, self._staging.growth_until(part.staging_id, part.size))
            with naming_properties():
                queues = self._staging.seal_written(StagedBatch(*part))
            self.check_queues(queues)
            draft.part = part
            draft.topics.update(topic.decode("latin-1") for topic, _ in queues)
            self._renew(draft.batch)
        if draft.part != part:
            raise StagingRefused(f"{part.staging_id} was sealed with other numbers")
        return part

    def are_proven(self, parts: Iterable[StagedBatch]) -> bool:
        """Whether nothing has to be looked at again before it is published."""
        found = (self._drafts.get(part.staging_id) for part in parts)
        return all(draft is not None and draft.is_proven for draft in found)

    def drop(self, staging_ids: Iterable[str]) -> int:
        """Forget staged data; unknown ids are none of it. How many were there."""
        dropped = 0
        for staging_id in staging_ids:
            self._forget(staging_id)
            dropped += self._staging.drop(staging_id)
        return dropped

    def published(self, staging_ids: Iterable[str]) -> None:
        """Their records are durable in the log."""
        for staging_id in staging_ids:
            self._forget(staging_id)
            self._staging.recycle(staging_id)

    def release(self, staging_ids: Iterable[str]) -> None:
        """They are promised to somebody: neither swept nor expired from here on."""
        for staging_id in staging_ids:
            self._forget(staging_id)

    def drop_other_runs(self, sink: str, run: str, promised: Container[str]) -> int:
        """Drop what earlier runs of a sink have staged: only `run` can publish from now on."""
        old = [
            staging_id
            for staging_id, draft in self._drafts.items()
            if draft.identity.sink == sink and draft.identity.run != run
        ]
        return self.drop(name for name in old if name not in promised)

    def sweep(self, sink: str, batch: int) -> int:
        """Drop what is staged for batches of a sink up to `batch`: nobody can publish it."""
        old = [
            staging_id
            for staging_id, draft in self._drafts.items()
            if draft.identity.sink == sink and draft.identity.batch <= batch
        ]
        return self.drop(old)

    def batches(self, identity: BatchIdentity, parts: Iterable[StagedPart]) -> list[StagedBatch]:
        """The parts as the store knows them, if they were staged for this batch by this run."""
        found = []
        for part in parts:
            draft = self._drafts.get(part.staging_id)
            if draft is not None and draft.identity[:3] != identity[:3]:
                mine = draft.identity
                raise StagingRefused(
                    f"{part.staging_id} was staged for batch {mine.batch} of sink {mine.sink} by "
                    f"run {mine.run}, not for batch {identity.batch} of {identity.sink} by "
                    f"{identity.run}"
                )
            found.append(StagedBatch(*part))
        return found

    def check_queues(self, queues: Iterable[tuple[bytes, int]]) -> None:
        """Raise what a send to one of these queues would raise."""
        for topic, queue_id in queues:
            name = topic.decode("latin-1")
            if name == SCHEDULE_TOPIC and queue_id < self._delay_level_max:
                # Its records are looked at one by one when they come.
                continue
            self._check_send(name, queue_id)

    # Inside

    @property
    def _staging(self) -> StagingArea:
        return self._store.staging

    def _check_send(self, topic: str, queue_id: int) -> None:
        request = SendRequest("", topic, _DEFAULT_TOPIC, _DEFAULT_QUEUE_COUNT, queue_id, 0, 0, 0)
        self._check_queue(request)

    def _draft(self, staging_id: str) -> _Draft:
        draft = self._drafts.get(staging_id)
        if draft is None:
            raise StagingRefused(
                f"nothing is being staged under {staging_id[:80]!r}: it was published, dropped or "
                "has expired, or the broker was started again. Stage the data again"
            )
        return draft

    def _forget(self, staging_id: str) -> None:
        draft = self._drafts.pop(staging_id, None)
        if draft is not None:
            draft.batch.ids.discard(staging_id)
            if not draft.batch.ids:
                self._batches.pop(_key(draft.identity), None)

    def _renew(self, batch: _Batch) -> None:
        """Somebody is at work on the batch, however long ago its first parts were sealed."""
        batch.touched = now = self._clock.monotonic()
        if len(batch.ids) <= _RENEWED_MAX or now - batch.renewed > self._expiry_s / _RENEWALS:
            batch.renewed = now
            self._staging.touch(batch.ids)

    def _forget_expired(self) -> None:
        limit = self._clock.monotonic() - self._expiry_s
        old = [name for name, draft in self._drafts.items() if draft.batch.touched < limit]
        self.drop(name for name in old if not self._staging.is_kept(name))

    # Shares

    def _note_asked(self, sink: str) -> None:
        now = self._clock.monotonic()
        self._asked.pop(sink, None)
        self._asked[sink] = now
        for name, asked in list(islice(self._asked.items(), 64)):
            if asked > now - WANTING_S:
                break
            del self._asked[name]

    def _others_want(self, sink: str) -> bool:
        """Whether another sink has staged data, or asked for a place not long ago."""
        if any(name != sink for name in islice(self._asked, 2)):
            return True
        return any(draft.identity.sink != sink for draft in self._drafts.values())

    def _check_writers(self, sink: str) -> None:
        """One sink leaves others half of the places that they have not taken."""
        unsealed = [draft for draft in self._drafts.values() if draft.part is None]
        is_full = len(unsealed) >= self._drafts_max
        mine = sum(draft.identity.sink == sink for draft in unsealed)
        share = max((self._drafts_max - len(unsealed) + mine) // 2, 1)
        if is_full and mine == len(unsealed):
            raise LimitReached(
                f"{len(unsealed)} writers stage data on this broker, at most {self._drafts_max} can"
            )
        if is_full or (mine >= share and self._others_want(sink)):
            # It passes when others have sealed what they stage.
            raise SystemBusy(
                ResponseCode.SYSTEM_BUSY,
                f"{mine} writers of sink {sink} stage data on this broker, and other sinks want "
                f"to: at most {share} of {self._drafts_max} are for one sink",
            )

    def _check_share(self, draft: _Draft, more: int) -> None:
        """One sink leaves others half of the room that they have not taken.

        `more` are the bytes that the next request adds.
        """
        sink = draft.identity.sink
        if more <= 0 or not self._others_want(sink):
            return
        staging = self._staging
        mine = sum(
            staging.size_of(staging_id)
            for staging_id, other in self._drafts.items()
            if other.identity.sink == sink
        )
        left = staging.size_max - (staging.size - mine)
        share = left // 2
        if mine + more > share:
            raise SystemBusy(
                ResponseCode.SYSTEM_BUSY,
                f"sink {sink} has {mine} bytes staged on this broker, {more} more are too many "
                f"while other sinks want room: {share} are for one sink, half of what the others "
                f"leave of sinkStagingSizeMax={staging.size_max}. It passes when they have "
                "published. Or set sinkStagingSizeMax higher in broker.conf",
            )

    def _checked(self, queues: QueueKeys, records: memoryview) -> int:
        """Prove every record; the number of them."""
        try:
            count, _, _ = inspect_run(
                records, len(queues), 0, self._segment_size, encode_places(queues),
                len(self._store.store_host), REQUIRE_CHECKSUM,
            )  # fmt: skip
        except MalformedRecord as error:
            raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, f"staged records: {error}") from error
        if count == 0:
            raise InvalidArgument("the block has no records")
        self.check_records(queues, records)
        return count

    def check_records(self, queues: QueueKeys, records: memoryview) -> None:
        """Raise what sends of such records would raise; their form is proven elsewhere."""
        at = 0
        # The rare ones are looked at closely.
        while (at := find_unusual(records, at, self._message_size_max)) >= 0:
            self._check_record(records, at)
            at += _BODY_SIZE.unpack_from(records, at)[0]
        if any(topic == _SCHEDULE for topic, _ in queues):
            self._check_delayed(records)

    def _check_delayed(self, records: memoryview) -> None:
        """Parked rows must say rightly how long they wait, and go where the client may send."""
        at, allowed = 0, set()
        while at < len(records):
            size = _BODY_SIZE.unpack_from(records, at)[0]
            record = decode_record(records[at : at + size])
            at += size
            if record.topic != SCHEDULE_TOPIC:
                continue
            pairs = record.properties
            if pairs.get(names.DELAY) != str(record.queue_id + 1):
                raise NoPermission(
                    ResponseCode.NO_PERMISSION,
                    f"a row for queue {record.queue_id} of {SCHEDULE_TOPIC} does not have this "
                    f"level: DELAY is {pairs.get(names.DELAY, '')[:40]!r}",
                )
            real = pairs.get(names.REAL_TOPIC, ""), pairs.get(names.REAL_QID, "")
            if real not in allowed:
                self._check_send(real[0], whole_number(real[1], names.REAL_QID, 0, _I32_MAX))
                allowed.add(real)

    def _check_record(self, records: memoryview, at: int) -> None:
        size, sys_flag = _SIZE_AND_FLAG.unpack_from(records, at)
        hosts = bool(sys_flag & 0x10) + bool(sys_flag & 0x20)
        prepared_at = at + _PREPARED_AT + _V6_GROWTH * hosts
        if sys_flag & _TRANSACTION or _PREPARED.unpack_from(records, prepared_at)[0]:
            # Such a record would count as the outcome of another one.
            raise NoPermission(
                ResponseCode.NO_PERMISSION, "a staged record is part of a transaction"
            )
        body_size = _BODY_SIZE.unpack_from(records, prepared_at + _PREPARED.size)[0]
        if body_size > self._message_size_max:
            raise MessageTooLarge(
                f"a staged body has {body_size} bytes, maxMessageSize is {self._message_size_max}"
            )
        if size > self._message_size_max + (64 << 10):
            raise MessageTooLarge(f"a staged record has {size} bytes")


def _topics(queues: QueueKeys, records: memoryview) -> Iterator[str]:
    """Of parked rows, where they will go."""
    yield from (topic.decode("latin-1") for topic, _ in queues if topic != _SCHEDULE)
    at = 0 if any(topic == _SCHEDULE for topic, _ in queues) else len(records)
    while at < len(records):
        size = _BODY_SIZE.unpack_from(records, at)[0]
        record = decode_record(records[at : at + size])
        at += size
        if record.topic == SCHEDULE_TOPIC:
            yield record.properties.get(names.REAL_TOPIC, "")


def _key(identity: BatchIdentity) -> _BatchKey:
    return identity.sink, identity.batch, identity.run
