"""Publishes batches of sinks, each exactly once.

One operation per sink at a time: judge, append one group with its note, wait until it is durable,
enter it into the table. Other requests for the same sink wait and are judged afterwards, so two
requests for one batch never both publish. The append is one step of the event loop. What follows
runs in a callback of the store, even if the client has disconnected.

A batch on several brokers goes through phases (docs/decisions/007-sink-batches.md):

    coordinator   RESERVE ──────────────► DECIDE
    the others             PREPARE … PREPARE     COMPLETE … COMPLETE
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from broker_core.broker.sink.batches import SinkBatches
from broker_core.broker.sink.limits import check_part_fits, in_properties
from broker_core.broker.sink.sink_record import PublishedBatch, Sink
from broker_core.broker.sink.staging import SinkStaging
from broker_core.broker.sink.staging_verification import StagingVerification
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import (
    BATCH_NOTE,
    COMPLETE,
    DECIDE,
    ENROL,
    ENROL_NOTE,
    PART_NOTE,
    PREPARE,
    PREPARE_NOTE,
    RESERVE,
    RESERVE_NOTE,
    RUN_NOTE,
    BatchIdentity,
    OffsetRanges,
    Publication,
    PublishAnswer,
    SinkNote,
    encode_note,
)
from broker_core.errors import (
    InvalidArgument,
    MalformedRecord,
    RemoteError,
    SinkBatchOld,
    SinkFenced,
    StagingRefused,
)
from broker_core.protocol_codes import PutStatus, ResponseCode
from broker_core.storage.log.append_group import Inspected
from broker_core.storage.log.commit_log import RecordRun
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

# Batches up to this size are verified on the event loop, which is faster than handing them over.
INLINE_SIZE_MAX: Final = 2 << 20
NOT_INSPECTED: Final[Inspected] = ()
_NAME_BYTES: Final = 16
_TOKEN_MAX: Final = 1 << 53

_Ranges = dict[tuple[str, int], tuple[int, int]]


class SinkPublisher:
    """Event loop only."""

    def __init__(
        self,
        *,
        store: MessageStore,
        batches: SinkBatches,
        staging: SinkStaging,
        stats: BrokerStats,
        inline_size_max: int = INLINE_SIZE_MAX,
    ) -> None:
        self._store = store
        self._batches = batches
        self._staging = staging
        self._stats = stats
        self._inline_size_max = inline_size_max
        # Sink -> its running operation: done once it is durable, or has failed.
        self._pending: dict[str, asyncio.Future[None]] = {}
        # Ids of parts that are about to be prepared.
        self._promised: set[str] = set()
        self._verification = StagingVerification(store, staging.check_records)
        store.staging.keep(batches.prepared_ids())

    async def announce(self, identity: BatchIdentity) -> None:
        """A run begins to stage: from now on earlier runs of the sink are refused.

        Durable before anything is staged. A batch job has only one run and needs no note.
        """
        await self._turn(identity.sink)
        self._batches.check_run(identity)
        if not identity.once and not self._batches.is_current(identity):
            await self._take_over(identity)

    def sealed(self, part: StagedPart) -> None:
        """Start to verify a sealed part before its publication waits for that."""
        if part.size > self._inline_size_max:
            self._verification.sealed(part)

    def written(self, staging_id: str, until: int) -> None:
        """A client on this machine has written its staging file up to `until`."""
        if until > self._inline_size_max:
            self._verification.written(staging_id, until)

    async def publish(self, request: Publication) -> PublishAnswer:
        """Execute one SINK_PUBLISH request.

        Raises what `SinkBatches.judge` raises, `StagingRefused`, or what a send would raise.
        """
        await self._turn(request.identity.sink)
        if request.phase == COMPLETE:
            # A replaced run may rely on a decision that is no longer in the log.
            self._batches.check_run(request.identity)
            return await self._complete(request)
        if request.phase == ENROL:
            return await self._enrol(request)
        if request.phase == PREPARE:
            return await self._prepare(request)
        known = self._batches.judge(request.identity)
        if known is not None:
            return await self._repeated(request, known)
        if request.phase == RESERVE:
            return await self._reserve(request)
        return await self._decide(request)

    def abort(self, staging_ids: Iterable[str]) -> int:
        """Drop aborted drafts, except for prepared ones: their batch may be decided already."""
        prepared = self._promised.union(self._batches.prepared_ids())
        return self._staging.drop(name for name in staging_ids if name not in prepared)

    # Phases

    async def _decide(self, request: Publication) -> PublishAnswer:
        """Publish all of a batch, or the coordinator's part and with it the decision."""
        identity = request.identity
        sink = self._batches.find(identity.sink)
        if request.phase == DECIDE and (
            sink is None or sink.reserved != (identity.batch, request.token, request.attempt)
        ):
            raise SinkFenced(
                ResponseCode.SINK_FENCED,
                f"attempt {request.token} at batch {identity.batch} of sink {identity.sink} is not "
                "the one that was reserved last: another writer is active"
                + (
                    "" if request.attempt else ", or it is of a version that does not name attempts"
                ),
            )
        if request.phase != DECIDE:
            _refuse_other_coordinator(identity, sink)
        self._staging.check_parts(identity, request.parts)
        note = SinkNote(BATCH_NOTE, identity)
        if request.phase == DECIDE:
            note = SinkNote(
                BATCH_NOTE, identity, request.token, request.others, attempt=request.attempt
            )
        return await self._append(note, request.parts, is_checked=False)

    async def _reserve(self, request: Publication) -> PublishAnswer:
        """Name a new attempt; earlier attempts can no longer be decided.

        The number orders attempts. If the log lost its end, a number may be given out twice; a
        name is not.
        """
        identity = request.identity
        sink = self._batches.find(identity.sink)
        _refuse_other_coordinator(identity, sink)
        if request.token > _TOKEN_MAX:
            raise InvalidArgument(f"token is {request.token}: at most {_TOKEN_MAX}")
        token = max(sink.reserved[1] if sink is not None else 0, request.token) + 1
        name = _new_name()
        await self._note(SinkNote(RESERVE_NOTE, identity, token, attempt=name))
        sink = sink or Sink()
        decided = tuple((made.batch, made.token, made.attempt) for made in sink.decisions)
        answer = PublishAnswer(False, -1, {}, reserved=token, decided=decided)
        answer = answer._replace(reserved_attempt=name)
        if not sink.batches:
            return answer
        last = sink.batches[-1]
        return answer._replace(
            batch=last.batch, token=last.token, others=last.others, attempt=last.attempt
        )

    async def _prepare(self, request: Publication) -> PublishAnswer:
        """Make this broker's parts durable, so that only the loss of the disk prevents COMPLETE."""
        identity = request.identity
        self._batches.check_run(identity)
        sink = self._batches.find(identity.sink)
        prepared = PublishAnswer(False, identity.batch, {}, request.token, attempt=request.attempt)
        held = sink.prepared if sink is not None else None
        if held is not None and held.key == (identity.batch, request.token, request.attempt):
            if (held.identity.run, held.parts) != (identity.run, request.parts):
                raise StagingRefused(
                    f"attempt {request.token} at batch {identity.batch} of sink {identity.sink} is "
                    f"prepared here by run {held.identity.run} with other parts"
                )
            return prepared
        if held is not None and held.key in request.decided:
            # Its driver died before COMPLETE, and the next one does not know of it.
            await self._complete(Publication(held.identity, token=held.token, attempt=held.attempt))
            return await self.publish(request)
        self._refuse_late(sink, request)
        self._staging.check_parts(identity, request.parts)
        note = SinkNote(PREPARE_NOTE, identity, request.token, (), request.parts, request.attempt)
        with self._store.staging.open_runs(request.parts) as record_runs:
            check_part_fits(self._store, note, record_runs)
            self._next_offsets(record_runs)
            self._verify(request.parts, record_runs)
        ids = {part.staging_id for part in request.parts}
        # From here until the note is durable no part may be dropped.
        self._store.staging.keep(ids)
        self._promised |= ids
        try:
            with self._held(identity.sink):
                await asyncio.to_thread(self._store.staging.make_durable, ids)
            result = self._begin_note(note)
        except BaseException:
            self._promise_no_more(ids)
            raise
        await self._durable(result)
        await self._store.group_on_disk(result)
        return prepared

    def _promise_no_more(self, ids: set[str]) -> None:
        """Release the ids: their PREPARE has succeeded or failed."""
        self._promised -= ids
        self._store.staging.allow_expiry(ids.difference(self._batches.prepared_ids()))

    async def _enrol(self, request: Publication) -> PublishAnswer:
        """Note durably that another broker decides about this sink."""
        identity = request.identity
        if len(request.others) != 1:
            raise InvalidArgument("others: name the one broker that decides")
        sink = self._batches.find(identity.sink)
        if sink is not None and (
            sink.is_coordinator or sink.coordinator not in ("", *request.others)
        ):
            who = "this broker" if sink.is_coordinator else f"broker {sink.coordinator}"
            raise InvalidArgument(
                f"{who} decides about batches of sink {identity.sink}, not {request.others[0]}: "
                "two writers chose differently, use a new sinkId"
            )
        if sink is None or not sink.coordinator:
            self._batches.check_run(identity)
            await self._note(SinkNote(ENROL_NOTE, identity, others=request.others))
        return PublishAnswer(False, identity.batch, {})

    async def _complete(self, request: Publication) -> PublishAnswer:
        """Publish the prepared part of a batch that its coordinator has decided."""
        identity = request.identity
        sink = self._batches.find(identity.sink)
        known = sink.find(identity.batch) if sink is not None else None
        if known is not None and (known.token, known.attempt) == (request.token, request.attempt):
            return await self._answered(known)
        held = sink.prepared if sink is not None else None
        if held is None or held.key != (identity.batch, request.token, request.attempt):
            raise StagingRefused(
                f"batch {identity.batch} of sink {identity.sink} is not prepared here as attempt "
                f"{request.token}"
            )
        note = SinkNote(PART_NOTE, held.identity, held.token, attempt=held.attempt)
        # The batch is decided, so permissions of its topics are not checked again.
        return await self._append(note, held.parts, is_checked=True)

    async def _repeated(self, request: Publication, known: PublishedBatch) -> PublishAnswer:
        self._staging.drop(part.staging_id for part in request.parts)
        if not request.identity.once and not self._batches.is_current(request.identity):
            await self._take_over(request.identity)
        return await self._answered(known)

    async def _answered(self, known: PublishedBatch) -> PublishAnswer:
        # The first answer may have been "stored, but not on the slave yet".
        await self._durable(PutResult(PutStatus.PUT_OK, end_position=known.end))
        ranges = self._store.group_ranges(known.position, known.end)
        answer = PublishAnswer(True, known.batch, _by_topic(ranges), known.token, known.others)
        return answer._replace(attempt=known.attempt)

    async def _turn(self, sink: str) -> None:
        while (pending := self._pending.get(sink)) is not None:
            await asyncio.wait((pending,))

    def _hold(self, sink: str) -> asyncio.Future[None]:
        pending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending[sink] = pending
        return pending

    @contextlib.contextmanager
    def _held(self, sink: str) -> Iterator[None]:
        """Make other requests for the sink wait until the current step of the event loop ends."""
        pending = self._hold(sink)
        try:
            yield
        finally:
            del self._pending[sink]
            pending.set_result(None)

    def _refuse_late(self, sink: Sink | None, request: Publication) -> None:
        identity = request.identity
        if sink is not None and identity.batch <= sink.last:
            raise SinkBatchOld(
                ResponseCode.SINK_BATCH_OLD,
                f"batch {identity.batch} of sink {identity.sink} comes too late, {sink.last} is "
                "published here already. If no other query writes to the sink, the broker that "
                "decides lost the end of its log (a slave that lagged was promoted, or a backup "
                "restored), and the missing rows of the batch are unknown. Go on with a new "
                "sinkId, which repeats the batch",
            )
        held = sink.prepared if sink is not None else None
        known = [batch for batch, _, _ in request.decided]
        # Batches are decided in order. From the oldest batch that the coordinator lists on, a
        # batch that is not listed was never decided, and its part may be replaced.
        if held is not None and known and held.identity.batch < min(known):
            raise StagingRefused(
                f"a part of batch {held.identity.batch} of sink {identity.sink} waits here, and "
                "its coordinator does not remember any more whether it was published: repeat that "
                "batch or use a new sinkId"
            )
        if sink is not None and sink.prepared is not None and request.token <= sink.prepared.token:
            raise SinkFenced(
                ResponseCode.SINK_FENCED,
                f"attempt {request.token} at sink {identity.sink} was replaced by attempt "
                f"{sink.prepared.token}",
            )

    async def _take_over(self, identity: BatchIdentity) -> None:
        await self._note(SinkNote(RUN_NOTE, identity._replace(batch=-1, content="")))

    async def _note(self, note: SinkNote) -> None:
        """Make a note that has no records durable."""
        await self._durable(self._begin_note(note))

    def _begin_note(self, note: SinkNote) -> PutResult:
        result = _stored(self._store.append_group((), encode_note(note)))
        self._begin(note, result, [])
        return result

    async def _append(
        self, note: SinkNote, parts: Sequence[StagedPart], *, is_checked: bool
    ) -> PublishAnswer:
        """Append records and note as one group; returns when it is durable."""
        staging, inspected = self._store.staging, NOT_INSPECTED
        with contextlib.ExitStack() as opened:
            if sum(part.size for part in parts) <= self._inline_size_max:
                record_runs = opened.enter_context(staging.open_runs(parts))
                self._verify(parts, record_runs)
            else:
                sink = note.identity.sink
                record_runs, inspected = await self._verified(sink, opened, parts)
            before = self._next_offsets(record_runs, is_checked=is_checked)
            result = _stored(self._store.append_group(record_runs, encode_note(note), inspected))
        ranges = {
            queue: (first, self._store.next_offset(*queue)) for queue, first in before.items()
        }
        staging.claim(parts)
        self._begin(note, result, parts)
        await self._durable(result)
        if note.token:
            # Other brokers act on it, so it must survive a power cut.
            await self._store.group_on_disk(result)
        self._count(ranges, result)
        answer = PublishAnswer(False, note.identity.batch, _by_topic(ranges))
        return answer._replace(token=note.token, others=note.others, attempt=note.attempt)

    async def _verified(
        self, sink: str, opened: contextlib.ExitStack, parts: Sequence[StagedPart]
    ) -> tuple[tuple[RecordRun, ...], Inspected]:
        """Verify parts and make room on other threads. Requests of other sinks are served."""
        store = self._store
        with self._held(sink):
            inspected = await self._verification.verified(parts)
            await store.prepare_room(sum(part.size for part in parts))
        if not store.staging.has_sealed(parts):
            raise StagingRefused("staged data was dropped while it was being published")
        return opened.enter_context(store.staging.open_runs(parts)), inspected

    def _verify(self, parts: Sequence[StagedPart], record_runs: tuple[RecordRun, ...]) -> None:
        """Verify parts that clients wrote themselves, or that were staged before a restart."""
        if self._staging.are_verified(parts):
            return
        try:
            self._store.inspect_runs(record_runs)
        except MalformedRecord as error:
            raise StagingRefused(f"the staged records cannot be published: {error}") from error
        self._verification.check(record_runs)

    def _next_offsets(
        self, record_runs: tuple[RecordRun, ...], *, is_checked: bool = False
    ) -> dict[tuple[str, int], int]:
        queues = {queue for run in record_runs for queue in run.queues}
        if not is_checked:
            # A topic may have been deleted or closed since its records were staged.
            self._staging.check_queues(queues)
        named = ((topic.decode("latin-1"), queue_id) for topic, queue_id in sorted(queues))
        return {queue: self._store.next_offset(*queue) for queue in named}

    def _begin(self, note: SinkNote, result: PutResult, parts: Sequence[StagedPart]) -> None:
        self._hold(note.identity.sink)
        self._store.when_durable(result, partial(self._settled, note, result, parts))

    def _settled(
        self,
        note: SinkNote,
        result: PutResult,
        parts: Sequence[StagedPart],
        error: BaseException | None,
    ) -> None:
        """The group is durable, or the store is fenced and recovery decides."""
        identity = note.identity
        pending = self._pending.pop(identity.sink)
        if error is None:
            sink = self._batches.find(identity.sink)
            replaced = sink.prepared if sink is not None else None
            self._batches.enter(
                note,
                result.queue_offset,
                result.position,
                result.end_position,
                result.store_timestamp,
            )
            if note.kind == PREPARE_NOTE:
                kept = {part.staging_id for part in note.parts}
                self._store.staging.keep(kept)
                self._staging.release(kept)
                old = replaced.parts if replaced is not None else ()
                self._staging.drop(p.staging_id for p in old if p.staging_id not in kept)
            self._staging.published(part.staging_id for part in parts)
            self._promise_no_more({part.staging_id for part in note.parts})
            if note.kind in (BATCH_NOTE, PART_NOTE):
                self._staging.sweep(identity.sink, identity.batch)
            current = self._batches.find(identity.sink)
            if current is not None and current.runs[:1] == [identity.run]:
                # Earlier runs are fenced: their drafts must not take room.
                self._staging.drop_other_runs(identity.sink, current.runs, self._promised)
        if not pending.done():
            pending.set_result(None)

    async def _durable(self, result: PutResult) -> None:
        """Wait until a group is acknowledged; raise if it is not."""
        acknowledged = await self._store.group_acknowledged(result)
        if not acknowledged.ok:
            status = acknowledged.status
            raise RemoteError(
                status.response_code,
                f"{status.name}: the batch is in the log, but not yet as safe as promised; "
                "publish it again to learn its outcome",
            )

    def _count(self, ranges: _Ranges, result: PutResult) -> None:
        total = max(result.message_count, 1)
        size = result.end_position - result.position
        for (topic, _), (first, after) in ranges.items():
            self._stats.put(topic, after - first, size * (after - first) // total)


def _refuse_other_coordinator(identity: BatchIdentity, sink: Sink | None) -> None:
    """If two brokers decided, both could publish the same batch."""
    if (
        sink is None
        or sink.is_coordinator
        or not (sink.batches or sink.prepared or sink.coordinator)
    ):
        return
    raise InvalidArgument(
        f"{f'broker {sink.coordinator}' if sink.coordinator else 'another broker'} decides about "
        f"batches of sink {identity.sink}: publish there. If it is gone for good, use a new sinkId:"
        " its last batch may have been published"
    )


def _new_name() -> str:
    """A name for an attempt that is never used again."""
    return secrets.token_hex(_NAME_BYTES)


def _stored(result: PutResult) -> PutResult:
    """Raise unless the group is in the log."""
    if result.ok:
        return result
    if result.status is PutStatus.MESSAGE_ILLEGAL:
        remark = in_properties(result.remark)
        raise StagingRefused(f"the staged records cannot be published: {remark}")
    code = result.status.response_code
    raise RemoteError.for_code(code if code else ResponseCode.SYSTEM_ERROR, result.remark)


def _by_topic(ranges: _Ranges) -> OffsetRanges:
    found: OffsetRanges = {}
    for (topic, queue_id), pair in sorted(ranges.items()):
        found.setdefault(topic, {})[queue_id] = pair
    return found
