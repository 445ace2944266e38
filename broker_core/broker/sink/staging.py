"""What the sink adds to the staging area: checks of records, limits per sink, end of drafts.

    begin ─► append, append, … ─► seal ─► published, dropped, swept or expired

Every block is checked as an ordinary send would be, so that a publication finds only records that
may be published. The drafts themselves belong to `storage/staging/staging_area.py`; which batch and
run a draft is for is known until the broker restarts. A sealed draft can be published after that
too, because its id cannot be guessed and its checksum must match. An open one expires.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice
from typing import Final

from broker_core.broker.sink.limits import naming_properties
from broker_core.codec.native import body_crc, find_unusual, inspect_run
from broker_core.codec.records.column_batch import encode_places
from broker_core.codec.records.record_layout import (
    BODY_LENGTH_AT,
    I32,
    I64,
    PREPARED_OFFSET_AT,
    REQUIRE_CHECKSUM,
    SYS_FLAG_AT,
    TRANSACTION_BITS,
    hosts_extra,
)
from broker_core.codec.records.staged_block import QueueKeys, StagedPart
from broker_core.codec.wire.bodies.sink_messages import BatchIdentity
from broker_core.codec.wire.send_request import SendRequest
from broker_core.codec.wire.topic_name import TEMPLATE_TOPIC
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
from broker_core.storage.log.commit_log import TemplateRun
from broker_core.storage.staging.staging_area import Draft, StagingArea, batch_key
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)

# Each has an open file.
DRAFTS_MAX: Final = 1_024
# A sink that began a draft so recently is expected to begin another one.
WANTING_S: Final = 600.0
# A job without sinkId has no later run that frees what a killed one has staged. After so long
# without work its drafts are dropped, if another sink needs the room.
JOB_IDLE_S: Final = 600.0

_DEFAULT_QUEUE_COUNT: Final = 4


class SinkStaging:
    """Event loop only, but for `check_records`."""

    def __init__(
        self,
        *,
        store: MessageStore,
        clock: Clock,
        check_queue: Callable[[SendRequest], object],
        message_size_max: int,
        segment_size: int,
        drafts_max: int = DRAFTS_MAX,
    ) -> None:
        self._store = store
        self._clock = clock
        self._check_queue = check_queue
        self._message_size_max = message_size_max
        self._segment_size = segment_size
        self._drafts_max = drafts_max
        # Sink -> time of its last `begin`; the latest comes last.
        self._begun: dict[str, float] = {}
        # The same for the latest sink that is no job.
        self._query_begun = -WANTING_S

    def __len__(self) -> int:
        return sum(1 for _ in self._area.drafts())

    def sink_of(self, staging_id: str) -> str | None:
        """The sink of a draft; None when it is not known, or not any more."""
        draft = self._area.find(staging_id)
        return None if draft is None or draft.identity is None else draft.identity.sink

    def topics_of(self, staging_id: str) -> frozenset[str]:
        """The topics of a draft's records, as far as they are known."""
        draft = self._area.find(staging_id)
        return frozenset() if draft is None else frozenset(draft.topics)

    def begin(self, identity: BatchIdentity) -> str:
        """A new draft for one writer of a batch; returns its id."""
        self._area.drop_expired()
        self._note_begun(identity)
        self._check_writers(identity.sink)
        return self._area.begin(identity)

    def idle_ms(self, identity: BatchIdentity) -> float:
        """For how long a batch keeps its drafts without work, whatever others need."""
        expiry_ms = self._area.expiry_ms
        return min(expiry_ms, JOB_IDLE_S * 1000) if identity.once else expiry_ms

    def renew(self, identity: BatchIdentity) -> int:
        """A task is at work on the batch; returns how many drafts of the batch are here."""
        return self._area.renew(identity)

    def append(self, staging_id: str, index: int, queues: QueueKeys, records: memoryview) -> int:
        """Add block number `index`, unless it was added before.

        Returns the number of records that were added.
        """
        draft = self._draft(staging_id)
        checksum = body_crc(records)
        checksums = draft.block_checksums
        if index < len(checksums) and checksum == checksums[index]:
            # The answer was lost, not the block.
            return 0
        if draft.part is not None or index != len(checksums):
            state = f"expects block {len(checksums)}" if draft.part is None else "is sealed"
            raise StagingRefused(f"{staging_id} {state}, not block {index}")
        self.check_queues(queues)
        count = self._checked(queues, records)
        run = TemplateRun(queues, records)
        self._check_room(draft, self._area.growth_of(staging_id, run))
        with naming_properties():
            self._area.append(staging_id, run, count, checksum)
        checksums.append(checksum)
        draft.topics.update(topic.decode("latin-1") for topic, _ in queues)
        return count

    def seal(self, staging_id: str) -> StagedPart:
        """End a draft; a repeated request gets the same answer."""
        draft = self._draft(staging_id)
        if draft.part is not None:
            return draft.part
        part = self._area.seal(staging_id)
        draft.is_verified = True
        return part

    def grow(self, staging_id: str, size: int) -> int:
        """Reserve room up to `size` for a client that writes the staging file itself.

        Returns the size that was reserved before.
        """
        draft = self._draft(staging_id)
        if draft.part is not None or draft.block_checksums:
            raise StagingRefused(f"{staging_id} is sealed, or blocks were sent for it")
        self._check_room(draft, self._area.growth_until(staging_id, size))
        with naming_properties():
            return self._area.grow(staging_id, size)

    def seal_written(self, part: StagedPart) -> StagedPart:
        """`seal` for a file that the client wrote itself; its records are verified later."""
        draft = self._draft(part.staging_id)
        if draft.part is None:
            if draft.block_checksums:
                raise StagingRefused(f"blocks were sent for {part.staging_id}")
            self._check_room(draft, self._area.growth_until(part.staging_id, part.size))
            with naming_properties():
                queues = self._area.written_queues(part)
            self.check_queues(queues)
            self._area.seal_written(part)
            draft.topics.update(topic.decode("latin-1") for topic, _ in queues)
        if draft.part != part:
            raise StagingRefused(f"{part.staging_id} was sealed with other numbers")
        return part

    def are_verified(self, parts: Iterable[StagedPart]) -> bool:
        """Whether every record of these parts was checked when it arrived."""
        found = (self._area.find(part.staging_id) for part in parts)
        return all(draft is not None and draft.is_verified for draft in found)

    def drop(self, staging_ids: Iterable[str]) -> int:
        """Delete drafts and return how many there were; unknown ids are ignored."""
        return sum(self._area.drop(staging_id) for staging_id in staging_ids)

    def published(self, staging_ids: Iterable[str]) -> None:
        """Their records are durable in the log."""
        for staging_id in staging_ids:
            self._area.recycle(staging_id)

    def release(self, staging_ids: Iterable[str]) -> None:
        """They are prepared: from now on nothing here drops them or counts them."""
        for staging_id in staging_ids:
            draft = self._area.find(staging_id)
            if draft is not None:
                draft.disown()

    def drop_other_runs(self, sink: str, runs: Sequence[str], promised: Container[str]) -> int:
        """Drop the drafts of earlier runs of a sink: only `runs[0]` can publish from now on."""
        old = [
            staging_id
            for staging_id, identity, _ in self._area.drafts()
            if identity.sink == sink and identity.run != runs[0]
        ]
        old += self._area.found_at_start(sink, runs[1:])
        return self.drop(staging_id for staging_id in old if staging_id not in promised)

    def sweep(self, sink: str, batch: int) -> int:
        """Drop the drafts of a sink for batches up to `batch`: they cannot be published."""
        old = [
            staging_id
            for staging_id, identity, _ in self._area.drafts()
            if identity.sink == sink and identity.batch <= batch
        ]
        return self.drop(old)

    def check_parts(self, identity: BatchIdentity, parts: Iterable[StagedPart]) -> None:
        """Raise `StagingRefused` for a part that another batch, sink or run has staged.

        The commit is work on its batch: it renews the parts.
        """
        for part in parts:
            draft = self._area.find(part.staging_id)
            mine = draft.identity if draft is not None else None
            if draft is not None:
                draft.lease.renewed = self._clock.monotonic()
            if mine is not None and batch_key(mine) != batch_key(identity):
                raise StagingRefused(
                    f"{part.staging_id} was staged for batch {mine.batch} of sink {mine.sink} by "
                    f"run {mine.run}, not for batch {identity.batch} of {identity.sink} by "
                    f"{identity.run}"
                )

    def check_queues(self, queues: Iterable[tuple[bytes, int]]) -> None:
        """Raise what a send to one of these queues would raise."""
        for topic, queue_id in queues:
            name = topic.decode("latin-1")
            self._check_queue(
                SendRequest("", name, TEMPLATE_TOPIC, _DEFAULT_QUEUE_COUNT, queue_id, 0, 0, 0)
            )

    def check_records(self, records: memoryview) -> None:
        """Raise what sends of such records would raise. Their form was checked before."""
        at = 0
        # Only records that may break a rule are looked at one by one.
        while (at := find_unusual(records, at, self._message_size_max)) >= 0:
            self._check_record(records, at)
            at += I32.unpack_from(records, at)[0]

    @property
    def _area(self) -> StagingArea:
        return self._store.staging

    def _draft(self, staging_id: str) -> Draft:
        draft = self._area.find(staging_id)
        if draft is None or draft.identity is None:
            raise StagingRefused(
                f"nothing is being staged under {staging_id[:80]!r}: it was published, dropped or "
                "has expired, or the broker was started again. Stage the data again"
            )
        return draft

    # Shares

    def _note_begun(self, identity: BatchIdentity) -> None:
        now = self._clock.monotonic()
        self._begun.pop(identity.sink, None)
        self._begun[identity.sink] = now
        if not identity.once:
            self._query_begun = now
        for name, begun in list(islice(self._begun.items(), 64)):
            if begun > now - WANTING_S:
                break
            del self._begun[name]

    def _others_want(self, sink: str) -> bool:
        """Whether another sink has drafts, or began one recently."""
        if any(name != sink for name in islice(self._begun, 2)):
            return True
        return any(identity.sink != sink for _, identity, _ in self._area.drafts())

    def _queries_want(self) -> bool:
        """Whether a sink that is no job has drafts, or began one recently."""
        if self._query_begun > self._clock.monotonic() - WANTING_S:
            return True
        return any(not identity.once for _, identity, _ in self._area.drafts())

    def _drop_idle_jobs(self, sink: str) -> int:
        """Drop the drafts of other sinks that are jobs and idle; returns how many there were."""
        limit = self._clock.monotonic() - JOB_IDLE_S
        idle = [
            staging_id
            for staging_id, identity, draft in self._area.drafts()
            if identity.once
            and identity.sink != sink
            and draft.lease.renewed < limit
            and self._area.is_known(staging_id)
        ]
        if idle:
            _log.warning(
                "%d drafts of jobs that staged nothing for %.0f s are dropped: sink %s needs room",
                len(idle),
                JOB_IDLE_S,
                sink,
            )
        return self.drop(idle)

    def _check_writers(self, sink: str) -> None:
        """One sink may have at most half of the open drafts that other sinks leave."""
        problem = self._too_many_writers(sink)
        if problem and self._drop_idle_jobs(sink):
            problem = self._too_many_writers(sink)
        if problem:
            # Retriable: it passes when others have sealed their drafts.
            raise SystemBusy(ResponseCode.SYSTEM_BUSY, problem)

    def _too_many_writers(self, sink: str) -> str:
        unsealed = [identity for _, identity, draft in self._area.drafts() if draft.part is None]
        is_full = len(unsealed) >= self._drafts_max
        mine = sum(identity.sink == sink for identity in unsealed)
        share = max((self._drafts_max - len(unsealed) + mine) // 2, 1)
        if is_full and mine == len(unsealed):
            raise LimitReached(
                f"{len(unsealed)} writers stage data on this broker, at most {self._drafts_max} can"
            )
        if is_full or (mine >= share and self._others_want(sink)):
            return (
                f"{mine} writers of sink {sink} stage data on this broker, and other sinks want "
                f"to: at most {share} of {self._drafts_max} are for one sink"
            )
        return ""

    def _check_room(self, draft: Draft, more: int) -> None:
        """Raise `SystemBusy` if the sink of a draft may not take `more` bytes now."""
        identity = draft.identity
        if more <= 0 or identity is None:
            return
        problem = self._over_share(identity, more)
        if problem and self._drop_idle_jobs(identity.sink):
            problem = self._over_share(identity, more)
        area = self._area
        if not problem and area.size + more > area.size_max and area.has_dropped:
            problem = "the files of dropped drafts are being removed"
        if problem:
            raise SystemBusy(ResponseCode.SYSTEM_BUSY, problem)

    def _over_share(self, identity: BatchIdentity, more: int) -> str:
        """Why a sink may not take `more` bytes; "" if it may.

        One sink may take at most half of the room that other sinks leave, and all jobs together
        half of what the other sinks leave: each job is a sink of its own.
        """
        sink = identity.sink
        if not self._others_want(sink):
            return ""
        area = self._area
        mine = jobs = 0
        for staging_id, other, _ in area.drafts():
            size = area.size_of(staging_id)
            mine += size if other.sink == sink else 0
            jobs += size if other.once else 0
        share = (area.size_max - (area.size - mine)) // 2
        if mine + more > share:
            return (
                f"sink {sink} has {mine} bytes staged on this broker, {more} more are too many "
                f"while other sinks want room: {share} are for one sink, half of what the others "
                f"leave of sinkStagingSizeMax={area.size_max}. It passes when they have "
                "published. Or set sinkStagingSizeMax higher in broker.conf"
            )
        share = (area.size_max - (area.size - jobs)) // 2
        if identity.once and jobs + more > share and self._queries_want():
            return (
                f"jobs without sinkId have {jobs} bytes staged on this broker, {more} more are too "
                f"many while other sinks want room: {share} are for all jobs, half of what the "
                f"others leave of sinkStagingSizeMax={area.size_max}. It passes when they have "
                "published. Or set sinkStagingSizeMax higher in broker.conf"
            )
        return ""

    def _checked(self, queues: QueueKeys, records: memoryview) -> int:
        """Check every record and return their number."""
        try:
            count, _, _ = inspect_run(
                records,
                len(queues),
                0,
                self._segment_size,
                encode_places(queues),
                len(self._store.store_host),
                REQUIRE_CHECKSUM,
            )
        except MalformedRecord as error:
            raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, f"staged records: {error}") from error
        if count == 0:
            raise InvalidArgument("the block has no records")
        self.check_records(records)
        return count

    def _check_record(self, records: memoryview, at: int) -> None:
        size = I32.unpack_from(records, at)[0]
        sys_flag = I32.unpack_from(records, at + SYS_FLAG_AT)[0]
        extra = hosts_extra(sys_flag)
        prepared = I64.unpack_from(records, at + PREPARED_OFFSET_AT + extra)[0]
        if sys_flag & TRANSACTION_BITS or prepared:
            # Such a record would count as the outcome of another one.
            raise NoPermission(
                ResponseCode.NO_PERMISSION, "a staged record is part of a transaction"
            )
        body_size = I32.unpack_from(records, at + BODY_LENGTH_AT + extra)[0]
        if body_size > self._message_size_max:
            raise MessageTooLarge(
                f"a staged body has {body_size} bytes, maxMessageSize is {self._message_size_max}"
            )
        if size > self._message_size_max + (64 << 10):
            raise MessageTooLarge(f"a staged record has {size} bytes")
