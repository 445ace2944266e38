"""Publishes staged batches of sinks, each exactly once.

One operation of a sink at a time: judge, append one group with its note, wait until it is durable,
enter it into the table. Whoever asks about the same sink meanwhile waits and is judged afterwards,
so two requests for one batch can never both publish. The append itself is one step of the event
loop; what follows happens in a callback of the store, whether or not somebody still waits for the
answer.
"""

from __future__ import annotations

import asyncio
from functools import partial

from broker_core.broker.broker_stats import BrokerStats
from broker_core.broker.sink_batches import PublishedBatch, SinkBatches
from broker_core.broker.sink_staging import SinkStaging
from broker_core.codec.sink_messages import (
    BATCH_NOTE,
    RUN_NOTE,
    BatchIdentity,
    OffsetRanges,
    Publication,
    PublishAnswer,
    SinkNote,
    encode_note,
)
from broker_core.errors import RemoteError, StagingRefused
from broker_core.protocol_codes import PutStatus, ResponseCode
from broker_core.storage.commit_log import TemplateRun
from broker_core.storage.staging import StagedBatch
from broker_core.store.message_store import MessageStore
from broker_core.store.put_result import PutResult

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
    ) -> None:
        self._store = store
        self._batches = batches
        self._staging = staging
        self._stats = stats
        # Sink -> set once its operation is durable, or never will be
        self._pending: dict[str, asyncio.Future[None]] = {}

    async def announce(self, identity: BatchIdentity) -> None:
        """A run begins to stage: from now on earlier runs of the sink are refused.

        Durable before anything is staged; a batch job has one run only and needs no such mark.
        """
        await self._turn(identity.sink)
        self._batches.check_run(identity)
        if not identity.once and not self._batches.is_current(identity):
            await self._take_over(identity)

    async def publish(self, asked: Publication) -> PublishAnswer:
        """Publish the batch, or say that it was published before.

        Raises what `SinkBatches.judge` raises, `StagingRefused`, or what a send would raise.
        """
        identity = asked.identity
        await self._turn(identity.sink)
        known = self._batches.judge(identity)
        if known is not None:
            return await self._repeated(asked, known)
        batches = self._staging.batches(identity, asked.parts)
        note = SinkNote(BATCH_NOTE, identity)
        with self._store.staging.open_runs(batches) as runs:
            before = self._next_offsets(runs)
            result = _stored(self._store.append_group(runs, encode_note(note)))
        ranges = {
            queue: (first, self._store.next_offset(*queue)) for queue, first in before.items()
        }
        self._store.staging.claim(batches)
        self._begin(note, result, batches)
        await self._durable(result)
        self._count(ranges, result)
        return PublishAnswer(False, identity.batch, _by_topic(ranges))

    # Inside

    async def _turn(self, sink: str) -> None:
        while (pending := self._pending.get(sink)) is not None:
            await asyncio.wait((pending,))

    async def _take_over(self, identity: BatchIdentity) -> None:
        note = SinkNote(RUN_NOTE, identity._replace(batch=-1, content=""))
        result = _stored(self._store.append_group((), encode_note(note)))
        self._begin(note, result, [])
        await self._durable(result)

    async def _repeated(self, asked: Publication, known: PublishedBatch) -> PublishAnswer:
        self._staging.drop(part.staging_id for part in asked.parts)
        if not asked.identity.once and not self._batches.is_current(asked.identity):
            await self._take_over(asked.identity)
        # Its first answer may have been "stored, but not on the slave yet".
        await self._durable(PutResult(PutStatus.PUT_OK, end_position=known.end))
        ranges = self._store.group_ranges(known.position, known.end)
        return PublishAnswer(True, known.batch, _by_topic(ranges))

    def _next_offsets(self, runs: tuple[TemplateRun, ...]) -> dict[tuple[str, int], int]:
        queues = {queue for run in runs for queue in run.queues}
        # A topic may have been deleted or closed since its records were staged.
        self._staging.check_queues(queues)
        named = ((topic.decode("latin-1"), queue_id) for topic, queue_id in sorted(queues))
        return {queue: self._store.next_offset(*queue) for queue in named}

    def _begin(self, note: SinkNote, result: PutResult, batches: list[StagedBatch]) -> None:
        sink = note.identity.sink
        self._pending[sink] = asyncio.get_running_loop().create_future()
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
            self._batches.enter(
                note, result.queue_offset, result.position, result.end_position,
                result.store_timestamp,
            )  # fmt: skip
            self._staging.drop(batch.staging_id for batch in batches)
            if note.kind == BATCH_NOTE:
                self._staging.sweep(identity.sink, identity.batch)
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


def _stored(result: PutResult) -> PutResult:
    """Raise unless the group is in the log."""
    if result.ok:
        return result
    if result.status is PutStatus.MESSAGE_ILLEGAL:
        raise StagingRefused(f"the staged records cannot be published: {result.remark}")
    code = result.status.response_code
    raise RemoteError.for_code(code if code else ResponseCode.SYSTEM_ERROR, result.remark)


def _by_topic(ranges: _Ranges) -> OffsetRanges:
    found: OffsetRanges = {}
    for (topic, queue_id), pair in sorted(ranges.items()):
        found.setdefault(topic, {})[queue_id] = pair
    return found
