"""Publishes staged batches of sinks, each exactly once.

One operation of a sink at a time: judge, append one group with its note, wait until it is durable,
enter it into the table. Whoever asks about the same sink meanwhile waits and is judged afterwards,
so two requests for one batch can never both publish. The append itself is one step of the event
loop; what follows happens in a callback of the store, whether or not somebody still waits for the
answer.

A batch on several brokers goes through phases (docs/decisions/007-sink-batches.md):

    coordinator   RESERVE ──────────────► DECIDE
    the others             PREPARE … PREPARE     COMPLETE … COMPLETE
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from broker_core.broker.broker_stats import BrokerStats
from broker_core.broker.sink_batches import SinkBatches
from broker_core.broker.sink_limits import check_part_fits, in_properties
from broker_core.broker.sink_record import PublishedBatch, Sink
from broker_core.broker.sink_staging import SinkStaging
from broker_core.broker.staged_proofs import StagedProofs
from broker_core.codec.sink_messages import (
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
    StagedPart,
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
from broker_core.storage.append_group import Inspected
from broker_core.storage.commit_log import RecordRun
from broker_core.storage.staging import StagedBatch
from broker_core.store.message_store import MessageStore
from broker_core.store.put_result import PutResult

# Batches up to this size are verified at once, which takes less time than to hand them over.
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
        # Sink -> set once its operation is durable, or never will be
        self._pending: dict[str, asyncio.Future[None]] = {}
        # Staging ids that are about to be prepared
        self._promised: set[str] = set()
        self._proofs = StagedProofs(store, staging.check_records)
        store.staging.keep(batches.prepared_ids())

    async def announce(self, identity: BatchIdentity) -> None:
        """A run begins to stage: from now on earlier runs of the sink are refused.

        Durable before anything is staged; a batch job has one run only and needs no such mark.
        """
        await self._turn(identity.sink)
        self._batches.check_run(identity)
        if not identity.once and not self._batches.is_current(identity):
            await self._take_over(identity)

    def sealed(self, part: StagedPart) -> None:
        """A writer has ended: prove what it staged before anybody waits for it."""
        if part.size > self._inline_size_max:
            self._proofs.sealed(StagedBatch(*part))

    def written(self, staging_id: str, until: int) -> None:
        """A writer on this machine has written its file that far."""
        if until > self._inline_size_max:
            self._proofs.written(staging_id, until)

    async def publish(self, asked: Publication) -> PublishAnswer:
        """Do what one SINK_PUBLISH asks for.

        Raises what `SinkBatches.judge` raises, `StagingRefused`, or what a send would raise.
        """
        await self._turn(asked.identity.sink)
        if asked.phase == COMPLETE:
            # A run that was replaced may believe in a decision that is not in the log any more.
            self._batches.check_run(asked.identity)
            return await self._complete(asked)
        if asked.phase == ENROL:
            return await self._enrol(asked)
        if asked.phase == PREPARE:
            return await self._prepare(asked)
        known = self._batches.judge(asked.identity)
        if known is not None:
            return await self._repeated(asked, known)
        if asked.phase == RESERVE:
            return await self._reserve(asked)
        return await self._decide(asked)

    def abort(self, staging_ids: Iterable[str]) -> int:
        """Drop what a writer gives up, but for what is prepared: that may be decided already."""
        prepared = self._promised.union(self._batches.prepared_ids())
        return self._staging.drop(name for name in staging_ids if name not in prepared)

    # Phases

    async def _decide(self, asked: Publication) -> PublishAnswer:
        """Publish all of a batch, or the coordinator's part and with it the decision."""
        identity = asked.identity
        sink = self._batches.find(identity.sink)
        if asked.phase == DECIDE and (
            sink is None or sink.reserved != (identity.batch, asked.token, asked.attempt)
        ):
            raise SinkFenced(
                ResponseCode.SINK_FENCED,
                f"attempt {asked.token} at batch {identity.batch} of sink {identity.sink} is not "
                "the one that was reserved last: another writer is at it"
                + ("" if asked.attempt else ", or it is of a version that does not name attempts"),
            )
        if asked.phase != DECIDE:
            _refuse_other_coordinator(identity, sink)
        batches = self._staging.batches(identity, asked.parts)
        note = SinkNote(BATCH_NOTE, identity)
        if asked.phase == DECIDE:
            note = SinkNote(BATCH_NOTE, identity, asked.token, asked.others, attempt=asked.attempt)
        return await self._append(note, batches, is_checked=False)

    async def _reserve(self, asked: Publication) -> PublishAnswer:
        """Name a new attempt; every earlier one can no longer be decided.

        The number says which of two attempts is newer. It may have been given out before, if the
        log has lost its end since; the name was not.
        """
        identity = asked.identity
        sink = self._batches.find(identity.sink)
        _refuse_other_coordinator(identity, sink)
        if asked.token > _TOKEN_MAX:
            raise InvalidArgument(f"token is {asked.token}: at most {_TOKEN_MAX}")
        token = max(sink.reserved[1] if sink is not None else 0, asked.token) + 1
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

    async def _prepare(self, asked: Publication) -> PublishAnswer:
        """Keep a part so that nothing but the disk's loss can stop it from being completed."""
        identity = asked.identity
        self._batches.check_run(identity)
        sink = self._batches.find(identity.sink)
        prepared = PublishAnswer(False, identity.batch, {}, asked.token, attempt=asked.attempt)
        held = sink.prepared if sink is not None else None
        if held is not None and held.key == (identity.batch, asked.token, asked.attempt):
            if (held.identity.run, held.parts) != (identity.run, asked.parts):
                raise StagingRefused(
                    f"attempt {asked.token} at batch {identity.batch} of sink {identity.sink} is "
                    f"prepared here by run {held.identity.run} with other parts"
                )
            return prepared
        if held is not None and held.key in asked.decided:
            # Its writer did not live to complete it, and the next one does not know of it.
            await self._complete(Publication(held.identity, token=held.token, attempt=held.attempt))
            return await self.publish(asked)
        self._refuse_late(sink, asked)
        batches = self._staging.batches(identity, asked.parts)
        note = SinkNote(PREPARE_NOTE, identity, asked.token, (), asked.parts, asked.attempt)
        with self._store.staging.open_runs(batches) as runs:
            check_part_fits(self._store, note, runs)
            self._next_offsets(runs)
            self._prove(batches, runs)
        ids = {batch.staging_id for batch in batches}
        # From here until its note is durable nothing may take a part away.
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
        """They are prepared by now, or never will be."""
        self._promised -= ids
        self._store.staging.keep_no_more(ids.difference(self._batches.prepared_ids()))

    async def _enrol(self, asked: Publication) -> PublishAnswer:
        """Another broker decides about this sink: know it for good, even when that one is gone."""
        identity = asked.identity
        if len(asked.others) != 1:
            raise InvalidArgument("others: name the one broker that decides")
        sink = self._batches.find(identity.sink)
        if sink is not None and (
            sink.is_coordinator or sink.coordinator not in ("", *asked.others)
        ):
            who = "this broker" if sink.is_coordinator else f"broker {sink.coordinator}"
            raise InvalidArgument(
                f"{who} decides about batches of sink {identity.sink}, not {asked.others[0]}: two "
                "writers chose differently, use a new sinkId"
            )
        if sink is None or not sink.coordinator:
            self._batches.check_run(identity)
            await self._note(SinkNote(ENROL_NOTE, identity, others=asked.others))
        return PublishAnswer(False, identity.batch, {})

    async def _complete(self, asked: Publication) -> PublishAnswer:
        """Publish the prepared part of a batch that its coordinator has decided."""
        identity = asked.identity
        sink = self._batches.find(identity.sink)
        known = sink.find(identity.batch) if sink is not None else None
        if known is not None and (known.token, known.attempt) == (asked.token, asked.attempt):
            return await self._answered(known)
        held = sink.prepared if sink is not None else None
        if held is None or held.key != (identity.batch, asked.token, asked.attempt):
            raise StagingRefused(
                f"batch {identity.batch} of sink {identity.sink} is not prepared here as attempt "
                f"{asked.token}"
            )
        note = SinkNote(PART_NOTE, held.identity, held.token, attempt=held.attempt)
        # Decided: a topic that was closed meanwhile does not count any more.
        return await self._append(note, [StagedBatch(*p) for p in held.parts], is_checked=True)

    async def _repeated(self, asked: Publication, known: PublishedBatch) -> PublishAnswer:
        self._staging.drop(part.staging_id for part in asked.parts)
        if not asked.identity.once and not self._batches.is_current(asked.identity):
            await self._take_over(asked.identity)
        return await self._answered(known)

    async def _answered(self, known: PublishedBatch) -> PublishAnswer:
        # Its first answer may have been "stored, but not on the slave yet".
        await self._durable(PutResult(PutStatus.PUT_OK, end_position=known.end))
        ranges = self._store.group_ranges(known.position, known.end)
        answer = PublishAnswer(True, known.batch, _by_topic(ranges), known.token, known.others)
        return answer._replace(attempt=known.attempt)

    # Inside

    async def _turn(self, sink: str) -> None:
        while (pending := self._pending.get(sink)) is not None:
            await asyncio.wait((pending,))

    def _hold(self, sink: str) -> asyncio.Future[None]:
        pending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending[sink] = pending
        return pending

    @contextlib.contextmanager
    def _held(self, sink: str) -> Iterator[None]:
        """Others who ask about the sink wait; what follows in the same step still comes first."""
        pending = self._hold(sink)
        try:
            yield
        finally:
            del self._pending[sink]
            pending.set_result(None)

    def _refuse_late(self, sink: Sink | None, asked: Publication) -> None:
        identity = asked.identity
        if sink is not None and identity.batch <= sink.last:
            raise SinkBatchOld(
                ResponseCode.SINK_BATCH_OLD,
                f"batch {identity.batch} of sink {identity.sink} comes too late, {sink.last} is "
                "published here already. If no other writer is at it, the broker that decides lost "
                "the end of its log (a slave that lagged was promoted, or a backup restored): "
                "nobody can tell any more which rows of the batch are missing. Go on with a new "
                "sinkId, which repeats the batch",
            )
        held = sink.prepared if sink is not None else None
        known = [batch for batch, _, _ in asked.decided]
        # Batches are decided in their order: from the oldest that the coordinator lists on, one
        # that it does not list was never decided, and its part may be replaced.
        if held is not None and known and held.identity.batch < min(known):
            raise StagingRefused(
                f"a part of batch {held.identity.batch} of sink {identity.sink} waits here, and "
                "its coordinator does not remember any more whether it was published: repeat that "
                "batch or use a new sinkId"
            )
        if sink is not None and sink.prepared is not None and asked.token <= sink.prepared.token:
            raise SinkFenced(
                ResponseCode.SINK_FENCED,
                f"attempt {asked.token} at sink {identity.sink} was replaced by attempt "
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
        self, note: SinkNote, batches: list[StagedBatch], *, is_checked: bool
    ) -> PublishAnswer:
        """Records and note as one group; returns when it is durable."""
        staging, inspected = self._store.staging, NOT_INSPECTED
        with contextlib.ExitStack() as opened:
            if sum(batch.size for batch in batches) <= self._inline_size_max:
                runs = opened.enter_context(staging.open_runs(batches))
                self._prove(batches, runs)
            else:
                sink = note.identity.sink
                runs, inspected = await self._proven(sink, opened, batches)
            before = self._next_offsets(runs, is_checked=is_checked)
            result = _stored(self._store.append_group(runs, encode_note(note), inspected))
        ranges = {
            queue: (first, self._store.next_offset(*queue)) for queue, first in before.items()
        }
        staging.claim(batches)
        self._begin(note, result, batches)
        await self._durable(result)
        if note.token:
            # Other brokers act on it: a power cut must not take it back.
            await self._store.group_on_disk(result)
        self._count(ranges, result)
        answer = PublishAnswer(False, note.identity.batch, _by_topic(ranges))
        return answer._replace(token=note.token, others=note.others, attempt=note.attempt)

    async def _proven(
        self, sink: str, opened: contextlib.ExitStack, batches: list[StagedBatch]
    ) -> tuple[tuple[RecordRun, ...], Inspected]:
        """Proofs and room from other threads: others are served meanwhile, but not this sink."""
        store = self._store
        with self._held(sink):
            inspected = await self._proofs.proven(batches)
            await store.prepare_room(sum(batch.size for batch in batches))
        if not store.staging.has_sealed(batches):
            raise StagingRefused("staged data was dropped while it was being published")
        return opened.enter_context(store.staging.open_runs(batches)), inspected

    def _prove(self, batches: list[StagedBatch], runs: tuple[RecordRun, ...]) -> None:
        """Look at what writers put into the staging area themselves, or before a restart."""
        if self._staging.are_proven(batches):
            return
        try:
            self._store.inspect_runs(runs)
        except MalformedRecord as error:
            raise StagingRefused(f"the staged records cannot be published: {error}") from error
        self._proofs.check(runs)

    def _next_offsets(
        self, runs: tuple[RecordRun, ...], *, is_checked: bool = False
    ) -> dict[tuple[str, int], int]:
        queues = {queue for run in runs for queue in run.queues}
        if not is_checked:
            # A topic may have been deleted or closed since its records were staged.
            self._staging.check_queues(queues)
        named = ((topic.decode("latin-1"), queue_id) for topic, queue_id in sorted(queues))
        return {queue: self._store.next_offset(*queue) for queue in named}

    def _begin(self, note: SinkNote, result: PutResult, batches: list[StagedBatch]) -> None:
        self._hold(note.identity.sink)
        self._store.when_durable(result, partial(self._settled, note, result, batches))

    def _settled(
        self,
        note: SinkNote,
        result: PutResult,
        batches: list[StagedBatch],
        error: BaseException | None,
    ) -> None:
        """The group is durable, or the store is fenced and only recovery can say."""
        identity = note.identity
        pending = self._pending.pop(identity.sink)
        if error is None:
            sink = self._batches.find(identity.sink)
            replaced = sink.prepared if sink is not None else None
            self._batches.enter(
                note, result.queue_offset, result.position, result.end_position,
                result.store_timestamp,
            )  # fmt: skip
            if note.kind == PREPARE_NOTE:
                kept = {part.staging_id for part in note.parts}
                self._store.staging.keep(kept)
                self._staging.release(kept)
                old = replaced.parts if replaced is not None else ()
                self._staging.drop(p.staging_id for p in old if p.staging_id not in kept)
            self._staging.published(batch.staging_id for batch in batches)
            self._promise_no_more({part.staging_id for part in note.parts})
            if note.kind in (BATCH_NOTE, PART_NOTE):
                self._staging.sweep(identity.sink, identity.batch)
            if self._batches.is_current(identity):
                # Earlier runs are fenced. What they staged must not take room from others.
                self._staging.drop_other_runs(identity.sink, identity.run, self._promised)
        if not pending.done():
            pending.set_result(None)

    async def _durable(self, result: PutResult) -> None:
        """Wait for what the store promises about groups; raise if it cannot keep it."""
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
    """Two brokers that decided would each publish a batch that the other one has."""
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
    """For an attempt: no other one ever has it."""
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
