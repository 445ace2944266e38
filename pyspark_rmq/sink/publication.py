"""The driver's part of a batch: publish the parts that its tasks staged, or abort them."""

from __future__ import annotations

import hashlib
import json
import logging
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from broker_core import BatchIdentity, ClientInstance, SinkClient, errors
from pyspark_rmq.connections import connect
from pyspark_rmq.sink.batch_log import Offsets, SinkBatch, note_batch
from pyspark_rmq.sink.guarantee import keep_guarantee
from pyspark_rmq.sink.inner_writes import only_write, second_write
from pyspark_rmq.sink.query_state import QueryState, checkpoint_path
from pyspark_rmq.sink.sink_options import EXACTLY_ONCE, SinkOptions
from pyspark_rmq.sink.task.result import JOBS, TaskResult, joined_ranges

_log = logging.getLogger(__name__)
_ABORT_TIMEOUT_S: Final = 20.0
_SETTLED_FOR_S: Final = 30.0
_SETTLED_MAX: Final = 64
_DIGEST_MODULUS: Final = 1 << 64


def publish_batch(options: SinkOptions, results: Sequence[TaskResult]) -> None:
    """Make the whole batch visible, once. Safe to repeat, also in another process."""
    if not results:
        return
    task = results[0].identity
    if not task.once:
        state = _state(options, task.batch_identity)
        keep_guarantee(state, options, task.sink, results[0].guarantee)
    if results[0].guarantee == EXACTLY_ONCE:
        connected = connect(options.connection)
        identity = batch_identity(options, results)
        if any(result.parts for result in results):
            with only_write(options, task):
                publishing = _publish(connected.client, options, identity, results, task.is_inner)
                connected.call(publishing)
        elif not task.once:
            connected.call(_complete(connected.client, options, identity))
        return
    offsets: Offsets = {}
    for queue, (first, after, _) in joined_ranges(result.ranges for result in results).items():
        of_broker = offsets.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
        of_broker[queue.queue_id] = first, after
    note_batch(_noted(results, offsets, is_repeat=False))


def abort_batch(options: SinkOptions, results: Sequence[TaskResult]) -> None:
    """Have the brokers drop the parts; a published batch stays visible."""
    parts = [part for result in results for part in result.parts]
    if not parts:
        return
    connected = connect(options.connection)
    sink = SinkClient(connected.client, retry_for_ms=options.retry_for_ms)
    try:
        dropped = connected.call(sink.abort(parts), _ABORT_TIMEOUT_S)
    except errors.RmqError as error:
        _log.warning("%d staged parts are left to expire: %s", len(parts), error)
        return
    _log.info("batch %d is aborted, %d parts dropped", results[0].identity.batch, dropped)


def batch_identity(options: SinkOptions, results: Sequence[TaskResult]) -> BatchIdentity:
    """The batch of these tasks, with its content; raises if they belong to several batches."""
    found = {result.identity.batch_identity for result in results}
    if len(found) != 1:
        raise errors.InvalidArgument(f"tasks of different batches: {sorted(found)}")
    [identity] = found
    return identity._replace(content=batch_content(options.checkpoint, results))


def batch_content(checkpoint: str, results: Sequence[TaskResult]) -> str:
    """Description of the batch by which brokers tell a repeat from another batch of this number.

    Contains a hash of the offset range that Spark wrote to the checkpoint before the batch began,
    if that can be read: it is the same for every repeat, and different after a checkpoint was
    restored or removed. Always contains the number of rows, their bytes and a digest that does not
    depend on how rows are split into tasks and queues. For jobs with a `batchId` also a hash of the
    topics.
    """
    rows = sum(result.row_count for result in results)
    size = sum(result.size for result in results)
    digest = sum(result.digest for result in results) % _DIGEST_MODULUS
    content = f"rows:{rows}:{size}:{digest:016x}"
    offsets_file = _offsets_path(checkpoint, results[0].identity.batch)
    if offsets_file is not None:
        try:
            planned = hashlib.sha256(offsets_file.read_bytes()).hexdigest()[:32]
        except OSError:
            _log.debug("%s cannot be read", offsets_file)
        else:
            content = f"offsets:{planned} {content}"
    if results[0].identity.query == JOBS:
        content = f"{content} topics:{_topics(results)}"
    return content


def _topics(results: Sequence[TaskResult]) -> str:
    """Hash of the rows of each topic. Two jobs with one batchId may differ in nothing else."""
    rows: Counter[str] = Counter()
    for result in results:
        rows.update(dict(result.topic_rows))
    return hashlib.sha256(json.dumps(sorted(rows.items())).encode()).hexdigest()[:16]


def _offsets_path(checkpoint: str, batch: int) -> Path | None:
    folder = checkpoint_path(checkpoint)
    return None if folder is None else folder / "offsets" / str(batch)


async def _publish(
    client: ClientInstance,
    options: SinkOptions,
    identity: BatchIdentity,
    results: Sequence[TaskResult],
    is_inner: bool,
) -> None:
    sink = SinkClient(client, retry_for_ms=options.retry_for_ms)
    parts = [part for result in results for part in result.parts]
    used = {part.broker_name for part in parts}
    coordinator = await _coordinator(sink, options, identity, used)
    if is_inner:
        await _refuse_second_write(sink, identity, coordinator)
    try:
        answer = await sink.publish(identity, parts, coordinator)
    except errors.RmqError:
        _settled.forget(client, identity.sink)
        raise
    offsets: Offsets = {}
    for broker, topics in answer.offsets.items():
        for topic, queues in topics.items():
            offsets.setdefault(topic, {})[broker] = queues
    note_batch(_noted(results, offsets, is_repeat=answer.is_repeat))


async def _complete(client: ClientInstance, options: SinkOptions, identity: BatchIdentity) -> None:
    """This attempt has no rows. Complete the parts of an earlier attempt that had some.

    An empty batch is not published. But if the driver died before every broker had published its
    parts, only a repeat of that batch completes them.
    """
    if _settled.find(client, identity, set()):
        # Not the first batch of this run, so it is no repeat.
        return
    sink = SinkClient(client, retry_for_ms=options.retry_for_ms)
    expected = _state(options, identity).read().coordinator
    coordinator = await sink.known_coordinator(identity.sink, await sink.masters(), expected)
    _settled.note(client, identity, coordinator or _NOWHERE, ())
    if not coordinator:
        return
    if (await sink.status(identity.sink, coordinator)).batch == identity.batch:
        await sink.publish(identity._replace(content=""), (), coordinator)


class _SettledCoordinators:
    """Coordinators of sinks. Entries expire, because brokers may join."""

    def __init__(self) -> None:
        self._by_client: weakref.WeakKeyDictionary[
            ClientInstance, dict[str, tuple[str, str, frozenset[str], float]]
        ] = weakref.WeakKeyDictionary()

    def find(self, client: ClientInstance, identity: BatchIdentity, used: set[str]) -> str:
        """The coordinator; empty when brokers have to be asked."""
        run, name, told, at = self._by_client.get(client, {}).get(identity.sink, _NOT_SETTLED)
        is_fresh = client.clock.monotonic() - at < _SETTLED_FOR_S
        return name if run == identity.run and is_fresh and used <= told else ""

    def note(
        self, client: ClientInstance, identity: BatchIdentity, name: str, told: Iterable[str]
    ) -> None:
        """Cache the coordinator; the brokers in `told` have recorded it."""
        known = self._by_client.setdefault(client, {})
        known.pop(identity.sink, None)
        known[identity.sink] = identity.run, name, frozenset(told), client.clock.monotonic()
        while len(known) > _SETTLED_MAX:
            del known[next(iter(known))]

    def forget(self, client: ClientInstance, sink: str) -> None:
        """Ask brokers again next time."""
        self._by_client.get(client, {}).pop(sink, None)


_settled = _SettledCoordinators()
# No broker knows the sink.
_NOWHERE: Final = "-"
_NOT_SETTLED: Final[tuple[str, str, frozenset[str], float]] = ("", "", frozenset(), 0.0)


async def _coordinator(
    sink: SinkClient, options: SinkOptions, identity: BatchIdentity, used: set[str]
) -> str:
    """The coordinator of the sink; the batch may have no rows there.

    Waits for the coordinator and for brokers that have rows of the batch. Other brokers are asked
    and notified if they answer at once.
    """
    if identity.once:
        # The sink has no other batch, so any broker may decide.
        return min(used)
    known = _settled.find(sink.client, identity, used)
    if known:
        return known
    state = _state(options, identity)
    expected = state.read().coordinator
    name = await sink.settle_coordinator(
        identity, used, others=await sink.masters(), expected=expected
    )
    if name != expected:
        # Before the first decision: the next driver must find it, even if that broker is gone.
        state.write(coordinator=name)
    _settled.note(sink.client, identity, name, used)
    return name


def _state(options: SinkOptions, identity: BatchIdentity) -> QueryState:
    # All jobs with a batchId have one name, which identifies none of them.
    query = "" if identity.query == JOBS else identity.query
    return QueryState(options.checkpoint, identity.sink, query)


async def _refuse_second_write(sink: SinkClient, identity: BatchIdentity, coordinator: str) -> None:
    status = await sink.status(identity.sink, coordinator)
    if (status.batch, status.published_by) == (identity.batch, identity.run):
        raise second_write(identity.sink, identity.batch)


def _noted(results: Sequence[TaskResult], offsets: Offsets, *, is_repeat: bool) -> SinkBatch:
    task = results[0].identity
    return SinkBatch(
        task.sink,
        task.batch,
        results[0].guarantee,
        sum(result.row_count for result in results),
        sum(result.size for result in results),
        sum(result.oversize_count for result in results),
        sum(result.retry_count for result in results),
        is_repeat,
        offsets,
    )
