"""What the driver does about a batch: publish exactly what its tasks staged, or drop it."""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from broker_core import BatchIdentity, ClientInstance, SinkClient, errors
from pyspark_rmq.connections import connect
from pyspark_rmq.sink.batch_log import Offsets, SinkBatch, note_batch
from pyspark_rmq.sink.query_state import QueryState, checkpoint_path
from pyspark_rmq.sink.sink_options import EXACTLY_ONCE, SinkOptions
from pyspark_rmq.sink.task_result import TaskResult, joined_ranges

_log = logging.getLogger(__name__)
_ABORT_TIMEOUT_S: Final = 20.0
_SETTLED_FOR_S: Final = 30.0
_SETTLED_MAX: Final = 64
_DIGEST_MODULUS: Final = 1 << 64


def publish_batch(options: SinkOptions, results: Sequence[TaskResult]) -> None:
    """Make the batch visible, all of it and once. Safe to repeat, also by another process."""
    if not results:
        return
    who = results[0].identity
    if results[0].guarantee == EXACTLY_ONCE:
        connected = connect(options.connection)
        identity = batch_identity(options, results)
        if any(result.staged for result in results):
            publishing = _publish(connected.client, options, identity, results, who.is_inner)
            connected.call(publishing)
        elif not who.once:
            connected.call(_complete(connected.client, options, identity))
        return
    offsets: Offsets = {}
    for queue, (first, after, _) in joined_ranges(result.ranges for result in results).items():
        of_broker = offsets.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
        of_broker[queue.queue_id] = first, after
    note_batch(_noted(results, offsets, is_repeat=False))


def drop_batch(options: SinkOptions, results: Sequence[TaskResult]) -> None:
    """Have the brokers forget what was staged; what is published already stays."""
    staged = [part for result in results for part in result.staged]
    if not staged:
        return
    connected = connect(options.connection)
    sink = SinkClient(connected.client, retry_for_ms=options.retry_for_ms)
    try:
        dropped = connected.call(sink.abort(staged), _ABORT_TIMEOUT_S)
    except errors.RmqError as error:
        _log.warning("%d staged parts are left to expire: %s", len(staged), error)
        return
    _log.info("batch %d is given up, %d parts dropped", results[0].identity.batch, dropped)


def batch_identity(options: SinkOptions, results: Sequence[TaskResult]) -> BatchIdentity:
    """The identity of the batch that these tasks are of; raises when they are of several."""
    found = {result.identity.of_batch for result in results}
    if len(found) != 1:
        raise errors.InvalidArgument(f"tasks of different batches: {sorted(found)}")
    [identity] = found
    return identity._replace(content=batch_content(options.checkpoint, results))


def batch_content(checkpoint: str, results: Sequence[TaskResult]) -> str:
    """What tells a repeated batch from another one of the same number, for brokers to compare.

    The range that Spark wrote down for the batch before it began is the best there is: it is the
    same for every repeat, whatever the query makes of it, and another one after a checkpoint was
    restored or removed. Where it cannot be read, the rows themselves are compared: their number,
    their bytes and a digest that does not depend on how they are split into tasks and queues.
    """
    rows = sum(result.row_count for result in results)
    size = sum(result.size for result in results)
    digest = sum(result.digest for result in results) % _DIGEST_MODULUS
    content = f"rows:{rows}:{size}:{digest:016x}"
    written_down = _offsets_path(checkpoint, results[0].identity.batch)
    if written_down is not None:
        try:
            planned = hashlib.sha256(written_down.read_bytes()).hexdigest()[:32]
        except OSError:
            _log.debug("%s cannot be read", written_down)
        else:
            content = f"offsets:{planned} {content}"
    return content


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
    staged = [part for result in results for part in result.staged]
    used = {part.broker_name for part in staged}
    coordinator = await _coordinator(sink, options, identity, used)
    if is_inner:
        await _refuse_second_write(sink, identity, coordinator)
    try:
        answer = await sink.publish(identity, staged, coordinator)
    except errors.RmqError:
        _settled.forget(client, identity.sink)
        raise
    offsets: Offsets = {}
    for broker, topics in answer.offsets.items():
        for topic, queues in topics.items():
            offsets.setdefault(topic, {})[broker] = queues
    note_batch(_noted(results, offsets, is_repeat=answer.is_repeat))


async def _complete(client: ClientInstance, options: SinkOptions, identity: BatchIdentity) -> None:
    """An empty batch, which nobody has to note: but it may repeat one that had rows.

    If the driver died before every broker had published its part, nobody else will see to it.
    """
    if _settled.find(client, identity, set()):
        # Not the first batch of this run, so it repeats none.
        return
    sink = SinkClient(client, retry_for_ms=options.retry_for_ms)
    expected = QueryState(options.checkpoint, identity.sink).read().coordinator
    coordinator = await sink.known_coordinator(identity.sink, await sink.masters(), expected)
    _settled.note(client, identity, coordinator or _NOWHERE, ())
    if not coordinator:
        return
    if (await sink.status(identity.sink, coordinator)).batch == identity.batch:
        await sink.publish(identity._replace(content=""), (), coordinator)


class _SettledCoordinators:
    """Who decides about which sink, asked anew now and then: brokers may join."""

    def __init__(self) -> None:
        self._by_client: weakref.WeakKeyDictionary[
            ClientInstance, dict[str, tuple[str, str, frozenset[str], float]]
        ] = weakref.WeakKeyDictionary()

    def find(self, client: ClientInstance, who: BatchIdentity, used: set[str]) -> str:
        """Empty when brokers have to be asked."""
        run, name, told, at = self._by_client.get(client, {}).get(who.sink, _NOT_SETTLED)
        is_fresh = client.clock.monotonic() - at < _SETTLED_FOR_S
        return name if run == who.run and is_fresh and used <= told else ""

    def note(
        self, client: ClientInstance, who: BatchIdentity, name: str, told: Iterable[str]
    ) -> None:
        """All of `told` know."""
        known = self._by_client.setdefault(client, {})
        known.pop(who.sink, None)
        known[who.sink] = who.run, name, frozenset(told), client.clock.monotonic()
        while len(known) > _SETTLED_MAX:
            del known[next(iter(known))]

    def forget(self, client: ClientInstance, sink: str) -> None:
        """Something went wrong: ask next time."""
        self._by_client.get(client, {}).pop(sink, None)


_settled = _SettledCoordinators()
# No broker knows the sink.
_NOWHERE: Final = "-"
_NOT_SETTLED: Final[tuple[str, str, frozenset[str], float]] = ("", "", frozenset(), 0.0)


async def _coordinator(
    sink: SinkClient, options: SinkOptions, identity: BatchIdentity, used: set[str]
) -> str:
    """The broker that decides, which may be one that this batch does not go to.

    Brokers that have rows of the batch are waited for, and the one that decides; all others are
    asked and told if they answer at once.
    """
    if identity.once:
        # Nothing was published before, so any of them may.
        return min(used)
    known = _settled.find(sink.client, identity, used)
    if known:
        return known
    state = QueryState(options.checkpoint, identity.sink)
    expected = state.read().coordinator
    name = await sink.settle_coordinator(
        identity, used, others=await sink.masters(), expected=expected
    )
    if name != expected:
        # Before the first decision: whoever comes next must find it, even if that broker is gone.
        state.write(coordinator=name)
    _settled.note(sink.client, identity, name, used)
    return name


async def _refuse_second_write(sink: SinkClient, identity: BatchIdentity, coordinator: str) -> None:
    status = await sink.status(identity.sink, coordinator)
    if (status.batch, status.published_by) == (identity.batch, identity.run):
        raise errors.InvalidArgument(
            f"batch {identity.batch} of sinkId {identity.sink} was written by this run already:"
            " give every write inside foreachBatch a sinkId of its own"
        )


def _noted(results: Sequence[TaskResult], offsets: Offsets, *, is_repeat: bool) -> SinkBatch:
    who = results[0].identity
    return SinkBatch(
        who.sink,
        who.batch,
        results[0].guarantee,
        sum(result.row_count for result in results),
        sum(result.size for result in results),
        sum(result.oversize_count for result in results),
        sum(result.retry_count for result in results),
        is_repeat,
        offsets,
    )
